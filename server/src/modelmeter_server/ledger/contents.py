"""What an outcome consists of, as it is kept: one JSON object with a version. Pure.

    {"v": 1, "answer": {...} | "failure": {...}, "attempts": [...], "vectors": {"revision": "...", "values": [...]}}

Vectors stand beside the answer that they belong to, each as Base64 of its little-endian 32-bit floats, so that they are
read as they were told, to the bit.

Fields that a later version adds are passed over by an earlier one; fields that an earlier one did not write have their
defaults. A prompt is never part of it.
"""

from __future__ import annotations

import base64
import sys
from array import array
from typing import Any

import msgspec

from modelmeter_server.core.answers import Answer
from modelmeter_server.core.calls import Attempt, CallOutcome
from modelmeter_server.core.embeddings import Embeddings
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.requests import Sensitivity
from modelmeter_server.core.text import well_formed

VERSION = 1
"""Rises when what is written can no longer be read by what came before."""


class ContentUnreadable(Exception):
    """The content is of a later version, or is no content at all."""


class Vectors(msgspec.Struct, frozen=True, kw_only=True):
    """The vectors of a batch."""

    revision: str
    values: tuple[str, ...]
    """Base64 of little-endian 32-bit floats, one for each input."""


class Content(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kept outcome; exactly one of answer and failure is there."""

    v: int
    """The version that wrote it."""
    answer: Answer | None = None
    failure: Failure | None = None
    """Without its provider's body, which is kept beside it."""
    attempts: tuple[Attempt, ...] = ()
    """The last ones, as the outcome told them."""
    vectors: Vectors | None = None
    """Of an embedding; the rest of it is the answer."""
    sensitivity: Sensitivity | None = None
    """How confidential the answer is."""

    @property
    def result(self) -> Answer | Failure:
        """Return what the call ended with."""
        if self.answer is not None:
            return self.answer if self.vectors is None else _embeddings(self.answer, self.vectors)
        if self.failure is None:
            message = "the content holds neither an answer nor a failure"
            raise ContentUnreadable(message)
        return self.failure


_decoder = msgspec.json.Decoder(Content)


def encode(outcome: CallOutcome) -> bytes:
    """Return the content of an outcome."""
    result = outcome.result
    if isinstance(result, Embeddings):
        bare_answer = Answer(**{name: getattr(result, name) for name in Answer.__struct_fields__})
        kept = Vectors(revision=result.revision, values=tuple(map(_base64, result.vectors)))
        content = Content(
            v=VERSION,
            answer=bare_answer,
            attempts=outcome.attempts,
            vectors=kept,
            sensitivity=outcome.sensitivity,
        )
    elif isinstance(result, Answer):
        content = Content(
            v=VERSION, answer=result, attempts=outcome.attempts, sensitivity=outcome.sensitivity
        )
    else:
        bare = msgspec.structs.replace(result, provider_body=b"", hosted_tools=())
        content = Content(v=VERSION, failure=bare, attempts=outcome.attempts)
    try:
        return msgspec.json.encode(content)
    except UnicodeEncodeError:  # half a character; a paid answer must not be lost to it
        return msgspec.json.encode(_mended(msgspec.to_builtins(content)))


def decode(data: bytes) -> Content:
    """Return a content. Raises ContentUnreadable."""
    try:
        content = _decoder.decode(data)
    except msgspec.DecodeError as error:
        message = f"the content cannot be read: {error}"
        raise ContentUnreadable(message) from None
    if content.v > VERSION:
        message = f"the content is of version {content.v}, and this server reads up to {VERSION}"
        raise ContentUnreadable(message)
    return content


def _base64(vector: array[float]) -> str:
    return base64.b64encode(_little_endian(vector).tobytes()).decode("ascii")


def _embeddings(answer: Answer, kept: Vectors) -> Embeddings:
    try:
        vectors = tuple(
            _little_endian(array("f", base64.b64decode(text, validate=True))) for text in kept.values
        )
    except ValueError as error:
        message = f"the vectors cannot be read: {error}"
        raise ContentUnreadable(message) from None
    fields = {name: getattr(answer, name) for name in Answer.__struct_fields__}
    return Embeddings(**fields, vectors=vectors, revision=kept.revision)


def _little_endian(vector: array[float]) -> array[float]:
    """Turn a vector between this machine's order of bytes and the little-endian one."""
    if sys.byteorder == "big":
        vector = vector[:]
        vector.byteswap()
    return vector


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list | tuple):
        return [_mended(each) for each in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(each) for key, each in value.items()}
    return value
