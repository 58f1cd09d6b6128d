"""Answers that always come as one JSON document and hold no text: what they share with the streams, and no more."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final

import msgspec

from ..stop_reasons import Stop
from ..verdict import Draft, judge
from .accumulator import Accumulator

if TYPE_CHECKING:
    from ..answers import Answer
    from ..errors import Failure

_NO_CALLS: Final[tuple[tuple[str, str, str], ...]] = ()


class DocumentAccumulator(Accumulator):
    """Read one JSON document. Subclasses take it, and say what it comes to."""

    def feed_event(self, name: str, data: bytes) -> None:
        """Take an event where a document was due: unless it is an error it was an answer, which nobody can read."""
        super().feed_event(name, data)
        self.generated = self.generated or self._error is None

    @property
    def _stop_reason(self) -> str | None:
        return None

    def _text(self) -> str:
        return ""

    def _reasoning(self) -> str:
        return ""

    def _open_calls(self) -> tuple[tuple[str, str, str], ...]:
        return _NO_CALLS

    def _forced_arguments(self) -> str | None:
        return None

    def _draft(self) -> Draft:
        return Draft(text="", stop=Stop.FINISHED, stop_reason="", evidence=self._evidence())

    def _conclude(self) -> Answer | Failure:
        return self._answer()

    @abstractmethod
    def _answer(self) -> Answer | Failure:
        """Return what the document comes to, once it was taken."""

    def _unusable(self, why: str) -> Answer | Failure:
        """Return the failure that keeps the bill of a document that cannot be used."""
        return judge(msgspec.structs.replace(self._draft(), refusal=why), self._expectation)
