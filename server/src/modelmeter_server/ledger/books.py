"""The rows that a batch works on, as they stand after the commands so far, and what of them has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from modelmeter_server.core.ceilings import Ceiling, Halt, Scope, Subject
from modelmeter_server.core.windows import part_at

from .batch import Changes, Found, GenerationKey, WindowKey
from .spending import COUNTED, Entry, Spending, difference, entry_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .commands import Erase
    from .replies import SoftLimit
    from .rows import AttemptRow, Booking, CallRow, CeilingWindowRow, ContentRow, ServerRow

RowKey = tuple[str, str, int]
"""(tenant, call_id, generation)."""

_COUNTED = (
    "settled_tokens",
    "settled_nanos",
    "held_tokens",
    "held_nanos",
    "unsettled_tokens",
    "unsettled_nanos",
)


class Books:
    """The rows of one batch. What was loaded once is never replaced by what is loaded again."""

    def __init__(self) -> None:
        """Begin with empty books."""
        self.rows: dict[RowKey, CallRow] = {}
        self.newest: dict[tuple[str, str], CallRow] = {}
        self.by_effect: dict[tuple[str, str, str], CallRow] = {}
        self.attempts: dict[RowKey, list[AttemptRow]] = {}
        """Attempts of open calls of servers that are closed."""
        self.contents: dict[RowKey, ContentRow] = {}
        self.servers: dict[int, ServerRow] = {}
        self.governed: set[str] = set()
        self.ceilings: dict[Subject, list[Ceiling]] = {}
        self.halts: dict[Subject, Halt] = {}
        self.windows: dict[tuple[str, str, int], CeilingWindowRow] = {}
        self.spending = Spending()
        self.soft_limits: list[SoftLimit] = []
        self._inserted: dict[RowKey, CallRow] = {}
        self._updated: dict[RowKey, CallRow] = {}
        self._attempts: dict[tuple[Any, ...], AttemptRow] = {}
        self._contents: dict[RowKey, ContentRow] = {}
        self._windows: dict[tuple[str, str, int], CeilingWindowRow] = {}
        self._new_ceilings: set[str] = set()
        self._put_ceilings: dict[tuple[str, str], Ceiling] = {}
        self._dropped_ceilings: dict[tuple[str, str], None] = {}
        self._changed_halts: dict[Subject, Halt | None] = {}
        self._closed: list[int] = []
        self._erases: list[tuple[int, Erase]] = []

    # What was loaded

    def take(self, found: Found, wanted_windows: frozenset[WindowKey] = frozenset()) -> None:
        """Take in what was loaded."""
        for row in found.calls:
            self.index(self.rows.setdefault((row.tenant, row.call_id, row.generation), row))
        for attempt in found.attempts:
            self.attempts.setdefault(_key(attempt), []).append(attempt)
        for content in found.contents:
            self.contents.setdefault(_key(content), content)
        for server in found.servers:
            self.servers.setdefault(server.owner, server)
        for ceiling in found.ceilings:
            self._take_ceiling(ceiling)
        for halt in found.halts:
            if halt.subject not in self._changed_halts:
                self.halts[halt.subject] = halt
        if found.windows:
            self._take_windows(found.windows, wanted_windows)

    def index(self, row: CallRow) -> None:
        """Let a row be found by its call and its effect, unless a newer generation is."""
        call = (row.tenant, row.call_id)
        other = self.newest.get(call)
        if other is None or other.generation <= row.generation:
            self.newest[call] = row
        if row.effect_key:
            effect = (row.tenant, row.run_id, row.effect_key)
            other = self.by_effect.get(effect)
            if other is None or other.generation <= row.generation:
                self.by_effect[effect] = row

    def _take_ceiling(self, ceiling: Ceiling) -> None:
        key = (ceiling.subject.tenant, ceiling.ceiling_id)
        known = self.ceilings.setdefault(ceiling.subject, [])
        is_stale = key in self._put_ceilings or key in self._dropped_ceilings
        if not is_stale and all(each.ceiling_id != ceiling.ceiling_id for each in known):
            known.append(ceiling)

    def _take_windows(self, rows: list[CeilingWindowRow], wanted: frozenset[WindowKey]) -> None:
        keys = {(key.ceiling_id, key.name, key.starts_at): key for key in wanted}
        for row in rows:
            name = (row.ceiling_id, row.name, row.starts_at)
            if name in self.windows:
                continue
            if row.ceiling_id in self._new_ceilings:
                # Its sums are those of the database, which this batch has not reached yet.
                self._add_pending(row, keys[name])
            self.windows[name] = row

    def _add_pending(self, row: CeilingWindowRow, key: WindowKey) -> None:
        subject = key.subject
        value = "" if subject.scope == Scope.TENANT.value else subject.name
        for (tenant, dimension, name, spent_by, quarter, currency), sums in self.spending.items():
            whose = (tenant, dimension, name, spent_by)
            is_within = key.starts_at <= quarter and (key.ends_at is None or quarter < key.ends_at)
            if whose == (subject.tenant, subject.scope, "", value) and is_within:
                _count(row, sums[COUNTED], with_money=currency == key.currency)

    # Calls

    def insert(self, row: CallRow) -> None:
        """Add a call."""
        key = (row.tenant, row.call_id, row.generation)
        self.rows[key] = self._inserted[key] = row
        self.index(row)
        after = entry_of(row)
        self.spending.insert(row, after)
        if row.tenant in self.governed:
            self._count(row, after, after.sums)

    def update(self, row: CallRow, before: Entry | None = None) -> None:
        """Note that a call was changed; with the `entry_of` it had before, book the difference."""
        key = (row.tenant, row.call_id, row.generation)
        if key not in self._inserted:
            self._updated[key] = row
        if before is None:
            return
        after = entry_of(row)
        self.spending.replace(row, before, after)
        if row.tenant not in self.governed:
            return
        if before[:2] == after[:2]:
            self._count(row, after, difference(before, after))
        else:
            self._count(row, before, tuple(-each for each in before.sums))
            self._count(row, after, after.sums)

    def is_untouched(self, row: CallRow) -> bool:
        """Say whether this batch found the row in the database and has left it as it was."""
        key = (row.tenant, row.call_id, row.generation)
        return key not in self._inserted and key not in self._updated

    def put_attempt(self, attempt: AttemptRow) -> None:
        """Add or replace an attempt."""
        key = _key(attempt)
        self._attempts[(*key, attempt.dispatch, attempt.number)] = attempt

    def attempts_of(self, row: CallRow) -> list[AttemptRow]:
        """Return the attempts of the current dispatch of an open call, as far as they were loaded or added."""
        key = (row.tenant, row.call_id, row.generation)
        loaded = {each.number: each for each in self.attempts.get(key, ()) if each.dispatch == row.dispatch}
        for name, attempt in self._attempts.items():
            if name[:4] == (*key, row.dispatch):
                loaded[attempt.number] = attempt
        return [loaded[number] for number in sorted(loaded)]

    # Contents

    def put_content(self, content: ContentRow) -> None:
        """Keep a content."""
        key = _key(content)
        self.contents[key] = self._contents[key] = content

    def content_of(self, row: CallRow) -> ContentRow | None:
        """Return the content of a call, `None` when its last dispatch left none."""
        content = self.contents.get((row.tenant, row.call_id, row.generation))
        return content if content is not None and content.outcome_json else None

    def is_content_gone(self, row: CallRow, at: int) -> bool:
        """Say whether a call had content that may not be shown any more."""
        if row.content_expires_at is None:
            return bool(row.content_gone)
        is_erased = any(_is_meant(erase, row) for _, erase in self._erases)
        return is_erased or bool(row.content_gone) or row.content_expires_at <= at

    def erase(self, index: int, erase: Erase) -> None:
        """Note an erasure, which the store carries out."""
        self._erases.append((index, erase))

    # Ceilings and halts

    def subjects_of(self, tenant: str, run_id: str, model: str) -> tuple[Subject, ...]:
        """Return all subjects that a call is one of."""
        whole = Subject(tenant, "TENANT", "")
        asked = Subject(tenant, "MODEL", model)
        if not run_id:
            return (whole, asked)
        return (whole, Subject(tenant, "RUN", run_id), Subject(tenant, "RUN", ""), asked)

    def accounts(self, tenant: str, run_id: str, model: str) -> Iterator[tuple[Ceiling, Subject]]:
        """Return the ceilings that bound a call, each with the subject that it is about."""
        if tenant not in self.governed:
            return
        for subject in self.subjects_of(tenant, run_id, model):
            is_each_run = subject.scope == Scope.RUN.value and not subject.name
            about = Subject(tenant, subject.scope, run_id) if is_each_run else subject
            for ceiling in self.ceilings.get(subject, ()):
                yield ceiling, about

    def touch_window(self, row: CeilingWindowRow) -> None:
        """Note that a window was changed."""
        self._windows[row.ceiling_id, row.name, row.starts_at] = row

    def put_ceiling(self, ceiling: Ceiling) -> None:
        """Set a ceiling, in place of the one with its id."""
        same = self.ceilings.setdefault(ceiling.subject, [])
        others = [each for each in same if each.ceiling_id != ceiling.ceiling_id]
        if len(others) == len(same):
            self._new_ceilings.add(ceiling.ceiling_id)
        self.ceilings[ceiling.subject] = [*others, ceiling]
        self._put_ceilings[ceiling.subject.tenant, ceiling.ceiling_id] = ceiling
        self.governed.add(ceiling.subject.tenant)

    def drop_ceiling(self, tenant: str, ceiling_id: str) -> bool:
        """Delete a ceiling with its windows, and say whether there was one."""
        for subject, ceilings in self.ceilings.items():
            others = [each for each in ceilings if each.ceiling_id != ceiling_id]
            if subject.tenant == tenant and len(others) < len(ceilings):
                self.ceilings[subject] = others
                self._put_ceilings.pop((tenant, ceiling_id), None)
                self._dropped_ceilings[tenant, ceiling_id] = None
                self._windows = {name: row for name, row in self._windows.items() if name[0] != ceiling_id}
                return True
        return False

    def put_halt(self, subject: Subject, halt: Halt | None) -> bool:
        """Set or clear a halt, and say whether there was one."""
        old = self.halts.pop(subject, None)
        if halt is not None:
            self.halts[subject] = halt
            self.governed.add(subject.tenant)
        self._changed_halts[subject] = halt
        return old is not None

    def _count(self, row: CallRow, entry: Entry, sums: tuple[int, ...]) -> None:
        counted = sums[COUNTED]
        if not any(counted):
            return
        for ceiling, about in self.accounts(row.tenant, row.run_id, row.model):
            starts_at, _ = part_at(ceiling.window, entry.reserved_at)
            window = self.windows[ceiling.ceiling_id, about.name, starts_at]
            _count(window, counted, with_money=entry.currency == ceiling.currency)
            self.touch_window(window)

    # Servers

    def is_fenced(self, owner: int) -> bool:
        """Say whether a server was given up, or never registered: it may not send anything."""
        server = self.servers.get(owner)
        return server is None or server.closed

    def close_server(self, server: ServerRow) -> None:
        """Mark a server as closed."""
        if not server.closed:
            server.closed = True
            self._closed.append(server.owner)

    def changes(self, replies: list[Any]) -> Changes:
        """Return everything that the batch changed."""
        return Changes(
            replies=replies,
            inserted_calls=list(self._inserted.values()),
            updated_calls=list(self._updated.values()),
            attempts=list(self._attempts.values()),
            contents=list(self._contents.values()),
            windows=list(self._windows.values()),
            spend=self.spending.rows(),
            ceilings=list(self._put_ceilings.values()),
            dropped_ceilings=list(self._dropped_ceilings),
            halts=[halt for halt in self._changed_halts.values() if halt is not None],
            dropped_halts=[subject for subject, halt in self._changed_halts.items() if halt is None],
            closed_servers=self._closed,
            erases=self._erases,
            soft_limits=self.soft_limits,
        )


def rebook(books: Books, row: CallRow, booking: Booking) -> None:
    """Change nothing of a call but its booking."""
    before = entry_of(row)
    row.booking = booking
    books.update(row, before)


def window_key(ceiling: Ceiling, about: Subject, part: tuple[int, int | None]) -> WindowKey:
    """Return the name of a window, or of a step of a ROLLING one."""
    return WindowKey(ceiling.ceiling_id, about.name, *part, about, ceiling.currency)


def generation_key(row: CallRow) -> GenerationKey:
    """Return the name of a generation."""
    return GenerationKey(row.tenant, row.call_id, row.generation)


def copy_of(row: CallRow) -> CallRow:
    """Return a call as it stands now, for a reply: later commands change the row."""
    return msgspec.structs.replace(row)


def _key(row: AttemptRow | ContentRow) -> RowKey:
    return (row.tenant, row.call_id, row.generation)


def _count(window: CeilingWindowRow, counted: Any, *, with_money: bool) -> None:
    for name, amount in zip(_COUNTED, counted, strict=True):
        if amount and (with_money or name.endswith("tokens")):
            setattr(window, name, getattr(window, name) + amount)


def _is_meant(erase: Erase, row: CallRow) -> bool:
    if erase.expired_at is not None:
        return row.content_expires_at is not None and row.content_expires_at <= erase.expired_at
    if erase.tenant != row.tenant:
        return False
    if erase.call_id:
        return erase.call_id == row.call_id
    return not erase.run_id or erase.run_id == row.run_id
