"""What judges deploy/: programs that `make deploy-tools` installs, and the chart as helm renders it."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from . import ROOT

CHART = ROOT / "deploy" / "helm" / "modelmeter"
VALUES = ROOT / "tests" / "deploy" / "values"
KUBERNETES = ("1.30", "1.37")
"""The oldest that the chart allows, and the newest whose schemas are installed."""

_FOLDERS = (ROOT / ".build" / "bin", ROOT / ".venv-deploy" / "bin")
_INSTALLERS = {"helm": "go", "compose-go": "go", "promtool": "apt-get"}
"""What some are installed with; a machine without it goes without them."""

Document = dict[str, Any]


def find(name: str) -> str | None:
    """Return the path of a program, or `None` if it is not installed."""
    places = os.pathsep.join([*map(str, _FOLDERS), os.environ.get("PATH", "")])
    return shutil.which(name, path=places)


def program(name: str) -> str:
    """Return the path of a program; without it the test is skipped, or fails where CI could have installed it."""
    found = find(name)
    if found is not None:
        return found
    missing = f"{name} is not installed: make deploy-tools"
    if os.environ.get("CI") == "true" and shutil.which(_INSTALLERS.get(name, "make")) is not None:
        pytest.fail(missing)
    pytest.skip(missing)


def run(name: str, *words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with what it says."""
    return subprocess.run(
        [program(name), *map(str, words)], capture_output=True, text=True, check=False, cwd=cwd
    )


def template(values: str | None, settings: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Render the chart with a file of tests/deploy/values, if any, and `name=value` settings."""
    words: list[str | Path] = [
        "template",
        "release",
        CHART,
        "--namespace",
        "models",
        "--kube-version",
        "1.34",
    ]
    if values is not None:
        words += ["--values", VALUES / f"{values}.yaml"]
    for each in settings:
        words += ["--set", each]
    return run("helm", *words)


@functools.cache
def rendered(values: str | None, *settings: str) -> tuple[Document, ...]:
    """Return the documents that the chart renders to; AssertionError with helm's words if it does not."""
    result = template(values, settings)
    assert result.returncode == 0, result.stderr
    return tuple(document for document in yaml.safe_load_all(result.stdout) if document)


class Release:
    """The documents of one rendering, by kind."""

    def __init__(self, values: str | None, *settings: str) -> None:
        self.documents = rendered(values, *settings)

    def of(self, kind: str) -> list[Document]:
        """Return every document of a kind."""
        return [each for each in self.documents if each["kind"] == kind]

    def one(self, kind: str) -> Document:
        """Return the only document of a kind."""
        (found,) = self.of(kind)
        return found

    @property
    def pod(self) -> Document:
        """The pod's labels, annotations and spec."""
        pod: Document = self.one("Deployment")["spec"]["template"]
        return pod

    @property
    def container(self) -> Document:
        """The only container."""
        (container,) = self.pod["spec"]["containers"]
        found: Document = container
        return found

    @property
    def environment(self) -> dict[str, str]:
        """The variables whose values stand in the manifest."""
        return {each["name"]: each["value"] for each in self.container["env"] if "value" in each}

    @property
    def toml(self) -> str:
        """The configuration."""
        text: str = self.one("ConfigMap")["data"]["modelmeter.toml"]
        return text


def loaded(path: str) -> Any:
    """Return a YAML file of deploy/."""
    return yaml.safe_load((ROOT / "deploy" / path).read_text(encoding="utf-8"))
