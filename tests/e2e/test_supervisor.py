"""The supervisor with workers that do as a test says: start, die, hear signals and end as they like."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from modelmeter_server.supervisor import MOST_FAILURES, Order, command_line
from tests.support.logged_server import LoggedServer, logged_server, workers_of

pytestmark = pytest.mark.timeout(60)

STARTED, DIED = "a worker was started", "a worker died"

# A worker: its index, how often it was started, and what it can do.
PROLOGUE = """
import json, os, signal, sys
from pathlib import Path
index = int(sys.argv[sys.argv.index("--worker") + 1].partition("/")[0])
lifeline = int(sys.argv[sys.argv.index("--lifeline") + 1])
seen = Path("starts-%d" % index)
start = len(seen.read_text()) + 1 if seen.exists() else 1
seen.write_text("x" * start)
def tell(event, **more):
    os.write(2, (json.dumps({"event": event, "worker": index, **more}) + "\\n").encode())
def hello():
    os.write(lifeline, b'["127.0.0.1:7"]')
def until(*numbers):
    return signal.sigwait(numbers)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
"""


@asynccontextmanager
async def supervised(
    folder: Path, script: str, *, workers: int = 2, must_serve: bool = True
) -> AsyncIterator[LoggedServer]:
    order = Order(workers=workers, command=(sys.executable, "-c", PROLOGUE + script), first_pause=0.01)
    async with logged_server(command=command_line(order), cwd=folder, must_serve=must_serve) as server:
        yield server


async def test_it_announces_where_the_workers_listen_and_ends_them_with_itself(tmp_path):
    async with supervised(tmp_path, "hello(); until(signal.SIGTERM); tell('ended')") as server:
        assert server.address == "127.0.0.1:7"
        assert await server.end() == 0
        assert workers_of(server) == []
    assert {line["worker"] for line in server.find("ended")} == {0, 1}


@pytest.mark.parametrize("code", [1, 2])
async def test_a_worker_that_cannot_start_ends_all_with_its_own_code(tmp_path, code):
    script = f"if index == 1: sys.exit({code})\nhello(); until(signal.SIGTERM); tell('ended')"
    async with supervised(tmp_path, script, must_serve=False) as server:
        assert await server.process.wait() == code
        assert workers_of(server) == []
        await server.told("the workers cannot serve; none is left running")
    assert len(server.find(STARTED)) == 2


async def test_a_worker_that_dies_is_started_anew_and_the_other_is_left_alone(tmp_path):
    script = "hello()\nif index == 1 and start < 4: sys.exit(9)\ntell('stays'); until(signal.SIGTERM)"
    async with supervised(tmp_path, script) as server:
        await server.told("stays", worker=1)
        assert [line["deaths"] for line in server.find(DIED, worker=1, code=9)] == [1, 2, 3]
        assert len(server.find(STARTED, worker=0)) == 1
        assert await server.end() == 0


async def test_when_none_can_be_started_any_more_it_gives_up(tmp_path):
    script = "if start == 1: hello()\nsys.exit(9)"
    async with supervised(tmp_path, script) as server:
        assert await server.process.wait() == 1
        await server.told("no worker can be started any more")
    assert max(line["deaths"] for line in server.find(DIED)) >= MOST_FAILURES


async def test_it_does_not_give_up_as_long_as_one_worker_serves(tmp_path):
    script = f"""
if index == 0:
    hello(); until(signal.SIGTERM)
elif start == 1 or start > {MOST_FAILURES + 2}:
    hello()
    if start > 1:
        tell("mended"); until(signal.SIGTERM)
sys.exit(0)
"""
    async with supervised(tmp_path, script) as server:
        await server.told("mended")
        assert len(server.find(DIED, worker=1)) > MOST_FAILURES
        assert await server.end() == 0


async def test_a_worker_that_ends_badly_shows_in_the_exit_code(tmp_path):
    async with supervised(tmp_path, "hello(); until(signal.SIGTERM); sys.exit(3 * index)") as server:
        assert await server.end() == 1


async def test_the_second_signal_is_passed_on_and_the_third_kills(tmp_path):
    script = "hello()\nwhile until(signal.SIGTERM): tell('heard')"
    async with supervised(tmp_path, script, workers=1) as server:
        for count in (1, 2):
            server.send(signal.SIGTERM)
            await server.told("heard", count=count)
        assert await server.end(signal.SIGINT) == 1
        assert workers_of(server) == []


async def test_sighup_waits_for_a_worker_that_does_not_serve_yet(tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = """
if index == 1:
    open("gate").read()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
hello()
if until(signal.SIGTERM, signal.SIGHUP) == signal.SIGHUP:
    tell("read again")
    until(signal.SIGTERM)
"""
    async with supervised(tmp_path, script, must_serve=False) as server:
        await server.told(STARTED, worker=1)
        server.send(signal.SIGHUP)
        await server.told("read again", worker=0)
        await asyncio.to_thread(gate.write_text, "go")
        await server.told("read again", worker=1)
        assert await server.end() == 0


async def test_a_signal_before_anything_serves_ends_in_good_order(tmp_path):
    async with supervised(tmp_path, "tell('begun'); until(signal.SIGTERM)", must_serve=False) as server:
        for worker in (0, 1):
            await server.told("begun", worker=worker)
        assert await server.end() == 0
        assert workers_of(server) == []


async def test_keys_on_the_terminal_reach_the_supervisor_alone(tmp_path):
    """The terminal signals the whole group: a worker in it would hear each signal twice, and cut its calls."""
    script = "tell('group', same=os.getpgrp() == os.getpgid(os.getppid())); hello(); until(signal.SIGTERM)"
    async with supervised(tmp_path, script) as server:
        assert [line["same"] for line in server.find("group")] == [False, False]
        assert await server.end() == 0
