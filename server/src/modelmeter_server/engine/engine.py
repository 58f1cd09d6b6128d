"""The engine: admits calls, plans them, runs them in the in-flight registry, drains them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from modelmeter_server.core.embeddings import EmbeddingRequest, is_large_batch
from modelmeter_server.core.errors import Failure, FieldViolation, failure
from modelmeter_server.core.ledger_checks import ledger_violations
from modelmeter_server.core.outcomes import Cause, Kind
from modelmeter_server.core.request_limits import is_large
from modelmeter_server.core.tenants import OPEN, Tenant

from .call import Call
from .counting import CountLog, plan_count
from .embedding import plan_embedding, with_embedding_terms
from .halting import concerns, sentence
from .inflight import InFlight
from .offers import Offer, Offers
from .plan import Plan, Refused, check_tenant, find_model, plan, with_terms
from .reconcile import Reconciliation
from .sessions import Sessions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modelmeter_server.core.ceilings import Halt
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.requests import CompletionRequest
    from modelmeter_server.drivers.driver import Driver
    from modelmeter_server.telemetry.observation import CallWatch, Telemetry

    from .catalog import Catalog
    from .holding import Desk
    from .recorder import Recorder

MAX_CONCURRENT_CALLS = 1000
"""Calls under way at once unless configured otherwise; more are refused, never queued."""

RETRY_AFTER = 1.0
"""Seconds that a refused caller is asked to wait: about the time in which some of a thousand calls end."""

HEADROOM_SHARE = 0.05
HEADROOM_LEAST = 0.05
HEADROOM_MOST = 2.0
"""What is kept of the caller's time so that the typed error still arrives: 5 %, from 50 ms to 2 s."""

PLANNING_THREADS = 2
"""Large requests that are planned at once, beside the event loop: planning is all processor time and memory, so that
more would only take both from the calls under way."""


_Make = Callable[[Any, "ModelSpec", "Driver", "Sequence[FieldViolation]", str], Plan]


class Engine:
    """Bring requests to outcomes."""

    def __init__(
        self,
        catalog: Catalog,
        drivers: Mapping[str, Driver],
        recorder: Recorder,
        *,
        max_concurrent_calls: int = MAX_CONCURRENT_CALLS,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Serve the models of `catalog` through `drivers`, which are keyed by the provider instance's name.

        Without `telemetry` nobody observes the calls.
        """
        self.telemetry = telemetry
        self.offers = Offers(Offer(catalog, drivers))
        self.reconciliation = Reconciliation(self.offers)
        self.sessions = Sessions(self)
        self._recorder = recorder
        self._counts = CountLog()
        self._limit = max_concurrent_calls
        self._admitted = 0
        self._draining = False
        self.turned_away = 0
        """Calls that came after the server had begun to shut down."""
        self._desk: Desk | None = None
        self._inflight = InFlight()
        self._planner = ThreadPoolExecutor(PLANNING_THREADS, thread_name_prefix="planning")

    @property
    def catalog(self) -> Catalog:
        """Return the models that callers may ask for now."""
        return self.offers.current.catalog

    @property
    def calls_in_flight(self) -> int:
        """Return how many calls are not settled yet."""
        return len(self._inflight)

    @property
    def is_draining(self) -> bool:
        """Say whether new calls are refused because the server is shutting down."""
        return self._draining

    @property
    def desk(self) -> Desk | None:
        """Return the ledger as calls use it; `None` on a deployment without one."""
        return self._desk

    def use_ledger(self, desk: Desk) -> None:
        """Reserve and settle every call from now on. Once, before the first call."""
        self._desk = desk

    def reconfigure(self, offer: Offer, *, max_concurrent_calls: int) -> None:
        """Serve another offer from the next call on, in one step; calls and sessions under way keep theirs."""
        self.offers.replace(offer)
        self._limit = max_concurrent_calls

    def record_with(self, recorder: Recorder) -> None:
        """Hand the outcomes of calls that begin from now on to another recorder."""
        self._recorder = recorder

    def halted(self, halt: Halt) -> int:
        """Cut the calls under way that an operator's halt cuts; return how many there were."""
        concerned = [
            call
            for call in self._inflight.calls
            if isinstance(call, Call)
            and concerns(halt, tenant=call.tenant, run_id=call.run_id, model=call.model_asked)
        ]
        for call in concerned:
            call.halt(sentence(halt))
        return len(concerned)

    def start(
        self,
        request: CompletionRequest,
        *,
        budget: float | None = None,
        deltas: bool = False,
        violations: Sequence[FieldViolation] = (),
        prefix: str = "",
        via: Callable[[Driver], Driver] | None = None,
        refusal: Failure | None = None,
        tenant: Tenant = OPEN,
        offer: Offer | None = None,
    ) -> Call:
        """Start a completion; it runs whether or not anyone waits for it.

        `budget` is how many seconds the caller waits, `None` for any time; `deltas` keeps deltas for a `LiveFeed`.
        `violations` are mistakes found before, and `prefix` leads to the request's fields in the caller's message;
        both end up in the refusal, with the engine's own findings. `via` puts another driver in the place of the
        model's own, as for a turn of a session; `refusal` is why it cannot be sent at all. `tenant` says what the
        caller may ask for; `offer` is the one of the session that it belongs to, in the place of the current one.
        """
        return self._start(
            request,
            self._plan_completion,
            self._recorder,
            desk=self._desk,
            tenant=tenant,
            is_large=is_large(request),
            budget=budget,
            deltas=deltas,
            found=violations,
            prefix=prefix,
            via=via,
            refusal=refusal,
            offer=offer,
        )

    def count(
        self,
        request: CompletionRequest,
        *,
        budget: float | None = None,
        violations: Sequence[FieldViolation] = (),
        prefix: str = "",
        tenant: Tenant = OPEN,
    ) -> Call:
        """Start a count of a completion's input; it is not booked, for it costs nothing.

        Its outcome is to be read through `core.token_count.costless_outcome`. The arguments are those of `start`.
        """
        large = is_large(request)
        return self._start(
            request,
            plan_count,
            self._counts,
            tenant=tenant,
            is_large=large,
            budget=budget,
            found=violations,
            prefix=prefix,
        )

    def embed(
        self,
        request: EmbeddingRequest,
        *,
        budget: float | None = None,
        violations: Sequence[FieldViolation] = (),
        tenant: Tenant = OPEN,
    ) -> Call:
        """Start a batch of embeddings, booked like a completion. The arguments are those of `start`."""
        return self._start(
            request,
            self._plan_embedding,
            self._recorder,
            desk=self._desk,
            tenant=tenant,
            is_large=is_large_batch(request),
            budget=budget,
            found=violations,
        )

    def _start(
        self,
        request: CompletionRequest | EmbeddingRequest,
        make: _Make,
        recorder: Recorder,
        *,
        desk: Desk | None = None,
        tenant: Tenant = OPEN,
        is_large: bool,
        budget: float | None,
        found: Sequence[FieldViolation],
        deltas: bool = False,
        prefix: str = "",
        via: Callable[[Driver], Driver] | None = None,
        refusal: Failure | None = None,
        offer: Offer | None = None,
    ) -> Call:
        refusal = refusal or self._shed()
        offer = self.offers.take(offer)
        work = functools.partial(
            self._plan,
            make=make,
            refusal=refusal,
            found=found,
            prefix=prefix,
            tenant=tenant,
            via=via,
            offer=offer,
        )
        provider_budget = None if budget is None else budget - headroom(budget)
        planner = self._planner if refusal is None and is_large else None
        call = Call(
            request,
            work,
            recorder,
            budget=provider_budget,
            deltas=deltas,
            planner=planner,
            desk=desk,
            tenant=tenant.name,
            # A count has no bill, and leaves nothing but the RPC's own traces.
            watch=None if recorder is self._counts else self._watch(request, tenant.name, streamed=deltas),
        )
        call.task = self._inflight.launch(call)
        call.task.add_done_callback(lambda _task: self.offers.give_back(offer))
        if refusal is None:
            self._admitted += 1
            call.task.add_done_callback(self._release)
        return call

    def _watch(
        self, request: CompletionRequest | EmbeddingRequest, tenant: str, *, streamed: bool
    ) -> CallWatch | None:
        if self.telemetry is None:
            return None
        run_id = request.effect.run_id if request.effect is not None else ""
        return self.telemetry.call_started(request, tenant=tenant, run_id=run_id, streamed=streamed)

    def _shed(self) -> Failure | None:
        if self._draining:
            self.turned_away += 1
            message = "this server is shutting down; another one will take the call"
            return failure(Kind.DRAINING, message, cause=Cause.DRAIN, retry_after=RETRY_AFTER)
        if self._admitted >= self._limit:
            message = f"this server already runs {self._limit} calls, as many as it admits"
            return failure(Kind.OVERLOADED, message, cause=Cause.LIMIT, retry_after=RETRY_AFTER)
        return None

    def _release(self, _task: object) -> None:
        self._admitted -= 1

    def _plan(
        self,
        call: Call,
        request: Any,
        *,
        make: _Make,
        refusal: Failure | None,
        found: Sequence[FieldViolation],
        prefix: str,
        tenant: Tenant,
        via: Callable[[Driver], Driver] | None,
        offer: Offer,
    ) -> Plan:
        if refusal is not None:
            raise Refused(refusal)
        asked = ledger_violations(request, has_ledger=self._desk is not None)
        found = [*found, *(FieldViolation(prefix + each.field, each.description) for each in asked)]
        model = find_model(offer.catalog, request.model, found, f"{prefix}model", tenant=tenant)
        check_tenant(request.sensitivity, tenant)
        call.model = model
        driver = offer.drivers[model.provider]
        call.driver = driver if via is None else via(driver)
        call.tables = offer.catalog.price_tables(model.provider)
        return make(request, model, call.driver, found, prefix)

    def _plan_completion(
        self,
        request: CompletionRequest,
        model: ModelSpec,
        driver: Driver,
        found: Sequence[FieldViolation],
        prefix: str,
    ) -> Plan:
        planned = plan(request, model, driver, found, prefix)
        return planned if self._desk is None else with_terms(planned, request)

    def _plan_embedding(
        self,
        request: EmbeddingRequest,
        model: ModelSpec,
        driver: Driver,
        found: Sequence[FieldViolation],
        prefix: str,
    ) -> Plan:
        planned = plan_embedding(request, model, driver, found, prefix)
        return planned if self._desk is None else with_embedding_terms(planned, request)

    async def drain(self, limit: float) -> int:
        """Refuse new calls, give those under way `limit` seconds, cut the rest, and wait until all are settled.

        Return how many were cut. May be called again with a smaller limit to hurry.
        """
        self._draining = True
        self.sessions.drain()
        cut = await self._inflight.drain(limit)
        await self.sessions.settled()
        self._planner.shutdown(wait=False, cancel_futures=True)
        return cut


def headroom(budget: float) -> float:
    """Return how many seconds of the caller's time are kept for the typed error to arrive."""
    return min(max(budget * HEADROOM_SHARE, HEADROOM_LEAST), HEADROOM_MOST)
