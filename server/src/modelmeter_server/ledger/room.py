"""Whether the ceilings have room for a call, where its subjects stand, and which soft limits were passed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from modelmeter_server.core.ceilings import SOFT_LIMITS, Amount, Ceiling, Scope, Standing, Subject, Window
from modelmeter_server.core.reservation import Hold, clamp
from modelmeter_server.core.windows import part_at, parts_at, room_at

from .replies import SoftLimit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .books import Books
    from .commands import Reserve
    from .rows import Booking, CallRow, CeilingWindowRow


class Bound(NamedTuple):
    """One number of a ceiling, and what counts against it."""

    subject: Subject
    window: Window
    currency: str
    """Empty for tokens."""
    allowed: int
    settled: int
    held: int
    unsettled: int
    moved: int
    """What an earlier dispatch of the same call left in another window, and brings along."""
    room_at: int | None
    ceiling_id: str = ""
    """Empty for the call's own."""

    @property
    def room(self) -> int:
        """Return what a call may need at most; negative when even less than nothing is left."""
        return self.allowed - self.settled - self.held - self.unsettled - self.moved

    def standing(self, hold: Hold) -> Standing:
        """Return where the subject stands, with what a call would have needed."""
        return Standing(
            subject=self.subject,
            window=self.window,
            currency=self.currency,
            allowed=self.allowed,
            settled=self.settled,
            held=self.held,
            unsettled=self.unsettled,
            asked=asked_of(hold, self.currency) + self.moved,
            room_at=self.room_at,
            ceiling_id=self.ceiling_id,
        )


def asked_of(hold: Hold, currency: str) -> int:
    """Return what a hold needs of a bound in this currency, or in tokens."""
    return hold.nano_units if currency else hold.tokens


def bounds_for(books: Books, order: Reserve, model: str, run_id: str, row: CallRow | None) -> list[Bound]:
    """Return what bounds a call: the ceilings of its subjects, and its own. `row` is its earlier dispatch."""
    bounds = []
    for ceiling, about in books.accounts(order.call.tenant, run_id, model):
        bounds += _bounds_of(books, ceiling, about, order.at, row)
    if order.ceiling is not None:
        bounds += _own_bounds(order, order.ceiling, row)
    return bounds


def bounds_of_row(books: Books, row: CallRow, at: int) -> list[Bound]:
    """Return what bounds a call that runs, in the windows that it counts in; what is held for it is among the sums."""
    bounds = []
    for ceiling, about in books.accounts(row.tenant, row.run_id, row.model):
        bounds += _bounds_of(books, ceiling, about, moment_of(ceiling.window, row, at), None)
    return bounds


def moment_of(window: Window, row: CallRow, at: int) -> int:
    """Return the moment whose windows count for a call that runs: now, as long as what it booked is in one of them."""
    starts = {start for start, _ in parts_at(window, at)}
    return at if part_at(window, row.reserved_at)[0] in starts else row.reserved_at


def _bounds_of(books: Books, ceiling: Ceiling, about: Subject, at: int, row: CallRow | None) -> list[Bound]:
    window = ceiling.window
    starts = [start for start, _ in parts_at(window, at)]
    parts = [books.windows[ceiling.ceiling_id, about.name, start] for start in starts]
    counted = [part.starts_at for part in parts if _counts(part)]
    later = room_at(window, at, min(counted, default=None))
    is_moving = row is not None and part_at(window, row.reserved_at)[0] not in starts
    left = row.booking if row is not None and is_moving else None
    return [
        Bound(
            about,
            window,
            currency,
            allowed,
            *_sums(parts, unit),
            moved=_left(left, unit),
            room_at=later,
            ceiling_id=ceiling.ceiling_id,
        )
        for currency, allowed, unit in _numbers(ceiling)
    ]


def _numbers(ceiling: Ceiling) -> Iterator[tuple[str, int, str]]:
    """Yield the currency, empty for tokens, the number and the unit of each bound that a ceiling sets."""
    if ceiling.tokens is not None:
        yield "", ceiling.tokens, "tokens"
    if ceiling.nano_units is not None:
        yield ceiling.currency, ceiling.nano_units, "nanos"


def _counts(part: CeilingWindowRow) -> bool:
    return any(sum(_sums([part], unit)) for unit in ("tokens", "nanos"))


def _sums(parts: Iterable[CeilingWindowRow], unit: str) -> tuple[int, int, int]:
    settled = held = unsettled = 0
    for part in parts:
        if unit == "tokens":
            settled += part.settled_tokens
            held += part.held_tokens
            unsettled += part.unsettled_tokens
        else:
            settled += part.settled_nanos
            held += part.held_nanos
            unsettled += part.unsettled_nanos
    return settled, held, unsettled


def _left(booking: Booking | None, unit: str) -> int:
    if booking is None:
        return 0
    if unit == "tokens":
        return booking.settled_tokens + booking.unsettled_tokens
    return booking.settled_nanos + booking.unsettled_nanos


def _own_bounds(order: Reserve, own: Amount, row: CallRow | None) -> list[Bound]:
    about = Subject(order.call.tenant, Scope.CALL.value, order.call.call_id)
    earlier = row.booking if row is not None else None
    bounds = []
    if order.bounds_tokens:
        spent = (earlier.settled_tokens, 0, earlier.unsettled_tokens) if earlier else (0, 0, 0)
        bounds.append(Bound(about, Window(), "", own.tokens, *spent, 0, None))
    if order.bounds_money:
        spent = (earlier.settled_nanos, 0, earlier.unsettled_nanos) if earlier else (0, 0, 0)
        bounds.append(Bound(about, Window(), own.currency, own.nano_units, *spent, 0, None))
    return bounds


def fitted(hold: Hold, bounds: list[Bound], least_output: int | None) -> Hold | None:
    """Return the hold, or with `least_output` what is left of it, if all bounds have room for it; else `None`."""
    if all(asked_of(hold, bound.currency) <= bound.room for bound in bounds):
        return hold
    if least_output is None:
        return None
    return clamp(
        hold,
        least_output,
        tokens=min((bound.room for bound in bounds if not bound.currency), default=None),
        nano_units=min((bound.room for bound in bounds if bound.currency), default=None),
    )


def without_room(hold: Hold, bounds: list[Bound]) -> tuple[Standing, ...]:
    """Return the standings of all bounds that have no room for a hold."""
    return tuple(bound.standing(hold) for bound in bounds if asked_of(hold, bound.currency) > bound.room)


def passed_limits(books: Books, row: CallRow, at: int) -> tuple[SoftLimit, ...]:
    """Return the highest soft limit of each ceiling that was passed by a call for the first time in its window.

    A ROLLING window is looked at when calls are reserved in its newest step only: a settlement knows one step of it.
    """
    passed = []
    for ceiling, about in books.accounts(row.tenant, row.run_id, row.model):
        parts = [
            books.windows.get((ceiling.ceiling_id, about.name, start))
            for start, _ in parts_at(ceiling.window, at)
        ]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts) or not known:
            continue
        limit = _passed(ceiling, about, known)
        if limit is not None:
            known[-1].soft_limit = limit.percent
            books.touch_window(known[-1])
            passed.append(limit)
    books.soft_limits += passed
    return tuple(passed)


def _passed(ceiling: Ceiling, about: Subject, parts: list[CeilingWindowRow]) -> SoftLimit | None:
    bounds = [
        Bound(
            about,
            ceiling.window,
            currency,
            allowed,
            *_sums(parts, unit),
            moved=0,
            room_at=None,
            ceiling_id=ceiling.ceiling_id,
        )
        for currency, allowed, unit in _numbers(ceiling)
    ]
    told = max(part.soft_limit for part in parts)
    highest = max(bounds, key=_share, default=None)
    reached = _reached(highest) if highest is not None else 0
    if highest is None or reached <= told:
        return None
    return SoftLimit(
        ceiling_id=ceiling.ceiling_id,
        subject=about,
        window=ceiling.window,
        percent=reached,
        standing=msgspec.structs.replace(highest.standing(_NOTHING), asked=0),
    )


_NOTHING = Hold(input_tokens=0, output_tokens=0, tokens_per_second=0)


def _share(bound: Bound) -> tuple[int, float]:
    return _reached(bound), 1 - bound.room / bound.allowed if bound.allowed else 1.0


def _reached(bound: Bound) -> int:
    counted = bound.settled + bound.held + bound.unsettled
    if not counted:
        return 0
    return max((percent for percent in SOFT_LIMITS if counted * 100 >= percent * bound.allowed), default=0)
