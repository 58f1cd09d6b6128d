"""A scripted server, and both clients connected to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.client.faces import Face, face
from tests.support.scripted_service import ScriptedService, serve


@pytest.fixture
async def service() -> ScriptedService:
    """Return the service behind `address`."""
    return ScriptedService()


@pytest.fixture
async def address(service: ScriptedService) -> AsyncIterator[str]:
    """Return the address of a running server."""
    async with serve(service) as found:
        yield found


@pytest.fixture(params=["sync", "async"])
async def client(request: pytest.FixtureRequest, address: str) -> AsyncIterator[Face]:
    """Return each of the two clients in turn, connected to the server."""
    async with face(request.param, address) as found:
        yield found
