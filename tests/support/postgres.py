"""A real PostgreSQL for the tests: Debian's programs, a data folder and a port of its own, gone with the tests.

The server refuses to run as root, so root starts it as the user `postgres`. Unless asked, it keeps nothing on the disk
in earnest (`fsync = off`): what is tested is what a crash of our process leaves, not what a power cut does.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import asyncpg

_CARELESS = {"fsync": "off", "full_page_writes": "off"}

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "max_wal_size": "512MB",
    "autovacuum_naptime": "5s",
    "log_min_messages": "fatal",
}


def programs() -> Path | None:
    """Return the folder of `initdb` and `postgres`, `None` when PostgreSQL is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    return Path(on_path).resolve().parent if on_path else None


MISSING = "PostgreSQL is not installed (Debian: apt-get install postgresql)"


class PostgresServer:
    """A server with an empty cluster; may be stopped and started again."""

    def __init__(self, folder: Path, binaries: Path, *, fsync: bool = False) -> None:
        """Make the cluster in `folder`, which user `postgres` must be able to reach."""
        self._binaries = binaries
        self._settings = _SETTINGS if fsync else {**_SETTINGS, **_CARELESS}
        self._data = folder / "data"
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "log"
        self._run(
            "initdb",
            "-D",
            self._data,
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
            "--locale=C",
        )

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        settings = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        command = self._command("postgres", "-D", self._data, "-p", self.port, "-k", self._data, *settings)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", start_new_session=True)
        deadline = time.monotonic() + 20
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {self._log.read_text()[-2000:]}")
            # Polling a process of its own, not another test.
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop as an administrator in a hurry does: connections are cut."""
        if self._process is None:
            return
        postmaster = int((self._data / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGINT)
        self._process.wait(20)
        self._process = None

    def create_database(self) -> str:
        """Create an empty database and return its URL."""
        name = f"test_{uuid4().hex}"
        asyncio.run(_execute(self.url(), f'CREATE DATABASE "{name}"'))
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop a database that `create_database` made, whoever is connected."""
        asyncio.run(_execute(self.url(), f'DROP DATABASE "{url.rsplit("/", 1)[1]}" WITH (FORCE)'))

    def _answers(self) -> bool:
        try:
            asyncio.run(_execute(self.url(), "SELECT 1"))
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False
        return True

    def _run(self, program: str, *words: object) -> None:
        subprocess.run(self._command(program, *words), check=True, capture_output=True, cwd="/")

    def _command(self, program: str, *words: object) -> list[str]:
        command = [str(self._binaries / program), *map(str, words)]
        return ["setpriv", *_as_postgres(), *command] if os.geteuid() == 0 else command


def _as_postgres() -> list[str]:
    return ["--reuid=postgres", "--regid=postgres", "--init-groups", "--reset-env"]


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url, timeout=5)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def postgres_server(*, fsync: bool = False) -> Iterator[PostgresServer]:
    """Run a server; PostgreSQL must be installed. With `fsync` a commit waits for the disk."""
    binaries = programs()
    assert binaries is not None, MISSING
    # Not below pytest's own folder: that one is closed to the user `postgres`.
    folder = Path(tempfile.mkdtemp(prefix="modelmeter-postgres-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    server = None
    try:
        server = PostgresServer(folder, binaries, fsync=fsync)
        server.start()
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
