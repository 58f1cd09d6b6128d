"""How outcomes are booked: what is known is settled, what is not has the smallest bound that can be defended."""

from __future__ import annotations

from math import ceil
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.reservation import MOST_NANOS, MOST_TOKENS, Hold
from modelmeter_server.core.settlement import (
    NOTHING,
    Booking,
    End,
    Figures,
    add,
    book,
    book_earlier_attempt,
    is_truer,
    raise_booking,
    told,
    without,
    write_off,
)

HOLD = Hold(
    input_tokens=1_000,
    output_tokens=400,
    nano_units=22_000,
    input_nano_units=10_000,
    output_rate=30_000_000,
    currency="USD",
    tokens_per_second=500,
)
UNTOLD = Figures()

counts = st.integers(0, 2_000)
holds = st.builds(
    lambda read, written, rate, speed, aborts: Hold(
        input_tokens=read,
        output_tokens=written,
        nano_units=read * 10 + -(-written * rate // 10**6),
        input_nano_units=read * 10,
        output_rate=rate,
        currency="USD",
        tokens_per_second=speed,
        abort_stops_billing=aborts,
    ),
    counts,
    counts,
    st.integers(0, 10**9),
    st.integers(1, 2_000),
    st.booleans(),
)


def figures(
    read: int | None, written: int | None, certainty: str = "AT_LEAST", nanos: int | None = 7
) -> Figures:
    return Figures(
        certainty=certainty,
        input_tokens=read,
        output_tokens=written,
        tokens=(read or 0) + (written or 0),
        nano_units=nanos,
        currency="USD" if nanos is not None else "",
    )


def end(kind: str = "INTERRUPTED", *, generated: bool = True, seconds: float = 0.1, **more: bool) -> End:
    fields: dict[str, Any] = {"kind": kind, "generated": generated, "written": True, **more}
    return End(**fields, generating_seconds=seconds)


any_figures = st.builds(
    figures,
    st.none() | counts,
    st.none() | counts,
    st.sampled_from(["UNKNOWN", "AT_LEAST", "EXACT", "NONE"]),
    st.none() | counts,
)
ends = st.builds(
    end,
    st.sampled_from(["", "UNUSABLE", "INTERRUPTED", "UNACCOUNTED", "UNAVAILABLE", "BUG"]),
    generated=st.booleans(),
    seconds=st.floats(0, 10),
    written=st.booleans(),
    refused_by_provider=st.booleans(),
)
bookings = st.builds(
    Booking, **dict.fromkeys(Booking.__struct_fields__[:-1], counts), possibly_billed=st.just(0)
)


def unsettled(tokens: int, nanos: int, **settled: int) -> Booking:
    return Booking(unsettled_tokens=tokens, unsettled_nanos=nanos, **settled)


@pytest.mark.parametrize(
    ("told_figures", "how", "booking"),
    [
        (figures(None, None, "NONE", None), end("UNREACHABLE", generated=False), NOTHING),
        (figures(900, 20, "EXACT"), end(""), Booking(settled_tokens=920, settled_nanos=7)),
        (figures(9_000, 900, "EXACT"), end("INTERRUPTED"), Booking(settled_tokens=9_900, settled_nanos=7)),
        (UNTOLD, end("BUG", generated=False, written=False), NOTHING),
        (
            UNTOLD,
            end("UNAVAILABLE", generated=False, refused_by_provider=True),
            Booking(possibly_billed=1),
        ),
        (UNTOLD, end("UNAVAILABLE", generated=False), unsettled(1_050, 11_500)),
        (UNTOLD, end("UNAVAILABLE", generated=False, seconds=60), unsettled(1_400, 22_000)),
        (UNTOLD, end("UNACCOUNTED"), unsettled(1_050, 11_500)),
        (figures(900, 20), end(), unsettled(50, 1_500, settled_tokens=920, settled_nanos=7)),
        (figures(900, 390), end(), unsettled(10, 300, settled_tokens=1_290, settled_nanos=7)),
        (figures(900, 500), end(), unsettled(0, 0, settled_tokens=1_400, settled_nanos=7)),
        (figures(900, None), end(), unsettled(50, 1_500, settled_tokens=900, settled_nanos=7)),
        (figures(None, 20), end(), unsettled(1_050, 11_500, settled_tokens=20, settled_nanos=7)),
        (figures(900, 20), end(""), Booking(settled_tokens=920, settled_nanos=7)),
        (figures(900, 20), end("UNUSABLE"), Booking(settled_tokens=920, settled_nanos=7)),
        (figures(900, None), end(""), unsettled(50, 1_500, settled_tokens=900, settled_nanos=7)),
        (UNTOLD, end(""), unsettled(1_050, 11_500)),
    ],
)
def test_each_outcome_is_booked_as_its_certainty_says(told_figures: Figures, how: End, booking: Booking):
    assert book(HOLD, told_figures, how) == booking


@pytest.mark.parametrize("how", [end(), end("UNACCOUNTED"), end("UNAVAILABLE", generated=False)])
def test_where_closing_does_not_stop_the_bill_the_whole_reservation_bounds_it(how: End):
    hold = msgspec.structs.replace(HOLD, abort_stops_billing=False)
    assert book(hold, UNTOLD, how) == unsettled(1_400, 22_000)
    assert book(hold, UNTOLD, end("")) == unsettled(1_050, 11_500), "a finished answer generates no more"


@given(holds, any_figures, ends)
def test_no_booking_is_negative_and_only_what_has_no_exact_figure_waits(
    hold: Hold, told_figures: Figures, how: End
):
    booking = book(hold, told_figures, how)
    assert all(getattr(booking, name) >= 0 for name in Booking.__struct_fields__)
    assert booking.held_tokens == booking.written_off_tokens == 0
    if told_figures.certainty in ("EXACT", "NONE"):
        assert booking.is_settled


@given(holds, any_figures, ends)
def test_a_bound_is_never_more_than_the_reservation_and_what_was_told(
    hold: Hold, told_figures: Figures, how: End
):
    booking = book(hold, told_figures, how)
    assert booking.unsettled_tokens <= hold.tokens
    assert booking.unsettled_nanos <= hold.nano_units


@given(holds, counts, counts, st.floats(0, 10), st.data())
def test_the_bound_covers_a_provider_that_keeps_to_it(
    hold: Hold, read: int, written: int, seconds: float, data
):
    read = min(read, hold.input_tokens)
    written = min(written, hold.output_tokens, ceil(seconds * hold.tokens_per_second))
    seen = data.draw(st.none() | st.integers(0, written))
    told_figures = UNTOLD if seen is None else figures(read, seen)
    booking = book(hold, told_figures, end(seconds=seconds))
    assert booking.settled_tokens + booking.unsettled_tokens >= read + written


@given(holds, st.none() | counts, counts, st.floats(0, 10))
def test_the_bound_covers_the_text_that_arrived(
    hold: Hold, told_output: int | None, seen: int, seconds: float
):
    """However fast it came: a provider may generate faster than the model's `max_tokens_per_second` says."""
    seen = min(seen, hold.output_tokens)
    told_figures = msgspec.structs.replace(figures(0, told_output), estimated_output_tokens=seen)
    booking = book(hold, told_figures, end(seconds=seconds))
    assert booking.settled_tokens + booking.unsettled_tokens >= seen


# Money


def test_a_cost_in_another_currency_is_booked_by_the_rates_of_the_hold():
    elsewhere = msgspec.structs.replace(figures(100, 10, "EXACT"), currency="EUR")
    assert told(HOLD, elsewhere) == (110, 1_000 + 300)
    assert told(HOLD, figures(100, 10, "EXACT", None)) == (110, 1_300)
    assert told(msgspec.structs.replace(HOLD, currency=""), figures(100, 10, "EXACT", None)) == (110, 0)


def test_an_absurd_figure_is_booked_as_the_most_that_a_call_can_cost():
    assert told(HOLD, figures(2**62, 2**62, "EXACT", 2**63 - 1)) == (MOST_TOKENS, MOST_NANOS)


# Attempts


@pytest.mark.parametrize(
    ("kind", "stage", "status", "code", "booking"),
    [
        ("UNREACHABLE", "WRITING", None, "", NOTHING),
        ("RATE_LIMITED", "HEADERS", 429, "", NOTHING),
        ("UNAVAILABLE", "HEADERS", 503, "", Booking(possibly_billed=1)),
        ("UNAVAILABLE", "BODY", 200, "overloaded_error", Booking(possibly_billed=1)),
        ("UNAVAILABLE", "WRITTEN", None, "", unsettled(1_050, 11_500)),
        ("UNAVAILABLE", "HEADERS", 200, "", unsettled(1_050, 11_500)),
        ("UNAVAILABLE", "WRITING", None, "", NOTHING),
    ],
)
def test_an_attempt_that_was_followed_by_another_leaves_what_it_may_have_cost(
    kind, stage, status, code, booking
):
    left = book_earlier_attempt(HOLD, kind, stage, http_status=status, provider_code=code, elapsed=0.1)
    assert left == booking


# Truer figures


@pytest.mark.parametrize(
    ("new", "old", "is_taken"),
    [
        (figures(1, 1, "EXACT"), UNTOLD, True),
        (figures(1, 1, "EXACT"), figures(9, 9), True),
        (figures(9, 9, "EXACT"), figures(1, 1, "EXACT"), False),
        (figures(9, 9), figures(1, 1, "EXACT"), False),
        (figures(9, 9), figures(1, 1), True),
        (figures(1, 1), figures(9, 9), False),
        (figures(9, 9), figures(9, 9), False),
        (figures(9, 9, nanos=8), figures(9, 9), True),
        (figures(9, 9, nanos=6), figures(1, 1), False),
        (UNTOLD, UNTOLD, False),
        (UNTOLD, figures(1, 1), False),
        (figures(None, None, "NONE"), UNTOLD, True),
        (figures(None, None, "NONE"), figures(1, 1), False),
        (UNTOLD, figures(None, None, "NONE"), False),
        (figures(9, 9), figures(None, None, "NONE"), False),
    ],
)
def test_figures_only_rise_in_certainty(new: Figures, old: Figures, is_taken: bool):
    assert is_truer(new, old) is is_taken


@given(any_figures, any_figures)
def test_of_two_figures_at_most_one_is_truer(one: Figures, other: Figures):
    assert not (is_truer(one, other) and is_truer(other, one))


@given(bookings, holds, st.integers(0, 5_000), st.integers(0, 5_000))
def test_an_estimate_gives_nothing_back(old: Booking, hold: Hold, tokens: int, nanos: int):
    new = raise_booking(old, hold, figures(tokens, 0, nanos=nanos))
    for unit in ("tokens", "nanos"):
        before, after = (
            [getattr(each, f"{state}_{unit}") for state in ("settled", "unsettled", "written_off")]
            for each in (old, new)
        )
        assert sum(after) == max(sum(before), sum(before) + (after[0] - before[0]) - before[1] - before[2])
        assert after[0] == max(before[0], tokens if unit == "tokens" else nanos)
        assert sum(after) >= sum(before)
        assert min(after) >= 0


@given(bookings, holds)
def test_an_exact_figure_replaces_every_bound(old: Booking, hold: Hold):
    exact = raise_booking(old, hold, figures(3, 4, "EXACT"))
    assert exact == Booking(settled_tokens=7, settled_nanos=7)
    assert raise_booking(old, hold, figures(None, None, "NONE", None)) == NOTHING


# Arithmetic


@given(bookings, bookings)
def test_what_was_added_can_be_taken_away(one: Booking, other: Booking):
    assert without(add(one, other), other) == one
    assert add(NOTHING, one) == add(one, NOTHING) == one


def test_a_call_is_possibly_billed_once():
    assert add(Booking(possibly_billed=1), Booking(possibly_billed=1)).possibly_billed == 1


@given(bookings)
def test_a_written_off_bound_leaves_the_ceilings_and_stays_in_the_sums(old: Booking):
    new = write_off(old)
    assert new.unsettled_tokens == new.unsettled_nanos == 0
    assert new.written_off_tokens == old.written_off_tokens + old.unsettled_tokens
    assert new.written_off_nanos == old.written_off_nanos + old.unsettled_nanos
    assert (new.settled_tokens, new.held_tokens) == (old.settled_tokens, old.held_tokens)
