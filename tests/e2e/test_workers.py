"""Several workers on one port: all serve, one that dies is replaced, and nothing is left when they end."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

import modelmeter
from modelmeter import Completion
from modelmeter.errors import DrainingError, LostContactError, NotConnectedError
from modelmeter.v1 import model_service_pb2, model_service_pb2_grpc
from tests.support.certificates import unshared
from tests.support.command_line import run
from tests.support.fault_server import FaultServer
from tests.support.ledger_truth import calls_when_ended, require_all_true, require_sums
from tests.support.logged_server import LoggedServer, logged_server, workers_of
from tests.support.telling_provider import TellingProvider, drawn, prompt

STARTED, SERVING, DIED = "a worker was started", "serving", "a worker died"

pytestmark = pytest.mark.timeout(90)  # each start is two or three, beside seven other things

NUMBERS = itertools.count()
MOST_CONNECTIONS = 200
"""The kernel deals connections out by chance; that so many in a row go to one of two is no chance any more."""


def write(folder: Path, provider: str, ledger: str, server: str = "", rest: str = "") -> Path:
    file = folder / "m.toml"
    file.write_text(
        f'[server]\nlisten = "127.0.0.1:0"\nworkers = 2\n{server}\n[ledger]\nurl = "{ledger}"\nlease = 10\n'
        f'[providers.p]\nkind = "anthropic"\nbase_url = "{provider}"\napi_key_env = "KEY"\n'
        f'[models.m]\nprovider = "p"\nmodel = "m-test"\n{rest}'
    )
    return file


@asynccontextmanager
async def two_workers(
    folder: Path, provider: TellingProvider, ledger: str = "none", **parts: str
) -> AsyncIterator[tuple[LoggedServer, FaultServer]]:
    async with FaultServer(provider) as upstream:
        file = write(folder, upstream.url, ledger, **parts)
        async with logged_server("--config", str(file), env={"KEY": "k"}) as server:
            yield server, upstream


def quick() -> TellingProvider:
    return TellingProvider(drawn)


@asynccontextmanager
async def fresh_connection(address: str) -> AsyncIterator[model_service_pb2_grpc.ModelServiceAsyncStub]:
    async with grpc.aio.insecure_channel(address, unshared(next(NUMBERS))) as channel:
        yield model_service_pb2_grpc.ModelServiceStub(channel)


async def ask(server: LoggedServer, stub: model_service_pb2_grpc.ModelServiceAsyncStub) -> int:
    """Ask over this connection; return which worker logged the call."""
    call_id = str(uuid.uuid4())
    request = model_service_pb2.CompleteRequest(model="m", text=prompt(call_id), call_id=call_id)
    await stub.Complete(request, timeout=20)
    worker: int = (await server.told("call", call_id=call_id))["worker"]
    return worker


async def until_both_serve(server: LoggedServer) -> None:
    """Open connections until each worker has answered a call."""
    seen: set[int] = set()
    for _ in range(MOST_CONNECTIONS):
        async with fresh_connection(server.address) as stub:
            seen.add(await ask(server, stub))
        if seen == {0, 1}:
            return
    raise AssertionError(seen)


async def test_both_workers_serve_and_one_that_is_killed_is_replaced(tmp_path):
    async with two_workers(tmp_path, quick()) as (server, _):
        pids = {line["worker"]: line["pid"] for line in server.find(SERVING)}
        assert set(pids) == {0, 1}
        assert server.process.pid not in pids.values()
        await until_both_serve(server)
        os.kill(pids[1], signal.SIGKILL)
        assert (await server.told(DIED))["code"] == -signal.SIGKILL
        replacement = await server.told(SERVING, count=2, worker=1)
        assert replacement["pid"] not in pids.values()
        await until_both_serve(server)
        assert await server.end() == 0
        assert workers_of(server) == []
    assert len(server.find("stopped", cut=0)) == 2


def has_loaded(library: str, pid: int) -> bool:
    return library in Path(f"/proc/{pid}/maps").read_text()


async def test_the_supervisor_never_loads_grpc_and_its_workers_do(tmp_path):
    async with two_workers(tmp_path, quick()) as (server, _):
        pids = [server.process.pid, *(line["pid"] for line in server.find(SERVING))]
        loaded = [has_loaded("cygrpc", pid) for pid in pids]
        assert await server.end() == 0
    assert loaded == [False, True, True]


async def test_sigterm_lets_the_calls_of_all_workers_end_and_loses_no_bill(ledger_url, tmp_path):
    provider = TellingProvider(lambda call_id: drawn(call_id, slowest=0.05))
    heard: dict[str, object] = {}

    async def call_on(address: str) -> None:
        async with modelmeter.AsyncClient(
            address, options=dict(unshared(next(NUMBERS))), ask_ledger=0
        ) as client:
            while True:
                call_id = str(uuid.uuid4())
                try:
                    heard[call_id] = await client.complete("m", prompt(call_id), call_id=call_id)
                except (DrainingError, NotConnectedError, LostContactError) as error:
                    # A call that reached a closing server was not made: the provider knows nothing of it.
                    heard.update({} if call_id not in provider.books else {call_id: error})
                    return

    async with two_workers(tmp_path, provider, ledger_url) as (server, upstream):
        callers = [asyncio.create_task(call_on(server.address)) for _ in range(16)]
        await upstream.received(100, seconds=30)
        assert await server.end() == 0
        await asyncio.gather(*callers)
        assert workers_of(server) == []
        assert len(server.find("stopped", cut=0)) == 2
        file = write(tmp_path, upstream.url, ledger_url)
        async with (
            logged_server("--config", str(file), "--workers", "1", env={"KEY": "k"}) as after,
            modelmeter.AsyncClient(after.address) as client,
        ):
            rows = await calls_when_ended(client, provider.books)
            require_all_true(rows, provider.books)
            await require_sums(client, rows)
    assert all(isinstance(each, Completion) for each in heard.values())
    assert set(heard) == set(provider.books)


async def test_workers_end_in_good_order_when_their_supervisor_is_killed(tmp_path):
    async with two_workers(tmp_path, quick()) as (server, _):
        pids = [line["pid"] for line in server.find(SERVING)]
        server.process.kill()
        await server.process.wait()
        for worker in (0, 1):
            await server.told("stopped", worker=worker)
        endings = [os.pidfd_open(pid) for pid in pids if pid in workers_of(server)]
        for ending in endings:  # it is readable when the process has ended
            over = asyncio.Event()
            asyncio.get_running_loop().add_reader(ending, over.set)
            async with asyncio.timeout(10):
                await over.wait()
            asyncio.get_running_loop().remove_reader(ending)
            os.close(ending)
        assert workers_of(server) == []


async def test_sighup_is_passed_on_to_every_worker(tmp_path):
    quiet = "reload_on_change = false"
    async with two_workers(tmp_path, quick(), server=quiet) as (server, upstream):
        write(tmp_path, upstream.url, "none", quiet + "\ndrain_seconds = 3")
        server.send(signal.SIGHUP)
        for worker in (0, 1):
            line = await server.told("the configuration was reloaded", worker=worker)
            assert line["changed"] == ["server.drain_seconds"]
        assert await server.end() == 0
    assert len(server.find("draining", seconds=3.0)) == 2


async def test_limits_of_the_server_are_divided_and_listeners_count_up(tmp_path, port):
    async with two_workers(
        tmp_path,
        quick(),
        server=f'max_concurrent_calls = 3\nprivate_listen = "unix:{tmp_path}/private"',
        rest=f'[telemetry.prometheus]\nlisten = "127.0.0.1:{port}"\n',
    ) as (server, _):
        await until_both_serve(server)
        counted = [await calls_counted(port + worker) for worker in (0, 1)]
        logged = [len(server.find("call", worker=worker)) for worker in (0, 1)]
        for socket_path in (f"unix:{tmp_path}/private", f"unix:{tmp_path}/private.1"):
            assert (await run("healthcheck", "--address", socket_path)).code == 0
    assert counted == logged


async def calls_counted(port: int) -> int:
    """Return how many calls the worker behind a port has counted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
    _, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    families = text_string_to_metric_families(body.decode())
    return int(
        sum(
            each.value
            for family in families
            for each in family.samples
            if each.name == "modelmeter_calls_total"
        )
    )


@pytest.fixture
def port():
    """Return a port that is free, as is the one after it."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            found = one.getsockname()[1]
            try:
                other.bind(("127.0.0.1", found + 1))
            except OSError:
                continue
            return found
