"""The repository names no package host and no machine, and its root says what to install."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support import ROOT
from tools import lock

_GENERATED = {
    ".git",
    ".venv",
    ".venv-deploy",
    ".venv-litellm",
    ".venv-proto",
    ".build",
    "__pycache__",
    ".hypothesis",
    "build",
    "dist",
}


def _repository_files() -> list[Path]:
    """Return what is or would be committed; in a tree without git, everything but what tools leave behind."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0 and (ROOT / ".git").exists():
        names = listing.stdout.decode().split("\0")
        return [ROOT / name for name in names if name and (ROOT / name).is_file()]
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file()
        and not {*path.relative_to(ROOT).parts} & _GENERATED
        and ".egg-info" not in str(path)
    ]


def _texts() -> dict[str, str]:
    contents = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in _repository_files()}
    return {name: data.decode("utf-8", "replace") for name, data in contents.items() if b"\0" not in data}


def _words(*parts: tuple[str, ...]) -> str:
    # Put together here, so that this file does not name them itself.
    return "|".join(re.escape(".".join(part)) for part in parts)


_HOSTS = re.compile(
    _words(
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("maven", "org"),
        ("maven", "apache", "org"),
        ("deb", "debian", "org"),
        ("docker", "io"),
        ("ghcr", "io"),
        ("quay", "io"),
        ("buf", "build/"),
    )
    + "|"
    + "-".join(("index", "url"))
    + r"[=\s]",
    re.IGNORECASE,
)
_MACHINE_PATHS = re.compile(r"(?<![\w.}~-])/(?:work|root|home|tmp|Users)/\w")


@pytest.mark.parametrize("pattern", [_HOSTS, _MACHINE_PATHS], ids=["package hosts", "paths of a machine"])
def test_no_file_names(pattern):
    texts = _texts()
    assert len(texts) > 50, "too few files were looked at"
    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in texts.items()
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]
    assert not found


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (_HOSTS, "pip install -i https://" + "pypi" + ".org/simple"),
        (_HOSTS, "--index" + "-url=http://mirror"),
        (_MACHINE_PATHS, "open('/" + "work/main/x')"),
        (_MACHINE_PATHS, "/" + "tmp/x"),
    ],
)
def test_the_patterns_see_what_they_are_for(pattern, line):
    assert pattern.search(line)


@pytest.mark.parametrize(
    "name", ["constraints.txt", "constraints-deploy.txt", "constraints-litellm.txt", "constraints-proto.txt"]
)
def test_a_constraints_file_holds_pins_and_nothing_else(name):
    lines = [
        line for line in (ROOT / name).read_text(encoding="utf-8").splitlines() if not line.startswith("#")
    ]
    assert lines == sorted(lines)
    assert lines
    assert not [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.+!]*", line)]


def _required(path: Path) -> set[str]:
    project = tomllib.loads(path.read_text(encoding="utf-8"))
    groups = project.get("dependency-groups", {}).values()
    extras = project.get("project", {}).get("optional-dependencies", {}).values()
    wanted = [*project.get("project", {}).get("dependencies", [])]
    wanted += [entry for group in [*groups, *extras] for entry in group if isinstance(entry, str)]
    return {re.split(r"[\[<>=!~; ]", entry, maxsplit=1)[0] for entry in wanted}


@pytest.mark.parametrize("project", ["pyproject.toml", "client/pyproject.toml", "server/pyproject.toml"])
def test_every_dependency_is_pinned(project):
    pinned = {
        line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    }
    required = _required(ROOT / project) - lock.OWN
    assert required
    assert not required - pinned


def test_the_lock_leaves_out_this_repository_and_normalises_names():
    listing = (
        "# Editable install\n-e ./client\nmodelmeter_server==0.1.0\njsonschema_rs==0.61.2\nAlpha.Beta==1\n"
    )
    assert lock.pins(listing) == ["alpha-beta==1", "jsonschema-rs==0.61.2"]


def test_the_lock_refuses_a_package_without_a_version():
    with pytest.raises(ValueError, match="not a plain pin"):
        lock.pins("thing @ file:///somewhere/thing.whl\n")


@pytest.mark.slow
@pytest.mark.parametrize("command", [["install"], ["install", "--editable"], ["wheel"]], ids=" ".join)
def test_installing_the_root_says_what_to_install(tmp_path, command):
    result = subprocess.run(
        [sys.executable, "-m", "pip", *command, str(ROOT), "--no-index"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    assert "pip install ./client ./server" in result.stdout + result.stderr
    assert not list(tmp_path.iterdir())
