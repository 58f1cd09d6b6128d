"""What passes between the book-keeper, which decides, and a store, which holds the database.

The book-keeper is a generator: it yields what it `Wanted`, is sent what was `Found`, and returns its `Changes`. So the
same decisions serve a thread with SQLite and a coroutine with PostgreSQL:

    steps = keep_books(commands, own=...)
    wanted = next(steps)
    while True:
        try: wanted = steps.send(store.load(wanted))
        except StopIteration as stop: changes = stop.value; break
    store.write(changes)        # and commit; then the replies may be handed out
"""

from __future__ import annotations

from typing import Any

import msgspec

from modelmeter_server.core.ceilings import Ceiling, Halt, Subject
from modelmeter_server.core.journal import CallKey, EffectKey

from .commands import Erase
from .replies import SoftLimit
from .rows import AttemptRow, CallRow, CeilingWindowRow, ContentRow, ServerRow, SpendRow


class GenerationKey(msgspec.Struct, frozen=True, order=True):
    """One generation of a call."""

    tenant: str
    call_id: str
    generation: int


class WindowKey(msgspec.Struct, frozen=True, order=True):
    """One window, or one step of a ROLLING window, of a ceiling; and which sums it begins with when it is new."""

    ceiling_id: str
    name: str
    starts_at: int
    ends_at: int | None
    """`None` for TOTAL."""
    subject: Subject
    """Whose spend rows from `starts_at` up to `ends_at` a missing row begins with (an empty run name is filled in)."""
    currency: str
    """Whose money counts; empty for a ceiling on tokens alone. Tokens of every currency count."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Rows to load; a store returns them all in one `Found`, from within the transaction that will write."""

    calls: frozenset[CallKey] = frozenset()
    """The newest generation of each, if there is one."""
    generations: frozenset[GenerationKey] = frozenset()
    """Exactly these."""
    effects: frozenset[EffectKey] = frozenset()
    """The newest generation of the call under each key, if there is one."""
    tenants: frozenset[str] = frozenset()
    """Whether they have any ceiling or halt (see `Found.governed`)."""
    owners: frozenset[int] = frozenset()
    """Servers."""
    open_of: frozenset[int] = frozenset()
    """Open calls of these owners, at most `limit` each, with the attempts of each."""
    expired_at: int | None = None
    """UNSETTLED calls that expire at or before this, at most `limit`."""
    limit: int = 500
    contents: frozenset[GenerationKey] = frozenset()
    subjects: frozenset[Subject] = frozenset()
    """All ceilings and halts of exactly these subjects."""
    ceilings: frozenset[tuple[str, str]] = frozenset()
    """(tenant, ceiling_id)."""
    windows: frozenset[WindowKey] = frozenset()
    """A missing row is made from the spend rows, but not written: the book-keeper says whether it changes."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Rows as loaded. The book-keeper owns them and may change them."""

    calls: list[CallRow] = []
    """Of `calls`, `generations`, `effects`, `open_of` and `expired_at`, each once."""
    attempts: list[AttemptRow] = []
    """Of `open_of`."""
    contents: list[ContentRow] = []
    servers: list[ServerRow] = []
    governed: frozenset[str] | None = None
    """Those of the wanted `tenants` that have any ceiling or halt: most have none, and then nothing more is loaded for
    them. `None`: it was not looked up, so that each may have some."""
    ceilings: list[Ceiling] = []
    halts: list[Halt] = []
    windows: list[CeilingWindowRow] = []


class Changes(msgspec.Struct, kw_only=True):
    """What a batch does to the database, and what it answers."""

    replies: list[Any] = []
    """One for each command, in order. The store puts the count of an `Erase` in its place."""
    inserted_calls: list[CallRow] = []
    updated_calls: list[CallRow] = []
    attempts: list[AttemptRow] = []
    """Inserted, or replaced by (tenant, call_id, generation, dispatch, number)."""
    contents: list[ContentRow] = []
    """Inserted, or replaced by their generation."""
    windows: list[CeilingWindowRow] = []
    """Inserted, or replaced by (ceiling_id, name, starts_at)."""
    spend: list[SpendRow] = []
    """Increments: each column is added to the row of the same key, which is inserted if it is missing."""
    ceilings: list[Ceiling] = []
    dropped_ceilings: list[tuple[str, str]] = []
    """(tenant, ceiling_id), with their windows."""
    halts: list[Halt] = []
    dropped_halts: list[Subject] = []
    closed_servers: list[int] = []
    erases: list[tuple[int, Erase]] = []
    """With the index of the command; carried out after everything else was written. `content_gone` of the calls is set
    to `erased` or `expired`."""
    soft_limits: list[SoftLimit] = []
    """All that were passed in this batch, whoever's reply names them."""
