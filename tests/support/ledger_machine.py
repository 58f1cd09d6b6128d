"""The laws of the ledger as a state machine: two servers, four calls, a provider with a log, and everything goes wrong.

    class TestMine(ledger_machine(make_store).TestCase): ...

`make_store` returns an empty `memory_ledger.Store`; it is called once for each example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from modelmeter_server.core.ceilings import Ceiling, Subject, Window, WindowKind
from modelmeter_server.core.journal import CallKey, OnLandedError
from modelmeter_server.core.outcomes import Kind
from modelmeter_server.ledger.commands import (
    Again,
    CallRef,
    CloseServer,
    Erase,
    PutCeiling,
    Reconcile,
    Reserve,
    Settle,
    WriteOff,
)
from modelmeter_server.ledger.replies import Admitted, Denied, Recorded, UnderWay
from modelmeter_server.ledger.rows import CallRow
from tests.support import ledger_recount as recount
from tests.support.ledger_orders import (
    HOLD,
    NOTHING_BILLED,
    NOTHING_TOLD,
    NOW,
    SECOND,
    answering,
    attempt_of,
    dispatching,
    failing,
    noting,
    ref_of,
    reserving,
    told,
    trying,
)
from tests.support.memory_ledger import Store

LEASE = 10 * SECOND
ROLLING = Window(kind=WindowKind.ROLLING, seconds=3600)
DAY = Window(kind=WindowKind.DAY, time_zone="Asia/Kathmandu")
CEILINGS = (
    Ceiling(ceiling_id="tenant", subject=Subject("acme", "TENANT", ""), tokens=900),
    Ceiling(ceiling_id="runs", subject=Subject("acme", "RUN", ""), tokens=450, window=ROLLING),
    Ceiling(
        ceiling_id="model",
        subject=Subject("acme", "MODEL", "large"),
        nano_units=9_000,
        tokens=600,
        currency="USD",
        window=DAY,
    ),
)
SLOW = msgspec.structs.replace(HOLD, abort_stops_billing=False)

tenants = st.sampled_from(["acme", "acme", "acme", "free"])
call_ids = st.sampled_from(["c0", "c1", "c2", "c3"])
effects = st.none() | st.tuples(st.sampled_from(["r0", "r1"]), st.sampled_from(["k0", "k1"]))
shares = st.integers(0, 100)
KINDS = (
    "",
    "INTERRUPTED",
    "UNACCOUNTED",
    "UNUSABLE",
    "UNAVAILABLE",
    "REFUSED",
    "RATE_LIMITED",
    "UNREACHABLE",
)

TRIED_KINDS = ("UNUSABLE", "RATE_LIMITED", "UNAVAILABLE")


class Flight:
    """A call under way on a server, and what its provider has in its log."""

    def __init__(self, ref: CallRef, order: Reserve, output: int) -> None:
        self.ref, self.order, self.output = ref, order, output
        self.number = 1
        """Of the attempt."""
        self.sent = False
        self.read = self.written = 0
        """What the provider really did, and bills."""
        self.shown = 0
        """Output tokens that a checkpoint has told."""
        self.noted = False
        """Whether there was one."""


Log = dict[tuple[str, str, int], list[Flight]]


class LedgerMachine(RuleBasedStateMachine):
    """The rules; a subclass says where its ledger is."""

    make_store: Callable[[], Store]

    def __init__(self) -> None:
        super().__init__()
        self.store = type(self).make_store()
        self.now = NOW
        self.flights: list[Flight] = []
        self.lost: list[Flight] = []
        """Of servers that were given up."""
        self.log: Log = {}
        self.least: dict[tuple[str, str, int], int] = {}
        self.pinned: dict[tuple[str, str, int], tuple[str, str]] = {}
        self.owners = [self.store.register(self.now + LEASE) for _ in range(2)]

    def tell(self, *commands: Any, own: int | None = None) -> list[Any]:
        return self.store.apply(list(commands), own if own is not None else self.owners[0])

    def row_of(self, ref: CallRef) -> CallRow:
        key = (ref.call.tenant, ref.call.call_id, ref.generation)
        (row,) = [r for r in self.store.calls() if (r.tenant, r.call_id, r.generation) == key]
        return row

    @initialize()
    def set_ceilings(self) -> None:
        self.tell(*(PutCeiling(ceiling=each) for each in CEILINGS))

    @rule(seconds=st.sampled_from([1, 60, 900, 3600, 86_400]))
    def wait(self, seconds: int) -> None:
        self.now += seconds * SECOND
        for owner in self.owners:
            self.store.renew(owner, self.now + LEASE)

    # The life of a call

    @rule(
        tenant=tenants,
        call_id=call_ids,
        effect=effects,
        server=st.integers(0, 1),
        model=st.sampled_from(["large", "small"]),
        retry=st.booleans(),
        least=st.none() | st.integers(1, 50),
        slow=st.booleans(),
        sent=st.none() | st.tuples(shares, shares),
    )
    def reserve(self, tenant, call_id, effect, server, model, retry, least, slow, sent) -> None:
        on = {"on_landed_error": OnLandedError.RETRY if retry else OnLandedError.REPLAY}
        more = {"run": effect[0], "key": effect[1], "on": on} if effect else {}
        order = reserving(
            call_id,
            tenant=tenant,
            owner=self.owners[server],
            at=self.now,
            model=model,
            least_output=least,
            hold=SLOW if slow else HOLD,
            labels={"team": call_id},
            **more,
        )
        before = {self._key(row): row for row in self.store.calls()}
        (reply,) = self.tell(order)
        if isinstance(reply, Admitted):
            self._take_off(order, reply, before, retry=retry)
            if sent is not None:
                self._send(self.flights[-1], *sent)
        elif isinstance(reply, Denied):
            assert reply.kind in (Kind.CEILING, Kind.OUTCOME_GONE, Kind.CALL_ID_CONFLICT)
            assert reply.kind is not Kind.CEILING or reply.standings
        elif isinstance(reply, Recorded):
            assert reply.row.disposition != "DID_NOT_HAPPEN"
        else:
            assert isinstance(reply, UnderWay)

    def _take_off(self, order: Reserve, reply: Admitted, before: dict[Any, CallRow], *, retry: bool) -> None:
        ref = ref_of(order, reply)
        assert order.least_output is None or reply.output_tokens >= order.least_output
        assert reply.output_tokens <= order.hold.output_tokens
        key = (ref.call.tenant, ref.call.call_id, ref.generation)
        old = before.get(key)
        assert old is None or old.disposition == "DID_NOT_HAPPEN", "what landed is not bought again"
        earlier = before.get((*key[:2], ref.generation - 1))
        assert earlier is None or (retry and earlier.kind)
        self.flights.append(Flight(ref, order, reply.output_tokens))
        self.least[key] = recount.counted_tokens(self.row_of(ref))

    @precondition(lambda self: not all(flight.sent for flight in self.flights))
    @rule(which=st.integers(0, 9), read=shares, written=shares)
    def dispatch(self, which: int, read: int, written: int) -> None:
        waiting = [flight for flight in self.flights if not flight.sent]
        self._send(waiting[which % len(waiting)], read, written)

    def _send(self, flight: Flight, read: int, written: int) -> None:
        assert self.tell(dispatching(flight.ref, at=self.now, number=flight.number)) == [True]
        flight.sent = True
        flight.read, flight.written = read, min(written, flight.output)
        self.log.setdefault(self._key(flight.ref), []).append(flight)

    @precondition(lambda self: any(flight.sent for flight in self.flights))
    @rule(which=st.integers(0, 9), share=shares)
    def checkpoint(self, which: int, share: int) -> None:
        sent = [flight for flight in self.flights if flight.sent]
        flight = sent[which % len(sent)]
        flight.shown = max(flight.shown, flight.written * share // 100)
        flight.noted = True
        self.tell(noting(flight.ref, told(flight.read, flight.shown, "AT_LEAST"), at=self.now))

    @precondition(lambda self: any(flight.sent for flight in self.flights))
    @rule(which=st.integers(0, 9), kind=st.sampled_from(TRIED_KINDS), twice=st.booleans())
    def try_again(self, which: int, kind: str, twice: bool) -> None:
        sent = [flight for flight in self.flights if flight.sent]
        flight = sent[which % len(sent)]
        order = self._another(flight, "UNUSABLE" if flight.noted else kind)
        before = self.row_of(flight.ref)
        (reply,) = self.tell(order)
        after = self.row_of(flight.ref)
        if isinstance(reply, Denied):
            assert after == before, "what has no room changes nothing"
            return
        if twice:
            assert self.tell(order) == [True]
            assert self.row_of(flight.ref) == after, "an attempt is booked once"
        following = Flight(flight.ref, flight.order, flight.output)
        following.number = flight.number + 1
        self.flights[self.flights.index(flight)] = following
        self.least[self._key(flight.ref)] = recount.counted_tokens(after)

    def _another(self, flight: Flight, kind: str) -> Again:
        """Return the word that an attempt ended so and that another one is wanted, true of what the provider did."""
        figures = told(flight.read, flight.written)
        if kind != "UNUSABLE":
            figures = NOTHING_TOLD if kind == "UNAVAILABLE" else NOTHING_BILLED
        if kind == "RATE_LIMITED":
            flight.read = flight.written = 0
        landed = kind == "UNUSABLE"
        row = attempt_of(flight.ref, figures, number=flight.number, kind=kind)
        return trying(flight.ref, kind, figures, row, at=self.now, landed=landed, seconds=flight.written / 10)

    @precondition(lambda self: self.flights)
    @rule(which=st.integers(0, 9), kind=st.sampled_from(KINDS), share=shares, twice=st.booleans())
    def settle(self, which: int, kind: str, share: int, twice: bool) -> None:
        flight = self.flights.pop(which % len(self.flights))
        order = self._outcome(flight, kind, share)
        assert self.tell(*([order, order] if twice else [order])) == ([True, True] if twice else [True])
        row = self.row_of(flight.ref)
        self.tell(order)
        assert self.row_of(flight.ref) == row, "a settlement that comes again changes nothing"

    def _outcome(self, flight: Flight, kind: str, share: int) -> Settle:
        """Return an outcome that is true of what the provider did, as far as it tells anything."""
        if flight.number > 1 and not flight.sent:
            # It ended between two attempts; what it says of the one that is booked is not booked again.
            ended = failing(flight.ref, "RATE_LIMITED", told(9, 9), at=self.now, landed=False)
            return msgspec.structs.replace(ended, number=flight.number - 1, attempts=())
        order = self._outcome_of_the_newest(flight, kind, share)
        numbered = tuple(msgspec.structs.replace(each, number=flight.number) for each in order.attempts)
        return msgspec.structs.replace(order, number=flight.number, attempts=numbered)

    def _outcome_of_the_newest(self, flight: Flight, kind: str, share: int) -> Settle:
        ref, at = flight.ref, self.now
        if not flight.sent:
            return failing(ref, "UNREACHABLE", NOTHING_BILLED, at=at, landed=False, written=False)
        if flight.noted and kind not in ("", "INTERRUPTED", "UNUSABLE"):
            kind = "INTERRUPTED"
        truth = told(flight.read, flight.written)
        seconds = flight.written / 10
        if kind in ("", "UNUSABLE"):
            return answering(ref, truth, at=at, kind=kind)
        if kind == "INTERRUPTED":
            flight.shown = max(flight.shown, flight.written * share // 100)
            seen = told(flight.read, flight.shown, "AT_LEAST")
            return failing(ref, kind, seen, at=at, landed=True, generating_seconds=seconds)
        if kind in ("UNACCOUNTED", "UNAVAILABLE"):
            landed = kind == "UNACCOUNTED"
            return failing(ref, kind, NOTHING_TOLD, at=at, landed=landed, generating_seconds=seconds)
        flight.read = flight.written = 0
        return failing(ref, kind, NOTHING_BILLED, at=at, landed=False)

    @rule(size=st.integers(1, 4), at=st.integers(0, 10**6))
    def burst(self, size: int, at: int) -> None:
        """Reserve, send, note and settle fresh calls within one batch."""
        orders = [
            reserving(f"b{self.now}-{at}-{number}", at=self.now, owner=self.owners[0])
            for number in range(size)
        ]
        commands: list[Any] = []
        known = {self._key(row) for row in self.store.calls()}
        for order in orders:
            ref = CallRef(call=order.call, generation=1, dispatch=1, owner=order.owner)
            if self._key(ref) in known:
                return
            commands += [order, dispatching(ref, at=self.now), noting(ref, told(5, 1, "AT_LEAST"))]
            commands.append(answering(ref, told(5, 5), at=self.now))
        replies = self.tell(*commands)
        for order, reply, sent in zip(orders, replies[::4], replies[1::4], strict=True):
            assert sent is isinstance(reply, Admitted), "what was refused is not sent"
            if isinstance(reply, Admitted):
                flight = Flight(ref_of(order, reply), order, 50)
                flight.read = flight.written = 5
                self.log[self._key(flight.ref)] = [flight]

    # What goes wrong, and what mends it

    @rule(server=st.integers(0, 1), silence=st.sampled_from([0, 20 * SECOND]))
    def crash(self, server: int, silence: int) -> None:
        """Let a server die, and the other one give up what it left behind."""
        dead = self.owners[server]
        other = self.owners[1 - server]
        self.now += LEASE + 1 + silence
        self.store.renew(other, self.now + LEASE)
        mine = [flight for flight in self.flights if flight.ref.owner == dead]
        closed = 0
        while count := self.tell(CloseServer(owner=dead, at=self.now), own=other)[0]:
            closed += count
        assert closed == len(mine)
        self.flights = [flight for flight in self.flights if flight.ref.owner != dead]
        self.lost += mine
        fenced = reserving("fenced", owner=dead, at=self.now)
        assert [reply.kind for reply in self.tell(fenced)] == [Kind.LEDGER_DOWN]
        assert not any(self.tell(*(dispatching(flight.ref, at=self.now) for flight in mine)))
        self.owners[server] = self.store.register(self.now + LEASE)

    @precondition(lambda self: self.lost)
    @rule(which=st.integers(0, 9), kind=st.sampled_from(KINDS), share=shares)
    def settle_late(self, which: int, kind: str, share: int) -> None:
        flight = self.lost.pop(which % len(self.lost))
        before = self.row_of(flight.ref)
        assert self.tell(self._outcome(flight, kind, share)) == [True]
        after = self.row_of(flight.ref)
        assert (after.kind, after.disposition) == (before.kind, before.disposition)

    @precondition(lambda self: self.log)
    @rule(which=st.integers(0, 99), exact=st.booleans(), by=st.sampled_from(["provider", "operator"]))
    def reconcile(self, which: int, exact: bool, by: str) -> None:
        key = list(self.log)[which % len(self.log)]
        flights = self.log[key] if by == "operator" else self.log[key][-1:]
        if by == "provider" and flights[-1].ref.dispatch != self.row_of(flights[-1].ref).dispatch:
            return
        figures = told(sum(f.read for f in flights), sum(f.written for f in flights))
        if not exact:
            figures = told(flights[-1].read, flights[-1].written // 2, "AT_LEAST")
        for flight in flights:
            flight.noted = True  # what a provider has told, its late refusal cannot untell
        call = CallKey(key[0], key[1])
        (reply,) = self.tell(Reconcile(call=call, generation=key[2], at=self.now, figures=figures, by=by))
        if reply.raised and exact:
            assert reply.row.figures.certainty == "EXACT"

    @rule()
    def write_off(self) -> None:
        self.tell(WriteOff(at=self.now))
        assert not [r for r in self.store.calls() if r.state == 4 and (r.expires_at or 0) <= self.now]

    @rule(what=st.sampled_from(["call", "run", "tenant", "expired"]), call_id=call_ids)
    def erase(self, what: str, call_id: str) -> None:
        orders = {
            "call": Erase(tenant="acme", call_id=call_id),
            "run": Erase(tenant="acme", run_id="r0"),
            "tenant": Erase(tenant="acme"),
            "expired": Erase(expired_at=self.now),
        }
        sums = recount.spend_in(self.store.spend())
        assert self.tell(orders[what])[0] >= 0
        assert recount.spend_in(self.store.spend()) == sums, "an erasure touches no sum"

    # Laws

    @staticmethod
    def _key(row: Any) -> tuple[str, str, int]:
        call = getattr(row, "call", row)
        return (call.tenant, call.call_id, row.generation)

    @invariant()
    def nothing_is_negative(self) -> None:
        rows: list[Any] = [row.booking for row in self.store.calls()]
        for row in (*rows, *self.store.spend(), *self.store.windows()):
            assert all(getattr(row, name) >= 0 for name in recount.AMOUNTS if hasattr(row, name)), row

    @invariant()
    def sums_are_those_of_the_calls(self) -> None:
        assert recount.spend_in(self.store.spend()) == recount.spend_of(self.store.calls())

    @invariant()
    def windows_are_those_of_the_calls(self) -> None:
        calls = self.store.calls()
        ceilings = {each.ceiling_id: each for each in CEILINGS}
        for window in self.store.windows():
            ceiling = ceilings[window.ceiling_id]
            held = {name: getattr(window, name) for name in recount.COUNTED}
            assert held == recount.counted_in(ceiling, window.name, window.starts_at, calls), window

    @invariant()
    def open_calls_are_those_under_way(self) -> None:
        rows = [row for row in self.store.calls() if row.state <= 2]
        assert sorted(map(self._key, rows)) == sorted(self._key(flight.ref) for flight in self.flights)
        assert all(row.booking.held_tokens == row.hold.tokens for row in rows)

    @invariant()
    def ceilings_hold(self) -> None:
        """At every moment what counts is within the ceiling, but for what calls regained after they had let it go."""
        calls = self.store.calls()
        for row in calls:
            key = self._key(row)
            self.least[key] = min(recount.counted_tokens(row), self.least.get(key, 10**9))
        for ceiling in CEILINGS:
            for name in {"TENANT": [""], "RUN": ["r0", "r1"], "MODEL": ["large"]}[ceiling.subject.scope]:
                mine = [
                    row
                    for row in calls
                    if recount.is_about(ceiling, name, row) and self._counts(ceiling, row)
                ]
                regained = sum(recount.counted_tokens(row) - self.least[self._key(row)] for row in mine)
                assert ceiling.tokens is not None
                assert sum(map(recount.counted_tokens, mine)) <= ceiling.tokens + regained

    def _counts(self, ceiling: Ceiling, row: CallRow) -> bool:
        if ceiling.window.kind is WindowKind.ROLLING:
            return row.reserved_at > self.now - ceiling.window.seconds * SECOND
        return recount.bounds_at(ceiling.window, row.reserved_at) == recount.bounds_at(
            ceiling.window, self.now
        )

    @invariant()
    def nothing_is_booked_that_the_provider_did_not_do_and_nothing_it_did_is_lost(self) -> None:
        rows = {self._key(row): row for row in self.store.calls()}
        for key, row in rows.items():
            spent = sum(flight.read + flight.written for flight in self.log.get(key, ()))
            booked = row.booking
            assert booked.settled_tokens <= spent
            covered = recount.counted_tokens(row) + booked.written_off_tokens
            assert covered >= spent or row.state <= 2
            if row.figures.certainty == "EXACT" and row.carried is None:
                assert booked.settled_tokens == spent

    @invariant()
    def attempts_add_up_to_their_call(self) -> None:
        told_by: dict[Any, int] = {}
        for attempt in self.store.attempts():
            key = self._key(attempt)
            told_by[key] = told_by.get(key, 0) + attempt.figures.tokens
        for row in self.store.calls():
            if row.state <= 2 or row.reconciled_by in ("provider", "operator"):
                continue
            carried = row.carried.input_tokens + row.carried.output_tokens if row.carried else 0
            if not carried:
                assert told_by.get(self._key(row), 0) == row.figures.tokens

    @invariant()
    def what_landed_stays_as_it_was_recorded(self) -> None:
        rows = {self._key(row): (row.kind, row.disposition) for row in self.store.calls() if row.state > 2}
        landed = {key: outcome for key, outcome in rows.items() if outcome[1] != "DID_NOT_HAPPEN"}
        assert self.pinned.items() <= landed.items()
        self.pinned = landed


def ledger_machine(make_store: Callable[[], Store]) -> type[LedgerMachine]:
    """Return the machine for one kind of store."""
    return type("StoredLedgerMachine", (LedgerMachine,), {"make_store": staticmethod(make_store)})
