"""The status that an RPC of grpc.aio ended with, where gRPC puts one of its own in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from modelmeter._call_end import CallEnd

SERVERS = grpc.StatusCode.FAILED_PRECONDITION, "over"
OWN = grpc.StatusCode.INTERNAL, "Internal error from Core"
"""What a write that came too late leaves, in the words of grpc.aio."""


class EndedCall:
    """A call of grpc.aio's that has ended, with one status after another; the last one stays."""

    def __init__(self, *statuses: tuple[grpc.StatusCode, str]) -> None:
        self._statuses = list(statuses)

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        callback(self)

    async def code(self) -> grpc.StatusCode:
        return self._statuses[0][0]

    async def details(self) -> str:
        return self._statuses[0][1]

    async def initial_metadata(self) -> grpc.aio.Metadata:
        return grpc.aio.Metadata()

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        if len(self._statuses) > 1:
            self._statuses.pop(0)
        return grpc.aio.Metadata()


@pytest.mark.parametrize("statuses", [(SERVERS, OWN), (OWN, SERVERS), (OWN, OWN, SERVERS), (SERVERS,)])
async def test_the_status_of_the_server_is_told_whenever_it_is_there(statuses):
    call: Any = EndedCall(*statuses)
    error = await CallEnd(call).error(call)
    assert error is not None
    assert (error.code(), error.details()) == SERVERS


async def test_a_good_end_is_no_error():
    call: Any = EndedCall((grpc.StatusCode.OK, ""))
    assert await CallEnd(call).error(call) is None
