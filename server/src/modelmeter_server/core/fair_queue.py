"""Who is next among those who wait: parties in turn, and within a party the oldest whose way is free.

A party (a tenant) has lanes (its models). Within a lane nobody overtakes; between the lanes of a party the older one is
tried first, so that who waits for one model's room does not hold up who waits for another's. A party that was served
goes to the end of the turn; one that is blocked keeps its place, so that it is tried first the next time.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, unique
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Item = TypeVar("Item")


@unique
class Answer(Enum):
    """What becomes of one who is tried."""

    ADMITTED = 1
    BLOCKED = 2
    """Not this one; perhaps another."""
    FULL = 3
    """None at all, for now."""


class FairQueue(Generic[Item]):
    """Hold items in order of arrival, each under its party and lane."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self._parties: dict[str, dict[str, deque[tuple[int, Item]]]] = {}
        """In the order of the turn."""
        self._counts: dict[str, int] = {}
        self._length = 0
        self._arrived = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Item]:
        """Yield all, in no order that means anything."""
        for lanes in self._parties.values():
            for lane in lanes.values():
                for _, item in lane:
                    yield item

    def count(self, party: str) -> int:
        """Return how many of a party wait."""
        return self._counts.get(party, 0)

    def first(self, party: str, lane: str) -> Item | None:
        """Return who is first in a lane."""
        waiting = self._parties.get(party, {}).get(lane)
        return waiting[0][1] if waiting else None

    def push(self, party: str, lane: str, item: Item) -> None:
        """Let one wait behind the others of its lane."""
        self._arrived += 1
        lanes = self._parties.setdefault(party, {})
        lanes.setdefault(lane, deque()).append((self._arrived, item))
        self._counts[party] = self._counts.get(party, 0) + 1
        self._length += 1

    def remove(self, party: str, lane: str, item: Item) -> bool:
        """Let one wait no more; False when it did not."""
        waiting = self._parties.get(party, {}).get(lane, ())
        for entry in waiting:
            if entry[1] is item:
                waiting.remove(entry)  # type: ignore[union-attr]  # an empty tuple has no entry
                self._forget(party, lane)
                return True
        return False

    def newest_of_the_largest(self, party: str) -> Item | None:
        """Return who gives way to a newcomer of `party`: the newest of the party that has the most waiting.

        `None` when that would only put one in the place of another: no party has two more than this one.
        """
        largest = max(self._counts, key=lambda each: self._counts[each], default=party)
        if self.count(largest) < self.count(party) + 2:
            return None
        return max((lane[-1] for lane in self._parties[largest].values()), key=lambda entry: entry[0])[1]

    def serve(self, admit: Callable[[Item], Answer]) -> None:
        """Ask `admit` about one after another, in turn, until none of those in front is let in."""
        went_on = True
        while went_on:
            went_on = False
            for party in list(self._parties):
                answer = self._serve_one(party, admit)
                if answer is Answer.FULL:
                    return
                went_on = went_on or answer is Answer.ADMITTED

    def _serve_one(self, party: str, admit: Callable[[Item], Answer]) -> Answer:
        lanes = self._parties[party]
        heads = [(lane[0], name) for name, lane in lanes.items()]
        if len(heads) > 1:
            heads.sort(key=lambda head: head[0][0])
        for (_, item), name in heads:
            answer = admit(item)
            if answer is Answer.BLOCKED:
                continue
            if answer is Answer.ADMITTED:
                lanes[name].popleft()
                self._parties[party] = self._parties.pop(party)
                self._forget(party, name)
            return answer
        return Answer.BLOCKED

    def _forget(self, party: str, lane: str) -> None:
        """Drop what is empty now."""
        self._length -= 1
        self._counts[party] -= 1
        lanes = self._parties[party]
        if not lanes[lane]:
            del lanes[lane]
        if not lanes:
            del self._parties[party], self._counts[party]
