"""Telling that a share of a ceiling was passed: a line of log, and an event to a webhook. Never holds a call up.

The queue is bounded and so is the time for each event: what cannot be delivered is logged and forgotten. An event is
delivered at most once for each share and window, and perhaps not at all; the ledger's standings have the truth.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, Protocol

from modelmeter_server.drivers.webhook import NotDelivered
from modelmeter_server.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from modelmeter_server.ledger.replies import SoftLimit

WAITING_EVENTS: Final = 1_000
"""Events that wait for a slow receiver; more are dropped, and the log says so."""

ATTEMPTS: Final = 3
"""Deliveries of one event before it is given up."""

PAUSE: Final = 1.0
"""Seconds before the second delivery; twice as long before the third."""

FLUSH_SECONDS: Final = 2.0
"""What waiting events get at shutdown."""

_log = get_logger(__name__)


class Receiver(Protocol):
    """Takes events; `drivers.webhook.Webhook` is one."""

    async def post(self, event: dict[str, object]) -> None:
        """Deliver an event. Raises NotDelivered."""

    async def aclose(self) -> None:
        """Close the connection."""


class SoftLimits:
    """Tell of passed shares. `start` it inside a running loop, `stop` it once no more can come."""

    def __init__(
        self, receiver: Receiver | None = None, *, sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
    ) -> None:
        """Without a receiver only the log hears of it."""
        self._receiver = receiver
        self._sleep = sleep
        self._waiting: asyncio.Queue[dict[str, object]] = asyncio.Queue(WAITING_EVENTS)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to deliver."""
        if self._receiver is not None:
            self._task = asyncio.create_task(self._deliver_all(self._receiver))

    def passed(self, limit: SoftLimit) -> None:
        """Tell that a share was passed; returns at once."""
        event = event_of(limit)
        _log.warning("soft limit passed", **{key: value for key, value in event.items() if key != "event"})
        if self._receiver is None:
            return
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            _log.error("a soft limit was not delivered", ceiling_id=limit.ceiling_id, cause="too many wait")

    async def stop(self) -> None:
        """Give waiting events a moment, then end."""
        if self._task is None or self._receiver is None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._waiting.join(), FLUSH_SECONDS)
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self._receiver.aclose()

    async def _deliver_all(self, receiver: Receiver) -> None:
        while True:
            event = await self._waiting.get()
            try:
                await self._deliver(receiver, event)
            except Exception:  # noqa: BLE001 - one event must not keep the others from being delivered
                _log.exception("a soft limit was not delivered", ceiling_id=event["ceiling_id"])
            finally:
                self._waiting.task_done()

    async def _deliver(self, receiver: Receiver, event: dict[str, object]) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await receiver.post(event)
                return
            except NotDelivered as error:
                if attempt == ATTEMPTS:
                    _log.error(
                        "a soft limit was not delivered", ceiling_id=event["ceiling_id"], cause=str(error)
                    )
                    return
            await self._sleep(PAUSE * 2 ** (attempt - 1))


def event_of(limit: SoftLimit) -> dict[str, object]:
    """Return the event as the webhook gets it; amounts are tokens, or nano units when `currency` is set."""
    standing = limit.standing
    return {
        "event": "soft_limit",
        "ceiling_id": limit.ceiling_id,
        "tenant": limit.subject.tenant,
        "scope": limit.subject.scope,
        "name": limit.subject.name,
        "window": limit.window.kind.value,
        "percent": limit.percent,
        "currency": standing.currency,
        "allowed": standing.allowed,
        "settled": standing.settled,
        "held": standing.held,
        "unsettled": standing.unsettled,
    }
