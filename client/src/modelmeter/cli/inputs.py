"""What the command line names for a call: prompt, schema, tools, labels."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelmeter.enums import Sensitivity
from modelmeter.messages import Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

_SENSITIVITIES = [each.value.lower() for each in Sensitivity if each is not Sensitivity.UNSPECIFIED]

sensitivity_option = click.option(
    "--sensitivity",
    type=click.Choice(_SENSITIVITIES, case_sensitive=False),
    help="How confidential the prompt is.  [default: the tenant's]",
)

_TOOL_KEYS = {"name", "description", "parameters", "strict"}


def read_prompt(argument: str | None) -> str:
    """Return the prompt: the argument, or standard input for `-` and for none at all.

    Raises click.UsageError when there is none, or it is not UTF-8.
    """
    if argument is not None and argument != "-":
        return argument
    if argument is None and sys.stdin.isatty():
        message = "give a PROMPT, or - to read it from standard input"
        raise click.UsageError(message)
    return _decoded(sys.stdin.buffer.read(), "standard input")


def read_lines() -> list[str]:
    """Return the lines of standard input that are not blank. Raises click.UsageError on a terminal."""
    if sys.stdin.isatty():
        message = "give TEXTS, or lines on standard input"
        raise click.UsageError(message)
    # Not `splitlines`: it cuts at characters that stand inside a text, such as U+2028.
    lines = _decoded(sys.stdin.buffer.read(), "standard input").replace("\r\n", "\n").split("\n")
    return [line for line in lines if line.strip()]


def read_json(argument: str | None, option: str) -> str | None:
    """Return JSON as text: the argument itself if it is an object or boolean, else the file it names."""
    if argument is None or argument.lstrip()[:1] == "{" or argument in ("true", "false"):
        return argument
    return _file(Path(argument), option)


def read_tools(paths: Sequence[Path]) -> list[Tool]:
    """Return the tools of JSON files, each with one tool or an array of them.

    Raises click.BadParameter for a file that holds anything else.
    """
    tools: list[Tool] = []
    for path in paths:
        try:
            document = json.loads(_file(path, "--tool"))
        except ValueError as error:
            msg = "--tool"
            raise _bad(msg, f"{path} is not JSON: {error}") from None
        tools += [_tool(each, path) for each in (document if isinstance(document, list) else [document])]
    return tools


def read_labels(pairs: Sequence[str]) -> dict[str, str]:
    """Return labels given as `key=value`."""
    labels = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            msg = "--label"
            raise _bad(msg, f'"{pair}" is not KEY=VALUE')
        labels[key] = value
    return labels


def _tool(value: Any, path: Path) -> Tool:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        msg = "--tool"
        raise _bad(msg, f'{path} must hold objects with a "name"')
    unknown = sorted(value.keys() - _TOOL_KEYS)
    if unknown:
        msg = "--tool"
        raise _bad(msg, f"{path}: unknown key {unknown[0]}; known are {', '.join(sorted(_TOOL_KEYS))}")
    if not isinstance(value.get("parameters", {}), dict):
        msg = "--tool"
        raise _bad(msg, f"{path}: parameters must be a JSON Schema object")
    return Tool(
        name=value["name"],
        description=str(value.get("description", "")),
        parameters=value.get("parameters"),
        strict=value.get("strict") is True,
    )


def _file(path: Path, option: str) -> str:
    try:
        return _decoded(path.read_bytes(), str(path))
    except OSError as error:
        raise _bad(option, f"cannot read {path}: {error.strerror}") from None


def _decoded(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"{source} is not UTF-8 at byte {error.start}"
        raise click.UsageError(message) from None


def _bad(option: str, message: str) -> click.BadParameter:
    return click.BadParameter(message, param_hint=f"'{option}'")
