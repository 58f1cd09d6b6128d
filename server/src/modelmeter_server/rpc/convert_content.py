"""The content of a recorded call as protos. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from modelmeter.v1 import completion_pb2, embedding_pb2, ledger_service_pb2
from modelmeter_server.core.calls import CallOutcome, Timings
from modelmeter_server.core.embeddings import Embeddings
from modelmeter_server.core.text import cut_utf8, well_formed

from .convert_answer import fill_completion
from .convert_embedding import fill_embeddings
from .convert_ledger import attempt_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from modelmeter_server.core.answers import Answer
    from modelmeter_server.core.errors import Failure
    from modelmeter_server.core.requests import Sensitivity
    from modelmeter_server.ledger.rows import AttemptRow, CallRow

PART_BYTES = 1024 * 1024
"""Of one message of ReadAnswer: a quarter of what clients of other languages receive by default."""

PAGE_BYTES = 64 * 1024
"""Of the content of each call in a page of them."""

MESSAGE_BYTES = 3 * 1024 * 1024
"""Of the calls in a page, which ends early before it: labels alone can come to more than clients receive."""

REPORTED_ATTEMPTS = 8
"""As in a `Completion` that is answered at once."""


StoredAnswer: TypeAlias = completion_pb2.Completion | embedding_pb2.Embeddings


def answer_of(
    row: CallRow, answer: Answer, attempts: Sequence[AttemptRow], sensitivity: Sensitivity | None = None
) -> StoredAnswer:
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
        sensitivity=sensitivity,
        settled=True,
        replayed=True,
    )
    message: StoredAnswer
    if isinstance(answer, Embeddings):
        message = embedding_pb2.Embeddings()
        fill_embeddings(message, outcome, answer)
    else:
        message = completion_pb2.Completion()
        fill_completion(message, outcome, answer)
    message.target = well_formed(row.target)
    return message


def fill_content(
    message: ledger_service_pb2.CallRecord,
    answer: StoredAnswer | None,
    failed: Failure | None,
    provider_body: bytes,
    limit: int = PART_BYTES,
) -> None:
    """Write an answer of at most `limit` bytes, and as much of a partial text and of an error body."""
    if answer is not None and answer.ByteSize() <= limit:
        if isinstance(answer, embedding_pb2.Embeddings):
            message.embeddings.CopyFrom(answer)
        else:
            message.completion.CopyFrom(answer)
    if failed is not None:
        message.partial_text = cut_utf8(failed.partial_text, limit)
    message.provider_body = provider_body[:limit]


def parts(answer: StoredAnswer) -> Iterable[ledger_service_pb2.ReadAnswerResponse]:
    """Yield an answer in parts, each with the size and the kind of the whole."""
    data = answer.SerializeToString()
    is_batch = isinstance(answer, embedding_pb2.Embeddings)
    operation = ledger_service_pb2.OPERATION_EMBED if is_batch else ledger_service_pb2.OPERATION_COMPLETE
    for start in range(0, len(data), PART_BYTES):
        yield ledger_service_pb2.ReadAnswerResponse(
            part=data[start : start + PART_BYTES], total_bytes=len(data), operation=operation
        )
