"""What a segment of a batch has to load, in rounds: each round depends on what the one before it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.core.journal import CallState, EffectKey
from modelmeter_server.core.windows import part_at, parts_at

from .batch import Found, GenerationKey, Wanted, WindowKey
from .books import generation_key, window_key
from .commands import (
    Again,
    Checkpoint,
    CloseServer,
    Command,
    Dispatch,
    DropCeiling,
    DropHalt,
    PutCeiling,
    PutHalt,
    Reconcile,
    Resend,
    Reserve,
    Settle,
    WriteOff,
)
from .room import moment_of

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from modelmeter_server.core.ceilings import Subject
    from modelmeter_server.core.journal import CallKey

    from .books import Books
    from .rows import CallRow


class Needs:
    """Loads what the segments of one batch need into its books."""

    def __init__(self, books: Books) -> None:
        """Nothing is loaded yet."""
        self._books = books
        self._tenants: set[str] = set()
        self._subjects: set[Subject] = set()

    def load(self, commands: Sequence[Command], limit: int) -> Generator[Wanted, Found, None]:
        """Load everything that these commands need, in as few rounds as there must be."""
        found = yield self._named(commands, limit)
        self._take(found)
        books = self._books
        strangers = {row.tenant for row in books.rows.values()} - self._tenants
        if strangers:
            # Rows of servers that died and of expired bounds are anybody's.
            self._tenants |= strangers
            self._take((yield Wanted(tenants=frozenset(strangers))), strangers)
        subjects = self._missing_subjects(commands)
        contents = self._contents(commands)
        if subjects or contents:
            self._subjects |= subjects
            self._take((yield Wanted(subjects=frozenset(subjects), contents=contents)))
        windows = self._windows(commands)
        if windows:
            found = yield Wanted(windows=windows)
            books.take(found, windows)

    def _take(self, found: Found, asked: set[str] | None = None) -> None:
        tenants = self._tenants if asked is None else asked
        self._books.governed.update(tenants if found.governed is None else found.governed)
        self._books.take(found)

    def _named(self, commands: Sequence[Command], limit: int) -> Wanted:
        """Return what the commands themselves name."""
        names = _Names()
        for command in commands:
            names.add(command)
        self._tenants |= names.tenants
        return names.wanted(limit)

    def _missing_subjects(self, commands: Sequence[Command]) -> set[Subject]:
        """Return the subjects of calls of governed tenants whose ceilings and halts are not known yet."""
        books = self._books
        if not books.governed:
            return set()
        subjects: set[Subject] = set()
        for command in commands:
            if isinstance(command, Reserve) and command.call.tenant in books.governed:
                subjects.update(books.subjects_of(command.call.tenant, _run_of(command), command.model))
        for row in books.rows.values():
            if row.tenant in books.governed:
                subjects.update(books.subjects_of(row.tenant, row.run_id, row.model))
        return subjects - self._subjects

    def _contents(self, commands: Sequence[Command]) -> frozenset[GenerationKey]:
        """Return the contents that repetitions may be answered with."""
        return frozenset(
            generation_key(row)
            for command in commands
            if isinstance(command, Reserve)
            for row in self._found(command)
            if row.state > CallState.DISPATCHED and row.content_expires_at is not None
        )

    def _windows(self, commands: Sequence[Command]) -> frozenset[WindowKey]:
        """Return the windows that calls are in, and all that count for a new one."""
        books = self._books
        if not books.governed:
            return frozenset()
        wanted: set[WindowKey] = set()
        for row in books.rows.values():
            for ceiling, about in books.accounts(row.tenant, row.run_id, row.model):
                wanted.add(window_key(ceiling, about, part_at(ceiling.window, row.reserved_at)))
        for command in commands:
            if isinstance(command, (Again, Resend)):
                wanted.update(self._running(command))
            if not isinstance(command, Reserve):
                continue
            for ceiling, about in books.accounts(command.call.tenant, _run_of(command), command.model):
                wanted.update(
                    window_key(ceiling, about, part) for part in parts_at(ceiling.window, command.at)
                )
            wanted.update(self._repeated(command))
        known = books.windows
        return frozenset(key for key in wanted if (key.ceiling_id, key.name, key.starts_at) not in known)

    def _running(self, order: Again | Resend) -> list[WindowKey]:
        """Return the windows that count for another attempt of a call that runs."""
        books, ref = self._books, order.ref
        row = books.rows.get((ref.call.tenant, ref.call.call_id, ref.generation))
        if row is None:
            return []
        return [
            window_key(ceiling, about, part)
            for ceiling, about in books.accounts(row.tenant, row.run_id, row.model)
            for part in parts_at(ceiling.window, moment_of(ceiling.window, row, order.at))
        ]

    def _repeated(self, order: Reserve) -> list[WindowKey]:
        """Return the windows that count for a new dispatch of a call that was asked for under other names."""
        books = self._books
        return [
            window_key(ceiling, about, part)
            for row in self._found(order)
            if row.model != order.model
            for ceiling, about in books.accounts(row.tenant, row.run_id, row.model)
            for part in parts_at(ceiling.window, order.at)
        ]

    def _found(self, order: Reserve) -> list[CallRow]:
        """Return what is recorded under the names of an order."""
        books, call, effect = self._books, order.call, order.effect
        found = [books.newest.get((call.tenant, call.call_id))]
        if effect is not None:
            found.append(books.by_effect.get((call.tenant, effect.run_id, effect.key)))
        return [row for row in found if row is not None]


class _Names:
    """What commands name."""

    def __init__(self) -> None:
        self.tenants: set[str] = set()
        self._calls: set[CallKey] = set()
        self._generations: set[GenerationKey] = set()
        self._effects: set[EffectKey] = set()
        self._owners: set[int] = set()
        self._closing: set[int] = set()
        self._subjects: set[Subject] = set()
        self._ceilings: set[tuple[str, str]] = set()
        self._expired_at: int | None = None

    def add(self, command: Command) -> None:
        if isinstance(command, Reserve):
            self._add_reserve(command)
        elif isinstance(command, (Dispatch, Resend, Again, Checkpoint, Settle)):
            ref = command.ref
            self._add_generation(ref.call, ref.generation)
            if isinstance(command, (Dispatch, Resend, Again)):
                self._owners.add(ref.owner)
        else:
            self._add_rare(command)

    def _add_reserve(self, order: Reserve) -> None:
        call, effect = order.call, order.effect
        self.tenants.add(call.tenant)
        self._calls.add(call)
        self._owners.add(order.owner)
        if effect is not None:
            self._effects.add(EffectKey(call.tenant, effect.run_id, effect.key))

    def _add_generation(self, call: CallKey, generation: int) -> None:
        self.tenants.add(call.tenant)
        self._generations.add(GenerationKey(call.tenant, call.call_id, generation))

    def _add_rare(self, command: Command) -> None:
        match command:
            case Reconcile(call=call, generation=None):
                self.tenants.add(call.tenant)
                self._calls.add(call)
            case Reconcile(call=call, generation=int(generation)):
                self._add_generation(call, generation)
            case CloseServer(owner=owner):
                self._owners.add(owner)
                self._closing.add(owner)
            case WriteOff(at=at):
                self._expired_at = max(at, self._expired_at or 0)
            case PutCeiling(ceiling=ceiling):
                self._subjects.add(ceiling.subject)
            case PutHalt(halt=halt):
                self._subjects.add(halt.subject)
            case DropHalt(subject=subject):
                self._subjects.add(subject)
            case DropCeiling(tenant=tenant, ceiling_id=ceiling_id):
                self._ceilings.add((tenant, ceiling_id))
            case _:
                pass  # an Erase is the store's

    def wanted(self, limit: int) -> Wanted:
        return Wanted(
            calls=frozenset(self._calls),
            generations=frozenset(self._generations),
            effects=frozenset(self._effects),
            tenants=frozenset(self.tenants),
            owners=frozenset(self._owners),
            open_of=frozenset(self._closing),
            expired_at=self._expired_at,
            limit=limit,
            subjects=frozenset(self._subjects),
            ceilings=frozenset(self._ceilings),
        )


def _run_of(order: Reserve) -> str:
    return order.effect.run_id if order.effect is not None else ""
