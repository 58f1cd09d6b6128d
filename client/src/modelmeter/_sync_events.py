"""Events, for threads. A thin twin of `_async_events`; comes from `Client.events`."""

from __future__ import annotations

import math
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Unpack

from . import _event_messages as messages
from ._lost import CallRecord
from ._tenant import naming

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from datetime import datetime, timedelta

    from ._channel import Metadata
    from ._event_messages import EventOptions
    from ._senders import StreamOf, UnaryOf
    from .v1 import event_service_pb2 as pb
    from .v1.event_service_pb2_grpc import EventServiceStub
    from .watched import Event, EventBatch, Insights


class Events:
    """What happens to calls, live and in sum, of the one server process that this connection reaches.

    Methods take `timeout` and `metadata` and raise as those of `Client` do.
    """

    def __init__(
        self,
        stub: Callable[[], EventServiceStub],
        unary: UnaryOf,
        stream: StreamOf,
        tenant: str = "",
    ) -> None:
        self._stub = stub
        self._senders = (unary, stream)
        self._unary = naming(unary, tenant)
        self._stream = naming(stream, tenant)

    def of(self, tenant: str) -> Events:
        """Return the same for another tenant, or for `"*"`, which is all of them.

        For admins: a server refuses it to everybody else.
        """
        return Events(self._stub, *self._senders, tenant)

    @contextmanager
    def watch(
        self,
        *,
        timeout: float | None = math.inf,
        metadata: Metadata | None = None,
        **wanted: Unpack[EventOptions],
    ) -> Iterator[Iterator[EventBatch]]:
        """Watch events from now on (see `EventOptions`); the server watches once the block is entered.

        Hands out batches until the block is left, or the server shuts down, which raises `DrainingError`. A watcher
        that reads too slowly loses the oldest events, and the next batch says how many.
        """
        request = messages.watch_request(**wanted)
        parts = self._stream(self._stub().WatchEvents, request, CallRecord(), timeout, metadata)
        with closing(_batches(parts)) as batches:
            next(batches)  # without events: it says that the server watches
            yield batches

    def recent(
        self,
        *,
        page_size: int = 0,
        since: datetime | None = None,
        until: datetime | None = None,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        **wanted: Unpack[EventOptions],
    ) -> Iterator[Event]:
        """Yield the latest events, the newest first, as far back as the server keeps them.

        `since` and `until` narrow to those that happened at the one time or later, and before the other.
        """
        request = messages.query_request(page_size, since, until, **wanted)
        while True:
            page = self._unary(self._stub().QueryEvents, request, CallRecord(), timeout, metadata)
            for event in page.events:
                yield messages.event_from(event)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def insights(
        self,
        *,
        window: float | timedelta | None = None,
        model: str = "",
        conversation_id: str = "",
        run_id: str = "",
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> Insights:
        """Return what the latest calls looked like; `window` narrows to those that ended within these seconds."""
        request = messages.insights_request(window, model, conversation_id, run_id)
        response = self._unary(self._stub().GetInsights, request, CallRecord(), timeout, metadata)
        return messages.insights_from(response)


def _batches(parts: Iterator[pb.WatchEventsResponse]) -> Generator[EventBatch, None, None]:
    process = ""
    for part in parts:
        process = process or part.process
        yield messages.batch_from(part, process)
