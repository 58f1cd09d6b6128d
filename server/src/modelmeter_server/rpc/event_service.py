"""EventService: what happens to the calls of this process, live, looked back at, and in sum."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, NoReturn

from modelmeter.v1 import event_service_pb2, event_service_pb2_grpc
from modelmeter_server.core.errors import Failure, failure
from modelmeter_server.core.events import KINDS
from modelmeter_server.core.insights import Sample, insights
from modelmeter_server.core.journal import DEFAULT_TENANT
from modelmeter_server.core.outcomes import Cause, Code, Kind
from modelmeter_server.engine.plan import mistaken
from modelmeter_server.telemetry.bus import BusClosed, EventFilter, TooManyWatchers

from .convert_event import SEVERITY_WORDS, EventMessages
from .convert_insights import fill_insights
from .convert_request import Violations
from .paging import page_size, page_token, position
from .status import lookup_trailer

if TYPE_CHECKING:
    from grpc.aio import ServicerContext

    from modelmeter_server.telemetry.bus import Watcher
    from modelmeter_server.telemetry.observation import Telemetry

    Context = ServicerContext[Any, Any]

_KINDS: Final = frozenset(KINDS.values())
_MICROS: Final = 1_000_000


class EventService(event_service_pb2_grpc.EventServiceServicer):
    """Serve the events of one tenant."""

    def __init__(self, telemetry: Telemetry, process: str, tenant: str = DEFAULT_TENANT) -> None:
        """Serve what `telemetry` observes; `process` names this server process."""
        self._telemetry = telemetry
        self._process = process
        self._tenant = tenant
        self._messages = EventMessages()

    async def WatchEvents(  # type: ignore[override]  # writes by itself: it hears of a leaving caller in one shape
        self, request: event_service_pb2.WatchEventsRequest, context: Context
    ) -> None:
        """Send events as they come, until the caller leaves."""
        found = Violations("filter.")
        wanted = self._filter(request.filter, found)
        if found:
            await _end(context, mistaken(found))
        try:
            watcher = self._telemetry.bus.watch(wanted)
        except TooManyWatchers:
            await _end(context, _crowded())
        try:
            await context.write(event_service_pb2.WatchEventsResponse())
            await self._relay(watcher, context)
        except BusClosed:
            await _end(context, _closing())
        finally:
            watcher.close()

    async def _relay(self, watcher: Watcher, context: Context) -> None:
        while True:
            lost, events = await watcher.next()
            response = event_service_pb2.WatchEventsResponse()
            if lost:
                response.gap.lost = lost
            response.events.extend([self._messages.of(event) for event in events])
            await context.write(response)

    async def QueryEvents(
        self, request: event_service_pb2.QueryEventsRequest, context: Context
    ) -> event_service_pb2.QueryEventsResponse:
        """Return a page of the latest events."""
        found = Violations()
        size = page_size(request.page_size, found)
        after = position(request.page_token, found)
        if after and not after.isdecimal():
            found.add("page_token", "must be `next_page_token` of the page before, or empty")
        found.prefix = "filter."
        wanted = self._filter(request.filter, found)
        if found:
            await _end(context, mistaken(found))
        before = int(after) if after else None
        events = self._telemetry.bus.recent(wanted, before=before, limit=size + 1)
        page = events[:size]
        response = event_service_pb2.QueryEventsResponse(events=[self._messages.of(each) for each in page])
        if len(events) > size:
            response.next_page_token = page_token(str(page[-1].tick))
        return response

    async def GetInsights(
        self, request: event_service_pb2.GetInsightsRequest, context: Context
    ) -> event_service_pb2.GetInsightsResponse:
        """Return the aggregates of the latest calls."""
        found = Violations()
        window = request.window.ToMicroseconds() if request.HasField("window") else None
        if window is not None and window <= 0:
            found.add("window", "must be longer than nothing")
        if found:
            await _end(context, mistaken(found))
        samples = _chosen(self._telemetry.samples(self._tenant), request, window)
        response = event_service_pb2.GetInsightsResponse(
            most_calls=self._telemetry.most_samples, process=self._process
        )
        # Sorting thousands of times takes milliseconds, which calls under way need not wait for.
        fill_insights(response.insights, await asyncio.to_thread(insights, samples))
        return response

    def _filter(self, asked: event_service_pb2.EventFilter, found: Violations) -> EventFilter:
        unknown = [kind for kind in asked.kinds if kind not in _KINDS]
        if unknown:
            found.add("kinds", f"names unknown kinds; known are {', '.join(sorted(_KINDS))}")
        severity = SEVERITY_WORDS.get(asked.min_severity, 0)
        if asked.min_severity and not severity:
            found.add("min_severity", "is no severity")
        return EventFilter(
            tenant=self._tenant,
            kinds=frozenset(asked.kinds),
            call_id=asked.call_id,
            conversation_id=asked.conversation_id,
            run_id=asked.run_id,
            session_id=asked.session_id,
            model=asked.model,
            min_severity=int(severity),
        )


def _chosen(
    samples: list[Sample], request: event_service_pb2.GetInsightsRequest, window: int | None
) -> list[Sample]:
    since = 0 if window is None else time.time_ns() // 1_000 - window
    return [
        each
        for each in samples
        if each.at >= since
        and request.model in ("", each.model)
        and request.conversation_id in ("", each.conversation_id)
        and request.run_id in ("", each.run_id)
    ]


def _crowded() -> Failure:
    message = "as many watch the events of this server as may"
    return failure(Kind.OVERLOADED, message, cause=Cause.LIMIT, code=Code.RESOURCE_EXHAUSTED)


def _closing() -> Failure:
    message = "this server is shutting down; another one may be watched"
    return failure(Kind.DRAINING, message, cause=Cause.DRAIN)


async def _end(context: Context, failed: Failure) -> NoReturn:
    end = lookup_trailer(failed)
    await context.abort(end.code, end.message, end.metadata)
