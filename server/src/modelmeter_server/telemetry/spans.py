"""Traces: one server span for an RPC, one client span for every request to a provider. Imported with the extra `otlp`.

Spans hold names, numbers and verdicts, never content.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from modelmeter_server.core.errors import Failure
from modelmeter_server.core.text import cut_utf8

from . import conventions as names
from .instruments import outcome_word, provider_name
from .places import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.trace import Span, Tracer, TracerProvider

    from modelmeter_server.core.answers import Answer
    from modelmeter_server.core.calls import Attempt, CallOutcome
    from modelmeter_server.core.redaction import Redaction
    from modelmeter_server.core.trace_context import TraceContext
    from modelmeter_server.core.usage import Usage

    from .happenings import Belonging

_NANOS: Final = 1_000_000_000
_NAME_BYTES: Final = 256

# The codes that the RPC conventions call errors of a server; what a caller did wrong is none of its own.
_SERVER_ERRORS: Final = frozenset(
    ("UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS")
)


class RpcSpan:
    """The span of one RPC: where its place in the trace is, and its end."""

    def __init__(self, span: Span) -> None:
        self._span = span
        context = span.get_span_context()
        self.place = Place(f"{context.trace_id:032x}", f"{context.span_id:016x}", span)

    def end(self, code: str, call_id: str) -> None:
        """End it with the name of the RPC's status."""
        self._span.set_attribute(names.RPC_STATUS, code)
        if call_id:
            self._span.set_attribute(names.CALL_ID, call_id)
        if code != "OK":
            self._span.set_attribute(names.ERROR_TYPE, code)
        if code in _SERVER_ERRORS:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


class Spans:
    """Make spans with a tracer."""

    def __init__(
        self, provider: TracerProvider, redaction: Redaction, *, old_names: bool = False, version: str = ""
    ) -> None:
        """Write the names of before as well if `old_names`."""
        self._tracer: Tracer = provider.get_tracer("modelmeter", version)
        self._redaction = redaction
        self._old_names = old_names

    def reconfigure(self, redaction: Redaction) -> None:
        """Redact by other rules from the next span on."""
        self._redaction = redaction

    def rpc_started(self, method: str, parent: TraceContext | None, state: str) -> RpcSpan:
        """Begin the span of an RPC; `method` is its full name without the leading slash."""
        context = None if parent is None else trace.set_span_in_context(_remote(parent, state))
        span = self._tracer.start_span(
            method,
            context,
            SpanKind.SERVER,
            {names.RPC_SYSTEM: "grpc", names.RPC_METHOD: method},
        )
        return RpcSpan(span)

    def attempts_ended(
        self,
        outcome: CallOutcome,
        attempts: Sequence[Attempt],
        started: dict[int, int],
        operation: str,
        to: Belonging,
        place: Place,
        request: dict[str, Any],
    ) -> None:
        """Write one span for each attempt; `started` says when each began, in nanoseconds since the epoch."""
        context = None if place.span is None else trace.set_span_in_context(place.span)
        for attempt in attempts:
            length = int(attempt.elapsed * _NANOS)
            begun = started.get(attempt.number, time.time_ns() - length)
            attributes = self._attributes(outcome, attempt, operation, to)
            span = self._tracer.start_span(
                f"{operation} {attributes[names.REQUEST_MODEL]}",
                context,
                SpanKind.CLIENT,
                {**request, **attributes},
                start_time=begun,
            )
            if attempt is attempts[-1]:
                span.set_attributes(self._of_the_answer(outcome))
            # A call that was tried again has the sum; each span has what its own request cost.
            span.set_attributes(self._of_the_bill(outcome.result if len(attempts) == 1 else attempt))
            if attempt.kind is not None or (attempt is attempts[-1] and isinstance(outcome.result, Failure)):
                span.set_status(Status(StatusCode.ERROR))
            span.end(begun + length)

    def _attributes(
        self, outcome: CallOutcome, attempt: Attempt, operation: str, to: Belonging
    ) -> dict[str, Any]:
        model = outcome.model
        found: dict[str, Any] = {
            names.OPERATION: operation,
            names.PROVIDER: provider_name(model),
            names.REQUEST_MODEL: self._name(
                model.provider_model if model is not None else outcome.model_asked
            ),
            names.TARGET: attempt.target,
            names.ATTEMPT: attempt.number,
            names.CALL_ID: to.call_id,
            names.CERTAINTY: attempt.certainty.value,
            names.STAGE: attempt.stage.name,
            names.OUTCOME: "OK" if attempt.kind is None else attempt.kind.value,
        }
        if self._old_names:
            found[names.OLD_SYSTEM] = found[names.PROVIDER]
        if to.conversation_id:
            found[names.CONVERSATION] = to.conversation_id
        if to.run_id:
            found[names.RUN_ID] = to.run_id
        if attempt.kind is not None:
            found[names.ERROR_TYPE] = attempt.kind.value
        if attempt.cause is not None:
            found[names.CAUSE] = attempt.cause.value
        return found

    def _of_the_answer(self, outcome: CallOutcome) -> dict[str, Any]:
        result = outcome.result
        found: dict[str, Any] = {names.OUTCOME: outcome_word(result)}
        if isinstance(result, Failure):
            found[names.ERROR_TYPE] = result.kind.value
            found[names.CAUSE] = result.cause.value
            found[names.DISPOSITION] = result.disposition.value
        else:
            found[names.DISPOSITION] = "LANDED"
            found[names.FINISH_REASONS] = [self._name(result.stop_reason or result.finish.value)]
        if result.model_served:
            found[names.RESPONSE_MODEL] = self._name(result.model_served)
        if result.provider_response_id:
            found[names.RESPONSE_ID] = self._name(result.provider_response_id)
        if outcome.timings.first_token is not None:
            found[names.FIRST_CHUNK] = outcome.timings.first_token
        return found

    def _of_the_bill(self, bill: Answer | Failure | Attempt) -> dict[str, Any]:
        found: dict[str, Any] = {names.CERTAINTY: bill.certainty.value}
        if bill.cost is not None:
            found[names.COST_NANOS] = bill.cost.nano_units
            found[names.CURRENCY] = bill.cost.currency
        if bill.usage is not None:
            found |= self._of_usage(bill.usage)
        return found

    def _of_usage(self, usage: Usage) -> dict[str, Any]:
        told = {
            names.INPUT_TOKENS: usage.input_tokens,
            names.OUTPUT_TOKENS: usage.output_tokens,
            names.CACHE_READ: usage.cache_read_tokens,
            names.CACHE_WRITE: usage.cache_write_tokens,
            names.REASONING: usage.reasoning_tokens,
        }
        if self._old_names:
            told[names.OLD_CACHE_WRITE] = usage.cache_write_tokens
        return {name: tokens for name, tokens in told.items() if tokens is not None}

    def _name(self, text: str) -> str:
        return cut_utf8(self._redaction.clean(text), _NAME_BYTES)


def _remote(parent: TraceContext, state: str) -> NonRecordingSpan:
    return NonRecordingSpan(
        SpanContext(
            int(parent.trace_id, 16),
            int(parent.span_id, 16),
            is_remote=True,
            trace_flags=TraceFlags(int(parent.is_sampled)),
            trace_state=TraceState.from_header([state]) if state else None,
        )
    )
