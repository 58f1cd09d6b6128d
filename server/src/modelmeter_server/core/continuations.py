"""A provider's own turns on their way back: who may take them, and where they belong.

A continuation stands for turns of the model, put back untouched. Inside a message it stands for that message. Beside
the prompt it stands for the turn before the last tool results, so that it goes right before the results that answer
its calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .caller_json import read_caller_json
from .errors import FieldViolation
from .json_text import NotJson
from .native_prompt import instruction_violations, media_violations
from .requests import Continuation, Message, Role, ToolResultPart

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def continuation_violations(
    continuation: Continuation, field: str, *, provider_kind: str, allow_remote_media: bool
) -> list[FieldViolation]:
    """Return why a continuation cannot go back to a provider of this kind."""
    if continuation.provider != provider_kind:
        fix = f"was not issued by `{provider_kind}`, which serves this model: send the turns as messages instead"
        return [FieldViolation(f"{field}.provider", fix)]
    path = f"{field}.state_json"
    try:
        state = read_caller_json(continuation.state_json).value
    except NotJson as error:
        return [FieldViolation(path, f"must be the JSON that the answer carried, untouched: {error}")]
    if not isinstance(state, list) or not state or not all(isinstance(turn, dict) for turn in state):
        return [FieldViolation(path, "must be the array of turns that the answer carried, untouched")]
    found = list(instruction_violations(state, path))
    if not allow_remote_media:
        found += media_violations(state, path)
    return found


class FunctionCall(NamedTuple):
    """One call in the turns of Gemini."""

    id: str
    name: str
    is_told: bool
    """The provider gave the id itself."""


def function_calls(turns: object) -> Iterator[FunctionCall]:
    """Return the calls in Gemini's turns. One without an id is known by its name and its place among the parts."""
    for turn in turns if isinstance(turns, list) else ():
        parts = turn.get("parts") if isinstance(turn, dict) else None
        for position, part in enumerate(parts if isinstance(parts, list) else ()):
            call = part.get("functionCall") if isinstance(part, dict) else None
            name = call.get("name") if isinstance(call, dict) else None
            if isinstance(call, dict) and isinstance(name, str) and name:
                id = call.get("id")
                is_told = isinstance(id, str) and bool(id)
                yield FunctionCall(str(id) if is_told else f"{name}-{position}", name, is_told)


def results_start(answered: Sequence[frozenset[str]], calls: frozenset[str]) -> int | None:
    """Return the index of the first turn of the last tool results, where the continuation goes.

    `answered` has for each turn of the prompt the ids of the calls that it answers, `calls` the ids of the calls in
    the continuation. Returns `None` if the prompt does not end with results that answer them.
    """
    start = None
    for index in range(len(answered) - 1, -1, -1):
        if not answered[index] or (calls and not answered[index] & calls):
            break
        start = index
    return start


def state_calls(state: object) -> frozenset[str]:
    """Return the ids of the tool calls in a continuation's state."""
    return frozenset(_calls(state))


def message_answers(messages: Sequence[Message]) -> list[frozenset[str]]:
    """Return for each message the ids of the calls that it answers."""
    return [
        frozenset(part.call_id for part in message.parts if isinstance(part, ToolResultPart))
        if message.role is Role.USER
        else frozenset()
        for message in messages
    ]


def native_answers(turns: Sequence[object]) -> list[frozenset[str]]:
    """Return for each native turn the ids of the calls that it answers."""
    return [frozenset(_answers(turn)) for turn in turns]


def _calls(state: object) -> Iterator[str]:
    for block in _blocks(state):
        kind = block.get("type")
        if kind == "tool_use":  # Anthropic
            yield from _texts(block, "id")
        elif isinstance(kind, str) and kind.endswith("_call"):  # Responses
            yield from _texts(block, "call_id")
        yield from _texts(block.get("toolUse"), "toolUseId")  # Bedrock
        calls = block.get("tool_calls")  # Chat Completions
        for call in calls if isinstance(calls, list) else ():
            yield from _texts(call, "id")
    for call in function_calls(state):
        yield from (call.id, call.name)  # a native result may name the tool alone


def _answers(turn: object) -> Iterator[str]:
    for block in _blocks([turn]):
        kind = block.get("type")
        if kind == "tool_result":  # Anthropic
            yield from _texts(block, "tool_use_id")
        elif isinstance(kind, str) and kind.endswith("_output"):  # Responses
            yield from _texts(block, "call_id")
        elif block.get("role") == "tool":  # Chat Completions
            yield from _texts(block, "tool_call_id")
        yield from _texts(block.get("toolResult"), "toolUseId")  # Bedrock
    parts = turn.get("parts") if isinstance(turn, dict) else None
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict):
            yield from _texts(part.get("functionResponse"), "id", "name")  # Gemini


def _texts(value: object, *names: str) -> Iterator[str]:
    """Yield the members of these names that hold a text, of an object."""
    if isinstance(value, dict):
        yield from (str(value[name]) for name in names if isinstance(value.get(name), str) and value[name])


def _blocks(turns: object) -> Iterator[dict[str, object]]:
    """Return the turns and the blocks of their content: a Responses item is its own block."""
    for turn in turns if isinstance(turns, list) else ():
        if isinstance(turn, dict):
            yield turn
            content = turn.get("content")
            yield from (
                block for block in (content if isinstance(content, list) else ()) if isinstance(block, dict)
            )
