"""The landing conformance suite: for every fault the truth about how far it got, on both loops and both faces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import httpx
import pytest

from modelmeter_server.core.outcomes import Cause, Kind
from modelmeter_server.drivers.http import Endpoint, HttpxTransport, Pool, exchange_end
from tests.drivers.http.landing_table import LANDINGS, Landing
from tests.drivers.http.recorder import Recorder, post, run
from tests.support import wire_faults as wire
from tests.support.connect_proxy import ConnectProxy
from tests.support.fault_server import Authority, FaultServer, NobodyListens, Reply

by_name = pytest.mark.parametrize("landing", LANDINGS, ids=[landing.name for landing in LANDINGS])


@dataclass
class Scene:
    """A server that will misbehave as the row says, and how to reach it."""

    url: str
    tls: bool = False
    proxy: str | None = None
    server: FaultServer | None = None
    before: tuple[str, ...] = ()
    """What to do first: "keep" a connection, "fill" the pool."""


@asynccontextmanager
async def arrange(landing: Landing, authority: Authority) -> AsyncIterator[Scene]:
    """Set up what `landing.setting` names."""
    setting = landing.setting
    async with AsyncExitStack() as stack:
        if setting in ("refused", "proxy refused"):
            nobody = stack.enter_context(NobodyListens())
            yield Scene(nobody.url) if setting == "refused" else Scene("http://127.0.0.1:9", proxy=nobody.url)
            return
        if setting == "unresolvable":
            # A label over 63 characters fails in the resolver itself: no name server is asked.
            yield Scene("http://" + "x" * 70 + ".invalid")
            return
        other = Authority() if setting == "untrusted" else authority
        names = ("example.com",) if setting == "wrong host" else ()
        is_tls = setting in ("untrusted", "wrong host", "tls", "narrow tls", "tunnel")
        server = await stack.enter_async_context(
            FaultServer(
                tls=other.server(*names) if is_tls else None,
                receive_buffer=16384 if setting.startswith("narrow") else None,
            )
        )
        scene = Scene(server.url, server=server, tls=is_tls)
        _script(scene, landing)
        if setting == "tls on plain":
            scene = replace(scene, url=server.url_as("https"), tls=True)
        elif setting == "proxy":
            scene = Scene("http://127.0.0.1:9", proxy=server.url, server=server)
        elif setting == "tunnel":
            proxy = await stack.enter_async_context(ConnectProxy("user", "pass"))
            scene = replace(scene, proxy=f"http://user:pass@127.0.0.1:{proxy.port}")
        yield scene


def _script(scene: Scene, landing: Landing) -> None:
    assert scene.server is not None
    replies = [landing.reply()]
    if landing.setting.startswith("kept"):
        replies.insert(0, Reply())
    if landing.setting == "kept, twice":
        replies.append(landing.reply())
    if landing.setting == "stale":
        replies = [Reply(), wire.close_after_written("reset"), landing.reply()]
    if landing.setting == "full pool":
        replies = [wire.never_answer(), landing.reply()]
    scene.server.script(replies)
    scene.before = {
        "kept": ("keep",),
        "kept, twice": ("keep",),
        "stale": ("keep",),
        "full pool": ("fill",),
    }.get(landing.setting, ())


@by_name
async def test_the_push_face_tells_the_truth(landing: Landing, authority: Authority) -> None:
    async with arrange(landing, authority) as scene, AsyncExitStack() as stack:
        pool = _pool(scene, landing, authority)
        stack.push_async_callback(pool.aclose)
        if "keep" in scene.before:
            await run(pool)
        if "fill" in scene.before:
            assert scene.server is not None
            other = asyncio.ensure_future(pool.exchange(post(), Recorder()).run())
            stack.callback(other.cancel)
            await scene.server.received(1)
        end, sink = await run(pool, request=post(b"x" * landing.request_size))
        assert (end.stage, end.fault, end.cause) == (landing.stage, landing.fault, landing.cause), end
        assert (end.head.status if end.head else None) == landing.status
        assert end.request_written == landing.written
        assert (end.attempts, end.reused) == (landing.attempts, landing.reused)
        assert sink.answer == end.head
        assert sink.body == landing.body
        assert sink.calls.count("written") == landing.written
        assert sink.calls.count("head") == (landing.status is not None)
        assert "secret" not in end.detail
        assert (end.detail == "") == (landing.cause is None)


@by_name
async def test_the_httpx_face_raises_what_it_was(landing: Landing, authority: Authority) -> None:
    async with arrange(landing, authority) as scene, AsyncExitStack() as stack:
        client = await stack.enter_async_context(_client(scene, landing, authority))
        if "keep" in scene.before:
            await client.post(scene.url)
        if "fill" in scene.before:
            assert scene.server is not None
            other = asyncio.ensure_future(client.post(scene.url))
            stack.callback(other.cancel)
            await scene.server.received(1)
        status, body, raised = await _fetch(client, scene.url, b"x" * landing.request_size)
        assert status == landing.status
        assert type(raised) is (landing.raises or type(None))
        if raised is None:
            assert body == landing.body
            return
        end = exchange_end(raised)
        assert end is not None
        assert (end.stage, end.fault, end.cause) == (landing.stage, landing.fault, landing.cause)
        assert landing.body.startswith(body)


async def _fetch(
    client: httpx.AsyncClient, url: str, content: bytes
) -> tuple[int | None, bytes, Exception | None]:
    status, body = None, b""
    try:
        async with client.stream("POST", url, content=content) as response:
            status = response.status_code
            async for part in response.aiter_bytes():
                body += part
    except httpx.RequestError as exc:
        return status, body, exc
    return status, body, None


def _pool(scene: Scene, landing: Landing, authority: Authority) -> Pool:
    tls = authority.client if scene.tls else None
    if landing.setting == "unresolvable":
        # Endpoint.parse would refuse this name before anything is resolved.
        endpoint = Endpoint("http", scene.url.removeprefix("http://"), 80)
    else:
        endpoint = Endpoint.parse(scene.url, proxy=scene.proxy, tls=tls)
    return Pool(endpoint, landing.timeouts, landing.limits, resend_on_stale_connection=landing.resend)


def _client(scene: Scene, landing: Landing, authority: Authority) -> httpx.AsyncClient:
    timeouts = landing.timeouts
    transport = HttpxTransport(
        timeouts,
        landing.limits,
        proxy=scene.proxy,
        tls=authority.client,
        resend_on_stale_connection=landing.resend,
    )
    # httpx has one read timeout for our two; a row that tests one of them leaves the other long.
    read = min(timeouts.first_byte, timeouts.idle)
    timeout = httpx.Timeout(connect=timeouts.connect, read=read, write=timeouts.write, pool=timeouts.pool)
    return httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False)


def test_every_row_names_a_kind_there_is() -> None:
    assert {landing.kind for landing in LANDINGS} - {None} <= set(Kind.__members__)
    assert len({landing.name for landing in LANDINGS}) == len(LANDINGS)


def test_a_request_that_was_not_wholly_written_is_never_called_more_than_unreachable() -> None:
    for landing in LANDINGS:
        if not landing.written and landing.status is None and landing.cause is not Cause.LIMIT:
            assert landing.kind == "UNREACHABLE", landing.name
