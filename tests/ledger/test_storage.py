"""A ledger as servers use it, on each database: what is promised is kept, also when the server dies in the middle."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from pathlib import Path

import pytest

from modelmeter_server.core.journal import CallKey, CallState
from modelmeter_server.ledger import queries
from modelmeter_server.ledger.clock import now
from modelmeter_server.ledger.ledger import LedgerUnavailable
from modelmeter_server.ledger.questions import CallsAsked, SpendAsked
from modelmeter_server.ledger.replies import Admitted, Denied, Recorded, UnderWay
from modelmeter_server.ledger.storage import LedgerUrlError, StorageSettings, StoredLedger, open_ledger
from tests.support.ledger_orders import (
    HOLD,
    answering,
    ceiling,
    dispatching,
    noting,
    ref_of,
    reserving,
    told,
)


@pytest.fixture
async def opened(ledger_url):
    """Return a way to open ledgers on one database; they are closed at the end."""
    ledgers: list[StoredLedger] = []

    async def open_one(**settings) -> StoredLedger:
        ledgers.append(await open_ledger(StorageSettings(url=ledger_url, **settings)))
        return ledgers[-1]

    yield open_one
    for ledger in ledgers:
        await ledger.aclose()


def order(ledger: StoredLedger, call_id: str = "call", **more):
    """Return a reservation of this server, now."""
    return reserving(call_id, owner=ledger.owner, at=now(), **more)


async def reserved(ledger: StoredLedger, asked):
    """Return the call that an order admits."""
    admitted = await ledger.reserve(asked)
    assert isinstance(admitted, Admitted)
    return ref_of(asked, admitted)


async def buy(ledger: StoredLedger, call_id: str = "call", **more) -> None:
    """Buy one answer of 10 and 5 tokens."""
    asked = order(ledger, call_id, **more)
    ref = await reserved(ledger, asked)
    assert await ledger.dispatch(dispatching(ref, at=now()))
    assert await ledger.settle(answering(ref, told(10, 5), at=now()))


async def every_call(ledger: StoredLedger):
    """Return all calls of the tenant of these tests."""
    return await ledger.read(lambda c: queries.list_calls(c, CallsAsked(tenant="acme", limit=1000)))


async def test_a_settled_answer_is_there_after_the_server_has_started_anew(opened):
    first = await opened()
    await buy(first)
    second = await opened()
    repeated = await second.reserve(order(second))
    assert isinstance(repeated, Recorded)
    assert repeated.content is not None
    assert repeated.content.outcome_json == b"{}"
    key = CallKey("acme", "call")
    row = await second.read(lambda c: queries.find_call(c, key))
    assert row == repeated.row
    assert row.state == CallState.SETTLED
    assert len(await second.read(lambda c: queries.find_attempts(c, key))) == 1


async def test_a_repetition_of_a_call_under_way_elsewhere_waits(opened):
    first, second = await opened(), await opened()
    assert isinstance(await first.reserve(order(first)), Admitted)
    reply = await second.reserve(order(second))
    assert isinstance(reply, UnderWay)
    assert reply.owner == first.owner


async def test_the_newest_checkpoint_is_written_and_one_of_an_ended_call_is_not(opened):
    ledger = await opened()
    asked = order(ledger)
    ref = await reserved(ledger, asked)
    await ledger.dispatch(dispatching(ref))
    for written in (1, 2, 3):
        ledger.checkpoint(noting(ref, told(10, written, "AT_LEAST"), at=now()))
    # Whatever is told later is written later.
    await buy(ledger, "other")
    row = await ledger.read(lambda c: queries.find_call(c, ref.call))
    assert row.figures.output_tokens == 3
    ledger.checkpoint(noting(ref, told(10, 4, "AT_LEAST"), at=now()))
    assert await ledger.settle(answering(ref, told(10, 9), at=now()))
    row = await ledger.read(lambda c: queries.find_call(c, ref.call))
    assert (row.figures.output_tokens, row.state) == (9, CallState.SETTLED)


async def test_calls_of_a_server_whose_lease_ran_out_are_closed_and_it_may_dispatch_no_more(opened):
    zombie, heir = await opened(lease_seconds=1), await opened()
    asked = order(zombie)
    ref = await reserved(zombie, asked)
    assert await zombie.dispatch(dispatching(ref, at=now()))
    zombie._tasks[1].cancel()
    while not (await every_call(heir))[0].kind:
        await heir._lease.close_expired()
    (row,) = await every_call(heir)
    assert (row.kind, row.state) == ("UNAVAILABLE", CallState.UNSETTLED)
    assert not await zombie.dispatch(dispatching(ref, at=now(), number=2))
    refused = await zombie.reserve(order(zombie, "next"))
    assert isinstance(refused, Denied)
    old = zombie.owner
    await zombie._lease.turn()
    assert zombie.owner > old
    await buy(zombie, "next")
    assert await zombie.settle(answering(ref, told(10, 5), at=now()))
    late = await heir.read(lambda c: queries.find_call(c, ref.call))
    assert (late.reconciled_by, late.figures.certainty) == ("late", "EXACT")


async def test_the_lease_is_renewed_while_there_is_always_more_to_write(opened, monkeypatch):
    ledger = await opened()
    carry_out, more = ledger._store.carry_out, itertools.count()

    async def carry_out_as_the_next_comes_in(commands, owner):
        ledger._writer.submit(order(ledger, f"call-{next(more)}"))
        return await carry_out(commands, owner)

    monkeypatch.setattr(ledger._store, "carry_out", carry_out_as_the_next_comes_in)
    await ledger.reserve(order(ledger))
    async with asyncio.timeout(10):
        await ledger._lease.turn()
    monkeypatch.undo()


async def test_a_ceiling_of_a_hundred_calls_admits_a_hundred_of_four_hundred_on_two_servers(opened):
    from modelmeter_server.ledger.commands import PutCeiling

    servers = [await opened(), await opened()]
    await servers[0].order(PutCeiling(ceiling=ceiling(tokens=100 * HOLD.tokens)))
    orders = [(servers[number % 2], order(servers[number % 2], f"call-{number}")) for number in range(400)]
    replies = await asyncio.gather(*(ledger.reserve(asked) for ledger, asked in orders))
    assert sum(isinstance(reply, Admitted) for reply in replies) == 100
    assert sum(isinstance(reply, Denied) for reply in replies) == 300
    (total,) = await servers[1].read(lambda c: queries.get_spend(c, SpendAsked(tenant="acme", limit=2)))
    assert total.held_tokens == 100 * HOLD.tokens


async def test_the_same_effect_from_two_servers_at_once_is_admitted_once(opened):
    servers = [await opened(), await opened()]
    for number in range(20):
        asked = [order(each, f"{number}-{each.owner}", key=f"step-{number}") for each in servers]
        replies = await asyncio.gather(
            *(ledger.reserve(one) for ledger, one in zip(servers, asked, strict=True))
        )
        assert sorted(type(reply).__name__ for reply in replies) == ["Admitted", "UnderWay"]


async def test_room_of_a_caller_that_left_before_the_answer_is_given_back(opened):
    ledger = await opened()
    waiting = asyncio.ensure_future(ledger.reserve(order(ledger)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await buy(ledger, "other")
    rows = {row.call_id: row for row in await every_call(ledger)}
    assert "call" not in rows or rows["call"].booking.held_tokens == 0


_CHILD = """
import asyncio, sys
from modelmeter_server.ledger.clock import now
from modelmeter_server.ledger.storage import StorageSettings, open_ledger
from tests.support.ledger_orders import answering, dispatching, ref_of, reserving, told

async def buy(ledger, number):
    asked = reserving(f"call-{number}", owner=ledger.owner, at=now())
    ref = ref_of(asked, await ledger.reserve(asked))
    print("reserved", number, flush=True)
    await ledger.dispatch(dispatching(ref, at=now()))
    print("dispatched", number, flush=True)
    if await ledger.settle(answering(ref, told(10, 5), at=now())):
        print("settled", number, flush=True)

async def main():
    ledger = await open_ledger(StorageSettings(url=sys.argv[1], lease_seconds=1))
    numbers = iter(range(10_000))
    async def caller():
        for number in numbers:
            await buy(ledger, number)
    await asyncio.gather(*(caller() for _ in range(8)))

asyncio.run(main())
"""


@pytest.mark.parametrize("lines", [1, 40, 333])
async def test_what_was_told_before_a_kill_is_in_the_ledger_after_it(ledger_url, lines):
    root = Path(__file__).parents[2]
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CHILD, ledger_url, stdout=asyncio.subprocess.PIPE, cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert child.stdout is not None
    heard = [(await child.stdout.readline()).decode().split() for _ in range(lines)]
    child.send_signal(signal.SIGKILL)
    heard += [line.split() for line in (await child.stdout.read()).decode().splitlines() if " " in line]
    await child.wait()
    ledger = await open_ledger(StorageSettings(url=ledger_url))
    rows = {row.call_id: row for row in await every_call(ledger)}
    least = {"reserved": CallState.RESERVED, "dispatched": CallState.DISPATCHED, "settled": CallState.SETTLED}
    for word, number in (each for each in heard if len(each) == 2):
        assert rows[f"call-{number}"].state >= least[word]
    await ledger.aclose()


async def test_closing_books_what_waits(opened, ledger_url):
    ledger = await open_ledger(StorageSettings(url=ledger_url))
    asked = order(ledger)
    ref = await reserved(ledger, asked)
    booked = asyncio.ensure_future(ledger.settle(answering(ref, told(10, 5), at=now())))
    await asyncio.sleep(0)
    await ledger.aclose()
    assert await booked
    (row,) = await every_call(await opened())
    assert row.state == CallState.SETTLED


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://root:hunter2@db/x", "begins with sqlite:/// or postgresql://"),
        ("sqlite://ledger.db", "write sqlite:///FILE"),
        ("sqlite:///:memory:", "name a file"),
        ("sqlite:///a.db?mode=memory", "takes no options"),
        ("postgresql://me:hunter2@db", "name the database"),
        ("postgresql://me:hunter2@db:port/x", "is its port a number"),
    ],
)
async def test_a_url_that_names_no_ledger_is_refused_without_its_password(url, said):
    with pytest.raises(LedgerUrlError, match=said) as refused:
        await open_ledger(StorageSettings(url=url))
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://me:hunter2@127.0.0.1:1/x?password=hunter2", "PostgreSQL at 127.0.0.1:1, database x"),
        ("sqlite:////no/such/folder/ledger.db", "/no/such/folder/ledger.db, in a folder"),
    ],
)
async def test_a_database_that_cannot_be_reached_is_named_without_its_password(url, place):
    with pytest.raises(LedgerUnavailable) as refused:
        await open_ledger(StorageSettings(url=url))
    assert "the ledger cannot be opened" in str(refused.value)
    assert place in str(refused.value)
    assert "hunter2" not in str(refused.value)
