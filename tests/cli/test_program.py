"""The command as a whole: what it finds, what it loads, what it says when something is not installed."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

import modelmeter
from modelmeter.cli.program import program
from tests.support import ROOT
from tests.support.command_line import environment, run

SERVER_COMMANDS = ("config", "demo", "healthcheck", "serve")


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program that begins with the command's arguments."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )


async def test_the_help_lists_every_command():
    result = await run("--help")
    assert result.code == 0
    assert [name for name in ("call", "models", *SERVER_COMMANDS) if f"\n  {name} " not in result.out] == []


async def test_the_version_is_told():
    result = await run("--version")
    assert result.out == f"modelmeter {modelmeter.__version__}\n"


async def test_an_unknown_command_is_told_as_such():
    result = await run("cal")
    assert result.code == 2
    assert "No such command 'cal'" in result.err


def test_the_client_s_commands_load_nothing_of_the_server():
    found = python(
        "import sys, atexit\n"
        "atexit.register(lambda: print([m for m in sys.modules if m.startswith('modelmeter_server')]))\n"
        "from modelmeter.cli import main\n"
        "sys.argv[0] = 'modelmeter'\n"
        "main()\n",
        *("models", "--address", "127.0.0.1:1"),
    )
    assert found.returncode == 5
    assert found.stdout == "[]\n"


@pytest.mark.parametrize("package", ["click", "rich"])
def test_without_what_the_command_needs_it_says_how_to_install_it(package):
    found = python(f"import sys; sys.modules['{package}'] = None; from modelmeter.cli import main; main()")
    assert found.returncode == 1
    assert found.stdout == ""
    assert f"needs the package {package}" in found.stderr
    assert "pip install 'modelmeter[cli]'" in found.stderr
    assert "Traceback" not in found.stderr


def test_another_missing_module_is_not_mistaken_for_a_missing_extra():
    found = python("import sys; sys.modules['grpc'] = None; from modelmeter.cli import main; main()")
    assert "ModuleNotFoundError" in found.stderr


@pytest.mark.parametrize("command", SERVER_COMMANDS)
def test_without_the_server_its_commands_say_how_to_get_it(command):
    found = python(
        "import sys\n"
        "from modelmeter.cli import program\n"
        "program.entry_points = lambda **_: ()\n"
        "program.program(sys.argv[1:])\n",
        command,
    )
    assert found.returncode == 2
    assert f'"{command}" comes with the server: pip install modelmeter-server' in found.stderr


def test_the_document_tells_every_command_and_every_variable():
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    context = click.Context(program)
    names = program.list_commands(context)
    commands = [command for name in names if (command := program.get_command(context, name))]
    assert len(commands) == len(names)
    assert [name for name in names if f"`modelmeter {name}" not in text] == []
    variables = {param.envvar for command in commands for param in command.params if param.envvar}
    assert [name for name in variables if f"| `{name}` |" not in text] == []


@pytest.mark.parametrize("command", [("call", "m", "Hi"), ("models",)], ids=["call", "models"])
@pytest.mark.parametrize("address", ["", " "])
async def test_an_empty_address_is_a_wrong_command_line(command, address):
    result = await run(*command, "--address", address)
    assert result.code == 2
    assert "name a server as HOST:PORT" in result.err
