"""A store in dictionaries that loads and writes as `ledger.batch` says: what the databases are compared with."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from modelmeter_server.core.ceilings import Ceiling, Halt, Scope, Subject
from modelmeter_server.core.journal import CallState
from modelmeter_server.ledger.batch import Changes, Found, Wanted, WindowKey
from modelmeter_server.ledger.bookkeeper import keep_books
from modelmeter_server.ledger.commands import Command, Erase
from modelmeter_server.ledger.rows import (
    AttemptRow,
    CallRow,
    CeilingWindowRow,
    ContentRow,
    ServerRow,
    SpendRow,
)

SPEND_KEY = ("tenant", "dimension", "name", "value", "quarter", "currency")
SPEND_SUMS = tuple(name for name in SpendRow.__struct_fields__ if name not in SPEND_KEY)

_copy = msgspec.structs.replace


class Store(Protocol):
    """What the laws of the ledger are tried on. Times are microseconds since the epoch."""

    def register(self, lease_until: int) -> int:
        """Add a server and return its owner token, higher than every one before."""

    def renew(self, owner: int, lease_until: int) -> None:
        """Prolong a lease."""

    def apply(self, commands: list[Command], own: int) -> list[Any]:
        """Carry out one batch and return its replies."""

    def calls(self) -> list[CallRow]:
        """Return all calls."""

    def attempts(self) -> list[AttemptRow]:
        """Return all attempts."""

    def contents(self) -> list[ContentRow]:
        """Return all contents."""

    def spend(self) -> list[SpendRow]:
        """Return all sums."""

    def windows(self) -> list[CeilingWindowRow]:
        """Return all windows of ceilings that were written."""


class MemoryLedger:
    """A ledger of one process that forgets everything; every row that comes in or goes out is a copy."""

    def __init__(self, *, tells_governed: bool = True) -> None:
        """`tells_governed` is whether it looks up which tenants have ceilings at all."""
        self.call_rows: dict[tuple[str, str, int], CallRow] = {}
        self.attempt_rows: dict[tuple[str, str, int, int, int], AttemptRow] = {}
        self.content_rows: dict[tuple[str, str, int], ContentRow] = {}
        self.window_rows: dict[tuple[str, str, int], CeilingWindowRow] = {}
        self.spend_rows: dict[tuple[Any, ...], SpendRow] = {}
        self.ceilings: dict[tuple[str, str], Ceiling] = {}
        self.halts: dict[Subject, Halt] = {}
        self.servers: dict[int, ServerRow] = {}
        self.loads = 0
        """How often anything was loaded."""
        self._tells_governed = tells_governed

    def register(self, lease_until: int) -> int:
        """Add a server and return its owner token."""
        owner = len(self.servers) + 1
        self.servers[owner] = ServerRow(owner=owner, lease_until=lease_until)
        return owner

    def renew(self, owner: int, lease_until: int) -> None:
        """Prolong a lease."""
        self.servers[owner].lease_until = lease_until

    def apply(self, commands: list[Command], own: int, **options: Any) -> list[Any]:
        """Carry out one batch and return its replies."""
        changes = self.decide(commands, own, **options)
        self.write(changes)
        return changes.replies

    def decide(self, commands: list[Command], own: int, **options: Any) -> Changes:
        """Return what a batch changes, without changing anything."""
        steps = keep_books(commands, own=own, **options)
        try:
            wanted = next(steps)
            while True:
                wanted = steps.send(self.load(wanted))
        except StopIteration as stop:
            changes: Changes = stop.value
            return changes

    def calls(self) -> list[CallRow]:
        """Return all calls."""
        return list(self.call_rows.values())

    def attempts(self) -> list[AttemptRow]:
        """Return all attempts."""
        return list(self.attempt_rows.values())

    def contents(self) -> list[ContentRow]:
        """Return all contents."""
        return list(self.content_rows.values())

    def spend(self) -> list[SpendRow]:
        """Return all sums."""
        return list(self.spend_rows.values())

    def windows(self) -> list[CeilingWindowRow]:
        """Return all windows that were written."""
        return list(self.window_rows.values())

    def load(self, wanted: Wanted) -> Found:
        """Return copies of what is wanted."""
        self.loads += 1
        open_calls = self._open(wanted)
        owned = {_key(row) for row in open_calls}
        rows = {_key(row): row for row in [*self._named(wanted), *open_calls, *self._expired(wanted)]}
        governed = {each.subject.tenant for each in self.ceilings.values()}
        governed |= {subject.tenant for subject in self.halts}
        return Found(
            calls=[_copy(row) for row in rows.values()],
            attempts=[row for row in self.attempt_rows.values() if _key(row) in owned],
            contents=[
                self.content_rows[key] for key in map(_key, wanted.contents) if key in self.content_rows
            ],
            servers=[_copy(self.servers[owner]) for owner in wanted.owners if owner in self.servers],
            governed=frozenset(wanted.tenants & governed) if self._tells_governed else None,
            ceilings=self._ceilings(wanted),
            halts=[self.halts[subject] for subject in wanted.subjects if subject in self.halts],
            windows=[self._window(key) for key in wanted.windows],
        )

    def _named(self, wanted: Wanted) -> list[CallRow]:
        newest: dict[Any, CallRow] = {}
        for row in self.call_rows.values():
            names = [
                *(
                    ("call", key)
                    for key in wanted.calls
                    if (key.tenant, key.call_id) == (row.tenant, row.call_id)
                ),
                *(
                    ("effect", key)
                    for key in wanted.effects
                    if (key.tenant, key.run_id, key.key) == (row.tenant, row.run_id, row.effect_key)
                ),
            ]
            for name in names:
                if name not in newest or newest[name].generation < row.generation:
                    newest[name] = row
        exact = [self.call_rows[key] for key in map(_key, wanted.generations) if key in self.call_rows]
        return [*newest.values(), *exact]

    def _open(self, wanted: Wanted) -> list[CallRow]:
        found = []
        for owner in wanted.open_of:
            rows = [
                r for r in self.call_rows.values() if r.owner == owner and r.state <= CallState.DISPATCHED
            ]
            found += rows[: wanted.limit]
        return found

    def _expired(self, wanted: Wanted) -> list[CallRow]:
        if wanted.expired_at is None:
            return []
        return [
            row
            for row in self.call_rows.values()
            if row.state == CallState.UNSETTLED and (row.expires_at or 0) <= wanted.expired_at
        ][: wanted.limit]

    def _ceilings(self, wanted: Wanted) -> list[Ceiling]:
        return [
            ceiling
            for key, ceiling in self.ceilings.items()
            if key in wanted.ceilings or ceiling.subject in wanted.subjects
        ]

    def _window(self, key: WindowKey) -> CeilingWindowRow:
        found = self.window_rows.get((key.ceiling_id, key.name, key.starts_at))
        return _copy(found) if found else sum_window(key, self.spend())

    def write(self, changes: Changes) -> None:
        """Write the changes of a batch, and put the counts of its erasures into the replies."""
        for row in changes.inserted_calls:
            assert _key(row) not in self.call_rows, "a call is inserted once"
            self.call_rows[_key(row)] = _copy(row)
        for row in changes.updated_calls:
            assert _key(row) in self.call_rows, "a call that is updated is there"
            self.call_rows[_key(row)] = _copy(row)
        for attempt in changes.attempts:
            self.attempt_rows[(*_key(attempt), attempt.dispatch, attempt.number)] = attempt
        self.content_rows.update((_key(content), content) for content in changes.contents)
        self._drop(changes.dropped_ceilings)
        self.ceilings.update(((each.subject.tenant, each.ceiling_id), each) for each in changes.ceilings)
        for window in changes.windows:
            self.window_rows[window.ceiling_id, window.name, window.starts_at] = _copy(window)
        for subject in changes.dropped_halts:
            self.halts.pop(subject, None)
        self.halts.update((halt.subject, halt) for halt in changes.halts)
        for owner in changes.closed_servers:
            self.servers[owner].closed = True
        for increment in changes.spend:
            self._add(increment)
        for index, erase in changes.erases:
            changes.replies[index] = self._erase(erase)

    def _drop(self, ceilings: list[tuple[str, str]]) -> None:
        for key in ceilings:
            self.ceilings.pop(key, None)
            self.window_rows = {name: row for name, row in self.window_rows.items() if name[0] != key[1]}

    def _add(self, increment: SpendRow) -> None:
        key = tuple(getattr(increment, name) for name in SPEND_KEY)
        old = self.spend_rows.get(key)
        if old is None:
            self.spend_rows[key] = _copy(increment)
            return
        for name in SPEND_SUMS:
            setattr(old, name, getattr(old, name) + getattr(increment, name))

    def _erase(self, erase: Erase) -> int:
        gone = [key for key in self.content_rows if _is_meant(erase, self.call_rows[key])]
        for key in gone:
            del self.content_rows[key]
            row = self.call_rows[key]
            row.content_gone = "erased" if erase.expired_at is None else "expired"
            row.content_expires_at = None
        return len(gone)


def sum_window(key: WindowKey, spend: list[SpendRow]) -> CeilingWindowRow:
    """Return the window that the sums of its subject make."""
    row = CeilingWindowRow(ceiling_id=key.ceiling_id, name=key.name, starts_at=key.starts_at)
    subject = key.subject
    value = "" if subject.scope == Scope.TENANT.value else subject.name
    for each in spend:
        whose = (each.tenant, each.dimension, each.name, each.value)
        is_within = key.starts_at <= each.quarter and (key.ends_at is None or each.quarter < key.ends_at)
        if whose != (subject.tenant, subject.scope, "", value) or not is_within:
            continue
        for state in ("settled", "held", "unsettled"):
            units = ("tokens", "nanos") if each.currency == key.currency else ("tokens",)
            for name in (f"{state}_{unit}" for unit in units):
                setattr(row, name, getattr(row, name) + getattr(each, name))
    return row


def _key(row: Any) -> tuple[str, str, int]:
    return (row.tenant, row.call_id, row.generation)


def _is_meant(erase: Erase, row: CallRow) -> bool:
    if erase.expired_at is not None:
        return row.content_expires_at is not None and row.content_expires_at <= erase.expired_at
    if erase.tenant != row.tenant:
        return False
    if erase.call_id:
        return erase.call_id == row.call_id
    return not erase.run_id or erase.run_id == row.run_id
