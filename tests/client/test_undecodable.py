"""A peer that speaks gRPC and not our protos is no outcome, and no foreign exception."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from modelmeter import LostContactError
from tests.client.faces import face

GARBAGE = b"\xff\xff\xff\xff"


@pytest.fixture
async def garbage_address() -> AsyncIterator[str]:
    """Serve bytes that are no message, for both shapes of RPC."""

    async def answer(_request, _context) -> bytes:
        return GARBAGE

    async def stream(_request, _context) -> AsyncIterator[bytes]:
        yield GARBAGE

    handlers: dict[str, Any] = {
        "Complete": grpc.unary_unary_rpc_method_handler(answer),
        "StreamComplete": grpc.unary_stream_rpc_method_handler(stream),
    }
    server = grpc.aio.server()
    generic = grpc.method_handlers_generic_handler("modelmeter.v1.ModelService", handlers)
    server.add_generic_rpc_handlers((generic,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_bytes_that_are_no_message_are_no_outcome(garbage_address, kind):
    async with face(kind, garbage_address) as client:
        with pytest.raises(LostContactError) as unary:
            await client.complete("m", "hi")
        with pytest.raises(LostContactError) as streamed:
            await client.events("m", "hi")
        with pytest.raises(LostContactError) as missing:
            await client.models()
    for caught in (unary, streamed):
        assert (caught.value.certainty, caught.value.may_have_generated) == ("UNKNOWN", True)
    assert missing.value.code is grpc.StatusCode.UNIMPLEMENTED
