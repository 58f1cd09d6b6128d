"""The usage of one answer of the Responses API: which object counts, and which of its figures (R-U2, R-U3, R-U7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..counters import counter
from ..usage import Usage
from ..usage_meter import RunningTotals, are_odd, part_of, reported_nanos

if TYPE_CHECKING:
    from collections.abc import Mapping

_INPUT: Final = "input_tokens"
_OUTPUT: Final = "output_tokens"
_READ: Final = "cached_tokens"
_WRITE: Final = "cache_write_tokens"
_REASONING: Final = "reasoning_tokens"


class ResponsesUsage:
    """The running usage: the last object with both counts wins, but for the zeros of bridges."""

    __slots__ = ("_raw", "_totals")

    def __init__(self) -> None:
        """Start with nothing told."""
        self._raw: Mapping[str, Any] = {}
        self._totals = RunningTotals((_INPUT, _READ, _WRITE), _OUTPUT)

    @property
    def is_final(self) -> bool:
        """Say whether the output was told with the status that ends the response."""
        return self._totals.output_is_final

    def take(self, usage: object, *, at_stop: bool, source: bytes | bytearray) -> bool:
        """Take a usage object; return whether a figure became another one. Null and a partial one say nothing.

        `source` is the JSON text that told it: a count that is there but odd makes it no partial one.
        """
        if not isinstance(usage, dict):
            return False
        silent = [name for name in (_INPUT, _OUTPUT) if usage.get(name) is None]
        if silent and not are_odd(silent, source):
            return False
        figures = _figures(usage)
        if figures[_INPUT] is None and figures[_OUTPUT] is None:
            return False
        before, self._raw = self._totals.changes, usage
        counted = self._totals.take(figures, at_stop=at_stop)
        if counted.output:
            self._totals.remember(_REASONING, figures[_REASONING])
        return before != self._totals.changes

    def usage(self) -> Usage | None:
        """Return the figures told so far, zeros included; `None` when nothing was told."""
        get = self._totals.get
        if get(_INPUT) is None and get(_OUTPUT) is None:
            return None
        return Usage(
            input_tokens=get(_INPUT),
            output_tokens=get(_OUTPUT),
            cache_read_tokens=get(_READ),
            cache_write_tokens=get(_WRITE),
            reasoning_tokens=get(_REASONING),
        )

    def reported_nanos(self) -> int | None:
        """Return the money that the server itself reports."""
        return reported_nanos(self._raw)


def _figures(usage: Mapping[str, Any]) -> dict[str, int | None]:
    return {
        _INPUT: counter(usage.get(_INPUT)),
        _OUTPUT: counter(usage.get(_OUTPUT)),
        _READ: _cache_reads(usage),
        _WRITE: part_of(usage, "input_tokens_details", _WRITE),
        _REASONING: part_of(usage, "output_tokens_details", _REASONING),
    }


def _cache_reads(usage: Mapping[str, Any]) -> int | None:
    """Read the cache reads from the first place that tells them: some servers put them beside the totals."""
    told = part_of(usage, "input_tokens_details", _READ)
    for name in (_READ, "prompt_cache_hit_tokens"):
        told = counter(usage.get(name)) if told is None else told
    return told
