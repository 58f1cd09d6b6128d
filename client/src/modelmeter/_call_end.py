"""How an RPC of grpc.aio ended, in the server's own words.

When a message cannot be written any more because the RPC has just ended, grpc.aio puts a status of its own, INTERNAL,
in the place of the server's, which had come or comes right after.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

if TYPE_CHECKING:
    Call = grpc.aio.StreamStreamCall[Any, Any]

_OWN: Final = "Internal error from Core"
"""What grpc.aio says of a write that failed; servers say what went wrong."""

_LOOKS: Final = 100
_PAUSE: Final = 0.01
"""The server's status is there within a step or two of the loop, and nothing tells of it."""


class CallEnd:
    """Remember the status that an RPC ended with first."""

    def __init__(self, call: Call) -> None:
        """Listen from now on."""
        self._first: grpc.aio.AioRpcError | None = None
        call.add_done_callback(self._hear)

    def _hear(self, call: Any) -> None:
        # The status is there, so that this runs to its end without waiting.
        step = _status_of(call)
        try:
            step.send(None)
        except StopIteration as told:
            self._first = told.value
        else:
            step.close()

    async def error(self, call: Call) -> grpc.aio.AioRpcError | None:
        """Return what the server ended an RPC with whose messages were all read; None for OK."""
        told = self._first if self._first is not None and not _is_own(self._first) else await _status_of(call)
        for _ in range(_LOOKS):
            if not _is_own(told):
                break
            await asyncio.sleep(_PAUSE)
            told = await _status_of(call)
        return None if told.code() is grpc.StatusCode.OK else told


def _is_own(status: grpc.aio.AioRpcError) -> bool:
    return status.code() is grpc.StatusCode.INTERNAL and status.details() == _OWN


async def _status_of(call: Call) -> grpc.aio.AioRpcError:
    code, details = await call.code(), await call.details()
    initial, trailing = await call.initial_metadata(), await call.trailing_metadata()
    return grpc.aio.AioRpcError(code, initial, trailing, details=details)
