"""The LiteLLM proxy with its mock answers, as a process of its own on a loopback port. Needs no key and no network."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import ROOT

PROGRAM = ROOT / ".venv-litellm" / "bin" / "litellm"
"""What `make litellm` installs."""

TEXT = "The proxy says: good evening, and welcome."

_PATIENCE = 120
"""Seconds that the proxy may take to start; eight on an idle machine."""

_LISTENS = "Uvicorn running on"


def _mock(name: str, **params: Any) -> dict[str, Any]:
    """Return a model of the proxy that answers by itself."""
    return {"model_name": name, "litellm_params": {"model": "openai/m", "api_key": "unused", **params}}


def _bridge(name: str, behind: str, url: str) -> dict[str, Any]:
    """Return a model that the proxy translates to chat completions, of a server that is the proxy once more."""
    params = {"model": f"lm_studio/{behind}", "api_base": f"{url}/v1", "api_key": "unused"}
    return {"model_name": name, "litellm_params": params}


def _config(url: str) -> dict[str, Any]:
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    mocks = [
        _mock("plain", mock_response=TEXT),
        _mock("calling", mock_response="I look.", mock_tool_calls=[call]),
        _mock("busy", mock_response="litellm.RateLimitError"),
        _mock("broken", mock_response="litellm.InternalServerError"),
    ]
    bridges = [_bridge(f"bridged-{mock['model_name']}", mock["model_name"], url) for mock in mocks]
    return {
        "model_list": [*mocks, *bridges],
        "general_settings": {"dangerously_permit_weak_or_unset_master_key": True},
        "litellm_settings": {"telemetry": False},
        "router_settings": {"num_retries": 0},
    }


def _free_port() -> int:
    # The proxy has to know its own address before it listens, for it stands behind itself.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class _Output:
    """Read all that the process prints, so that it never waits for a reader, and keep the end of it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.listens = False
        self.over = threading.Event()
        """The process listens, or has ended."""
        self.tail: deque[str] = deque(maxlen=60)
        self._thread = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._thread.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.tail.append(line)
            if _LISTENS in line:
                self.listens = True
                self.over.set()
        self.over.set()

    def join(self) -> None:
        self._thread.join(_PATIENCE)


@contextmanager
def litellm_proxy(folder: Path) -> Iterator[str]:
    """Run the proxy and yield its URL; it is stopped, with what it started, on leaving."""
    url = f"http://127.0.0.1:{(port := _free_port())}"
    config = folder / "litellm.yaml"
    config.write_text(json.dumps(_config(url)), encoding="utf-8")  # JSON is YAML
    process = subprocess.Popen(
        [str(PROGRAM), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)],
        cwd=folder,
        env={
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(folder),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or it would fetch one
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    output = _Output(process)
    try:
        output.over.wait(_PATIENCE)
        assert output.listens, "".join(output.tail)
        yield url
    finally:
        _stop(process)
        output.join()
        assert process.stdout is not None
        process.stdout.close()


def _stop(process: subprocess.Popen[str]) -> None:
    """Ask it to stop, then make it: the process and whatever it started in its session."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
