"""What can be asked of the ledger: pages that neither skip nor repeat, and sums that are those of the calls."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection

from modelmeter_server.core.ceilings import Halt, HaltMode, Subject, Window, WindowKind
from modelmeter_server.core.journal import CallKey, CallState
from modelmeter_server.core.windows import QUARTER, part_at
from modelmeter_server.ledger import queries
from modelmeter_server.ledger.commands import PutCeiling, PutHalt, Reconcile
from modelmeter_server.ledger.questions import (
    CallPosition,
    CallsAsked,
    Dimension,
    Period,
    SpendAsked,
    SpendPosition,
    SpendSum,
)
from modelmeter_server.ledger.rows import CallRow
from modelmeter_server.ledger.spending import SUMS, entry_of
from modelmeter_server.ledger.storage import StorageSettings, open_ledger
from tests.support.ledger_orders import (
    HOLD,
    NOW,
    SECOND,
    answering,
    ceiling,
    dispatching,
    failing,
    ref_of,
    reserving,
    told,
)

HOUR = 3600 * SECOND


@pytest.fixture
async def ledger(ledger_url):
    """Return an open ledger."""
    opened = await open_ledger(StorageSettings(url=ledger_url))
    yield opened
    await opened.aclose()


async def make_calls(ledger, count: int = 40, seed: int = 1) -> list[CallRow]:
    """Make calls of every state in a few hours, and return them as the ledger has them, the newest first."""
    chance = random.Random(seed)
    for number in range(count):
        effect = {"key": f"step-{number}", "run": f"run-{number % 3}"} if number % 2 else {}
        # Many at the same moment: what then tells pages apart is the id.
        at = NOW + chance.randrange(8) * HOUR // 2
        labels = {"team": chance.choice(["red", "blue"])} if number % 3 else {'a "quoted" key': "ü"}
        asked = reserving(f"call-{number:02}", owner=ledger.owner, at=at, labels=labels, **effect)
        asked = asked if number % 5 else reserving_small(asked)
        ref = ref_of(asked, await ledger.reserve(asked))
        await finish(ledger, ref, number % 4, at)
    return await ledger.read(lambda c: queries.list_calls(c, CallsAsked(tenant="acme", limit=1000)))


def reserving_small(asked):
    """Return the same order for another model."""
    import msgspec

    return msgspec.structs.replace(asked, model="small")


async def finish(ledger, ref, how: int, at: int) -> None:
    """Leave a call open, or end it in one of three ways."""
    if how:
        await ledger.dispatch(dispatching(ref, at=at))
    if how == 1:
        await ledger.settle(answering(ref, told(10, 5), at=at))
    elif how == 2:
        await ledger.settle(failing(ref, "INTERRUPTED", told(10, 2, "AT_LEAST"), at=at, landed=True))


async def pages(ledger, ask: Callable[[Any], Any], place: Callable[[Any], Any]) -> list[Any]:
    """Return everything, in pages of seven."""
    found: list[Any] = []
    while True:
        after = place(found[-1]) if found else None
        page = await ledger.read(ask(after))
        found += page
        if len(page) < 7:
            return found


async def test_pages_of_calls_are_the_whole_list_newest_first(ledger):
    rows = await make_calls(ledger)

    def ask(after):
        return lambda c: queries.list_calls(c, CallsAsked(tenant="acme", after=after, limit=7))

    found = await pages(ledger, ask, lambda row: CallPosition(row.reserved_at, row.call_id, row.generation))
    assert len(rows) == 40
    assert found == rows
    assert rows == sorted(rows, key=lambda row: (row.reserved_at, row.call_id, row.generation), reverse=True)


FILTERS: list[tuple[dict[str, Any], Callable[[CallRow], bool]]] = [
    ({"run_id": "run-1"}, lambda row: row.run_id == "run-1"),
    ({"effect_key": "step-3"}, lambda row: row.effect_key == "step-3"),
    ({"model": "small"}, lambda row: row.model == "small"),
    ({"states": frozenset({CallState.UNSETTLED})}, lambda row: row.state == CallState.UNSETTLED),
    (
        {"states": frozenset({CallState.RESERVED, CallState.DISPATCHED})},
        lambda row: CallState(row.state).is_open,
    ),
    (
        {"states": frozenset({CallState.SETTLED, CallState.UNSETTLED})},
        lambda row: not CallState(row.state).is_open,
    ),
    ({"kinds": frozenset({"ANSWERED"})}, lambda row: not row.kind and not CallState(row.state).is_open),
    ({"kinds": frozenset({"INTERRUPTED"})}, lambda row: row.kind == "INTERRUPTED"),
    ({"labels": {"team": "red"}}, lambda row: row.labels.get("team") == "red"),
    ({"labels": {'a "quoted" key': "ü"}}, lambda row: 'a "quoted" key' in row.labels),
    ({"labels": {"team": "none"}}, lambda row: False),
    ({"reserved_from": NOW + HOUR}, lambda row: row.reserved_at >= NOW + HOUR),
    ({"reserved_before": NOW + HOUR}, lambda row: row.reserved_at < NOW + HOUR),
    ({"tenant": "other"}, lambda row: False),
]


async def test_every_filter_of_calls_keeps_what_it_says_and_nothing_else(ledger):
    rows = await make_calls(ledger)
    for narrowed, is_meant in FILTERS:
        asked = CallsAsked(**{"tenant": "acme", "limit": 1000, **narrowed})
        found = await ledger.read(lambda c, asked=asked: queries.list_calls(c, asked))
        assert found == [row for row in rows if is_meant(row)], narrowed


def recounted(rows: list[CallRow], asked: SpendAsked) -> list[SpendSum]:
    """Return the sums, counted anew from the calls."""
    found: dict[tuple[int, str, str], list[int]] = {}
    for row in rows:
        entry = entry_of(row)
        value = {
            Dimension.TENANT: "",
            Dimension.RUN: row.run_id or None,
            Dimension.MODEL: row.model,
            Dimension.KIND: entry.kind,
            Dimension.LABEL: row.labels.get(asked.label),
        }[asked.dimension]
        quarter = row.reserved_at // QUARTER * QUARTER
        is_within = (asked.starts_at or 0) <= quarter and (asked.ends_at is None or quarter < asked.ends_at)
        if value is not None and is_within and (not asked.values or value in asked.values):
            key = (_start(asked, quarter), value, entry.currency)
            sums = found.setdefault(key, [0] * len(SUMS))
            found[key] = [old + new for old, new in zip(sums, entry.sums, strict=True)]
    return [
        SpendSum(starts_at=start, value=value, currency=currency, **dict(zip(SUMS, found[key], strict=True)))
        for key in sorted(found)
        for start, value, currency in [key]
    ]


def _start(asked: SpendAsked, quarter: int) -> int:
    if asked.period is Period.ALL:
        return 0
    if asked.period is Period.HOUR:
        return quarter - quarter % HOUR
    return part_at(Window(kind=WindowKind[asked.period.value], time_zone=asked.time_zone), quarter)[0]


async def test_sums_are_those_of_the_calls_in_every_dimension_and_period(ledger):
    rows = await make_calls(ledger)
    for dimension in Dimension:
        for period in Period:
            asked: dict[str, Any] = {
                "tenant": "acme",
                "dimension": dimension,
                "period": period,
                "time_zone": "Asia/Kathmandu",
            }
            asked |= {"label": "team"} if dimension is Dimension.LABEL else {}
            whole = SpendAsked(**asked, limit=1000)
            found = await ledger.read(lambda c, whole=whole: queries.get_spend(c, whole))
            assert found == recounted(rows, whole), (dimension, period)


@pytest.mark.parametrize("period", Period)
async def test_pages_of_sums_are_the_whole_list(ledger, period):
    rows = await make_calls(ledger)

    def asked(after=None, limit=7):
        return SpendAsked(tenant="acme", dimension=Dimension.KIND, period=period, after=after, limit=limit)

    def ask(after):
        return lambda c: queries.get_spend(c, asked(after))

    found = await pages(ledger, ask, lambda each: SpendPosition(each.starts_at, each.value, each.currency))
    assert found == recounted(rows, asked(limit=1000))


async def test_sums_may_be_narrowed_by_value_and_by_full_quarters(ledger):
    rows = await make_calls(ledger)
    start = NOW // QUARTER * QUARTER
    asked = SpendAsked(
        tenant="acme",
        dimension=Dimension.RUN,
        values=frozenset({"run-0", "run-2", "none"}),
        starts_at=start + HOUR,
        ends_at=start + 2 * HOUR,
        limit=1000,
    )
    found = await ledger.read(lambda c: queries.get_spend(c, asked))
    assert found == recounted(rows, asked)
    assert found


async def test_a_ceiling_tells_where_its_subject_stands_before_and_after_its_first_call(ledger):
    await make_calls(ledger, 8)
    at = NOW + 4 * HOUR
    day = Window(kind=WindowKind.DAY, time_zone="Europe/Berlin")
    kept = await ledger.order(PutCeiling(ceiling=ceiling(tokens=10**6, nano_units=10**9, window=day)))
    before = await ledger.read(lambda c: queries.find_standings(c, kept, at))
    await ledger.reserve(reserving("next", owner=ledger.owner, at=at))
    after = await ledger.read(lambda c: queries.find_standings(c, kept, at))
    assert [each.currency for each in before] == ["", "USD"]
    assert [new.held - old.held for old, new in zip(before, after, strict=True)] == [
        HOLD.tokens,
        HOLD.nano_units,
    ]
    assert after[0].room_at == part_at(day, at)[1]
    assert await ledger.read(lambda c: queries.find_ceiling(c, "acme", kept.ceiling_id)) == kept
    assert await ledger.read(lambda c: queries.list_ceilings(c, "acme", "", 10)) == [kept]
    assert await ledger.read(lambda c: queries.list_ceilings(c, "acme", kept.ceiling_id, 10)) == []


async def test_a_ceiling_on_every_run_tells_of_the_run_that_used_most(ledger):
    kept = await ledger.order(PutCeiling(ceiling=ceiling("RUN", tokens=10**6)))
    assert await ledger.read(lambda c: queries.find_standings(c, kept, NOW)) == []
    for number, run in enumerate(["small", "big", "big"]):
        await ledger.reserve(reserving(f"c{number}", owner=ledger.owner, key=f"k{number}", run=run))
    (standing,) = await ledger.read(lambda c: queries.find_standings(c, kept, NOW))
    assert (standing.subject.name, standing.held) == ("big", 2 * HOLD.tokens)


async def test_halts_are_listed_and_calls_found_in_any_generation(ledger):
    halt = Halt(subject=Subject("acme", "MODEL", "large"), mode=HaltMode.CUT, reason="enough", since=NOW)
    await make_calls(ledger, 3)
    await ledger.order(PutHalt(halt=halt))
    assert await ledger.read(lambda c: queries.list_halts(c, "acme")) == [halt]
    assert await ledger.read(lambda c: queries.list_halts(c, "other")) == []
    key = CallKey("acme", "call-01")
    assert await ledger.read(lambda c: queries.find_call(c, key, 1)) == await ledger.read(
        lambda c: queries.find_call(c, key)
    )
    assert await ledger.read(lambda c: queries.find_call(c, key, 2)) is None
    content = await ledger.read(lambda c: queries.find_content(c, key))
    assert content.outcome_json == b"{}"


async def test_a_reader_cannot_write(ledger):
    def write(connection: Connection) -> None:
        connection.exec_driver_sql("DELETE FROM calls")

    with pytest.raises(Exception, match=r"read.?only"):
        await ledger.read(write)
    reply = await ledger.order(
        Reconcile(call=CallKey("acme", "none"), at=NOW, figures=told(1, 1), by="operator")
    )
    assert reply is None
