"""Calls, their attempts and what is kept of their outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, column, exists, func, literal_column, or_, select, tuple_

from modelmeter_server.core.journal import CallState

from ..packing import CALL_COLUMNS, attempt_of, call_of
from ..rows import ContentRow
from ..spending import ANSWERED, OPEN
from ..tables import attempts, calls, contents

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnElement, Connection, Row, Select

    from modelmeter_server.core.journal import CallKey

    from ..questions import CallsAsked
    from ..rows import AttemptRow, CallRow

_OPEN = frozenset({CallState.RESERVED, CallState.DISPATCHED})

_CALL = select(*(calls.c[name] for name in CALL_COLUMNS))


def find_call(connection: Connection, key: CallKey, generation: int | None = None) -> CallRow | None:
    """Return a call, in its newest generation unless one is named."""
    record = _record(connection, key, generation)
    return None if record is None else call_of(record)


def find_attempts(connection: Connection, key: CallKey, generation: int | None = None) -> list[AttemptRow]:
    """Return the attempts of a generation, the first one first; of the newest unless one is named."""
    record = _record(connection, key, generation)
    if record is None:
        return []
    call = call_of(record)
    question = (
        select(attempts.c.dispatch, attempts.c.number, attempts.c.detail)
        .where(attempts.c.call == record[0])
        .order_by(attempts.c.dispatch, attempts.c.number)
    )
    return [attempt_of(call, *each) for each in connection.execute(question)]


def find_content(connection: Connection, key: CallKey, generation: int | None = None) -> ContentRow | None:
    """Return what is kept of a generation's outcome; of the newest unless one is named."""
    record = _record(connection, key, generation)
    if record is None:
        return None
    question = select(contents.c.outcome, contents.c.provider_body).where(contents.c.call == record[0])
    kept = connection.execute(question).first()
    if kept is None:
        return None
    outcome, body = kept
    return ContentRow(
        tenant=key.tenant,
        call_id=key.call_id,
        generation=call_of(record).generation,
        outcome_json=outcome,
        provider_body=body,
    )


def list_calls(connection: Connection, asked: CallsAsked) -> list[CallRow]:
    """Return a page of calls, the newest first."""
    on_postgres = connection.dialect.name == "postgresql"
    question = (
        _CALL.where(*_conditions(asked), *(_label(*label, on_postgres) for label in asked.labels.items()))
        .order_by(*_order(asked))
        .limit(asked.limit)
    )
    return [call_of(record) for record in connection.execute(question)]


def _is_by_state(asked: CallsAsked) -> bool:
    """Say whether few calls can be meant, because calls leave the states that are asked for by themselves."""
    has_few = asked.states <= _OPEN or asked.states == {CallState.UNSETTLED}
    return bool(asked.states) and has_few and not asked.run_id


def _order(asked: CallsAsked) -> tuple[ColumnElement[Any], ...]:
    newest: ColumnElement[Any] = calls.c.reserved_at
    if _is_by_state(asked):
        # No longer a column of an index: sorting the few rows of a state beats looking for them among all in order.
        newest = newest + 0
    return (newest.desc(), calls.c.call_id.desc(), calls.c.generation.desc())


def _record(connection: Connection, key: CallKey, generation: int | None) -> Row[tuple[Any, ...]] | None:
    question: Select[tuple[Any, ...]] = _CALL.where(
        calls.c.tenant == key.tenant, calls.c.call_id == key.call_id
    )
    if generation is None:
        question = question.order_by(calls.c.generation.desc()).limit(1)
    else:
        question = question.where(calls.c.generation == generation)
    return connection.execute(question).first()


def _conditions(asked: CallsAsked) -> Iterator[ColumnElement[bool]]:
    # A tenant that is put together is no column of an index: that leaves the index of the state as the best one.
    tenant = calls.c.tenant.concat("") if _is_by_state(asked) else calls.c.tenant
    yield tenant == asked.tenant
    if asked.run_id:
        # Said twice so that the index on runs, which leaves calls without one out, is seen to be good for it.
        yield and_(calls.c.run_id == asked.run_id, calls.c.run_id != "")
    if asked.effect_key:
        yield calls.c.effect_key == asked.effect_key
    if asked.model:
        yield calls.c.model == asked.model
    if asked.states:
        yield from _states(asked.states)
    if asked.kinds:
        yield or_(*map(_kind, sorted(asked.kinds)))
    if asked.reserved_from is not None:
        yield calls.c.reserved_at >= asked.reserved_from
    if asked.reserved_before is not None:
        yield calls.c.reserved_at < asked.reserved_before
    if asked.after is not None:
        yield from _after(asked)


def _states(states: frozenset[int]) -> Iterator[ColumnElement[bool]]:
    yield calls.c.state.in_(sorted(states))
    # Spelt out as the partial indexes spell it, or they are not used. Few calls are open or unsettled at a time.
    if states <= _OPEN:
        yield calls.c.state <= literal_column("2")
    elif states == {CallState.UNSETTLED}:
        yield calls.c.state == literal_column("4")


def _after(asked: CallsAsked) -> Iterator[ColumnElement[bool]]:
    place = asked.after
    assert place is not None
    # The first condition alone lets an index begin at the place.
    yield calls.c.reserved_at <= place.reserved_at
    position = tuple_(calls.c.reserved_at, calls.c.call_id, calls.c.generation)
    yield position < tuple_(place.reserved_at, place.call_id, place.generation)


def _kind(kind: str) -> ColumnElement[bool]:
    is_open = calls.c.state <= CallState.DISPATCHED
    if kind == OPEN:
        return is_open
    return and_(~is_open, calls.c.kind == ("" if kind == ANSWERED else kind))


def _label(key: str, value: str, on_postgres: bool) -> ColumnElement[bool]:
    if on_postgres:
        return calls.c.labels.op("->>")(key) == value
    # Not by a JSON path: a key may hold any sign, and paths have no way to say some of them.
    pairs = func.json_each(calls.c.labels).table_valued("key", "value", name="label")
    return exists(select(1).select_from(pairs).where(column("key") == key, column("value") == value))
