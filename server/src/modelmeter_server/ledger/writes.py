"""What a batch changes, as statements and the rows that each of them is executed with, whichever the database. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .loaded import key_of
from .packing import (
    admission_values,
    attempt_values,
    ceiling_values,
    halt_values,
    key_values,
    progress_values,
    spend_values,
    window_values,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .batch import Changes
    from .loaded import LoadedCalls
    from .statements import Statements

    Write = tuple[str, Sequence[tuple[Any, ...]]]


def writes(changes: Changes, calls: LoadedCalls, sql: Statements) -> Iterator[Write]:
    """Yield what is to be executed, in this order; no statement comes without rows.

    Every inserted call has its id in `calls` already. Erasing is left to the store: it finds out what is erased.
    """
    yield from _call_writes(changes, calls, sql)
    if changes.attempts:
        yield sql.put_attempt, [attempt_values(calls.id_of(key_of(row)), row) for row in changes.attempts]
    if changes.contents:
        yield sql.put_content, _content_values(changes, calls)
    if changes.windows:
        yield sql.put_window, list(map(window_values, changes.windows))
    if changes.spend:
        yield sql.add_spend, list(map(spend_values, changes.spend))
    yield from _order_writes(changes, sql)
    if changes.closed_servers:
        yield sql.close_server, [(True, owner) for owner in changes.closed_servers]


def _call_writes(changes: Changes, calls: LoadedCalls, sql: Statements) -> Iterator[Write]:
    id_of, is_admitted = calls.id_of, calls.is_admitted_again
    if changes.inserted_calls:
        yield (
            sql.insert_call,
            [
                (id_of(key_of(row)), *key_values(row), *admission_values(row), *progress_values(row))
                for row in changes.inserted_calls
            ],
        )
    admitted = [row for row in changes.updated_calls if is_admitted(row)]
    moved = [row for row in changes.updated_calls if not is_admitted(row)]
    if admitted:
        yield (
            sql.admit_call,
            [(*admission_values(row), *progress_values(row), id_of(key_of(row))) for row in admitted],
        )
    if moved:
        yield sql.update_call, [(*progress_values(row), id_of(key_of(row))) for row in moved]


def _content_values(changes: Changes, calls: LoadedCalls) -> list[tuple[Any, ...]]:
    written = {key_of(row): row for row in (*changes.inserted_calls, *changes.updated_calls)}
    values = []
    for content in changes.contents:
        key = key_of(content)
        expires_at = written[key].content_expires_at
        values.append((calls.id_of(key), expires_at, content.outcome_json, content.provider_body))
    return values


def _order_writes(changes: Changes, sql: Statements) -> Iterator[Write]:
    if changes.dropped_ceilings:
        yield sql.drop_ceiling, changes.dropped_ceilings
        yield sql.drop_windows, [(ceiling_id,) for _, ceiling_id in changes.dropped_ceilings]
    if changes.ceilings:
        yield sql.put_ceiling, list(map(ceiling_values, changes.ceilings))
    if changes.dropped_halts:
        yield sql.drop_halt, [(key.tenant, key.scope, key.name) for key in changes.dropped_halts]
    if changes.halts:
        yield sql.put_halt, list(map(halt_values, changes.halts))
