"""The one line that every call leaves in the log. It never holds a prompt, an answer or a key."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, BinaryIO

import msgspec
import structlog

from modelmeter_server.core.answers import Answer
from modelmeter_server.core.text import cut_utf8

from .log import output, worker
from .places import current_place

if TYPE_CHECKING:
    from modelmeter_server.core.calls import CallOutcome
    from modelmeter_server.core.errors import Failure

NAME_BYTES = 256
"""Bytes of a name in the log: callers ask for models, and providers make up codes, of any length."""


class CallLine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the line says; what is not known is left out. Times in seconds, money in nano units."""

    timestamp: str
    level: str
    event: str
    call_id: str
    model: str
    certainty: str
    elapsed: float
    attempts: int
    target: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    estimated_output_tokens: int | None = None
    cost_nano_units: int | None = None
    currency: str | None = None
    finish: str | None = None
    """How an answer ended."""
    kind: str | None = None
    """What kind of failure it was; exactly one of `finish` and `kind` is there."""
    cause: str | None = None
    stage: str | None = None
    http_status: int | None = None
    provider_code: str | None = None
    provider_request_id: str | None = None
    trace_id: str | None = None
    worker: int | None = None
    """Which of several processes it ran in."""
    replayed: bool = False
    """It came from the journal or was shared: its figures stand in another line already."""


_encode = msgspec.json.Encoder().encode


class CallRecorder:
    """Leave the line. Written past the logging pipeline, which would cost three times as much (10 us against 3)."""

    def __init__(self, stream: BinaryIO, worker: int | None = None) -> None:
        """Write to `stream`, line by line."""
        self._worker = worker
        self._write = structlog.BytesLogger(stream).msg

    async def record(self, outcome: CallOutcome) -> bool:
        """Log the outcome. A line in a log is no booking: always return False."""
        line = call_line(outcome)
        line.worker = self._worker
        self._write(_encode(line))
        return False


class SilentRecorder:
    """Leave nothing: for deployments that log warnings and errors alone."""

    async def record(self, _outcome: CallOutcome) -> bool:
        """Forget the outcome; it is not booked."""
        return False


def call_recorder() -> CallRecorder | SilentRecorder:
    """Return the recorder for the level that logging was configured with."""
    stream = output("info")
    return SilentRecorder() if stream is None else CallRecorder(stream, worker())


def call_line(outcome: CallOutcome) -> CallLine:
    """Return what the log says of a call."""
    result = outcome.result
    line = CallLine(
        timestamp=f"{datetime.now(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z",
        level="info",
        event="call",
        call_id=outcome.call_id,
        model=cut_utf8(outcome.model_asked, NAME_BYTES),
        target=outcome.model.target_name or None if outcome.model is not None else None,
        certainty=result.certainty.value,
        estimated_output_tokens=result.estimated_output_tokens,
        elapsed=round(outcome.timings.total, 6),
        attempts=outcome.attempts_total,
        provider_request_id=_name(result.provider_request_id),
        trace_id=current_place.get().trace_id or None,
        replayed=outcome.replayed,
    )
    _bill(line, result)
    if isinstance(result, Answer):
        line.finish = result.finish.value
    else:
        _verdict(line, result)
    return line


def _bill(line: CallLine, result: Answer | Failure) -> None:
    if result.usage is not None:
        line.input_tokens = result.usage.input_tokens
        line.output_tokens = result.usage.output_tokens
    if result.cost is not None:
        line.cost_nano_units = result.cost.nano_units
        line.currency = result.cost.currency


def _verdict(line: CallLine, failed: Failure) -> None:
    line.kind = failed.kind.value
    line.cause = failed.cause.value
    line.stage = failed.stage.name
    line.http_status = failed.http_status
    line.provider_code = _name(failed.provider_code)


def _name(text: str | None) -> str | None:
    return None if text is None else cut_utf8(text, NAME_BYTES)
