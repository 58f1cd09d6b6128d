"""Ten thousand slow streams on one worker: they stay up, each costs little, and no more are let in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.limits import files, most_files
from tests.support.server_process import server_process

MOST_BYTES = 80 * 1024
"""Resident memory of the server that a stream may add."""

SPARE = 1_000
"""Descriptors of a process beside its streams; provider, server and callers are processes of their own."""

BEYOND = 500
"""Streams that come when there is no room."""

_CONFIGURATION = """
[server]
listen = "127.0.0.1:0"
max_concurrent_calls = {streams}
max_queued_calls = 0
drain_seconds = 0
log_level = "error"
[ledger]
url = "none"
[providers.p]
kind = "anthropic"
base_url = "http://127.0.0.1:{port}"
limits = {{ connections = {streams} }}
[models.m]
provider = "p"
model = "m-test"
"""


@contextmanager
def program(name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a module of the tests' support until the block ends, and its input with it."""
    with subprocess.Popen(
        [sys.executable, "-m", f"tests.support.{name}", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield child
        except BaseException:
            child.kill()
            raise


def told(child: subprocess.Popen[str]) -> str:
    """Return the next line of a program."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


def resident(process: int) -> int:
    """Return the bytes that a process holds now."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("many streams")
@pytest.mark.parametrize("streams", [1_000, 10_000])
async def test_slow_streams_stay_up_cost_little_and_no_more_are_let_in(streams, tmp_path):
    needed = streams + SPARE
    if most_files() < needed:
        pytest.skip(f"a process can open {most_files()} files here (RLIMIT_NOFILE), and {needed} are needed")
    with files(needed), program("slow_provider", "5") as provider:
        file = tmp_path / "server.toml"
        file.write_text(_CONFIGURATION.format(streams=streams, port=told(provider)), encoding="utf-8")
        async with server_process(file) as server:
            with program("slow_readers", server.address, "100") as first:
                # What the first streams make the process load and reserve is there whatever follows.
                assert told(first) == "open"
                idle = resident(server.process.pid)
                with program("slow_readers", server.address, str(streams - 100)) as callers:
                    assert told(callers) == "open"
                    full = resident(server.process.pid)
                    assert (full - idle) / (streams - 100) <= MOST_BYTES
                    with program("slow_readers", server.address, str(BEYOND)) as refused:
                        assert told(refused) == f"lost {{'RESOURCE_EXHAUSTED': {BEYOND}}}"
                        assert told(refused) == f"RESOURCE_EXHAUSTED={BEYOND}"
                    assert resident(server.process.pid) - idle <= streams * MOST_BYTES
                    assert provider.stdin is not None
                    provider.stdin.write("end\n")
                    provider.stdin.flush()
                    assert told(callers) == f"completion={streams - 100}"
                assert told(first) == "completion=100"
