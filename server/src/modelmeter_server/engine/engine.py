"""The engine: admits calls, plans them, runs them in the in-flight registry, drains them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from modelmeter_server.core.embeddings import EmbeddingRequest, is_large_batch
from modelmeter_server.core.errors import Failure, FieldViolation, failure
from modelmeter_server.core.outcomes import Cause, Kind
from modelmeter_server.core.request_limits import is_large

from .call import Call
from .counting import CountLog, plan_count
from .embedding import plan_embedding
from .inflight import InFlight
from .plan import Plan, Refused, find_model, plan
from .sessions import Sessions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.requests import CompletionRequest
    from modelmeter_server.drivers.driver import Driver

    from .catalog import Catalog
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


_Make = Callable[["ModelSpec", "Driver", "Sequence[FieldViolation]", str], Plan]


class Engine:
    """Bring requests to outcomes."""

    def __init__(
        self,
        catalog: Catalog,
        drivers: Mapping[str, Driver],
        recorder: Recorder,
        *,
        max_concurrent_calls: int = MAX_CONCURRENT_CALLS,
    ) -> None:
        """Serve the models of `catalog` through `drivers`, which are keyed by the provider instance's name."""
        self.catalog = catalog
        self.sessions = Sessions(self, drivers)
        self._drivers = drivers
        self._recorder = recorder
        self._counts = CountLog()
        self._limit = max_concurrent_calls
        self._admitted = 0
        self._draining = False
        self._inflight = InFlight()
        self._planner = ThreadPoolExecutor(PLANNING_THREADS, thread_name_prefix="planning")

    @property
    def calls_in_flight(self) -> int:
        """Return how many calls are not settled yet."""
        return len(self._inflight)

    @property
    def is_draining(self) -> bool:
        """Say whether new calls are refused because the server is shutting down."""
        return self._draining

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
    ) -> Call:
        """Start a completion; it runs whether or not anyone waits for it.

        `budget` is how many seconds the caller waits, `None` for any time; `deltas` keeps deltas for a `LiveFeed`.
        `violations` are mistakes found before, and `prefix` leads to the request's fields in the caller's message;
        both end up in the refusal, with the engine's own findings. `via` puts another driver in the place of the
        model's own, as for a turn of a session; `refusal` is why it cannot be sent at all.
        """
        make = functools.partial(plan, request)
        return self._start(
            request,
            make,
            self._recorder,
            is_large=is_large(request),
            budget=budget,
            deltas=deltas,
            found=violations,
            prefix=prefix,
            via=via,
            refusal=refusal,
        )

    def count(
        self,
        request: CompletionRequest,
        *,
        budget: float | None = None,
        violations: Sequence[FieldViolation] = (),
        prefix: str = "",
    ) -> Call:
        """Start a count of a completion's input; it is not booked, for it costs nothing.

        Its outcome is to be read through `core.token_count.costless_outcome`. The arguments are those of `start`.
        """
        make = functools.partial(plan_count, request)
        large = is_large(request)
        return self._start(
            request, make, self._counts, is_large=large, budget=budget, found=violations, prefix=prefix
        )

    def embed(
        self,
        request: EmbeddingRequest,
        *,
        budget: float | None = None,
        violations: Sequence[FieldViolation] = (),
    ) -> Call:
        """Start a batch of embeddings, recorded like a completion. The arguments are those of `start`."""
        make = functools.partial(plan_embedding, request)
        large = is_large_batch(request)
        return self._start(request, make, self._recorder, is_large=large, budget=budget, found=violations)

    def _start(
        self,
        request: CompletionRequest | EmbeddingRequest,
        make: _Make,
        recorder: Recorder,
        *,
        is_large: bool,
        budget: float | None,
        found: Sequence[FieldViolation],
        deltas: bool = False,
        prefix: str = "",
        via: Callable[[Driver], Driver] | None = None,
        refusal: Failure | None = None,
    ) -> Call:
        refusal = refusal or self._shed()
        work = functools.partial(
            self._plan, name=request.model, make=make, refusal=refusal, found=found, prefix=prefix, via=via
        )
        provider_budget = None if budget is None else budget - headroom(budget)
        planner = self._planner if refusal is None and is_large else None
        call = Call(request, work, recorder, budget=provider_budget, deltas=deltas, planner=planner)
        call.task = self._inflight.launch(call)
        if refusal is None:
            self._admitted += 1
            call.task.add_done_callback(self._release)
        return call

    def _shed(self) -> Failure | None:
        if self._draining:
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
        *,
        name: str,
        make: _Make,
        refusal: Failure | None,
        found: Sequence[FieldViolation],
        prefix: str,
        via: Callable[[Driver], Driver] | None,
    ) -> Plan:
        if refusal is not None:
            raise Refused(refusal)
        model = find_model(self.catalog, name, found, f"{prefix}model")
        call.model = model
        driver = self._drivers[model.provider]
        call.driver = driver if via is None else via(driver)
        call.tables = self.catalog.price_tables(model.provider)
        return make(model, call.driver, found, prefix)

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
