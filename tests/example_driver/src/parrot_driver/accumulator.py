"""Parrot's answers: `word`, `bill` and `end` events or one JSON body in, what is known out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from modelmeter_server.drivers.plugin import (
    Accumulator,
    Draft,
    EventDecoder,
    RunningTotals,
    Stop,
    TextBuffer,
    TextDelta,
    Usage,
    word,
)

STOPS = {"said": Stop.FINISHED, "most": Stop.LENGTH, "hushed": Stop.WITHDRAWN}


class _Word(msgspec.Struct):
    text: str = ""


class _Bill(msgspec.Struct):
    bill: Any = None


class _End(msgspec.Struct):
    why: Any = None


_read_word = EventDecoder(_Word)
_read_bill = EventDecoder(_Bill)
_read_end = EventDecoder(_End)


class ParrotAccumulator(Accumulator):
    """Read one answer."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._said = TextBuffer()
        self._totals = RunningTotals(("heard",), "said")
        self._why: str | None = None
        self._handlers |= {"word": self._on_word, "bill": self._on_bill, "end": self._on_end}

    def _proves_generation(self, name: str) -> bool:
        return name in ("word", "end")

    def _on_word(self, data: bytes) -> None:
        event = _read_word(data)
        self.generated = True
        if piece := self._said.append(event.text):
            self._emit(TextDelta(piece))

    def _on_bill(self, data: bytes) -> None:
        self._take_bill(_read_bill(data).bill)

    def _take_bill(self, bill: object) -> None:
        if isinstance(bill, dict):
            self._totals.take(bill, at_stop=self._why is not None)
            self.usage_changed = True

    def _on_end(self, data: bytes) -> None:
        """The bill follows the end; without it the answer is whole all the same."""
        self._take_end(_read_end(data).why)
        self.awaits_tail = True

    def _take_end(self, why: object) -> None:
        self._why = word(why)
        self._complete = self.generated = True
        if rest := self._said.close():
            self._emit(TextDelta(rest))

    # What is known

    @property
    def _stop_reason(self) -> str | None:
        return self._why

    def _usage(self) -> Usage | None:
        heard, said = self._totals.get("heard"), self._totals.get("said")
        return None if heard is None and said is None else Usage(input_tokens=heard, output_tokens=said)

    def _usage_is_final(self) -> bool:
        return self._totals.output_is_final

    def _text(self) -> str:
        return str(self._said)

    def _reasoning(self) -> str:
        return ""

    def _open_calls(self) -> tuple[tuple[str, str, str], ...]:
        return ()

    def _forced_arguments(self) -> str | None:
        return None

    def _draft(self) -> Draft:
        return Draft(
            text=self._text(),
            stop=STOPS.get(self._why or "", Stop.UNRECOGNIZED),
            stop_reason=self._why or "",
            evidence=self._evidence(),
        )

    # One JSON body

    def _take_document(self, document: dict[str, object]) -> bool:
        self._said.append(word(document.get("text")))
        self._take_members(document)
        return self._complete

    def _take_members(self, members: Mapping[str, object]) -> None:
        if members.get("why"):
            self._take_end(members["why"])
        self._take_bill(members.get("bill"))
