"""Recorded calls as the ledger's service tells them: what is read of one, and what a caller is shown of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from modelmeter.v1 import ledger_service_pb2
from modelmeter_server.core.answers import Answer
from modelmeter_server.core.journal import CallKey, CallState
from modelmeter_server.engine.plan import Refused
from modelmeter_server.ledger import contents, queries
from modelmeter_server.ledger.questions import CallPosition

from .convert_content import MESSAGE_BYTES, PAGE_BYTES, answer_of, fill_content
from .convert_ledger import add_attempt_rows, fill_call
from .ledger_errors import gone, not_ended, unmet
from .paging import token_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from modelmeter_server.ledger.questions import CallsAsked
    from modelmeter_server.ledger.rows import AttemptRow, CallRow, ContentRow

    from .convert_content import StoredAnswer


class Record(NamedTuple):
    """What is read of one call: its row, and for a full view its attempts and what is kept of its content."""

    row: CallRow
    attempts: Sequence[AttemptRow] = ()
    content: ContentRow | None = None


def find_record(connection: Connection, key: CallKey, generation: int | None, *, full: bool) -> Record | None:
    """Return a call's record, `None` without one; the newest generation unless one is named."""
    row = queries.find_call(connection, key, generation)
    return None if row is None else _read(connection, row, full=full)


def list_records(connection: Connection, asked: CallsAsked, *, full: bool) -> list[Record]:
    """Return the records of a page, and of one call more where there is a next page."""
    return [_read(connection, row, full=full) for row in queries.list_calls(connection, asked)]


def _read(connection: Connection, row: CallRow, *, full: bool) -> Record:
    if not full:
        return Record(row)
    key = CallKey(row.tenant, row.call_id)
    attempts = queries.find_attempts(connection, key, row.generation)
    return Record(row, attempts, queries.find_content(connection, key, row.generation))


def fill_record(message: ledger_service_pb2.CallRecord, record: Record, limit: int) -> None:
    """Write a record into its message, with at most `limit` bytes of content."""
    row, attempts, content = record
    fill_call(message, row)
    add_attempt_rows(message, attempts)
    if content is None:
        return
    answer, failed = None, None
    if content.outcome_json:
        kept = contents.decode(content.outcome_json)
        if isinstance(result := kept.result, Answer):
            answer = answer_of(row, result, attempts, kept.sensitivity)
        else:
            failed = result
    fill_content(message, answer, failed, content.provider_body, limit)


def fill_page(
    response: ledger_service_pb2.ListCallsResponse, records: Sequence[Record], asked: CallsAsked
) -> None:
    """Write the records of a page that `list_records` read; it ends early where it would be too large to receive."""
    told = 0
    for record in records[: asked.limit - 1]:
        call = ledger_service_pb2.CallRecord()
        fill_record(call, record, PAGE_BYTES)
        told += call.ByteSize()
        if response.calls and told > MESSAGE_BYTES:
            break
        response.calls.append(call)
    if len(records) > len(response.calls):
        last = records[len(response.calls) - 1].row
        response.next_page_token = token_of(CallPosition(last.reserved_at, last.call_id, last.generation))


def answer_in(record: Record) -> StoredAnswer:
    """Return the answer that a full record keeps.

    Raises Refused for a call that has not ended, that ended otherwise, or whose content is gone.
    """
    row, attempts, content = record
    if CallState(row.state).is_open:
        raise Refused(not_ended(row.call_id))
    if row.kind:
        raise Refused(unmet("the call did not end with an answer: see GetCall", "NO_ANSWER"))
    if content is None:
        raise Refused(gone(row))
    kept = contents.decode(content.outcome_json)
    answer = kept.result
    assert isinstance(answer, Answer)
    return answer_of(row, answer, attempts, kept.sensitivity)
