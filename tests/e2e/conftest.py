"""Servers for the pages' recipes: `modelmeter serve` in processes of their own, on free ports."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command_line import COMMAND, environment

_ANNOUNCEMENT = "modelmeter is listening on "

# The names that pages use for models of real providers, played by the embedded one.
_CLAUDE = """
[providers.replay]
kind = "replay"
[models."claude"]
provider = "replay"
model = "answer"
price = { currency = "USD", input = "5", output = "25" }
"""


@contextmanager
def _serving(folder: Path, *arguments: str) -> Iterator[str]:
    command = [COMMAND, "serve", "--listen", "127.0.0.1:0", *arguments]
    ledger = {"MODELMETER_LEDGER_URL": f"sqlite:///{folder / 'ledger.db'}"}
    with subprocess.Popen(
        command, env=environment(ledger), text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith(_ANNOUNCEMENT)
            yield line.removeprefix(_ANNOUNCEMENT).strip()
        finally:
            process.kill()


@pytest.fixture(scope="session")
def replay_address(tmp_path_factory) -> Iterator[str]:
    """Return where a server without a configuration listens."""
    with _serving(tmp_path_factory.mktemp("replay")) as address:
        yield address


@pytest.fixture(scope="session")
def claude_address(tmp_path_factory) -> Iterator[str]:
    """Return where a server listens that has a model called `claude`."""
    file = tmp_path_factory.mktemp("claude") / "modelmeter.toml"
    file.write_text(_CLAUDE, encoding="utf-8")
    with _serving(file.parent, "--config", str(file)) as address:
        yield address
