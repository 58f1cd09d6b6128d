"""The content of a recorded call as protos. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter.v1 import completion_pb2
from modelmeter_server.core.calls import CallOutcome, Timings
from modelmeter_server.core.text import cut_utf8, well_formed

from .convert_answer import fill_completion
from .convert_ledger import attempt_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from modelmeter.v1 import ledger_service_pb2
    from modelmeter_server.core.answers import Answer
    from modelmeter_server.core.errors import Failure
    from modelmeter_server.ledger.rows import AttemptRow, CallRow

PART_BYTES = 1024 * 1024
"""Of one message of ReadAnswer: a quarter of what clients of other languages receive by default."""

PAGE_BYTES = 64 * 1024
"""Of the content of each call in a page of them."""

MESSAGE_BYTES = 3 * 1024 * 1024
"""Of the calls in a page, which ends early before it: labels alone can come to more than clients receive."""

REPORTED_ATTEMPTS = 8
"""As in a `Completion` that is answered at once."""


def completion_of(row: CallRow, answer: Answer, attempts: Sequence[AttemptRow]) -> completion_pb2.Completion:
    """Return a recorded answer as it would be answered again."""
    outcome = CallOutcome(
        call_id=row.call_id,
        model_asked=row.model,
        result=answer,
        attempts=tuple(map(attempt_of, attempts[-REPORTED_ATTEMPTS:])),
        attempts_total=row.attempts_total,
        timings=Timings(
            queue=row.queue_seconds, first_token=row.first_token_seconds, total=row.total_seconds
        ),
        settled=True,
        replayed=True,
    )
    message = completion_pb2.Completion()
    fill_completion(message, outcome, answer)
    message.target = well_formed(row.target)
    return message


def fill_content(
    message: ledger_service_pb2.CallRecord,
    completion: completion_pb2.Completion | None,
    failed: Failure | None,
    provider_body: bytes,
    limit: int = PART_BYTES,
) -> None:
    """Write an answer of at most `limit` bytes, and as much of a partial text and of an error body."""
    if completion is not None and completion.ByteSize() <= limit:
        message.completion.CopyFrom(completion)
    if failed is not None:
        message.partial_text = cut_utf8(failed.partial_text, limit)
    message.provider_body = provider_body[:limit]


def parts(completion: completion_pb2.Completion) -> Iterable[tuple[bytes, int]]:
    """Yield the bytes of an answer in parts, each with the size of the whole."""
    data = completion.SerializeToString()
    for start in range(0, len(data), PART_BYTES):
        yield data[start : start + PART_BYTES], len(data)
