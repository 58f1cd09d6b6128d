"""Every asynchronous test of the transport runs on both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from modelmeter_server.drivers.http import Endpoint, Limits, Pool, Timeouts
from tests.support.fault_server import Authority, FaultServer


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with FaultServer() as running:
        yield running


OpenPool = Callable[..., Pool]


@pytest.fixture
async def open_pool() -> AsyncIterator[OpenPool]:
    """Make pools that are closed when the test ends; a leaked connection would keep the test from ending."""
    pools: list[Pool] = []

    def make(
        url: str, timeouts: Timeouts | None = None, limits: Limits | None = None, **options: object
    ) -> Pool:
        endpoint_options = {k: options.pop(k) for k in ("tls", "proxy", "server_hostname") if k in options}
        pool = Pool(Endpoint.parse(url, **endpoint_options), timeouts, limits, **options)  # type: ignore[arg-type]
        pools.append(pool)
        return pool

    yield make
    for pool in pools:
        await pool.aclose()
        assert pool.open_connections == 0
        assert pool.idle_connections == 0


@pytest.fixture
def pool(server: FaultServer, open_pool: OpenPool) -> Pool:
    return open_pool(server.url)
