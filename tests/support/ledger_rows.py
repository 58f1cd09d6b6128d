"""Rows and commands of a ledger with a value in every field, and strategies that draw them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from hypothesis import strategies as st

from modelmeter_server.core.journal import CallState
from modelmeter_server.ledger.batch import Changes, Found, Wanted
from modelmeter_server.ledger.rows import AttemptRow, Booking, CallRow, Carried, Figures, Hold

_counts = st.integers(0, 2**40)
_maybe = st.none() | _counts
_words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
_free = st.text(st.characters(codec="utf-8"), max_size=12)
_seconds = st.floats(0, 1e6)

figures = st.builds(
    Figures,
    usage_json=st.binary(max_size=20),
    additional_json=st.binary(max_size=20),
    certainty=st.sampled_from(("NONE", "EXACT", "AT_LEAST", "UNKNOWN")),
    input_tokens=_maybe,
    output_tokens=_maybe,
    tokens=_counts,
    nano_units=_maybe,
    currency=st.sampled_from(("", "EUR")),
    cost_source=_words,
    cost_certainty=_words,
    estimated_output_tokens=_maybe,
)
holds = st.builds(
    Hold,
    input_tokens=_counts,
    output_tokens=_counts,
    nano_units=_counts,
    input_nano_units=_counts,
    output_rate=_counts,
    currency=st.sampled_from(("", "EUR", "USD")),
    tokens_per_second=_counts,
    abort_stops_billing=st.booleans(),
)
bookings = st.builds(
    Booking, **{name: _counts for name in Booking.__struct_fields__ if name != "possibly_billed"}
)
carried = st.none() | st.builds(Carried, booking=bookings, input_tokens=_counts, output_tokens=_counts)


def calls(**fixed: Any) -> st.SearchStrategy[CallRow]:
    """Draw calls whose every field may have any value."""
    drawn: dict[str, st.SearchStrategy[Any]] = {
        "tenant": _words,
        "call_id": _words,
        "generation": st.integers(1, 9),
        "dispatch": st.integers(1, 9),
        "run_id": _words,
        "effect_key": _words,
        "state": st.sampled_from(CallState),
        "owner": st.integers(0, 99),
        "reserved_at": _counts,
        "dispatched_at": _maybe,
        "ended_at": _maybe,
        "expires_at": _maybe,
        "field_digests": st.dictionaries(_words, _words, max_size=3),
        "labels": st.dictionaries(_words, _words, max_size=3),
        "hold": holds,
        "generated": st.booleans(),
        "figures": figures,
        "booking": bookings,
        "carried": carried,
        "code": st.integers(0, 16),
        "http_status": st.none() | st.integers(100, 599),
        "attempts_total": _counts,
        "queue_seconds": _seconds,
        "first_token_seconds": st.none() | _seconds,
        "total_seconds": _seconds,
        "content_expires_at": _maybe,
        "message": _free,
        "provider_code": _free,
    }
    texts = {name: _words for name in CallRow.__struct_fields__ if name not in drawn}
    return st.builds(CallRow, **{**texts, **drawn, **{name: st.just(value) for name, value in fixed.items()}})


def attempts_of(call: CallRow) -> st.SearchStrategy[AttemptRow]:
    """Draw attempts of a call."""
    return st.builds(
        AttemptRow,
        tenant=st.just(call.tenant),
        call_id=st.just(call.call_id),
        generation=st.just(call.generation),
        dispatch=st.integers(1, 9),
        number=st.integers(1, 9),
        target=_words,
        started_at=_counts,
        elapsed=st.none() | _seconds,
        stage=_words,
        kind=_words,
        cause=_words,
        figures=figures,
        http_status=st.none() | st.integers(100, 599),
        provider_code=_free,
        provider_request_id=_free,
    )


def scripted_book(commands: Sequence[Any], _owner: int) -> Generator[Wanted, Found, Changes]:
    """A book-keeper that does as its commands say: each is a `Wanted`, whose `Found` is the reply, or a `Changes`."""
    replies: list[Found | None] = []
    changes = Changes()
    for command in commands:
        if isinstance(command, Wanted):
            replies.append((yield command))
        else:
            changes = command
            replies.append(None)
    changes.replies = replies
    return changes
