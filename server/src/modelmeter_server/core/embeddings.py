"""Texts as vectors in this service's own terms: the request, its checks, the answer. Pure."""

from __future__ import annotations

import base64
import math
import sys
from array import array
from enum import Enum, unique
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from .answers import Answer
from .errors import FieldViolation
from .journal import Effect
from .request_checks import MAX_VIOLATIONS, identity_violations, label_violations
from .requests import CallCeiling, Sensitivity
from .retry_policy import RetryAsk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .models import ModelSpec

MAX_INPUTS: Final = 2048
"""Texts of one batch: the most that any of the providers takes (OpenAI)."""
MAX_BYTES: Final = 8 * 1024 * 1024
"""UTF-8 bytes of all texts together: a multiple of the 300,000 tokens that OpenAI takes at once."""
MAX_DIMENSIONS: Final = 65_536
"""Components that can be asked for; the largest models give some thousands."""
LARGE_BYTES: Final = 1 << 20
"""Text that is planned beside the event loop, as for completions."""

_FLOAT_BYTES: Final = 4
_NUMBERS: Final = frozenset((int, float))  # by type and not by isinstance: a boolean is no number


@unique
class InputType(Enum):
    """What vectors are for."""

    QUERY = "query"
    DOCUMENT = "document"
    CLASSIFICATION = "classification"
    CLUSTERING = "clustering"
    SIMILARITY = "similarity"


class EmbeddingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of texts, as asked."""

    model: str
    """An alias, or `provider/model`."""
    call_id: str
    inputs: tuple[str, ...] = ()
    dimensions: int | None = None
    """`None`: as many components as the model gives by itself."""
    input_type: InputType | None = None
    provider_options_json: str = ""
    sensitivity: Sensitivity = Sensitivity.PUBLIC
    labels: dict[str, str] = {}
    effect: Effect | None = None
    ceiling: CallCeiling | None = None
    retry_policy: RetryAsk | None = None
    """`None`: as the model's policy says."""
    replay_only: bool = False


class Embeddings(Answer, frozen=True, kw_only=True):
    """The vectors of a batch with their bill: an answer whose content is no text."""

    text: str = ""
    vectors: tuple[array[float], ...] = ()
    """One for each input, in that order; 32-bit floats, all finite, all of one length."""
    revision: str = ""
    """Names everything known to change the vectors."""

    @property
    def dimensions(self) -> int:
        """Return the number of components of each vector."""
        return len(self.vectors[0]) if self.vectors else 0


class NotAVector(ValueError):
    """Report what a provider gave in place of a vector; the message goes on after "the vector of input 3"."""


def check_embedding(request: EmbeddingRequest) -> list[FieldViolation]:
    """Return every mistake that can be told without the provider, up to `MAX_VIOLATIONS`. No text is quoted."""
    return list(islice(_mistakes(request), MAX_VIOLATIONS))


def _mistakes(request: EmbeddingRequest) -> Iterator[FieldViolation]:
    yield from identity_violations(request.model, request.call_id)
    if not 1 <= len(request.inputs) <= MAX_INPUTS:
        yield FieldViolation("inputs", f"must be 1 to {MAX_INPUTS:,} texts")
    elif total_bytes(request) > MAX_BYTES:
        yield FieldViolation("inputs", f"must be at most {MAX_BYTES:,} bytes of UTF-8 together")
    for index, text in enumerate(request.inputs):
        if not text.strip():
            yield FieldViolation(f"inputs[{index}]", "must not be empty")
    if request.dimensions is not None and not 1 <= request.dimensions <= MAX_DIMENSIONS:
        yield FieldViolation("dimensions", f"must be 1 to {MAX_DIMENSIONS:,}")
    yield from label_violations(request.labels)


def total_bytes(request: EmbeddingRequest) -> int:
    """Return the UTF-8 bytes of all texts, as far as `MAX_INPUTS` goes."""
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in request.inputs[:MAX_INPUTS])


def is_large_batch(request: EmbeddingRequest) -> bool:
    """Tell whether planning the request would keep the event loop from everybody else for long."""
    return sum(map(len, request.inputs)) > LARGE_BYTES


def read_vector(value: object) -> array[float]:
    """Return a vector that came as a JSON array of numbers, or as base64 of little-endian 32-bit floats.

    Lost precision is fine, lost range is not: a component that becomes infinite as a 32-bit float is refused like one
    that came as such. Raises NotAVector.
    """
    if isinstance(value, str):
        vector = _from_base64(value)
    elif isinstance(value, list):
        vector = _from_numbers(value)
    else:
        msg = "is neither numbers nor base64"
        raise NotAVector(msg)
    if not vector:
        msg = "is empty"
        raise NotAVector(msg)
    # The sum is not finite if and only if a component is not: doubles have room for any sum of 32-bit floats. It is
    # ten times as fast as asking each.
    if not math.isfinite(sum(vector)):
        msg = "holds a component that is no finite 32-bit number"
        raise NotAVector(msg)
    if not any(vector):
        msg = "is all zeros, which points nowhere"
        raise NotAVector(msg)
    return vector


def _from_base64(text: str) -> array[float]:
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        data = b"?"
    if len(data) % _FLOAT_BYTES:
        msg = "is no base64 of 32-bit floats"
        raise NotAVector(msg)
    vector = array("f", data)
    if sys.byteorder == "big":
        vector.byteswap()
    return vector


def _from_numbers(values: list[object]) -> array[float]:
    if not _NUMBERS.issuperset(map(type, values)):
        msg = "holds something that is no number"
        raise NotAVector(msg)
    try:
        return array("f", values)  # type: ignore[arg-type]  # all of them are numbers, as was just seen
    except OverflowError:  # an integer beyond every float
        msg = "holds a component that is no finite 32-bit number"
        raise NotAVector(msg) from None


def read_vectors(values: list[object], expected: int, dimensions: int | None) -> tuple[array[float], ...]:
    """Return the vectors of a batch. Raises NotAVector, whose message is whole here."""
    if len(values) != expected:
        msg = f"the provider gave {len(values):,} vectors for {expected:,} inputs"
        raise NotAVector(msg)
    vectors: list[array[float]] = []
    for index, value in enumerate(values):
        try:
            vectors.append(read_vector(value))
        except NotAVector as error:
            msg = f"the vector of input {index} {error}"
            raise NotAVector(msg) from None
        wanted = dimensions or len(vectors[0])
        if len(vectors[-1]) != wanted:
            msg = f"the vector of input {index} has {len(vectors[-1]):,} components instead of {wanted:,}"
            raise NotAVector(msg)
    return tuple(vectors)


def revision(request: EmbeddingRequest, model: ModelSpec, dimensions: int) -> str:
    """Name everything that changes the vectors, so that those of two names are not compared by mistake.

    Such as `gemini:gemini-embedding-001@768/document`; options are named by a digest of their text.
    """
    name = f"{model.provider_kind}:{model.provider_model}@{dimensions}"
    if request.input_type is not None:
        name += f"/{request.input_type.value}"
    if request.provider_options_json:
        options = request.provider_options_json.encode("utf-8", "surrogatepass")
        name += f"#{blake2b(options, digest_size=4).hexdigest()}"
    return name
