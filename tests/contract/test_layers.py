"""The import contracts hold, and each of them sees what it forbids."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.support import ROOT

PACKAGES = ("core", "drivers", "engine", "identity", "ledger", "rpc", "telemetry", "config", "commands")


def _lint(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sysconfig.get_path("scripts")) / "lint-imports"), "--no-cache"]
    # Wide enough that the name of a contract and its verdict share a line.
    env = {**os.environ, "COLUMNS": "200", **environment}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_the_layers_hold():
    result = _lint(ROOT)
    assert result.returncode == 0, result.stdout


@pytest.fixture
def skeleton(tmp_path) -> Path:
    """Return a tree with the packages of both distributions, empty, under this repository's contracts."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in ("modelmeter", "modelmeter_server", *(f"modelmeter_server/{name}" for name in PACKAGES)):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "modelmeter_server" / "app.py").touch()
    return tmp_path


def test_an_empty_skeleton_keeps_every_contract(skeleton):
    assert _lint(skeleton, PYTHONPATH=str(skeleton)).returncode == 0


@pytest.mark.parametrize(
    ("contract", "module", "statement"),
    [
        ("core is pure", "modelmeter_server/core/usage", "import asyncio"),
        ("core is pure", "modelmeter_server/core/usage", "import zlib"),
        ("core is pure", "modelmeter_server/core/usage", "import time"),
        ("core is pure", "modelmeter_server/core/usage", "import jsonschema_rs"),
        ("Layers", "modelmeter_server/core/usage", "import modelmeter_server.drivers"),
        ("Layers", "modelmeter_server/drivers/http", "import modelmeter_server.engine"),
        ("Layers", "modelmeter_server/drivers/http", "import modelmeter_server.ledger"),
        ("Layers", "modelmeter_server/telemetry/logs", "import modelmeter_server.drivers"),
        ("Layers", "modelmeter_server/engine/call", "import modelmeter_server.rpc"),
        ("Layers", "modelmeter_server/rpc/server", "import modelmeter_server.app"),
        ("Layers", "modelmeter_server/config/settings", "import modelmeter_server.app"),
        ("gRPC and protobuf", "modelmeter_server/engine/call", "from google.protobuf import any_pb2"),
        ("gRPC and protobuf", "modelmeter_server/drivers/http", "import grpc.aio"),
        ("gRPC and protobuf", "modelmeter_server/drivers/http", "import modelmeter"),
        ("Sockets", "modelmeter_server/engine/call", "import ssl"),
        ("Sockets", "modelmeter_server/rpc/server", "import httptools"),
        ("The client", "modelmeter/client", "import modelmeter_server"),
        ("The client", "modelmeter/client", "import httpx"),
    ],
)
def test_a_forbidden_import_is_caught(skeleton, contract, module, statement):
    (skeleton / f"{module}.py").write_text(f"{statement}\n", encoding="utf-8")
    result = _lint(skeleton, PYTHONPATH=str(skeleton))
    assert result.returncode != 0
    assert re.search(rf"^{contract}.* BROKEN$", result.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("modelmeter_server/core/usage", "import msgspec"),
        ("modelmeter_server/drivers/http", "import asyncio, socket, ssl, zlib, httptools"),
        ("modelmeter_server/rpc/server", "import grpc, modelmeter_server.engine, modelmeter_server.core"),
        ("modelmeter_server/commands/serve", "import modelmeter_server.app, click"),
    ],
)
def test_an_import_downwards_is_free(skeleton, module, statement):
    (skeleton / f"{module}.py").write_text(f"{statement}\n", encoding="utf-8")
    result = _lint(skeleton, PYTHONPATH=str(skeleton))
    assert result.returncode == 0, result.stdout
