"""The engine: admits calls, plans them, runs them in the in-flight registry, drains them."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from modelmeter_server.core.call_limits import MAX_CONCURRENT_CALLS, AdmissionLimits
from modelmeter_server.core.embeddings import EmbeddingRequest, is_large_batch
from modelmeter_server.core.errors import Failure, FieldViolation
from modelmeter_server.core.request_limits import is_large
from modelmeter_server.core.tenants import OPEN, Tenant

from .admission import Admission
from .call import Call
from .counting import CountLog, plan_count
from .cut import shutting_down
from .embedding import plan_embedding, with_embedding_terms
from .entering import enter
from .halting import concerns, sentence
from .inflight import InFlight
from .offers import Offer, Offers
from .plan import plan, with_terms
from .preparing import Preparation
from .reading import SLOW_READER_SECONDS, STREAM_BUFFER_BYTES
from .reconcile import Reconciliation
from .sessions import Sessions
from .targets import Targets

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from modelmeter_server.core.calls import CallOutcome
    from modelmeter_server.core.ceilings import Halt
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.requests import CompletionRequest
    from modelmeter_server.drivers.driver import Driver
    from modelmeter_server.telemetry.observation import CallWatch, Telemetry

    from .catalog import Catalog
    from .entry import Entry
    from .holding import Desk
    from .preparing import Make, Terms
    from .recorder import Recorder

HEADROOM_SHARE = 0.05
HEADROOM_LEAST = 0.05
HEADROOM_MOST = 2.0
"""What is kept of the caller's time so that the typed error still arrives: 5 %, from 50 ms to 2 s."""

PLANNING_THREADS = 2
"""Large requests that are planned at once, beside the event loop: planning is all processor time and memory, so that
more would only take both from the calls under way."""


class Engine:
    """Bring requests to outcomes."""

    def __init__(
        self,
        catalog: Catalog,
        drivers: Mapping[str, Driver],
        recorder: Recorder,
        *,
        max_concurrent_calls: int = MAX_CONCURRENT_CALLS,
        admission: Admission | None = None,
        telemetry: Telemetry | None = None,
        stream_buffer_bytes: int = STREAM_BUFFER_BYTES,
        slow_reader_seconds: float = SLOW_READER_SECONDS,
    ) -> None:
        """Serve the models of `catalog` through `drivers`, which are keyed by the provider instance's name.

        Without an `admission` up to `max_concurrent_calls` run and none waits. Without `telemetry` nobody observes the
        calls.
        """
        self.admission = admission or Admission(AdmissionLimits(concurrent=max_concurrent_calls, queued=0))
        """Room for calls."""
        self.telemetry = telemetry
        self.offers = Offers(Offer(catalog, drivers))
        """What is served; `replace` serves something else from the next call on."""
        self.reconciliation = Reconciliation(self.offers)
        self.targets = Targets(telemetry=telemetry)
        """How the targets of models with targets fare; whoever configures them says which there are."""
        self.sessions = Sessions(self)
        self._recorder = recorder
        self._counts = CountLog()
        self.stream_buffer_bytes = stream_buffer_bytes
        """What waits for a stream's reader before no more is read; for calls from now on."""
        self.slow_reader_seconds = slow_reader_seconds
        """How long one message may wait for its reader; for calls from now on."""
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

    def reconfigure(
        self, limits: AdmissionLimits, *, stream_buffer_bytes: int, slow_reader_seconds: float
    ) -> None:
        """Take other limits, all of them: those on calls hold at once, those on streams for new ones."""
        self.admission.reconfigure(limits)
        self.stream_buffer_bytes = stream_buffer_bytes
        self.slow_reader_seconds = slow_reader_seconds

    def record_with(self, recorder: Recorder) -> None:
        """Hand the outcomes of calls that begin from now on to another recorder."""
        self._recorder = recorder

    def halted(self, halt: Halt) -> int:
        """Cut the calls under way that an operator's halt cuts; return how many there were.

        A halt that lets calls under way go on cuts those that wait for room or for their next attempt: they would be
        refused afterwards.
        """
        concerned = [
            call
            for call in self._inflight.calls
            if isinstance(call, Call)
            and concerns(
                halt,
                tenant=call.tenant,
                run_id=call.run_id,
                model=call.model_asked,
                is_waiting=call.is_waiting,
            )
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
        place: ModelSpec | None = None,
        conversation_id: str = "",
        offer: Offer | None = None,
        earlier: int = 0,
    ) -> Call:
        """Start a completion; it runs whether or not anyone waits for it.

        `budget` is how many seconds the caller waits, `None` for any time; `deltas` keeps deltas for a `LiveFeed`.
        `violations` are mistakes found before, and `prefix` leads to the request's fields in the caller's message;
        both end up in the refusal, with the engine's own findings. `via` puts another driver in the place of the
        model's own, as for a turn of a session; `refusal` is why it cannot be sent at all. `tenant` says what the
        caller may ask for; `place` is the target of the model that alone may be asked, and `conversation_id` and
        `offer` those of the session whose turn it is, which was asked `earlier` times already.
        """
        return self._start(
            request,
            plan,
            self._recorder,
            terms=with_terms,
            desk=self._desk,
            tenant=tenant,
            is_large=is_large(request),
            budget=budget,
            deltas=deltas,
            found=violations,
            prefix=prefix,
            via=via,
            refusal=refusal,
            place=place,
            conversation_id=conversation_id,
            offer=offer,
            earlier=earlier,
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
            watches=False,
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
            plan_embedding,
            self._recorder,
            terms=with_embedding_terms,
            desk=self._desk,
            tenant=tenant,
            is_large=is_large_batch(request),
            budget=budget,
            found=violations,
        )

    def _start(
        self,
        request: CompletionRequest | EmbeddingRequest,
        make: Make,
        recorder: Recorder,
        *,
        terms: Terms | None = None,
        desk: Desk | None = None,
        tenant: Tenant = OPEN,
        is_large: bool,
        budget: float | None,
        found: Sequence[FieldViolation],
        deltas: bool = False,
        prefix: str = "",
        via: Callable[[Driver], Driver] | None = None,
        refusal: Failure | None = None,
        place: ModelSpec | None = None,
        watches: bool = True,
        conversation_id: str = "",
        offer: Offer | None = None,
        earlier: int = 0,
    ) -> Call:
        if self._draining:
            self.turned_away += 1
            refusal = refusal or shutting_down()
        offer = self.offers.take(offer)
        provider_budget = None if budget is None else budget - headroom(budget)
        is_count = recorder is self._counts
        entry: Entry | None = None
        if refusal is None:
            model = offer.catalog.find(request.model)
            entered = enter(
                self.admission, request, tenant, model, place=place, left=provider_budget, is_count=is_count
            )
            entry, refusal = (None, entered) if isinstance(entered, Failure) else (entered, None)
        preparation = Preparation(
            request=request,
            make=make,
            offer=offer,
            tenant=tenant,
            terms=None if self._desk is None else terms,
            has_ledger=self._desk is not None,
            states=self.targets,
            refusal=refusal,
            found=found,
            prefix=prefix,
            via=via,
            place=place,
            watches=watches,
            takes=_anywhere if entry is None else entry.move,
        )
        planner = self._planner if refusal is None and is_large else None
        call = Call(
            request,
            preparation,
            recorder,
            budget=provider_budget,
            deltas=deltas,
            planner=planner,
            desk=desk,
            buffer=self.stream_buffer_bytes,
            tenant=tenant.name,
            entry=entry,
            # A count has no bill, and leaves nothing but the RPC's own traces.
            watch=None
            if is_count
            else self._watch(request, tenant.name, conversation_id, streamed=deltas, earlier=earlier),
        )
        self._launch(call, offer, entry)
        return call

    def _launch(self, call: Call, offer: Offer, entry: Entry | None) -> None:
        """Run a call; at its end it gives back what it was offered, and its room."""
        call.task = self._inflight.launch(call)
        call.task.add_done_callback(lambda _task: self.offers.give_back(offer))
        if entry is not None:
            call.task.add_done_callback(functools.partial(_leave, entry))

    def _watch(
        self,
        request: CompletionRequest | EmbeddingRequest,
        tenant: str,
        conversation_id: str,
        *,
        streamed: bool,
        earlier: int,
    ) -> CallWatch | None:
        if self.telemetry is None:
            return None
        run_id = request.effect.run_id if request.effect is not None else ""
        return self.telemetry.call_started(
            request,
            tenant=tenant,
            run_id=run_id,
            conversation_id=conversation_id,
            streamed=streamed,
            earlier=earlier,
        )

    async def drain(self, limit: float) -> int:
        """Refuse new calls, give those under way `limit` seconds, cut the rest, and wait until all are settled.

        Return how many were cut. May be called again with a smaller limit to hurry.
        """
        self._draining = True
        self.admission.drain()
        self.sessions.drain()
        cut = await self._inflight.drain(limit)
        await self.sessions.settled()
        self._planner.shutdown(wait=False, cancel_futures=True)
        return cut


def _anywhere(_instance: str) -> bool:
    return True


def _leave(entry: Entry, task: asyncio.Task[CallOutcome]) -> None:
    entry.settle(None if task.cancelled() else task.result())


def headroom(budget: float) -> float:
    """Return how many seconds of the caller's time are kept for the typed error to arrive."""
    return min(max(budget * HEADROOM_SHARE, HEADROOM_LEAST), HEADROOM_MOST)
