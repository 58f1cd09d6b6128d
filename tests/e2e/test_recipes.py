"""What the pages tell a reader to type does what they say: recipes are read from the pages and run."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from grpc_reflection.v1alpha import reflection_pb2

import modelmeter
from modelmeter.v1 import model_service_pb2
from tests.support import ROOT
from tests.support.command_line import environment, started
from tests.support.markdown import Block, blocks, recipes, shows

README = ROOT / "README.md"
CLIENT_README = ROOT / "client" / "README.md"
BIN = Path(sys.executable).parent
"""Where `modelmeter`, `buf` and `python` of this environment are."""

DEFAULT_ADDRESS = "127.0.0.1:50051"
KEYS = {"ANTHROPIC_API_KEY": "sk-ant-dummy", "OPENAI_API_KEY": "sk-dummy"}
SPECIAL = {"config", "serve", "grpcurl"}
"""Recipes with tests of their own."""

RECIPES = list(recipes(README))
ORDINARY = [(block, output) for block, output in RECIPES if not SPECIAL & {*block.words}]
SERVICE = model_service_pb2.DESCRIPTOR.services_by_name["ModelService"]


def _named(pairs: list[tuple[Block, Block | None]]) -> list[str]:
    return [block.name for block, _ in pairs]


def _special(word: str) -> list[tuple[Block, Block | None]]:
    found = [(block, output) for block, output in RECIPES if word in block.words]
    assert found, f"README.md has no recipe marked {word!r}"
    return found


def _run(language: str, text: str, address: str) -> subprocess.CompletedProcess[str]:
    """Run a block as a reader would: in the checkout, with its environment active, both outputs on one screen."""
    command = [sys.executable, "-c"] if language == "python" else ["bash", "-c"]
    path = f"{BIN}:{environment()['PATH']}"
    return subprocess.run(
        [*command, text.replace(DEFAULT_ADDRESS, address)],
        cwd=ROOT,
        env=environment({"PATH": path, "MODELMETER_ADDRESS": address, **KEYS}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("recipe", "output"), ORDINARY, ids=_named(ORDINARY))
def test_a_recipe_ends_and_prints_as_the_readme_says(recipe, output, replay_address, request):
    special = {"claude", "ledger"} & {*recipe.words}
    address = request.getfixturevalue(f"{special.pop()}_address") if special else replay_address
    text = shlex.join(recipe.words[1:]) if recipe.words[:1] == ["as"] else recipe.text
    result = _run(recipe.language, text, address)
    assert result.returncode == recipe.exit_code, result.stdout
    assert output is None or shows(output.text, result.stdout), result.stdout


def test_every_block_of_the_readme_is_tried_or_says_why_not():
    marks = {block.name: block.verb for block in blocks(README)}
    assert not [name for name, verb in marks.items() if verb not in ("recipe", "output", "not run")]


# buf curl, under both names of reflection

BUF = [(block, output) for block, output in ORDINARY if block.text.startswith("buf curl ")]


@pytest.mark.parametrize("protocol", ["grpc-v1", "grpc-v1alpha"])
@pytest.mark.parametrize(("recipe", "output"), BUF, ids=_named(BUF))
def test_buf_curl_reads_the_schema_under_either_name_of_reflection(recipe, output, protocol, replay_address):
    text = recipe.text.replace("buf curl", f"buf curl --reflect --reflect-protocol {protocol}", 1)
    result = _run(recipe.language, text, replay_address)
    assert result.returncode == recipe.exit_code, result.stdout
    assert output is None or shows(output.text, result.stdout), result.stdout


def test_there_are_buf_recipes_for_an_answer_a_failure_and_a_stream():
    texts = [block.text for block, _ in BUF]
    wanted = [("replay/answer", "/Complete"), ("replay/cut", "/Complete"), ("replay/cut", "/StreamComplete")]
    assert not [pair for pair in wanted if not any(all(word in text for word in pair) for text in texts)]


# grpcurl is no Python package: its recipes run where it is installed, and are read everywhere

GRPCURL = _special("grpcurl")


def _grpcurl_calls(text: str) -> list[list[str]]:
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize("recipe", [block for block, _ in GRPCURL], ids=_named(GRPCURL))
def test_grpcurl_is_told_methods_and_fields_that_exist(recipe):
    for words in _grpcurl_calls(recipe.text):
        assert words[:2] == ["grpcurl", "-plaintext"]
        assert DEFAULT_ADDRESS in words
        service, _, method = words[-1].partition("/")
        assert service == SERVICE.full_name
        if method:
            request = getattr(model_service_pb2, SERVICE.methods_by_name[method].input_type.name)()
            json_format.Parse(words[words.index("-d") + 1], request)


@pytest.mark.skipif(shutil.which("grpcurl") is None, reason="grpcurl is not installed")
@pytest.mark.parametrize(("recipe", "output"), GRPCURL, ids=_named(GRPCURL))
def test_grpcurl_prints_what_the_readme_shows(recipe, output, replay_address):
    result = _run(recipe.language, recipe.text, replay_address)
    assert result.returncode == recipe.exit_code, result.stdout
    assert output is None or shows(output.text, result.stdout), result.stdout


async def test_reflection_describes_every_detail_of_an_error(replay_address):
    names = ["modelmeter.v1.ModelError"]
    names += [f"google.rpc.{name}" for name in ("ErrorInfo", "BadRequest", "RetryInfo", "ResourceInfo")]
    async with grpc.aio.insecure_channel(replay_address) as channel:
        reflect = channel.stream_stream(
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        asked = [reflection_pb2.ServerReflectionRequest(file_containing_symbol=name) for name in names]
        answers = [answer.WhichOneof("message_response") async for answer in reflect(iter(asked))]
    assert answers == ["file_descriptor_response"] * len(names)


# A configuration and a server with it


@pytest.mark.parametrize("recipe", [block for block, _ in _special("config")], ids=lambda block: block.name)
async def test_the_server_starts_with_the_readmes_configuration(recipe, tmp_path):
    name = recipe.text.splitlines()[0].removeprefix("# ")
    (tmp_path / name).write_text(recipe.text, encoding="utf-8")
    tried = 0
    for block, _ in _special("serve"):
        for line in block.text.splitlines():
            match shlex.split(line):
                case ["modelmeter", "serve", *arguments]:
                    listen = ("--listen", "127.0.0.1:0")
                    async with started("serve", *arguments, *listen, env=KEYS, cwd=tmp_path) as process:
                        assert process.stdout is not None
                        announced = await process.stdout.readline()
                        assert announced.startswith(b"modelmeter is listening on ")
                    tried += 1
                case ["modelmeter", *arguments]:
                    async with started(*arguments, env=KEYS, cwd=tmp_path) as process:
                        out, err = await process.communicate()
                        assert process.returncode == 0, out + err
                    tried += 1
                case ["export", assignment]:
                    assert assignment.partition("=")[0] in KEYS
    assert tried == 2


# Python

NEED_LEDGER = {"effects.py"}
"""Examples that ask for what only a server with a ledger does."""


def _examples() -> list[Path]:
    return sorted((ROOT / "examples").glob("*.py"))


def _example(name: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, env=environment(), check=False
    )


@pytest.mark.parametrize("file", _examples(), ids=lambda file: file.name)
def test_an_example_runs(file, replay_address, request):
    if file.name in NEED_LEDGER:
        replay_address = request.getfixturevalue("ledger_address")
    error = {"code": "aborted", "details": [{"type": "modelmeter.v1.ModelError", "value": "CAU"}]}
    result = _example(file.name, replay_address, stdin=json.dumps(error))
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_the_example_of_an_effect_buys_once_also_when_it_is_run_again(ledger_address):
    first, again = (_example("effects.py", ledger_address) for _ in range(2))
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert [line.split(":")[0] for line in first.stdout.splitlines()] == ["bought", "replayed", "refused"]
    assert [line.split(":")[0] for line in again.stdout.splitlines()] == ["replayed", "replayed", "refused"]


def test_the_example_of_a_call_shows_the_bill_of_an_error(replay_address):
    result = _example("complete.py", replay_address, "replay/cut")
    assert result.returncode == 1
    assert "CallInterruptedError" in result.stdout
    assert "AT_LEAST" in result.stdout


@pytest.mark.parametrize("text", ["", "Failure: no", "[]", '{"code": "x"}'])
def test_the_reader_of_details_says_when_there_are_none(text):
    result = _example("error_details.py", stdin=text)
    assert (result.returncode, result.stdout) == (1, "")
    assert "no error" in result.stderr


CLIENT_BLOCKS = [block for block in blocks(CLIENT_README) if block.language == "python"]


class _PageClients:
    """What the blocks of pages speak of without having made it: a client of the kind they use, a recorded call."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.sync = modelmeter.Client(address)

    async def run(self, block: Block) -> None:
        """Run a block; `await` may stand at its top level, as in a notebook."""
        text = block.text.replace(DEFAULT_ADDRESS, self.address)
        async with modelmeter.AsyncClient(self.address) as asynchronous:
            is_async = re.search(r"^(async|await) ", text, re.M) is not None
            names: dict[str, Any] = {
                "modelmeter": modelmeter,
                "client": asynchronous if is_async else self.sync,
                "data": b"\x89PNG\r\n\x1a\n",
                "grpc": grpc,
                "time": __import__("time"),
                "path": ROOT / "examples" / "replay-scripts.toml",
            }
            if re.search(r"\bcall_id\b(?!=)", text):
                names["call_id"] = self.sync.complete(self.sync.models()[0].name, "Hi").call_id
            code = compile(text, block.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if ".watch(" in text:  # never ends by itself; tests/cli and tests/client try the same calls
                return
            if "asyncio.run(" in text:  # a whole program, with a loop of its own
                await asyncio.to_thread(exec, code, names)
                return
            made = eval(code, names)
            if inspect.isawaitable(made):
                await made


@pytest.mark.parametrize("block", CLIENT_BLOCKS, ids=lambda block: block.name)
async def test_a_block_of_the_clients_page_runs(block, replay_address, claude_address):
    clients = _PageClients(claude_address if '"claude"' in block.text else replay_address)
    with clients.sync:
        await asyncio.wait_for(clients.run(block), timeout=20)


PAGE_BLOCKS = [
    block
    for page in sorted((ROOT / "docs").glob("*.md"))
    for block in blocks(page)
    if block.language == "python"
]


@pytest.mark.parametrize("block", PAGE_BLOCKS, ids=lambda block: block.name)
async def test_a_block_of_the_docs_runs(block, replay_address, claude_address):
    clients = _PageClients(claude_address if '"claude"' in block.text else replay_address)
    with clients.sync:
        await asyncio.wait_for(clients.run(block), timeout=20)


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.toml")), ids=lambda file: file.name)
def test_what_the_examples_say_about_themselves_names_files_that_exist(file):
    for name in re.findall(r"examples/[\w.-]+", file.read_text(encoding="utf-8")):
        assert (ROOT / name).is_file()
