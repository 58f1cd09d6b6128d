"""The deltas of one call with their numbers, for everyone who reads it, from the start or from where they left off."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from modelmeter_server.core.outcomes import Certainty
from modelmeter_server.core.tally import add_certainty, add_usage

if TYPE_CHECKING:
    from modelmeter_server.core.accumulators import Accumulator
    from modelmeter_server.core.answers import Delta
    from modelmeter_server.core.errors import Failure
    from modelmeter_server.core.usage import AdditionalUsage, Usage

    ToldUsage = tuple[Usage, tuple[AdditionalUsage, ...], Certainty]

LOG_CHARACTERS = 8 * 1024 * 1024
"""What is kept for readers that come late; of a longer answer they get the end, and the whole with the completion."""


class DeltaLog:
    """Number what the accumulator emits. A number is given once, and means the same to every reader."""

    def __init__(self, *, keeps: bool, limit: int = LOG_CHARACTERS) -> None:
        """`keeps`: others may read too, so that what one has read is not dropped."""
        self.usage: ToldUsage | None = None
        """What was told last, once any counter above 0 was."""
        self.usage_version = 0
        """Rises with each change of `usage`."""
        self._past: Failure | None = None
        self._keeps = keeps
        self._limit = limit
        self._entries: deque[Delta] = deque()
        self._dropped = 0
        self._size = 0

    @property
    def last(self) -> int:
        """Return the number of the newest delta, 0 before the first."""
        return self._dropped + len(self._entries)

    def pull(self, accumulator: Accumulator) -> None:
        """Take over what has come since."""
        for delta in accumulator.drain():
            self._entries.append(delta)
            self._size += _size(delta)
        while self._size > self._limit and len(self._entries) > 1:
            self._drop()
        if accumulator.usage_changed:
            accumulator.usage_changed = False
            self._take_usage(accumulator)

    def carry(self, past: Failure) -> None:
        """Let what is told of usage be the call's: `past` is what the attempts before the newest one came to."""
        self._past = past

    def after(self, position: int) -> tuple[int, list[Delta]]:
        """Return the number of the first delta after this position that is still there, and all from it on."""
        first = max(position, self._dropped)
        deltas = list(self._entries)[first - self._dropped :] if first < self.last else []
        if not self._keeps:
            while self._entries:
                self._drop()
        return first + 1, deltas

    def _drop(self) -> None:
        self._size -= _size(self._entries.popleft())
        self._dropped += 1

    def _take_usage(self, accumulator: Accumulator) -> None:
        usage, additional, certainty = accumulator.told_usage()
        if usage is None or certainty is Certainty.UNKNOWN:  # zeros alone are no news (R-U6)
            return
        past = self._past
        if past is not None:
            usage = add_usage(past.usage, usage) or usage
            additional = past.additional_usage + additional
            certainty = add_certainty(past.certainty, certainty)
        self.usage = (usage, additional, certainty)
        self.usage_version += 1


def _size(delta: Delta) -> int:
    return len(getattr(delta, "text", "")) + len(getattr(delta, "arguments_json", ""))
