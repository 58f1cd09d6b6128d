"""Read the answer of an embedding endpoint: vectors and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..counters import counter
from ..embeddings import Embeddings, NotAVector, read_vectors
from ..lenient import word
from ..usage import Usage
from ..usage_meter import reported_nanos
from .document import DocumentAccumulator

if TYPE_CHECKING:
    from array import array

    from ..answers import Answer
    from ..errors import Failure

_MOST_DIGITS: Final = 19  # of an int64


class EmbeddingForm(msgspec.Struct, frozen=True, kw_only=True):
    """How one provider writes vectors down. Pure functions of its document."""

    vectors: Callable[[Mapping[str, object]], list[object] | None]
    """Return the vectors in the order of the inputs, unread; `None` if the document has none. May raise NotAVector,
    with a whole sentence."""
    usage: Callable[[Mapping[str, object]], int | None]
    """Return the input tokens that the document tells."""
    model: str = "model"
    """The member that names the model that served."""
    id: str = "id"
    """The member with the provider's id of the answer."""
    tokens_header: str | None = None
    """The header that tells the input tokens, where the document may not."""


class EmbeddingAccumulator(DocumentAccumulator):
    """Read one batch of vectors.

    A body with status 200 is bought, whatever is wrong with it. The vectors are read at its end, on the event loop:
    about 20 ns for each component that came as base64, and 60 ns for one that came as a number.
    """

    def __init__(
        self,
        *args: Any,
        form: EmbeddingForm,
        expected: int,
        dimensions: int | None,
        revision: Callable[[int], str],
        **options: Any,
    ) -> None:
        """Expect so many vectors; `revision` names the space of vectors of so many components."""
        super().__init__(*args, **options)
        self._form = form
        self._expected = expected
        self._dimensions = dimensions
        self._revision = revision
        self._input_tokens: int | None = None
        self._cost_nanos: int | None = None
        self._values: list[object] | None = None
        self._complaint: str | None = None

    def hear(self, header: Callable[[str], str | None]) -> None:
        """Take the input tokens where the provider tells them in a header alone."""
        told = header(self._form.tokens_header) if self._form.tokens_header is not None else None
        if told is not None and told.isascii() and told.isdigit() and len(told) <= _MOST_DIGITS:
            self._input_tokens = counter(int(told))

    def _take_document(self, document: dict[str, object]) -> bool:
        self._take_members(document)
        try:
            self._values = self._form.vectors(document)
        except NotAVector as error:
            self._values, self._complaint = [], str(error)
        if self._values is None:
            return False
        self.generated = self._complete = True
        return True

    def _take_members(self, members: Mapping[str, object]) -> None:
        tokens = self._form.usage(members)
        if tokens is not None:
            self._input_tokens = tokens
        usage = members.get("usage")
        if isinstance(usage, dict):
            self._cost_nanos = reported_nanos(usage)
        self._model_served = word(members.get(self._form.model)) or None
        self._response_id = word(members.get(self._form.id)) or None

    def _usage(self) -> Usage | None:
        # The output is 0 as a fact and not as a guess: an embedding model generates no tokens.
        return None if self._input_tokens is None else Usage(input_tokens=self._input_tokens, output_tokens=0)

    def _usage_is_final(self) -> bool:
        return self._input_tokens is not None

    def _reported_nanos(self) -> int | None:
        return self._cost_nanos

    def _answer(self) -> Answer | Failure:
        if self._complaint is not None:
            return self._unusable(self._complaint)
        try:
            vectors = read_vectors(self._values or [], self._expected, self._dimensions)
        except NotAVector as error:
            return self._unusable(str(error))
        finally:
            self._values = None  # a hundred bytes for each component, for as long as the call is held
        return self._embeddings(vectors)

    def _embeddings(self, vectors: tuple[array[float], ...]) -> Embeddings:
        evidence = self._evidence()
        return Embeddings(
            vectors=vectors,
            revision=self._revision(len(vectors[0])),
            usage=evidence.usage,
            certainty=evidence.certainty,
            cost=evidence.cost,
            model_served=evidence.model_served,
            provider_response_id=evidence.response_id,
        )
