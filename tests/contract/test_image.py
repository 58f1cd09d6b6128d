"""The container image: what its Dockerfile promises, read instruction by instruction."""

from __future__ import annotations

import json
import re
import tomllib

import pytest

from tests.support import ROOT


def _instructions(text: str) -> list[tuple[str, str]]:
    without_comments = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", without_comments)
    pairs = [line.strip().partition(" ") for line in joined.splitlines() if line.strip()]
    return [(word.upper(), rest.strip()) for word, _, rest in pairs]


INSTRUCTIONS = _instructions((ROOT / "Dockerfile").read_text(encoding="utf-8"))
_STARTS = [index for index, (word, _) in enumerate(INSTRUCTIONS) if word == "FROM"]
LAST_STAGE = INSTRUCTIONS[_STARTS[-1] :]


def _one(word: str) -> str:
    (value,) = [rest for found, rest in LAST_STAGE if found == word]
    return value


def test_it_builds_in_one_stage_and_ships_another():
    assert len(_STARTS) == 2
    assert [rest for word, rest in LAST_STAGE if word in {"COPY", "ADD"}] == [
        "--from=build /opt/modelmeter /opt/modelmeter"
    ]


def test_every_stage_starts_from_the_same_slim_python():
    images = {rest.split()[0] for word, rest in INSTRUCTIONS if word == "FROM"}
    assert len(images) == 1
    assert re.fullmatch(r"python:3\.\d+-slim", images.pop())


def test_it_runs_as_a_number_that_is_not_root():
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", _one("USER"))
    words = [word for word, _ in LAST_STAGE]
    assert "RUN" not in words[words.index("USER") :]


@pytest.mark.parametrize("word", ["ENTRYPOINT", "CMD"])
def test_it_starts_without_a_shell(word):
    # The shell form would put sh in front, and SIGTERM would never reach the server.
    assert all(isinstance(part, str) for part in json.loads(_one(word)))


def test_the_entry_point_is_the_command_line_and_serves_by_default():
    assert json.loads(_one("ENTRYPOINT")) == ["modelmeter"]
    assert json.loads(_one("CMD"))[0] == "serve"


def test_its_health_is_asked_through_the_command_line():
    options, _, command = _one("HEALTHCHECK").partition("CMD ")
    assert json.loads(command) == ["modelmeter", "healthcheck"]
    assert "--timeout=" in options


def test_its_output_is_not_held_back():
    assert "PYTHONUNBUFFERED=1" in _one("ENV")


def test_its_log_is_json_alone():
    assert "GRPC_VERBOSITY=ERROR" in _one("ENV")


def test_it_holds_no_secret():
    named = [f"{word} {rest}" for word, rest in INSTRUCTIONS if word in {"ARG", "ENV", "COPY", "ADD", "RUN"}]
    assert not [
        line for line in named if re.search(r"key|token|secret|password|\.env\b|\.pem\b", line, re.IGNORECASE)
    ]


def test_dependencies_are_installed_under_the_constraints_only():
    installs = [rest for word, rest in INSTRUCTIONS if word == "RUN" and "pip" in rest]
    commands = [
        part for rest in installs for part in rest.split("&&") if " install " in part or " wheel " in part
    ]
    assert len(commands) == 3
    assert not [command for command in commands if "constraint constraints.txt" not in command]


def test_the_image_has_every_extra_of_the_server():
    (install,) = [rest for word, rest in INSTRUCTIONS if word == "RUN" and "--python /opt/modelmeter" in rest]
    project = tomllib.loads((ROOT / "server" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.search(r"\$\{server\}\[([\w,]+)\]", install)
    assert named is not None
    assert set(named[1].split(",")) == project["optional-dependencies"].keys()


def test_the_build_context_is_a_list_of_what_is_needed():
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    assert {"constraints.txt", "client/src", "server/src"} <= allowed
    assert not [path for path in allowed if path.startswith((".git", ".env", ".venv"))]
