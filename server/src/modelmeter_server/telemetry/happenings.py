"""From what happens to the events that tell of it: stamped, redacted, sampled, made only when somebody wants them."""

from __future__ import annotations

import copy
import itertools
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from modelmeter_server.core.embeddings import EmbeddingRequest, Embeddings
from modelmeter_server.core.errors import TABLE, Failure
from modelmeter_server.core.events import (
    SCHEMA_VERSION,
    AttemptEnded,
    BreakerChanged,
    CeilingReached,
    EmbeddingCompleted,
    Event,
    HaltChanged,
    HostedToolCompleted,
    HostedToolInvoked,
    Payload,
    PromptCompleted,
    PromptFailed,
    PromptStarted,
    Reconciled,
    Replayed,
    Retried,
    Severity,
    SoftLimitPassed,
)
from modelmeter_server.core.outcomes import Cause, Kind
from modelmeter_server.core.redaction import Redaction
from modelmeter_server.core.sampling import Sampling
from modelmeter_server.core.text import cut_utf8

from .places import current_place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from modelmeter_server.core.answers import Answer
    from modelmeter_server.core.calls import Attempt, CallOutcome
    from modelmeter_server.core.hosted import HostedTool
    from modelmeter_server.core.outcomes import Certainty
    from modelmeter_server.core.requests import CompletionRequest

    from .bus import EventBus

MESSAGE_BYTES: Final = 512
"""UTF-8 bytes of a failure's message, as many as in a gRPC status."""
NAME_BYTES: Final = 256
"""UTF-8 bytes of a name: callers and providers make up names of any length."""
CONVERSATION_LABEL: Final = "conversation_id"
"""The label by which callers say which conversation a call belongs to."""

NO_TENANT: Final = ""
"""Whose events those are that concern the deployment."""

_CLEANED: Final = 1_024
"""Names that are remembered with what is left of them: most calls name the same models and the same reasons."""

_GRAVE: Final = (Kind.UNACCOUNTED, Kind.BUG)
_Event = TypeVar("_Event", bound=Event)


class Belonging:
    """To whom an event belongs: what the envelope says besides the time."""

    __slots__ = ("call_id", "conversation_id", "run_id", "span_id", "tenant", "trace_id")

    def __init__(self, tenant: str, call_id: str = "", run_id: str = "", conversation_id: str = "") -> None:
        """Belong to a call of a tenant, and to the trace that the code is in now."""
        place = current_place.get()
        self.tenant = tenant
        self.call_id = _name(call_id)
        self.run_id = _name(run_id)
        self.conversation_id = _name(conversation_id)
        self.trace_id, self.span_id = place.trace_id, place.span_id

    def with_call(self, call_id: str) -> Belonging:
        """Return the same with a call."""
        other = copy.copy(self)
        other.call_id = _name(call_id)
        return other


class Happenings:
    """Tell events. Every method is cheap when nobody wants them, and none raises for what a call holds."""

    def __init__(
        self,
        bus: EventBus,
        *,
        redaction: Redaction | None = None,
        sampling: Sampling | None = None,
        payloads: bool = False,
    ) -> None:
        """With `payloads`, what the provider's own tools were asked and gave is told, redacted and cut."""
        self._bus = bus
        self.reconfigure(redaction or Redaction())
        sampling = sampling or Sampling()
        self._sampling = None if sampling.keeps_all else sampling
        self._payloads = payloads
        self._ticks = itertools.count(1)

    def reconfigure(self, redaction: Redaction) -> None:
        """Redact by other rules from the next event on."""
        self._redaction = redaction
        self._cleaned = lru_cache(_CLEANED)(_cleaned_by(redaction))

    @property
    def is_wanted(self) -> bool:
        """Say whether an event would be seen by anybody."""
        return self._bus.is_wanted

    def tell(
        self,
        kind: type[_Event],
        to: Belonging,
        severity: Severity = Severity.INFO,
        *,
        belongs_to_failure: bool = False,
        **fields: Any,
    ) -> None:
        """Make an event of this kind and hand it on, unless it is sampled away; one of a failure never is.

        For whoever observes something that this module does not know, such as a session: the fields are those of the
        kind, and text that came from outside goes through `clean` first.
        """
        event = kind(
            version=SCHEMA_VERSION,
            occurred_at=time.time_ns() // 1_000,
            tick=next(self._ticks),
            tenant=to.tenant,
            call_id=to.call_id,
            conversation_id=to.conversation_id,
            run_id=to.run_id,
            trace_id=to.trace_id,
            span_id=to.span_id,
            severity=severity,
            **fields,
        )
        if self._sampling is None or belongs_to_failure or self._sampling.keeps(event):
            self._bus.publish(event)

    def clean(self, text: str | None, limit: int = NAME_BYTES) -> str:
        """Return text from outside as it may stand in an event."""
        if not text:
            return ""
        if limit != NAME_BYTES:
            return self._redaction.message(text, limit)  # sentences are too many to be remembered
        return self._cleaned(text, self._redaction.changes())

    # Calls

    def call_started(
        self, request: CompletionRequest | EmbeddingRequest, to: Belonging, *, streamed: bool
    ) -> None:
        """Tell that a completion was asked for; embeddings are told at their end alone."""
        if isinstance(request, EmbeddingRequest):
            return
        self.tell(
            PromptStarted,
            to,
            model_asked=self.clean(request.model),
            messages=len(request.messages or ()) or int(request.text is not None),
            tools=len(request.tools),
            max_output_tokens=request.max_output_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            streamed=streamed,
        )

    def retried(self, number: int, target: str, to: Belonging) -> None:
        """Tell that another attempt begins."""
        self.tell(Retried, to, Severity.WARNING, number=number, target=target)

    def call_ended(self, outcome: CallOutcome, to: Belonging, *, inputs: int = 0) -> None:
        """Tell how a call ended: its hosted tools, and last the end itself."""
        result = outcome.result
        if not outcome.replayed:
            self.hosted_tools(result.hosted_tools, result.provider_response_id or "", to)
        if isinstance(result, Failure):
            self._failed(outcome, result, to)
        elif isinstance(result, Embeddings):
            self.tell(
                EmbeddingCompleted, to, inputs=inputs, total_time=outcome.timings.total, **self._bill(outcome)
            )
        else:
            self._answered(outcome, result, to)
        if outcome.replayed:
            self.tell(
                Replayed,
                to,
                model_asked=self.clean(outcome.model_asked),
                error_kind=result.kind if isinstance(result, Failure) else None,
                certainty=result.certainty,
            )

    def attempt_ended(self, attempt: Attempt, to: Belonging) -> None:
        """Tell that a request to a provider ended."""
        self.tell(
            AttemptEnded,
            to,
            Severity.INFO if attempt.kind is None else Severity.WARNING,
            number=attempt.number,
            target=attempt.target,
            stage=attempt.stage,
            certainty=attempt.certainty,
            elapsed=attempt.elapsed,
            error_kind=attempt.kind,
            cause=attempt.cause,
            http_status=attempt.http_status,
            provider_code=self.clean(attempt.provider_code),
            usage=attempt.usage,
        )

    def _bill(self, outcome: CallOutcome) -> dict[str, Any]:
        result = outcome.result
        return {
            "model_asked": self.clean(outcome.model_asked),
            "model_served": self.clean(result.model_served),
            "target": outcome.model.target_name if outcome.model is not None else "",
            "usage": result.usage,
            "certainty": result.certainty,
            "cost": result.cost,
            "replayed": outcome.replayed,
            "settled": outcome.settled,
        }

    def _answered(self, outcome: CallOutcome, answer: Answer, to: Belonging) -> None:
        times = outcome.timings
        self.tell(
            PromptCompleted,
            to,
            finish=answer.finish,
            stop_reason=self.clean(answer.stop_reason),
            truncated=answer.truncated,
            provider_response_id=self.clean(answer.provider_response_id),
            attempts_total=outcome.attempts_total,
            queue_time=times.queue,
            first_token_time=times.first_token,
            total_time=times.total,
            **self._bill(outcome),
        )

    def _failed(self, outcome: CallOutcome, failed: Failure, to: Belonging) -> None:
        if failed.kind is Kind.CEILING:
            self._ceiling_reached(outcome, failed, to)
        times = outcome.timings
        self.tell(
            PromptFailed,
            to,
            Severity.ERROR if failed.kind in _GRAVE else Severity.WARNING,
            error_kind=failed.kind,
            cause=failed.cause,
            stage=failed.stage,
            disposition=failed.disposition,
            message=self._sentence(failed),
            retryable=failed.retryable,
            provider_code=self.clean(failed.provider_code),
            provider_response_id=self.clean(failed.provider_response_id),
            http_status=failed.http_status,
            estimated_output_tokens=failed.estimated_output_tokens,
            attempts_total=outcome.attempts_total,
            queue_time=times.queue,
            first_token_time=times.first_token,
            total_time=times.total,
            **self._bill(outcome),
        )

    def _sentence(self, failed: Failure) -> str:
        """Return what happened without the words of a provider or a caller: they echo prompts."""
        if failed.kind is Kind.REFUSED or failed.cause is Cause.PROVIDER:
            return TABLE[failed.kind].meaning
        return self.clean(failed.message, MESSAGE_BYTES)

    # Hosted tools

    def hosted_tools(self, tools: Sequence[HostedTool], response_id: str, to: Belonging) -> None:
        """Tell of the uses of a provider's own tools, in pairs."""
        for position, tool in enumerate(tools):
            self._hosted_tool(tool, position, self.clean(response_id), to)

    def _hosted_tool(self, tool: HostedTool, position: int, response_id: str, to: Belonging) -> None:
        name = self.clean(tool.type)
        shared: dict[str, Any] = {
            "tool": name,
            "tool_call_id": self.clean(tool.id) or f"{name}-{position}",
            "provider_response_id": response_id,
        }
        has_failed = bool(tool.error)
        asked = self._payload(tool, tool.arguments_json)
        gave = self._payload(tool, tool.result_json or tool.error)
        self.tell(HostedToolInvoked, to, belongs_to_failure=has_failed, arguments=asked, **shared)
        self.tell(
            HostedToolCompleted,
            to,
            Severity.WARNING if has_failed else Severity.INFO,
            status=self.clean(tool.status),
            failed=has_failed,
            result=gave,
            **shared,
        )

    def _payload(self, tool: HostedTool, text: str) -> Payload | None:
        if not self._payloads:
            return None
        if not text and tool.omitted:  # what was too long was not kept, and nobody knows its length any more
            return Payload(text="", truncated=True)
        return self._redaction.payload(text, tool.type)

    # The ledger

    def _ceiling_reached(self, outcome: CallOutcome, failed: Failure, to: Belonging) -> None:
        for standing in getattr(failed, "standings", ())[:1]:
            self.tell(
                CeilingReached,
                to,
                Severity.WARNING,
                model_asked=self.clean(outcome.model_asked),
                ceiling_id=standing.ceiling_id,
                asked=standing.asked,
                **_amounts(standing),
            )

    def soft_limit_passed(self, ceiling_id: str, percent: int, standing: Any) -> None:
        """Tell that a share of a ceiling was passed."""
        self.tell(
            SoftLimitPassed,
            Belonging(standing.subject.tenant),
            Severity.WARNING,
            ceiling_id=ceiling_id,
            percent=percent,
            **_amounts(standing),
        )

    def reconciled(
        self, tenant: str, call_id: str, generation: int, by: str, *, raised: bool, certainty: Certainty
    ) -> None:
        """Tell that a truer figure was offered."""
        self.tell(
            Reconciled,
            Belonging(tenant, call_id),
            generation=generation,
            by=by,
            raised=raised,
            certainty=certainty,
        )

    def halt_changed(
        self, tenant: str, scope: str, name: str, *, mode: str = "", cleared: bool = False, cut: int = 0
    ) -> None:
        """Tell that an operator set or cleared a halt."""
        self.tell(
            HaltChanged,
            Belonging(tenant),
            Severity.INFO if cleared else Severity.WARNING,
            scope=scope,
            name=self.clean(name),
            mode=mode,
            cleared=cleared,
            calls_cut=cut,
        )

    # Targets

    def breaker_changed(self, target: str, before: str, state: str) -> None:
        """Tell that the breaker of a target came into another state; that concerns no single tenant."""
        is_grave = state == "OPEN"
        self.tell(
            BreakerChanged,
            Belonging(NO_TENANT),
            Severity.WARNING if is_grave else Severity.INFO,
            target=self.clean(target),
            before=before,
            state=state,
        )


def _cleaned_by(redaction: Redaction) -> Callable[[str, int], str]:
    """Return what cleans a name, and is asked anew once the secrets that it goes by have changed."""

    def clean(text: str, _changes: int) -> str:
        return redaction.message(text, NAME_BYTES)

    return clean


def _amounts(standing: Any) -> dict[str, Any]:
    return {
        "scope": standing.subject.scope,
        "name": _name(standing.subject.name),
        "window": standing.window.kind.value,
        "currency": standing.currency,
        "allowed": standing.allowed,
        "booked": standing.settled,
        "held": standing.held,
        "unsettled": standing.unsettled,
    }


def _name(text: str) -> str:
    return cut_utf8(text, NAME_BYTES) if text else ""
