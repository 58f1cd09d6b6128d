"""The one thing that the rest of the server tells what happens: it counts, tells events, and writes spans.

`Telemetry` is made once by the composition root. A call holds a `CallWatch`, an RPC an `RpcWatch`. Neither ever raises
into what it watches: a fault of telemetry is logged, and the call goes on.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from modelmeter_server.core.embeddings import EmbeddingRequest
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.insights import Sample
from modelmeter_server.core.outcomes import Certainty
from modelmeter_server.core.trace_context import TRACEPARENT, TRACESTATE, parse_traceparent

from . import conventions as names
from .bus import ANY_TENANT, EventBus
from .happenings import CONVERSATION_LABEL, Belonging, Happenings
from .instruments import Instruments
from .log import get_logger
from .meters import OTHER, Meters
from .places import NOWHERE, Place, current_place
from .sessions import SessionWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextvars import Token

    from modelmeter_server.core.calls import Attempt, CallOutcome
    from modelmeter_server.core.pricing import Cost
    from modelmeter_server.core.redaction import Redaction
    from modelmeter_server.core.requests import CompletionRequest
    from modelmeter_server.core.sampling import Sampling

    from .spans import RpcSpan, Spans

SAMPLES: Final = 10_000
"""Calls that `GetInsights` looks back at unless configured otherwise."""

_log = get_logger(__name__)


class Telemetry:
    """Events, metrics, traces and samples of one server process."""

    def __init__(
        self,
        *,
        bus: EventBus | None = None,
        meters: Meters | None = None,
        redaction: Redaction | None = None,
        sampling: Sampling | None = None,
        payloads: bool = False,
        old_names: bool = False,
        by_tenant: bool = False,
        samples: int = SAMPLES,
    ) -> None:
        """Observe with nothing exported; `spans` are set by whoever exports traces."""
        self.bus = bus or EventBus()
        self.happenings = Happenings(self.bus, redaction=redaction, sampling=sampling, payloads=payloads)
        self.instruments = Instruments(meters or Meters(), old_names=old_names, by_tenant=by_tenant)
        self.spans: Spans | None = None
        self._samples: deque[Sample] = deque(maxlen=samples)
        self._evicted_at = -1
        self.instruments.ask(
            names.WATCHERS, "{watcher}", "Who watches events now.", lambda: self.bus.watchers
        )
        self.instruments.ask(
            names.EVENTS_LOST,
            "{event}",
            "Events that slow watchers did not see since the start.",
            lambda: self.bus.lost,
        )

    @property
    def meters(self) -> Meters:
        """Return what was counted."""
        return self.instruments.meters

    @property
    def most_samples(self) -> int:
        """Return how many calls insights can look back at."""
        return self._samples.maxlen or 0

    def samples(self, tenant: str) -> list[Sample]:
        """Return the tenant's last calls, or those of `ANY_TENANT`, the oldest first."""
        return [each for each in list(self._samples) if tenant in (each.tenant, ANY_TENANT)]

    def has_evicted(self, since: int) -> bool:
        """Return whether a call was evicted that ended at `since`, in microseconds of the epoch, or later."""
        return self._evicted_at >= since

    def ask_in_flight(self, level: Callable[[], float]) -> None:
        """Let the number of calls under way be read."""
        self.instruments.ask(names.IN_FLIGHT, "{call}", "Calls under way.", level)

    def ask_waiting(self, level: Callable[[], float]) -> None:
        """Let the number of calls be read that wait for room."""
        self.instruments.ask(names.WAITING, "{call}", "Calls that wait for room.", level)

    def ask_sessions(self, level: Callable[[], float]) -> None:
        """Let the number of open sessions be read."""
        self.instruments.ask(names.SESSIONS_OPEN, "{session}", "Sessions that are open.", level)

    def ask_ledger(self, is_up: Callable[[], bool]) -> None:
        """Let it be read whether the ledger can be written."""
        self.instruments.ask(
            names.LEDGER_UP, "1", "Whether the ledger can be written: 1 or 0.", lambda: float(is_up())
        )

    def reconfigure(self, redaction: Redaction) -> None:
        """Redact by other rules from now on."""
        self.happenings.reconfigure(redaction)
        if self.spans is not None:
            self.spans.reconfigure(redaction)

    def rpc_started(self, method: str, metadata: Iterable[tuple[str, str | bytes]]) -> RpcWatch:
        """Watch an RPC from now on, and be at its place of the trace until it ends."""
        return RpcWatch(self, method, metadata)

    def call_started(
        self,
        request: CompletionRequest | EmbeddingRequest,
        *,
        tenant: str,
        run_id: str = "",
        conversation_id: str = "",
        streamed: bool = False,
        earlier: int = 0,
    ) -> CallWatch:
        """Watch a call from now on. Its own label names the conversation rather than `conversation_id`.

        `earlier`: attempts that were made for the same turn of a session, so that its own are counted on from there.
        """
        conversation_id = request.labels.get(CONVERSATION_LABEL, conversation_id)
        to = Belonging(tenant, request.call_id, run_id, conversation_id)
        return CallWatch(self, request, to, streamed=streamed, earlier=earlier)

    def session_opened(self, *, tenant: str, conversation_id: str, emulated: bool) -> SessionWatch:
        """Watch a session from now on."""
        return SessionWatch(
            self.happenings, tenant=tenant, conversation_id=conversation_id, emulated=emulated
        )

    def keep(self, sample: Sample) -> None:
        """Keep a call's figures for insights; they evict the oldest when as many are kept as may."""
        if len(self._samples) == self._samples.maxlen:
            self._evicted_at = max(self._evicted_at, self._samples[0].at)
        self._samples.append(sample)

    # What is no call

    def targets_stand(self, levels: Iterable[tuple[str, int]]) -> None:
        """Note how all targets fare."""
        self.instruments.targets_stand(levels)

    def breaker_changed(self, target: str, before: str, state: str) -> None:
        """Note that the breaker of a target came into another state."""
        self.instruments.target_changed(target, state)
        if self.bus.is_wanted:
            self.happenings.breaker_changed(target, before, state)

    def soft_limit_passed(self, ceiling_id: str, percent: int, standing: Any) -> None:
        """Note that a share of a ceiling was passed."""
        self.instruments.soft_limit_passed(standing.subject.scope, percent)
        if self.bus.is_wanted:
            self.happenings.soft_limit_passed(ceiling_id, percent, standing)

    def reconciled(
        self, tenant: str, call_id: str, generation: int, by: str, *, raised: bool, certainty: Certainty
    ) -> None:
        """Note that a truer figure was offered for a call."""
        self.instruments.reconciled(by, raised=raised)
        if self.bus.is_wanted:
            self.happenings.reconciled(tenant, call_id, generation, by, raised=raised, certainty=certainty)

    def configuration_read(self, outcome: str) -> None:
        """Note what became of a configuration that was read again: applied, unchanged or refused."""
        self.instruments.reloaded(outcome)

    def halt_changed(
        self, tenant: str, scope: str, name: str, *, mode: str = "", cleared: bool = False, cut: int = 0
    ) -> None:
        """Note that an operator set or cleared a halt."""
        self.instruments.halted(scope, cleared=cleared)
        if self.bus.is_wanted:
            self.happenings.halt_changed(tenant, scope, name, mode=mode, cleared=cleared, cut=cut)


class RpcWatch:
    """One RPC under way."""

    __slots__ = ("_begun", "_method", "_span", "_telemetry", "_token")

    def __init__(
        self, telemetry: Telemetry, method: str, metadata: Iterable[tuple[str, str | bytes]]
    ) -> None:
        self._telemetry = telemetry
        self._method = method
        self._begun = time.monotonic()
        self._span: RpcSpan | None = None
        self._token: Token[Place] = current_place.set(self._place(metadata))

    def _place(self, metadata: Iterable[tuple[str, str | bytes]]) -> Place:
        parent, state = None, ""
        for key, value in metadata:
            if key == TRACEPARENT and isinstance(value, str):
                parent = parse_traceparent(value)
            elif key == TRACESTATE and isinstance(value, str):
                state = value
        spans = self._telemetry.spans
        if spans is not None:
            self._span = spans.rpc_started(self._method, parent, state)
            return self._span.place
        return NOWHERE if parent is None else Place(parent.trace_id, parent.span_id)

    def end(self, code: str, call_id: str = "") -> None:
        """Note its end with the name of its status. In the task that began it."""
        current_place.reset(self._token)
        self._telemetry.instruments.rpc_ended(self._method, code, time.monotonic() - self._begun)
        if self._span is not None:
            self._span.end(code, call_id)


class CallWatch:
    """One call under way."""

    __slots__ = (
        "_earlier",
        "_inputs",
        "_operation",
        "_place",
        "_request",
        "_started",
        "_telemetry",
        "_to",
        "_told",
    )

    def __init__(
        self,
        telemetry: Telemetry,
        request: CompletionRequest | EmbeddingRequest,
        to: Belonging,
        *,
        streamed: bool,
        earlier: int = 0,
    ) -> None:
        self._telemetry = telemetry
        self._earlier = earlier
        is_batch = isinstance(request, EmbeddingRequest)
        self._operation = names.EMBEDDINGS if is_batch else names.CHAT
        self._inputs = len(request.inputs) if isinstance(request, EmbeddingRequest) else 0
        self._place = current_place.get()
        self._started: dict[int, int] = {}
        self._told = 0
        self._request = _asked(request, streamed=streamed) if telemetry.spans is not None else {}
        self._to = to
        if telemetry.bus.is_wanted:
            self._try(telemetry.happenings.call_started, request, self._to, streamed=streamed)

    @property
    def trace_id(self) -> str:
        """Return the trace that the call belongs to; empty for none."""
        return self._to.trace_id

    def dispatching(self, number: int, target: str) -> None:
        """Note that an attempt begins."""
        number += self._earlier
        self._started[number] = time.time_ns()
        if number > 1:
            self._telemetry.instruments.retried(target)
            if self._telemetry.bus.is_wanted:
                self._try(self._telemetry.happenings.retried, number, target, self._to)

    def attempts_failed(self, attempts: Sequence[Attempt]) -> None:
        """Tell the attempts so far, of which the last one has failed just now."""
        if self._telemetry.bus.is_wanted:
            self._try(self._tell_attempts, attempts)

    def _tell_attempts(self, attempts: Sequence[Attempt]) -> None:
        for attempt in self._counted_on(attempts[self._told :]):
            self._telemetry.happenings.attempt_ended(attempt, self._to)
        self._told = len(attempts)

    def _counted_on(self, attempts: Sequence[Attempt]) -> Sequence[Attempt]:
        """Return them with the numbers that they have among all of the turn."""
        if not self._earlier:
            return attempts
        return [msgspec.structs.replace(each, number=self._earlier + each.number) for each in attempts]

    def ended(self, outcome: CallOutcome, attempts: Sequence[Attempt]) -> None:
        """Note the recorded outcome, with all attempts."""
        self._try(self._ended, outcome, attempts)

    def _ended(self, outcome: CallOutcome, attempts: Sequence[Attempt]) -> None:
        telemetry, to = self._telemetry, self._to
        telemetry.instruments.call_ended(outcome, attempts, self._operation, to.tenant)
        telemetry.keep(sample_of(outcome, to))
        if telemetry.bus.is_wanted:
            self._tell_attempts(attempts)
            telemetry.happenings.call_ended(outcome, to, inputs=self._inputs)
        if telemetry.spans is not None:
            telemetry.spans.attempts_ended(
                outcome,
                self._counted_on(attempts),
                self._started,
                self._operation,
                to,
                self._place,
                self._request,
            )

    def _try(self, note: Callable[..., None], *facts: Any, **more: Any) -> None:
        try:
            note(*facts, **more)
        except Exception:  # noqa: BLE001 - no call may fail because somebody looks at it
            _log.exception("a call could not be observed", call_id=self._to.call_id)


def _asked(request: CompletionRequest | EmbeddingRequest, *, streamed: bool) -> dict[str, Any]:
    if isinstance(request, EmbeddingRequest):
        return {}
    told = {
        names.REQUEST_MAX_TOKENS: request.max_output_tokens,
        names.REQUEST_TEMPERATURE: request.temperature,
        names.REQUEST_TOP_P: request.top_p,
        names.REQUEST_STREAM: streamed or None,
    }
    return {name: value for name, value in told.items() if value is not None}


def _certainty(told: Certainty, cost: Cost | None) -> Certainty:
    """Return the certainty of usage and cost together: some of what is exactly known may have no price."""
    return cost.certainty if cost is not None and told is Certainty.EXACT else told


def sample_of(outcome: CallOutcome, to: Belonging) -> Sample:
    """Return a call's figures."""
    result, times = outcome.result, outcome.timings
    usage, cost = result.usage, result.cost
    return Sample(
        at=time.time_ns() // 1_000,
        tenant=to.tenant,
        model=OTHER if outcome.model is None else outcome.model.name,
        conversation_id=to.conversation_id,
        run_id=to.run_id,
        error_kind=result.kind.value if isinstance(result, Failure) else "",
        certainty=_certainty(result.certainty, cost).value,
        total=round(times.total * 1e6),
        first_token=None if times.first_token is None else round(times.first_token * 1e6),
        input_tokens=None if usage is None else usage.input_tokens,
        output_tokens=None if usage is None else usage.output_tokens,
        nano_units=None if cost is None else cost.nano_units,
        currency="" if cost is None else cost.currency,
        replayed=outcome.replayed,
    )
