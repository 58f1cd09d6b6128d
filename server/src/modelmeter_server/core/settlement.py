"""How the outcome of a call is booked: what is known to be spent, and the smallest bound on the rest.

    certainty                     settled            unsettled
    ----------------------------  -----------------  ------------------------------------------------------
    NONE                          nothing            nothing
    EXACT                         as told            nothing
    the provider said no          nothing            nothing; counted as possibly billed
    silence after it was written  nothing            the bound on its input, and what time allowed to generate
    told in part, or not at all   as told            the bound on what was not told

Time bounds the output only where closing the connection stops the bill; otherwise the whole reservation does. What
arrived as text was generated, however little time it took.
"""

from __future__ import annotations

from math import ceil

import msgspec

from .counters import saturating_add
from .outcomes import Certainty, Kind, Stage
from .pricing import TOKENS_PER_RATE, Cost, CostSource
from .reservation import MOST_NANOS, MOST_TOKENS, Hold
from .tally import add_certainty, add_costs, add_counters, add_usage
from .usage import AdditionalUsage, Usage


class Figures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was told about a call's consumption. JSON fields hold `msgspec.json` of the core's values."""

    usage_json: bytes = b""
    """A `core.usage.Usage`; empty when nothing was told."""
    additional_json: bytes = b""
    """A list of `core.usage.AdditionalUsage`; empty for none."""
    certainty: str = "UNKNOWN"
    input_tokens: int | None = None
    output_tokens: int | None = None
    tokens: int = 0
    """Input and output of usage and additional usage together; 0 when nothing was told."""
    nano_units: int | None = None
    currency: str = ""
    cost_source: str = ""
    cost_certainty: str = ""
    estimated_output_tokens: int | None = None


class Booking(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an amount is spread over the columns of the sums; all in tokens and in nano units of the call's currency."""

    settled_tokens: int = 0
    settled_nanos: int = 0
    held_tokens: int = 0
    held_nanos: int = 0
    unsettled_tokens: int = 0
    unsettled_nanos: int = 0
    written_off_tokens: int = 0
    written_off_nanos: int = 0
    possibly_billed: int = 0
    """1 for a call that the provider answered with an error before it generated: nothing is held for it."""

    @property
    def is_settled(self) -> bool:
        """Say whether nothing of it is held, waits for a figure or was given up."""
        return not any(
            (
                self.held_tokens,
                self.held_nanos,
                self.unsettled_tokens,
                self.unsettled_nanos,
                self.written_off_tokens,
                self.written_off_nanos,
            )
        )


class Tried(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the attempts of a call's newest dispatch came to that another one followed."""

    number: int
    """Of the last of them; what is booked for it and those before stands in `Carried.booking`."""
    figures: Figures
    """Of all together."""
    generated: bool = False
    kind: str = ""
    """What the call would have ended with, had its server died before the next one left; as what follows."""
    cause: str = ""
    stage: str = ""
    disposition: str = ""
    code: int = 0
    message: str = ""


class Carried(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What earlier dispatches and attempts left in a call's booking; a later one adds to it and never replaces it."""

    booking: Booking = Booking()
    input_tokens: int = 0
    output_tokens: int = 0
    tried: Tried | None = None
    """`None` when no attempt of the newest dispatch has been followed by another one."""
    resent: int = 0
    """The newest request that was sent anew, over another connection; what those before it may have cost is booked."""


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended, as far as its bill depends on it."""

    kind: str
    """Of the failure; empty for an answer."""
    generated: bool
    written: bool
    """Whether the provider had the whole request."""
    refused_by_provider: bool = False
    """Whether the provider answered with an error before it generated."""
    generating_seconds: float = 0.0
    """From the request's last byte to the end."""

    @property
    def is_finished(self) -> bool:
        """Say whether the provider told that it had stopped by itself; what was told by then is all there is."""
        return self.kind in _FINISHED


NOTHING = Booking()

_FINISHED = ("", Kind.UNUSABLE.value)
_EXACT, _NONE = Certainty.EXACT.value, Certainty.NONE.value
_AT_LEAST, _UNKNOWN = Certainty.AT_LEAST.value, Certainty.UNKNOWN.value
_RANKS = {_UNKNOWN: 0, _AT_LEAST: 1, _EXACT: 2, _NONE: 2}


def book(hold: Hold, figures: Figures, end: End) -> Booking:
    """Return what the sums and the ceilings hold of a call that has ended; see the table above."""
    certainty = figures.certainty
    if certainty == _NONE:
        return NOTHING
    if certainty == _EXACT:
        tokens, nanos = told(hold, figures)
        return Booking(settled_tokens=tokens, settled_nanos=nanos)
    if certainty == _AT_LEAST or end.generated or end.is_finished:
        return _book_generated(hold, figures, end)
    if not end.written:
        return NOTHING
    if end.refused_by_provider:
        return Booking(possibly_billed=1)
    return _bound(hold, hold.input_tokens, _most_output(hold, hold.output_tokens, end))


def _book_generated(hold: Hold, figures: Figures, end: End) -> Booking:
    tokens, nanos = told(hold, figures)
    input_rest = hold.input_tokens if figures.input_tokens is None else 0
    output = figures.output_tokens or 0
    seen = max(0, (figures.estimated_output_tokens or 0) - output)
    if figures.output_tokens is not None and end.is_finished:
        output_rest = 0
    else:
        output_rest = _most_output(hold, max(0, hold.output_tokens - output), end, seen)
    rest = _bound(hold, input_rest, output_rest)
    return msgspec.structs.replace(rest, settled_tokens=tokens, settled_nanos=nanos)


def _most_output(hold: Hold, rest: int, end: End, seen: int = 0) -> int:
    """Return the most that was generated of what the hold leaves; `seen` is what arrived of it as text."""
    if not (hold.abort_stops_billing or end.is_finished):
        return rest
    return min(rest, max(seen, ceil(max(0.0, end.generating_seconds) * hold.tokens_per_second)))


def _bound(hold: Hold, input_tokens: int, output_tokens: int) -> Booking:
    nanos = hold.input_nano_units if input_tokens else 0
    return Booking(
        unsettled_tokens=input_tokens + output_tokens,
        unsettled_nanos=nanos + -(-output_tokens * hold.output_rate // TOKENS_PER_RATE),
    )


def told(hold: Hold, figures: Figures) -> tuple[int, int]:
    """Return the tokens and the money that were told, neither above what a call can be booked with.

    Where no cost was told in the hold's currency, the told tokens cost what they cost at the hold's rates: an upper
    bound, because a ceiling must not leak through a cost in another currency.
    """
    tokens = min(figures.tokens, MOST_TOKENS)
    if figures.nano_units is not None and figures.currency == hold.currency:
        return tokens, min(figures.nano_units, MOST_NANOS)
    if not hold.currency or not figures.tokens:
        return tokens, 0
    read = figures.input_tokens or 0
    cost = -(-read * hold.input_nano_units // max(1, hold.input_tokens))
    cost += -(-max(0, figures.tokens - read) * hold.output_rate // TOKENS_PER_RATE)
    return tokens, min(cost, MOST_NANOS)


def book_earlier_attempt(
    hold: Hold, kind: str, stage: str, *, http_status: int | None, provider_code: str, elapsed: float | None
) -> Booking:
    """Return what an attempt leaves behind that was followed by another one of the same call.

    Only what did not happen is tried again, and of that only UNAVAILABLE may have been billed: after an error of the
    provider nothing is held, after silence the bound is.
    """
    if kind != Kind.UNAVAILABLE.value:
        return NOTHING
    is_refused = bool(provider_code) or (http_status or 0) >= _ERROR_STATUS
    end = End(
        kind=kind,
        generated=False,
        written=stage in _WRITTEN,
        refused_by_provider=is_refused,
        generating_seconds=elapsed or 0.0,
    )
    return book(hold, Figures(), end)


def together(earlier: Figures, newest: Figures) -> Figures:
    """Return what two attempts told. The sum of two bills is as certain as the less certain of them."""
    if earlier.certainty == _NONE or newest.certainty == _NONE:
        return newest if earlier.certainty == _NONE else earlier
    usage = add_usage(_usage_of(earlier), _usage_of(newest))
    certainty = add_certainty(Certainty(earlier.certainty), Certainty(newest.certainty))
    additional = (*_additional_of(earlier), *_additional_of(newest))
    cost = add_costs(told_cost(earlier), told_cost(newest))
    return Figures(
        usage_json=b"" if usage is None else msgspec.json.encode(usage),
        additional_json=msgspec.json.encode(additional) if additional else b"",
        certainty=certainty.value,
        input_tokens=add_counters(earlier.input_tokens, newest.input_tokens),
        output_tokens=add_counters(earlier.output_tokens, newest.output_tokens),
        tokens=saturating_add(earlier.tokens, newest.tokens),
        nano_units=None if cost is None else cost.nano_units,
        currency="" if cost is None else cost.currency,
        cost_source="" if cost is None else cost.source.value,
        cost_certainty="" if cost is None else cost.certainty.value,
        estimated_output_tokens=add_counters(earlier.estimated_output_tokens, newest.estimated_output_tokens),
    )


def _usage_of(figures: Figures) -> Usage | None:
    return _usage.decode(figures.usage_json) if figures.usage_json else None


def _additional_of(figures: Figures) -> tuple[AdditionalUsage, ...]:
    return _additional.decode(figures.additional_json) if figures.additional_json else ()


def told_cost(figures: Figures) -> Cost | None:
    """Return the cost that was told or worked out; `None` for none."""
    if figures.nano_units is None:
        return None
    return Cost(
        nano_units=figures.nano_units,
        currency=figures.currency,
        source=CostSource(figures.cost_source or CostSource.PRICE_TABLE.value),
        certainty=Certainty(figures.cost_certainty or Certainty.AT_LEAST.value),
    )


_usage = msgspec.json.Decoder(Usage)
_additional = msgspec.json.Decoder(tuple[AdditionalUsage, ...])
_ERROR_STATUS = 400
_WRITTEN = frozenset(stage.name for stage in Stage if stage >= Stage.WRITTEN)


def add(one: Booking, other: Booking) -> Booking:
    """Return both together; a call is possibly billed once."""
    if other == NOTHING:
        return one
    return Booking(
        settled_tokens=one.settled_tokens + other.settled_tokens,
        settled_nanos=one.settled_nanos + other.settled_nanos,
        held_tokens=one.held_tokens + other.held_tokens,
        held_nanos=one.held_nanos + other.held_nanos,
        unsettled_tokens=one.unsettled_tokens + other.unsettled_tokens,
        unsettled_nanos=one.unsettled_nanos + other.unsettled_nanos,
        written_off_tokens=one.written_off_tokens + other.written_off_tokens,
        written_off_nanos=one.written_off_nanos + other.written_off_nanos,
        possibly_billed=max(one.possibly_billed, other.possibly_billed),
    )


def write_off(booking: Booking) -> Booking:
    """Return the booking once nobody is waited for any more: the bound leaves the ceilings and stays in the sums."""
    return msgspec.structs.replace(
        booking,
        unsettled_tokens=0,
        unsettled_nanos=0,
        written_off_tokens=booking.written_off_tokens + booking.unsettled_tokens,
        written_off_nanos=booking.written_off_nanos + booking.unsettled_nanos,
    )


def is_truer(new: Figures, old: Figures) -> bool:
    """Say whether new figures replace old ones: UNKNOWN < AT_LEAST < EXACT, and a lower bound only rises.

    NONE is as certain as EXACT, and stands against UNKNOWN alone: what was told is not untold.
    """
    if new.certainty == _NONE:
        return old.certainty == _UNKNOWN
    rank, held = _RANKS[new.certainty], _RANKS[old.certainty]
    if rank != held or new.certainty != _AT_LEAST:
        return rank > held
    money, held_money = new.nano_units or 0, old.nano_units or 0
    is_no_lower = new.tokens >= old.tokens and money >= held_money
    return is_no_lower and (new.tokens > old.tokens or money > held_money)


def raise_booking(old: Booking, hold: Hold, figures: Figures) -> Booking:
    """Return the booking of a call that has ended, after truer figures came.

    Exact ones replace everything. A higher lower bound moves what it tells from what was unsettled or written off to
    what is settled, so that the whole never falls: an estimate gives nothing back.
    """
    tokens, nanos = told(hold, figures)
    if figures.certainty != _AT_LEAST:
        return NOTHING if figures.certainty == _NONE else Booking(settled_tokens=tokens, settled_nanos=nanos)
    unsettled, off = _moved(tokens - old.settled_tokens, old.unsettled_tokens, old.written_off_tokens)
    unsettled_nanos, off_nanos = _moved(nanos - old.settled_nanos, old.unsettled_nanos, old.written_off_nanos)
    return msgspec.structs.replace(
        old,
        settled_tokens=max(tokens, old.settled_tokens),
        settled_nanos=max(nanos, old.settled_nanos),
        unsettled_tokens=unsettled,
        unsettled_nanos=unsettled_nanos,
        written_off_tokens=off,
        written_off_nanos=off_nanos,
        possibly_billed=0,
    )


def _moved(more: int, unsettled: int, written_off: int) -> tuple[int, int]:
    more = max(0, more)
    rest = max(0, more - unsettled)
    return max(0, unsettled - more), max(0, written_off - rest)


def without(whole: Booking, part: Booking) -> Booking:
    """Return the rest of a booking that holds the part."""
    if part == NOTHING:
        return whole
    return Booking(
        settled_tokens=whole.settled_tokens - part.settled_tokens,
        settled_nanos=whole.settled_nanos - part.settled_nanos,
        held_tokens=whole.held_tokens - part.held_tokens,
        held_nanos=whole.held_nanos - part.held_nanos,
        unsettled_tokens=whole.unsettled_tokens - part.unsettled_tokens,
        unsettled_nanos=whole.unsettled_nanos - part.unsettled_nanos,
        written_off_tokens=whole.written_off_tokens - part.written_off_tokens,
        written_off_nanos=whole.written_off_nanos - part.written_off_nanos,
        possibly_billed=whole.possibly_billed - part.possibly_billed,
    )
