"""The refusals of LedgerService. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.core.errors import failure
from modelmeter_server.core.outcomes import Cause, Code, Kind
from modelmeter_server.core.text import cut_utf8

if TYPE_CHECKING:
    from modelmeter_server.core.errors import Failure
    from modelmeter_server.ledger.rows import CallRow

_NAME_BYTES = 256
_WORDS = {"CallRecord": "call", "Ceiling": "ceiling", "Halt": "halt"}


def no_such(message: str, name: str) -> Failure:
    """Return NOT_FOUND for a name that the caller's tenant does not have; `message` is the name of a proto message."""
    return failure(
        Kind.REFUSED,
        f"the ledger has no such {_WORDS[message]}",
        cause=Cause.LIMIT,
        code=Code.NOT_FOUND,
        resource=cut_utf8(name, _NAME_BYTES),
        resource_type=f"modelmeter.v1.{message}",
    )


def unmet(message: str, reason: str) -> Failure:
    """Return FAILED_PRECONDITION with a word for programs."""
    return failure(Kind.REFUSED, message, cause=Cause.LIMIT, code=Code.FAILED_PRECONDITION, reason=reason)


def no_ledger() -> Failure:
    """Return the refusal of a deployment that keeps no ledger."""
    return unmet('this deployment keeps no ledger: its configuration says [ledger] url = "none"', "NO_LEDGER")


def not_ended(call_id: str) -> Failure:
    """Return the refusal to judge a call that runs."""
    return unmet(f"call {call_id} has not ended yet", "STILL_RUNNING")


def gone(row: CallRow) -> Failure:
    """Return the refusal to tell an answer whose content is gone."""
    how = row.content_gone or "never kept"
    return failure(
        Kind.OUTCOME_GONE,
        f"the answer of call {row.call_id} was {how}; its bill is kept: see GetCall"
        if how != "expired"
        else f"the time of the answer of call {row.call_id} is over; its bill is kept: see GetCall",
        cause=Cause.LIMIT,
    )


def down() -> Failure:
    """Return the refusal while the database is away."""
    message = "the ledger cannot be read or written now; the server's log names the cause"
    return failure(Kind.LEDGER_DOWN, message, cause=Cause.LIMIT)
