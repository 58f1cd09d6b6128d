"""What each store does with rows, whatever the book-keeper decides: nothing is lost, changed or found twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelmeter_server.core.ceilings import Ceiling, Halt, HaltMode, Subject, Window, WindowKind
from modelmeter_server.core.journal import CallKey, CallState, EffectKey
from modelmeter_server.ledger.batch import Changes, GenerationKey, Wanted, WindowKey
from modelmeter_server.ledger.commands import Erase
from modelmeter_server.ledger.postgres_batch import tenant_lock
from modelmeter_server.ledger.postgres_store import PostgresStore
from modelmeter_server.ledger.rows import CeilingWindowRow, ContentRow, SpendRow
from modelmeter_server.ledger.sqlite_store import SqliteStore
from modelmeter_server.ledger.stores import Store
from tests.support.ledger_rows import attempts_of, calls, scripted_book

FAR = 2**60


def open_store(url: str, book: Any = scripted_book, *, power: bool = False) -> Store:
    """Return a store that is not connected."""
    if url.startswith("sqlite"):
        return SqliteStore(Path(url.removeprefix("sqlite:///")), book=book, power=power)
    return PostgresStore(url, book=book, power=power)


@pytest.fixture
async def store(ledger_url: str) -> AsyncIterator[Store]:
    """Return a connected store whose book-keeper does as it is told."""
    opened = open_store(ledger_url)
    await opened.connect()
    yield opened
    await opened.close()


async def write(store: Store, owner: int = 0, **changes: Any) -> Changes:
    """Write rows."""
    return await store.carry_out([Changes(**changes)], owner)


async def load(store: Store, owner: int = 0, **wanted: Any) -> Any:
    """Load rows from the database itself."""
    return (await store.carry_out([Wanted(**wanted)], owner)).replies[0]


def key(row: Any) -> GenerationKey:
    """Return the key of a call."""
    return GenerationKey(row.tenant, row.call_id, row.generation)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_every_field_of_a_call_and_its_attempts_survives_the_database(ledger_url, data):
    store = open_store(ledger_url)
    await store.connect()
    call = data.draw(calls(call_id=uuid4().hex, owner=7))
    attempt = data.draw(attempts_of(call))
    await write(store, inserted_calls=[call], attempts=[attempt])
    found = await load(store, calls=frozenset({CallKey(call.tenant, call.call_id)}))
    assert found.calls == [call]
    if call.state <= CallState.DISPATCHED:
        found = await load(store, open_of=frozenset({7}))
        assert call in found.calls
        assert attempt in found.attempts
    await store.close()


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_an_update_writes_every_field_that_may_change(ledger_url, data):
    store = open_store(ledger_url)
    await store.connect()
    named = {"tenant": "t", "call_id": uuid4().hex, "generation": 1}
    old = data.draw(calls(**named, dispatch=1))
    fixed = {
        name: getattr(old, name) for name in ("run_id", "effect_key", "identity", "digest", "field_digests")
    }
    new = data.draw(calls(**named, dispatch=2, **fixed))
    wanted: Any = {"generations": frozenset({key(old)})}
    await write(store, inserted_calls=[old])
    await store.carry_out([Wanted(**wanted), Changes(updated_calls=[new])], 0)
    assert (await load(store, **wanted)).calls == [new]
    await store.close()


async def test_the_newest_generation_is_found_by_call_and_by_effect(store):
    rows = [a_call(generation=number, run_id="r", effect_key="e") for number in (1, 2, 3)]
    await write(store, inserted_calls=rows)
    by_call = await load(store, calls=frozenset({CallKey("t", "c")}))
    by_effect = await load(store, effects=frozenset({EffectKey("t", "r", "e")}))
    both = await load(
        store, calls=frozenset({CallKey("t", "c")}), effects=frozenset({EffectKey("t", "r", "e")})
    )
    assert by_call.calls == by_effect.calls == both.calls == [rows[2]]
    assert (await load(store, generations=frozenset({key(rows[0])}))).calls == [rows[0]]


async def test_another_tenants_rows_are_never_found(store):
    await write(store, inserted_calls=[a_call(run_id="r", effect_key="e")])
    found = await load(
        store, calls=frozenset({CallKey("other", "c")}), effects=frozenset({EffectKey("other", "r", "e")})
    )
    assert not found.calls


async def test_increments_add_up_and_saturate(store):
    row = SpendRow(tenant="t", dimension="TENANT", name="", value="", quarter=0, currency="EUR", calls=1)
    row.settled_tokens = 2**62
    for _ in range(3):
        await write(store, spend=[row])
    ceiling = WindowKey("c", "", 0, None, Subject("t", "TENANT", ""), "EUR")
    (window,) = (await load(store, windows=frozenset({ceiling}))).windows
    assert window.settled_tokens == 2**63 - 1


async def test_a_new_window_begins_with_the_sums_of_its_time_and_its_currency(store):
    def spent(quarter: int, currency: str, value: str = "r") -> SpendRow:
        row = SpendRow(tenant="t", dimension="RUN", name="", value=value, quarter=quarter, currency=currency)
        row.settled_tokens, row.settled_nanos, row.held_nanos, row.unsettled_tokens = 1, 10, 100, 1000
        return row

    await write(store, spend=[spent(quarter, each) for quarter in (1, 2, 3) for each in ("EUR", "USD")])
    await write(store, spend=[spent(2, "EUR", value="other")])
    asked = WindowKey("c", "r", 2, 3, Subject("t", "RUN", "r"), "EUR")
    found = await load(store, windows=frozenset({asked}))
    new = CeilingWindowRow(
        ceiling_id="c",
        name="r",
        starts_at=2,
        settled_tokens=2,
        settled_nanos=10,
        held_nanos=100,
        unsettled_tokens=2000,
    )
    assert found.windows == [new]
    new.soft_limit, new.held_tokens = 80, 5
    await write(store, windows=[new])
    assert (await load(store, windows=frozenset({asked}))).windows == [new]


async def test_ceilings_and_halts_are_found_by_subject_until_they_are_dropped(store):
    subject, other = Subject("t", "RUN", ""), Subject("t", "RUN", "r")
    window = Window(kind=WindowKind.DAY, time_zone="Europe/Berlin")
    ceiling = Ceiling(
        ceiling_id="a", subject=subject, window=window, tokens=5, nano_units=7, currency="EUR", created_at=3
    )
    halt = Halt(subject=subject, mode=HaltMode.CUT, reason="enough", since=4)
    await write(store, ceilings=[ceiling], halts=[halt])
    found = await load(store, subjects=frozenset({subject, other}), tenants=frozenset({"t", "u"}))
    assert (found.ceilings, found.halts, found.governed) == ([ceiling], [halt], frozenset({"t"}))
    assert (await load(store, ceilings=frozenset({("t", "a"), ("u", "a")}))).ceilings == [ceiling]
    await write(store, dropped_ceilings=[("t", "a")], dropped_halts=[subject])
    found = await load(store, subjects=frozenset({subject}), tenants=frozenset({"t"}))
    assert (found.ceilings, found.halts, found.governed) == ([], [], frozenset())


async def test_what_has_expired_is_found_oldest_first_and_only_while_unsettled(store):
    rows = [a_call(call_id=str(at), state=CallState.UNSETTLED, expires_at=at) for at in (5, 3, 9)]
    done = a_call(call_id="done", state=CallState.WRITTEN_OFF, expires_at=1)
    await write(store, inserted_calls=[*rows, done])
    assert (await load(store, expired_at=5, limit=1)).calls == [rows[1]]
    found = await load(store, expired_at=5)
    assert sorted(row.call_id for row in found.calls) == ["3", "5"]


@pytest.mark.parametrize(
    ("erase", "gone"),
    [
        (Erase(tenant="t", call_id="a"), {"a"}),
        (Erase(tenant="t", run_id="r"), {"a", "b"}),
        (Erase(tenant="t"), {"a", "b", "c"}),
        (Erase(expired_at=20), {"a", "b"}),
    ],
)
async def test_erasure_takes_the_contents_that_are_meant_and_leaves_the_figures(store, erase, gone):
    kept = [("a", "r", 10), ("b", "r", 20), ("c", "", 30)]
    rows = [a_call(call_id=name, run_id=run, state=3, content_expires_at=at) for name, run, at in kept]
    rows.append(a_call(tenant="u", call_id="a", state=3, content_expires_at=99))
    contents = [
        ContentRow(
            tenant=row.tenant, call_id=row.call_id, generation=1, outcome_json=b"{}", provider_body=b"x"
        )
        for row in rows
    ]
    await write(store, inserted_calls=rows, contents=contents)
    changes = Changes(erases=[(0, erase)])
    assert (await store.carry_out([changes], 0)).replies == [len(gone)]
    keys = frozenset(map(key, rows))
    assert {row.call_id for row in (await load(store, contents=keys)).contents if row.tenant == "t"} == {
        "a",
        "b",
        "c",
    } - gone
    word = "expired" if erase.expired_at else "erased"
    left = {row.call_id: row for row in (await load(store, generations=keys)).calls if row.tenant == "t"}
    assert {
        name for name, row in left.items() if row.content_gone == word and row.content_expires_at is None
    } == gone


async def test_owners_rise_and_a_lease_that_ran_out_cannot_be_renewed(store):
    first, second = await store.register(100), await store.register(200)
    assert second > first
    assert await store.renew(first, 99, 150)
    assert await store.fence_expired(150) == [first]
    assert not await store.renew(first, 151, 300)
    assert not await store.renew(second, 200, 300)
    (row,) = (await load(store, owners=frozenset({first}))).servers
    assert row.closed


async def test_a_closed_server_is_named_until_none_of_its_calls_is_open(store):
    owner = await store.register(10)
    await write(store, inserted_calls=[a_call(owner=owner)])
    assert await store.fence_expired(10) == [owner]
    assert await store.fence_expired(11) == [owner]
    ended = a_call(owner=owner, state=3)
    await store.carry_out([Wanted(generations=frozenset({key(ended)})), Changes(updated_calls=[ended])], 0)
    assert await store.fence_expired(12) == []


async def test_a_call_under_way_is_one_object_until_its_server_is_fenced_off(store):
    owner = await store.register(10)
    call = a_call(owner=owner)
    await write(store, owner, inserted_calls=[call])
    wanted: Any = {"generations": frozenset({key(call)})}
    assert (await load(store, owner, **wanted)).calls[0] is call
    await store.fence_expired(10)
    assert (await load(store, owner, **wanted)).calls[0] is not call


async def test_a_batch_that_fails_leaves_nothing_behind(store):
    owner = await store.register(FAR)
    call = a_call(owner=owner)
    await write(store, owner, inserted_calls=[call])
    (kept,) = (await load(store, owner, generations=frozenset({key(call)}))).calls
    kept.model = "changed by a book-keeper that then fails"
    spent = SpendRow(tenant="t", dimension="TENANT", name="", value="", quarter=0, currency="", calls=1)
    with pytest.raises(KeyError):
        await write(store, owner, spend=[spent], updated_calls=[kept, a_call(call_id="never loaded")])
    found = await load(store, owner, generations=frozenset({key(call)}))
    assert [row.model for row in found.calls] == ["m"]


def a_call(**fields: Any) -> Any:
    """Return a call with plain values."""
    from modelmeter_server.ledger.rows import CallRow, Hold

    plain = {
        "tenant": "t",
        "call_id": "c",
        "model": "m",
        "reserved_at": 1,
        "owner": 1,
        "state": CallState.RESERVED,
    }
    return CallRow(hold=Hold(input_tokens=1, output_tokens=2, tokens_per_second=3), **{**plain, **fields})


async def until_waiting_or_done(server: Any, task: asyncio.Task[Any]) -> None:
    """Return when somebody waits for a tenant's lock, or the task did not have to."""
    here = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    waiting = f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND {here}"
    while not task.done():
        if await server.fetchval(waiting):
            return


async def test_a_batch_waits_for_another_servers_batch_about_the_same_tenant(postgres_url):
    other = await asyncpg.connect(postgres_url)
    store = open_store(postgres_url)
    await store.connect()
    try:
        async with other.transaction():
            await other.execute(f"SELECT pg_advisory_xact_lock({tenant_lock('acme')})")
            batch = asyncio.create_task(load(store, calls=frozenset({CallKey("acme", "call")})))
            await until_waiting_or_done(other, batch)
            assert not batch.done()
        assert (await batch).calls == []
    finally:
        await store.close()
        await other.close()
