"""Both distributions build, own their files alone, and the client needs nothing of the server."""

from __future__ import annotations

import configparser
import email.parser
import json
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from modelmeter import __version__
from tests.support import ROOT

# One worker, so that environments are made once.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("distributions")]

CONSTRAINTS = ROOT / "constraints.txt"

_NO_INDEX = re.compile(
    r"Failed to establish a new connection|Temporary failure in name resolution|Network is unreachable"
    r"|ConnectTimeoutError|ProxyError|Connection refused"
)


def _pip(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> dict[str, zipfile.ZipFile]:
    """Return the wheels of both distributions, built from the tree without an index."""
    folder = tmp_path_factory.mktemp("wheels")
    words = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), "./client", "./server"]
    result = _pip(*words)
    assert result.returncode == 0, result.stdout + result.stderr
    return {path.name.partition("-")[0]: zipfile.ZipFile(path) for path in folder.iterdir()}


def _member(wheel: zipfile.ZipFile, name: str) -> str:
    (found,) = [member for member in wheel.namelist() if member.endswith(f".dist-info/{name}")]
    return wheel.read(found).decode()


def _requirements(wheel: zipfile.ZipFile) -> list[str]:
    metadata = email.parser.Parser().parsestr(_member(wheel, "METADATA"))
    return metadata.get_all("Requires-Dist", [])


def _entry_points(wheel: zipfile.ZipFile) -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser()
    parser.read_string(_member(wheel, "entry_points.txt"))
    return {section: dict(parser[section]) for section in parser.sections()}


def test_the_tree_builds_into_two_wheels_that_own_different_files(wheels):
    assert sorted(wheels) == ["modelmeter", "modelmeter_server"]
    client, server = (set(wheels[name].namelist()) for name in ("modelmeter", "modelmeter_server"))
    assert not client & server
    assert {name.partition("/")[0].partition("-")[0] for name in client} == {"modelmeter"}
    assert {name.partition("/")[0].partition("-")[0] for name in server} == {"modelmeter_server"}


def test_the_wheels_are_typed_and_the_client_brings_the_stubs(wheels):
    assert "modelmeter_server/py.typed" in wheels["modelmeter_server"].namelist()
    stubs = {
        f"modelmeter/v1/model_service_pb2{suffix}" for suffix in (".py", ".pyi", "_grpc.py", "_grpc.pyi")
    }
    assert stubs | {"modelmeter/py.typed", "modelmeter/__init__.py"} <= set(wheels["modelmeter"].namelist())


def test_the_client_requires_three_packages(wheels):
    required = [line for line in _requirements(wheels["modelmeter"]) if "extra ==" not in line]
    assert sorted(required) == [
        "googleapis-common-protos<2,>=1.70",
        "grpcio<2,>=1.76",
        "protobuf<8,>=6.31.1",
    ]


def test_the_server_requires_the_client_of_its_own_version(wheels):
    version = email.parser.Parser().parsestr(_member(wheels["modelmeter"], "METADATA"))["Version"]
    assert f"modelmeter[cli]=={version}" in _requirements(wheels["modelmeter_server"])


def test_one_distribution_owns_the_command_and_the_other_plugs_in(wheels):
    assert _entry_points(wheels["modelmeter"]) == {"console_scripts": {"modelmeter": "modelmeter.cli:main"}}
    plugged = _entry_points(wheels["modelmeter_server"])
    assert plugged.keys() == {"modelmeter.commands"}
    assert {"serve", "demo", "config", "healthcheck"} <= plugged["modelmeter.commands"].keys()


def test_the_client_tells_the_version_it_was_built_with(wheels):
    assert email.parser.Parser().parsestr(_member(wheels["modelmeter"], "METADATA"))["Version"] == __version__


@pytest.fixture(scope="module")
def install(tmp_path_factory, outside_environment):
    """Return what installs projects of this tree into an empty environment and returns its folder."""

    def _install(constraints: str, *projects: str) -> Path:
        folder = tmp_path_factory.mktemp("environment")
        venv.create(folder, with_pip=False)
        (folder / "constraints.txt").write_text(constraints, encoding="utf-8")
        words = ["--constraint", str(folder / "constraints.txt"), "--build-constraint", str(CONSTRAINTS)]
        python = str(folder / "bin" / "python")
        result = _pip("--python", python, "install", *words, *projects, environment=outside_environment)
        if result.returncode != 0 and _NO_INDEX.search(result.stdout + result.stderr):
            pytest.skip("pip reaches no package index here")
        assert result.returncode == 0, result.stdout + result.stderr
        return folder

    return _install


@pytest.fixture(scope="module")
def client_alone(install) -> Path:
    return install(CONSTRAINTS.read_text(encoding="utf-8"), "./client")


@pytest.fixture(scope="module")
def server(install) -> Path:
    return install(CONSTRAINTS.read_text(encoding="utf-8"), "./client", "./server")


def _run(*command: object) -> str:
    """Run a program of an installed environment away from the tree; return what it printed."""
    words = [str(word) for word in command]
    result = subprocess.run(
        words, cwd=words[0].rpartition("/")[0], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


_IMPORTS = """
import importlib, importlib.util, json, pkgutil, warnings
warnings.simplefilter("error")
import modelmeter, modelmeter.v1
for module in pkgutil.iter_modules(modelmeter.v1.__path__):
    importlib.import_module("modelmeter.v1." + module.name)
absent = ["httpx", "msgspec", "modelmeter_server", "click", "rich", "httptools", "structlog", "uvloop"]
print(json.dumps([modelmeter.__file__, [name for name in absent if importlib.util.find_spec(name)]]))
"""


def _imports_alone(folder: Path) -> None:
    where, present = json.loads(_run(folder / "bin" / "python", "-I", "-c", _IMPORTS))
    assert Path(where).is_relative_to(folder)
    assert present == []


def test_the_client_installs_in_an_empty_environment_and_imports_alone(client_alone):
    _imports_alone(client_alone)


def test_the_client_imports_with_the_lowest_versions_it_allows(install, wheels):
    required = [line for line in _requirements(wheels["modelmeter"]) if "extra ==" not in line]
    floors = [re.sub(r"<\d+,>=", "==", line) for line in required]
    assert all("==" in line for line in floors)
    _imports_alone(install("\n".join(floors), "./client"))


def test_the_installed_server_has_its_commands_and_shows_its_demo(server):
    shown = _run(server / "bin" / "modelmeter", "--help")
    assert not [
        name for name in ("call", "config", "demo", "healthcheck", "models", "serve") if name not in shown
    ]
    assert _run(server / "bin" / "modelmeter", "demo")


_CALL = """
import sys, modelmeter
with modelmeter.Client(sys.argv[1], timeout=20) as client:
    answer = client.complete("replay/answer", "Hello")
    print(answer.certainty.name, answer.usage.output_tokens > 0, bool(answer.text))
"""


def test_the_client_alone_calls_the_installed_server(client_alone, server):
    command = [str(server / "bin" / "modelmeter"), "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=server, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            address = running.stdout.readline().split()[-1]
            assert _run(client_alone / "bin" / "python", "-I", "-c", _CALL, address) == "EXACT True True\n"
        finally:
            running.terminate()
    assert running.returncode == 0
