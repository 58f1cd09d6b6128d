"""The standard health service: Check, Watch and List (gRFC A90).

Our own, because the library's lacks List and ends no watch at shutdown, so that a watching probe would hold it up.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

if TYPE_CHECKING:
    from typing import Any

    from grpc.aio import ServicerContext

_Status = health_pb2.HealthCheckResponse

LIVENESS: Final = "liveness"
"""Answers as long as the process does; no drain turns it off, or the drain would be cut short by a restart."""

READINESS: Final = "readiness"
"""Whether new calls are welcome. A provider's health is no part of it."""


class HealthService(health_pb2_grpc.HealthServicer):
    """Say which services take calls."""

    def __init__(self, *services: str) -> None:
        """Serve the server as a whole (the empty name), liveness, readiness and these services."""
        self._names = frozenset(("", LIVENESS, READINESS, *services))
        self._ready = True
        self._ledger_is_up = True
        self._changed = asyncio.Event()
        self._closed = False

    def stop_serving(self) -> None:
        """Turn everything but liveness off, for good."""
        self._ready = False
        self._wake()

    def tell_ledger(self, *, is_up: bool) -> None:
        """Turn everything but liveness off as long as the ledger is down: every call would be refused."""
        if is_up != self._ledger_is_up:
            self._ledger_is_up = is_up
            self._wake()

    def close(self) -> None:
        """End every watch."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _status(self, name: str) -> _Status:
        if name not in self._names:
            return _Status(status=_Status.SERVICE_UNKNOWN)
        serving = name == LIVENESS or (self._ready and self._ledger_is_up)
        return _Status(status=_Status.SERVING if serving else _Status.NOT_SERVING)

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: ServicerContext[Any, Any]
    ) -> _Status:
        """Return the status of one service; NOT_FOUND for an unknown name."""
        if request.service not in self._names:
            await context.abort(grpc.StatusCode.NOT_FOUND, "this server has no health of that name")
        return self._status(request.service)

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: ServicerContext[Any, Any]) -> None:
        """Send the status now and after each change; SERVICE_UNKNOWN for an unknown name."""
        told = None
        while True:
            changed = self._changed
            status = self._status(request.service)
            if status != told:
                await context.write(status)
                told = status
            if self._closed:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "this server is shutting down")
            await changed.wait()

    async def List(self, _request: Any, _context: ServicerContext[Any, Any]) -> Any:
        """Return the status of every service."""
        messages: Any = health_pb2  # typeshed's stubs are from before List
        return messages.HealthListResponse(statuses={name: self._status(name) for name in self._names})
