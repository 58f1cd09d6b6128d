"""Envoy with the configuration of deploy/, as a process of its own in front of a server on this machine."""

from __future__ import annotations

import asyncio
import json
import subprocess
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
import yaml

from .certificates import write_server
from .deploy_tools import loaded, program

_PATIENCE = 20.0
"""Seconds that Envoy may take to start or to see something; one on an idle machine."""

_LOOK = 0.05
"""Seconds between two looks at what another process does."""


@dataclass
class Proxy:
    """An Envoy that runs."""

    address: str
    admin: str
    authority: trustme.CA
    log: Path

    async def ask(self, path: str) -> str:
        """Return what the admin's face says."""
        return await asyncio.to_thread(self._ask, path)

    def _ask(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    async def counted(self, name: str) -> int:
        """Return a counter or gauge of Envoy's; KeyError if there is none of the name."""
        lines = (await self.ask(f"/stats?filter={name}")).splitlines()
        return int(dict(line.split(": ") for line in lines)[name])

    async def counts(self, name: str, wanted: int) -> None:
        """Wait until a gauge has this value."""
        async with asyncio.timeout(_PATIENCE):
            while await self.counted(name) != wanted:  # noqa: ASYNC110 - another process sets no event
                await asyncio.sleep(_LOOK)

    async def logged(self, count: int) -> list[dict[str, Any]]:
        """Return the first lines of the access log once there are so many; one is written when a stream ends."""
        async with asyncio.timeout(_PATIENCE):
            while True:
                lines = [line for line in _read(self.log).splitlines() if line.startswith("{")]
                if len(lines) >= count:
                    return [json.loads(line) for line in lines[:count]]
                await asyncio.sleep(_LOOK)


def adapted(folder: Path, server: str, authority: trustme.CA) -> dict[str, Any]:
    """Return the configuration with loopback addresses, free ports, a certificate of its own, swift checks."""
    configuration: dict[str, Any] = loaded("envoy/envoy.yaml")
    files = write_server(folder, authority)
    host, _, port = server.rpartition(":")
    configuration["admin"]["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": 0}
    (listener,) = configuration["static_resources"]["listeners"]
    listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": 0}
    context = listener["filter_chains"][0]["transport_socket"]["typed_config"]["common_tls_context"]
    context["tls_certificates"] = [
        {
            "certificate_chain": {"filename": str(files.certificate)},
            "private_key": {"filename": str(files.key)},
        }
    ]
    (cluster,) = configuration["static_resources"]["clusters"]
    (check,) = cluster["health_checks"]
    check |= {"interval": "0.2s", "no_traffic_interval": "0.2s", "initial_jitter": "0.01s"}
    (place,) = cluster["load_assignment"]["endpoints"]
    address = {"socket_address": {"address": host, "port_value": int(port)}}
    place["lb_endpoints"] = [{"endpoint": {"address": address}}]
    return configuration


def written(folder: Path, server: str, authority: trustme.CA) -> Path:
    """Write the adapted configuration and return its file."""
    file = folder / "envoy.yaml"
    file.write_text(yaml.safe_dump(adapted(folder, server, authority)), encoding="utf-8")
    return file


@asynccontextmanager
async def envoy(folder: Path, server: str) -> AsyncIterator[Proxy]:
    """Run Envoy in front of `server` until the block ends; it takes calls from the first line of the block on."""
    authority = trustme.CA()
    admin, log = folder / "admin", folder / "envoy.log"
    words = ["--config-path", written(folder, server, authority), "--admin-address-path", admin]
    words += ["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"]
    words += ["--file-flush-interval-msec", "50"]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            program("envoy"), *map(str, words), stdout=output, stderr=subprocess.STDOUT
        )
    try:
        async with asyncio.timeout(_PATIENCE):
            proxy = await _ready(process, admin, authority, log)
        yield proxy
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _ready(process: asyncio.subprocess.Process, admin: Path, authority: trustme.CA, log: Path) -> Proxy:
    """Wait until Envoy listens and its health check has found the server."""
    while not (place := _read(admin)):
        assert process.returncode is None, _read(log)
        await asyncio.sleep(_LOOK)
    proxy = Proxy("", place, authority, log)
    await proxy.counts("cluster.modelmeter.membership_healthy", 1)
    proxy.address = f"localhost:{(await proxy.ask('/listeners')).strip().rpartition(':')[2]}"
    return proxy


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""
