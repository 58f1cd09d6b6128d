"""Prompts in a provider's own format: which shapes are taken, and what must not hide in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from .caller_json import field_path, read_caller_json
from .errors import FieldViolation
from .json_text import NotJson
from .remote_media import remote_media

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FIELD: Final = "native_json"

_TURN_LISTS: Final = {
    "anthropic": ("messages",),
    "chat_completions": ("messages", "input"),
    "openai_responses": ("input",),
    "gemini": ("messages", "contents"),
}
_ANY_TURN_LIST: Final = ("messages", "input")

_INSTRUCTING: Final = frozenset(("system", "developer"))
# A Responses item that adds tools and instructions to the thread; its role is `developer`, told or not.
_ADDING_TOOLS: Final = "additional_tools"


class NativePrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A native prompt taken apart."""

    turns: list[object]
    system: object
    """`None` when it has no `system`."""
    turns_json: list[msgspec.Raw]
    """The turns as the caller wrote them, fit to be embedded."""
    system_json: msgspec.Raw | None
    path: str
    """Path of the list of turns."""


class NotAPrompt(ValueError):
    """Report text that is no native prompt; the message says what would be."""


def read_native_prompt(text: str, provider_kind: str) -> NativePrompt:
    """Take a native prompt apart: an array of turns, or an object of its list of turns and `system`.

    Raises NotAPrompt for any other shape. An object with other members is refused rather than sent: whether it is a
    prompt or data that was meant as text, only its author knows.
    """
    try:
        document = read_caller_json(text)
    except NotJson as error:
        msg = f"must be JSON: {error}"
        raise NotAPrompt(msg) from None
    if isinstance(document.value, list):
        return NativePrompt(
            turns=_turns(document.value),
            system=None,
            turns_json=msgspec.json.decode(document.text, type=list[msgspec.Raw]),
            system_json=None,
            path=FIELD,
        )
    names = _TURN_LISTS.get(provider_kind, _ANY_TURN_LIST)
    name = next((name for name in names if isinstance(document.value, dict) and name in document.value), None)
    if not isinstance(document.value, dict) or name is None or document.value.keys() - {name, "system"}:
        listed = " or ".join(f"`{each}`" for each in names)
        msg = f"must be an array of turns, or an object of {listed} and `system` alone; send other data as `text`"
        raise NotAPrompt(msg)
    members = msgspec.json.decode(document.text, type=dict[str, msgspec.Raw])
    system = document.value.get("system")
    return NativePrompt(
        turns=_turns(document.value[name]),
        system=system,
        turns_json=msgspec.json.decode(members[name], type=list[msgspec.Raw]),
        system_json=None if system is None else members["system"],
        path=f"{FIELD}.{name}",
    )


def native_violations(
    prompt: NativePrompt, *, has_system: bool, allow_remote_media: bool
) -> list[FieldViolation]:
    """Return what must not stand in a native prompt: a second instruction slot, or media that would be fetched."""
    found = list(instruction_violations(prompt.turns, prompt.path))
    if prompt.system is not None:
        found += _system_violations(prompt.system, has_system=has_system)
    if not allow_remote_media:
        found += media_violations(prompt.turns, prompt.path)
        found += media_violations(prompt.system, f"{FIELD}.system")
    return found


def instruction_violations(turns: Sequence[object], path: str) -> Iterator[FieldViolation]:
    """Return the direct turns that instruct. Shallow on purpose: a `role` deeper in data is just data."""
    for index, turn in enumerate(turns):
        if not isinstance(turn, dict):
            continue
        role = turn.get("role")
        if isinstance(role, str) and role.strip().lower() in _INSTRUCTING:
            fix = "instructions have one place: move them to the request's `system`"
            yield FieldViolation(f"{path}[{index}].role", fix)
        elif turn.get("type") == _ADDING_TOOLS:
            yield FieldViolation(
                f"{path}[{index}].type", "tools have one place: move them to the request's `tools`"
            )


def media_violations(value: object, path: str) -> list[FieldViolation]:
    """Return the media in a JSON value that the provider would fetch."""
    fix = "the provider would fetch this: send the bytes inline, or let the deployment allow remote media"
    return [FieldViolation(where, fix) for where in remote_media(value, path)]


def _turns(value: object) -> list[object]:
    if not isinstance(value, list) or not value:
        msg = "the list of turns must be an array with at least one turn"
        raise NotAPrompt(msg)
    for index, turn in enumerate(value):
        if not isinstance(turn, dict):
            msg = f"turn {field_path('', index)} must be a JSON object"
            raise NotAPrompt(msg)
    return value


def _system_violations(system: object, *, has_system: bool) -> Iterator[FieldViolation]:
    if has_system:
        fix = "instructions have one place: use this or the request's `system`, not both"
        yield FieldViolation(f"{FIELD}.system", fix)
    if not isinstance(system, str | list):
        yield FieldViolation(
            f"{FIELD}.system", "must be text, or an array of blocks where the provider takes one"
        )
