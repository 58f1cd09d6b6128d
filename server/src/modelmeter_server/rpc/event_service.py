"""EventService: what happens to the calls of this process, live, looked back at, and in sum."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NoReturn

import grpc

from modelmeter.v1 import event_service_pb2 as pb
from modelmeter.v1 import event_service_pb2_grpc
from modelmeter_server.core.errors import Failure, failure
from modelmeter_server.core.events import KINDS
from modelmeter_server.core.insights import Sample, insights
from modelmeter_server.core.outcomes import Cause, Code, Kind
from modelmeter_server.core.tenants import OPEN
from modelmeter_server.engine.plan import Refused, mistaken
from modelmeter_server.ledger.clock import now
from modelmeter_server.telemetry.bus import ANY_TENANT, BusClosed, EventFilter, TooManyWatchers

from .acting import NamesTenant, acting_for
from .convert_event import SEVERITY_WORDS, event_message
from .convert_insights import fill_insights
from .convert_questions import time_from
from .convert_request import Violations
from .event_bytes import EventBytes
from .identity import current_tenant
from .paging import page_asked, page_token
from .status import lookup_trailer
from .words import KIND_WORDS

if TYPE_CHECKING:
    from grpc.aio import ServicerContext

    from modelmeter_server.telemetry.bus import Watcher
    from modelmeter_server.telemetry.observation import Telemetry

    Context = ServicerContext[Any, Any]

SERVICE: Final = pb.DESCRIPTOR.services_by_name["EventService"].full_name
_KINDS: Final = frozenset(KINDS.values())


class EventService(event_service_pb2_grpc.EventServiceServicer):
    """Serve to each tenant its own events."""

    def __init__(self, telemetry: Telemetry, process: str) -> None:
        """Serve what `telemetry` observes; `process` names this server process."""
        self._telemetry = telemetry
        self._process = process
        self._bytes = EventBytes()

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the handlers to register: batches are written as bytes, so that watchers share the work."""
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "WatchEvents": grpc.unary_stream_rpc_method_handler(
                self.WatchEvents, pb.WatchEventsRequest.FromString, None
            ),
            "QueryEvents": grpc.unary_unary_rpc_method_handler(
                self.QueryEvents,
                pb.QueryEventsRequest.FromString,
                pb.QueryEventsResponse.SerializeToString,
            ),
            "GetInsights": grpc.unary_unary_rpc_method_handler(
                self.GetInsights,
                pb.GetInsightsRequest.FromString,
                pb.GetInsightsResponse.SerializeToString,
            ),
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def WatchEvents(  # type: ignore[override]  # writes by itself: it hears of a leaving caller in one shape
        self, request: pb.WatchEventsRequest, context: Context
    ) -> None:
        """Send events as they come, until the caller leaves."""
        found = Violations("filter.")
        wanted = await self._filter(request.filter, found, context)
        if found:
            await _end(context, mistaken(found))
        try:
            watcher = self._telemetry.bus.watch(wanted)
        except TooManyWatchers:
            await _end(context, _crowded())
        try:
            await context.write(pb.WatchEventsResponse(process=self._process).SerializeToString())
            await self._relay(watcher, context)
        except BusClosed:
            await _end(context, _closing())
        finally:
            watcher.close()

    async def _relay(self, watcher: Watcher, context: Context) -> None:
        while True:
            lost, events = await watcher.next()
            await context.write(self._bytes.batch(lost, events))

    async def QueryEvents(self, request: pb.QueryEventsRequest, context: Context) -> pb.QueryEventsResponse:
        """Return a page of the latest events."""
        found = Violations()
        size, after = page_asked(request, found)
        if after and not after.isdecimal():
            found.add("page_token", "must be `next_page_token` of the page before, or empty")
        since, until = (time_from(request, field, found) for field in ("start_time", "end_time"))
        found.prefix = "filter."
        wanted = await self._filter(request.filter, found, context)
        if found:
            await _end(context, mistaken(found))
        before = int(after) if after else None
        events = self._telemetry.bus.recent(wanted, before=before, limit=size + 1, since=since, until=until)
        page = events[:size]
        response = pb.QueryEventsResponse(events=map(event_message, page), process=self._process)
        if len(events) > size:
            response.next_page_token = page_token(str(page[-1].tick))
        return response

    async def GetInsights(self, request: pb.GetInsightsRequest, context: Context) -> pb.GetInsightsResponse:
        """Return the aggregates of the latest calls."""
        found = Violations()
        window = request.window.ToMicroseconds() if request.HasField("window") else None
        if window is not None and window <= 0:
            found.add("window", "must be longer than nothing")
        tenant = await _acting_for(request, found, context)
        if found:
            await _end(context, mistaken(found))
        since = 0 if window is None else max(0, now() - window)
        samples = _chosen(self._telemetry.samples(tenant), request, since)
        response = pb.GetInsightsResponse(
            most_calls=self._telemetry.most_samples,
            process=self._process,
            older_calls_evicted=self._telemetry.has_evicted(since),
        )
        # Sorting thousands of times takes milliseconds, which calls under way need not wait for.
        fill_insights(response.insights, await asyncio.to_thread(insights, samples))
        return response

    async def _filter(self, asked: pb.EventFilter, found: Violations, context: Context) -> EventFilter:
        tenant = await _acting_for(asked, found, context)
        if not asked.tenant and current_tenant() is OPEN:
            tenant = ANY_TENANT  # where nobody is asked who they are, what is the deployment's is theirs
        unknown = [kind for kind in asked.kinds if kind not in _KINDS]
        if unknown:
            found.add("kinds", f"names unknown kinds; known are {', '.join(sorted(_KINDS))}")
        severity = SEVERITY_WORDS.get(asked.min_severity, 0)
        if asked.min_severity and not severity:
            found.add("min_severity", "is no severity")
        error_kinds = [found.word("error_kinds", number, KIND_WORDS) for number in asked.error_kinds]
        return EventFilter(
            tenant=tenant,
            kinds=frozenset(asked.kinds),
            call_id=asked.call_id,
            conversation_id=asked.conversation_id,
            run_id=asked.run_id,
            session_id=asked.session_id,
            model=asked.model,
            min_severity=int(severity),
            error_kinds=frozenset(kind for kind in error_kinds if kind is not None),
            tool=asked.tool,
            target=asked.target,
        )


def _chosen(samples: list[Sample], request: pb.GetInsightsRequest, since: int) -> list[Sample]:
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


async def _acting_for(asked: NamesTenant, found: Violations, context: Context) -> str:
    try:
        return acting_for(asked, found, every=True)
    except Refused as refusal:
        await _end(context, refusal.verdict)


async def _end(context: Context, failed: Failure) -> NoReturn:
    end = lookup_trailer(failed)
    await context.abort(end.code, end.message, end.metadata)
