"""One batch in a transaction of PostgreSQL: load what the book-keeper wants, write what it changed.

Tenants are locked, in the order of their keys, before anything of theirs is read: so what the book-keeper decides by
cannot change under it, and servers wait for each other only about the same tenant. The own row in `servers` is held as
well: whoever fences this server off waits until the batch is over, and every later batch sees it.
"""

# ruff: noqa: S608 (statements are put together from names in this package; values are parameters)

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from .batch import Found
from .loaded import LoadedCalls, key_of, newest, tenants_of
from .packing import (
    CALL_SELECTION,
    CEILING_COLUMNS,
    HALT_COLUMNS,
    WINDOW_COLUMNS,
    attempt_of,
    halt_of,
)
from .records import (
    call_keys,
    ceilings_of,
    contents_of,
    effect_keys,
    generation_keys,
    is_fenced_off,
    new_window,
    spend_of,
    standing_of,
    subject_keys,
    window_places,
    windows_of,
)
from .statements import WINDOW_SUMS, Statements, erase_condition
from .writes import writes

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from modelmeter_server.core.ceilings import Ceiling

    from .batch import Changes, GenerationKey, Wanted, WindowKey
    from .commands import Erase
    from .rows import AttemptRow, CallRow, CeilingWindowRow, ServerRow

_SQL = Statements(lambda number: f"${number}")


def _joined(table: str, selection: str, **columns: str) -> str:
    """Select rows by keys; one array a column."""
    arrays = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(columns.values(), 1))
    match = " AND ".join(f"{table}.{name} = asked.{name}" for name in columns)
    return f"SELECT {selection} FROM unnest({arrays}) AS asked ({', '.join(columns)}) JOIN {table} ON {match}"


_CALL = {"tenant": "text", "call_id": "text"}
_BY_CALL = _joined("calls", CALL_SELECTION, **_CALL)
_BY_GENERATION = _joined("calls", CALL_SELECTION, **_CALL, generation="int")
_BY_EFFECT = (
    _joined("calls", CALL_SELECTION, tenant="text", run_id="text", effect_key="text")
    + " AND calls.run_id <> ''"
)
_OPEN_OF = f"SELECT {CALL_SELECTION} FROM calls WHERE owner = $1 AND state <= 2 AND tenant = ANY($2) LIMIT $3"
_OPEN_TENANTS = "SELECT DISTINCT tenant FROM calls WHERE owner = ANY($1::bigint[]) AND state <= 2"
_EXPIRED_CALLS = "FROM calls WHERE state = 4 AND expires_at <= $1"
_EXPIRED = (
    f"SELECT {CALL_SELECTION} {_EXPIRED_CALLS} AND tenant = ANY($2::text[]) ORDER BY expires_at LIMIT $3"
)
_EXPIRED_TENANTS = (
    f"SELECT DISTINCT tenant FROM (SELECT tenant {_EXPIRED_CALLS} ORDER BY expires_at LIMIT $2) AS expired"
)
_ATTEMPTS = "SELECT dispatch, number, detail FROM attempts WHERE call = $1 ORDER BY dispatch, number"
_CONTENTS = (
    _joined(
        "calls",
        "calls.tenant, calls.call_id, calls.generation, outcome, provider_body",
        **_CALL,
        generation="int",
    )
    + " JOIN contents ON contents.call = calls.id"
)
_SUBJECT = {"tenant": "text", "scope": "text", "name": "text"}
_CEILING_SELECTION = ", ".join(f"ceilings.{name}" for name in CEILING_COLUMNS)
_CEILINGS_OF = _joined("ceilings", _CEILING_SELECTION, **_SUBJECT)
_CEILINGS = _joined("ceilings", _CEILING_SELECTION, tenant="text", ceiling_id="text")
_HALTS = _joined("halts", ", ".join(f"halts.{name}" for name in HALT_COLUMNS), **_SUBJECT)
_STANDING = (
    "SELECT owner, lease_until, closed, NULL FROM servers WHERE owner = ANY($1::bigint[])"
    " UNION ALL SELECT NULL, NULL, NULL, tenant FROM unnest($2::text[]) AS asked (tenant) WHERE EXISTS"
    " (SELECT 1 FROM ceilings WHERE ceilings.tenant = asked.tenant)"
    " OR EXISTS (SELECT 1 FROM halts WHERE halts.tenant = asked.tenant)"
)
"""Servers, then the tenants that have a ceiling or a halt: one question, because every batch asks both."""
_WINDOWS = _joined(
    "ceiling_windows",
    ", ".join(f"ceiling_windows.{name}" for name in WINDOW_COLUMNS),
    ceiling_id="text",
    name="text",
    starts_at="bigint",
)
_NEW_WINDOW = (
    f"SELECT {WINDOW_SUMS.format(currency='$1')} FROM spend WHERE tenant = $2 AND dimension = $3 AND name = ''"
    " AND value = $4 AND quarter >= $5 AND quarter < $6"
)
_BLOCK = 1000
"""The increment of the sequence `call_ids`."""


class PostgresBatch:
    """A connection that writes, and the calls it has loaded."""

    def __init__(self, connection: Any) -> None:
        """Take a connection of asyncpg."""
        self.connection = connection
        self.calls = LoadedCalls()
        self._locked: set[str] = set()
        self._ids: Iterator[int] = iter(())

    async def carry_out(self, steps: Generator[Wanted, Found, Changes], owner: int) -> Changes:
        """Answer the book-keeper until it has decided, and write that. After an error the transaction is open."""
        self.calls.begin()
        self._locked = set()
        changes = await self._decide(steps, owner)
        await self._write(changes)
        await self.connection.execute("COMMIT")
        return changes

    async def _decide(self, steps: Generator[Wanted, Found, Changes], owner: int) -> Changes:
        found = None
        try:
            while True:
                wanted = next(steps) if found is None else steps.send(found)
                if found is None:
                    await self._begin(tenants_of(wanted), owner)
                    found = await self._load(wanted, owner)
                else:
                    found = await self._load(wanted)
        except StopIteration as stop:
            if found is None:
                await self._begin(set(), owner)
            changes: Changes = stop.value
            return changes

    async def _begin(self, tenants: set[str], owner: int) -> None:
        held = f"SELECT 1 FROM servers WHERE owner = {owner:d} FOR SHARE"
        await self.connection.execute("; ".join(("BEGIN", *self._locks(tenants), held)))

    def _locks(self, tenants: set[str]) -> list[str]:
        new = tenants - self._locked
        self._locked |= new
        return [f"SELECT pg_advisory_xact_lock({key})" for key in sorted(map(tenant_lock, new))]

    async def _lock(self, tenants: set[str]) -> None:
        if locks := self._locks(tenants):
            await self.connection.execute("; ".join(locks))

    async def _keyed(self, statement: str, keys: Iterable[tuple[Any, ...]]) -> list[Any]:
        columns = list(zip(*keys, strict=True))
        return await self.connection.fetch(statement, *columns) if columns else []

    async def _load(self, wanted: Wanted, own: int | None = None) -> Found:
        await self._lock(tenants_of(wanted))
        servers, governed = await self._load_standing(wanted, own)
        calls = await self._load_calls(wanted)
        taken_over = [call for call in calls.values() if call.owner in wanted.open_of]
        return Found(
            calls=list(calls.values()),
            attempts=[row for call in taken_over for row in await self._attempts(call)],
            contents=contents_of(await self._keyed(_CONTENTS, generation_keys(wanted.contents))),
            servers=servers,
            governed=governed,
            ceilings=await self._load_ceilings(wanted),
            halts=list(map(halt_of, await self._keyed(_HALTS, subject_keys(wanted)))),
            windows=await self._load_windows(wanted.windows),
        )

    async def _load_standing(self, wanted: Wanted, own: int | None) -> tuple[list[ServerRow], frozenset[str]]:
        """Return servers and governed tenants; forget the calls that were kept when the own server is fenced off."""
        owners = wanted.owners if own is None else {own, *wanted.owners}
        if not owners and not wanted.tenants:
            return [], frozenset()
        records = await self.connection.fetch(_STANDING, list(owners), list(wanted.tenants))
        servers, governed = standing_of(records)
        if own is not None and is_fenced_off(own, servers):
            self.calls.forget()
        return servers, governed

    async def _load_calls(self, wanted: Wanted) -> dict[GenerationKey, CallRow]:
        rows, missing = self.calls.known(wanted.generations)
        records = await self._keyed(_BY_GENERATION, generation_keys(missing))
        records += newest(await self._keyed(_BY_CALL, call_keys(wanted)))
        records += newest(await self._keyed(_BY_EFFECT, effect_keys(wanted)))
        if wanted.open_of:
            records += await self._load_open(wanted)
        if wanted.expired_at is not None:
            records += await self._load_expired(wanted.expired_at, wanted.limit)
        rows += map(self.calls.add, records)
        return {key_of(row): row for row in rows}

    async def _load_open(self, wanted: Wanted) -> list[Any]:
        tenants = {record[0] for record in await self.connection.fetch(_OPEN_TENANTS, list(wanted.open_of))}
        await self._lock(tenants)
        records = []
        for owner in wanted.open_of:
            records += await self.connection.fetch(_OPEN_OF, owner, list(tenants), wanted.limit)
        return records

    async def _load_expired(self, expired_at: int, limit: int) -> list[Any]:
        tenants = {record[0] for record in await self.connection.fetch(_EXPIRED_TENANTS, expired_at, limit)}
        await self._lock(tenants)
        records: list[Any] = await self.connection.fetch(_EXPIRED, expired_at, list(tenants), limit)
        return records

    async def _attempts(self, call: CallRow) -> list[AttemptRow]:
        number = self.calls.id_of(key_of(call))
        return [attempt_of(call, *record) for record in await self.connection.fetch(_ATTEMPTS, number)]

    async def _load_ceilings(self, wanted: Wanted) -> list[Ceiling]:
        records = await self._keyed(_CEILINGS_OF, subject_keys(wanted))
        return ceilings_of([*records, *await self._keyed(_CEILINGS, wanted.ceilings)])

    async def _load_windows(self, keys: Iterable[WindowKey]) -> list[CeilingWindowRow]:
        wanted = window_places(keys)
        rows = windows_of(await self._keyed(_WINDOWS, wanted))
        new = [await self._new_window(key) for place, key in wanted.items() if place not in rows]
        return [*rows.values(), *new]

    async def _new_window(self, key: WindowKey) -> CeilingWindowRow:
        sums = await self.connection.fetchrow(_NEW_WINDOW, key.currency, *spend_of(key))
        return new_window(key, sums)

    async def _write(self, changes: Changes) -> None:
        for row in changes.inserted_calls:
            self.calls.insert(row, await self._next_id())
        for statement, rows in writes(changes, self.calls, _SQL):
            await self.connection.executemany(statement, rows)
        for index, erase in changes.erases:
            changes.replies[index] = await self._erase(erase)

    async def _next_id(self) -> int:
        number = next(self._ids, None)
        if number is None:
            first = await self.connection.fetchval("SELECT nextval('call_ids')")
            self._ids = iter(range(first, first + _BLOCK))
            number = next(self._ids)
        return number

    async def _erase(self, erase: Erase) -> int:
        condition, parameters = erase_condition(erase, lambda number: f"${number}")
        records = await self.connection.fetch(f"SELECT contents.call {condition}", *parameters)
        ids = [record[0] for record in records]
        gone = "expired" if erase.expired_at is not None else "erased"
        await self.connection.execute("DELETE FROM contents WHERE call = ANY($1::bigint[])", ids)
        await self.connection.execute(
            "UPDATE calls SET content_gone = $1, content_expires_at = NULL WHERE id = ANY($2::bigint[])",
            gone,
            ids,
        )
        return len(ids)


def tenant_lock(tenant: str) -> int:
    """Return the advisory lock that a batch holds while it decides about a tenant.

    Two tenants with one key, one pair in 2**64, wait for each other in vain and no more.
    """
    return int.from_bytes(blake2b(tenant.encode(), digest_size=8).digest(), "big", signed=True)
