"""From a request to the body of `POST {base}/model/{model}/converse-stream`, or `/converse` when buffered. Pure.

The model stands in the path, escaped: an ARN has slashes. The service's own body has nothing about streaming.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from modelmeter_server.core.capability_checks import capability_violations
from modelmeter_server.core.continuations import message_answers, native_answers
from modelmeter_server.core.errors import FieldViolation
from modelmeter_server.core.message_checks import part_field
from modelmeter_server.core.requests import (
    FORCED_TOOL,
    Continuation,
    MediaPart,
    SchemaMode,
    TextPart,
    ToolCallPart,
    ToolMode,
    ToolResultPart,
)
from modelmeter_server.drivers.cache_marks import cache_point
from modelmeter_server.drivers.driver import PreparedRequest, RequestRefused
from modelmeter_server.drivers.json_body import (
    embedded,
    embedded_arguments,
    finished,
    is_object_schema,
    native_prompt,
    parameters,
    place_of_state,
    refused,
    sole_continuation,
    state_turns,
)

from .capabilities import capabilities_of, dialect_of
from .media import media_block

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.requests import CompletionRequest, Message, Part, ToolChoice

SCHEMA_NAME: Final = "modelmeter_response"
"""What the schema is called; the model sees it."""

_MAX_TEMPERATURE: Final = 1.0


def encode(request: CompletionRequest, model: ModelSpec) -> PreparedRequest:
    """Turn a checked request into the provider's. Raises RequestRefused for what this provider cannot do."""
    mode = request.schema_mode or model.schema_mode
    forced = bool(request.output_schema_json) and mode is SchemaMode.FORCED_TOOL
    mistakes = [
        *capability_violations(request, capabilities_of(model.reasoning_dialect), mode),
        *_impossible(request, model, forced=forced),
    ]
    if mistakes:
        raise RequestRefused(*mistakes)
    body = _prompt(request, model)
    body["inferenceConfig"] = _inference(request, model)
    body.update(_forced_tool(request) if forced else _tools(request))
    body.update(_reasoning_and_output(request, model, forced=forced))
    if model.service_tier is not None:
        body["serviceTier"] = {"type": model.service_tier}
    operation = "converse" if model.buffered else "converse-stream"
    return PreparedRequest(
        target=f"/model/{quote(model.provider_model, safe='')}/{operation}",
        body=finished(body, request, model, turns="messages", tools_in="toolConfig"),
    )


def _impossible(request: CompletionRequest, model: ModelSpec, *, forced: bool) -> Iterator[FieldViolation]:
    if not model.provider_model.strip("."):
        # Nothing escapes a dot: the path would lead elsewhere.
        yield FieldViolation("model", "is no name of a model at this provider")
    dialect = dialect_of(model)
    if forced and dialect and request.reasoning_effort is not None and not dialect.thinks_with_forced_tool:
        fix = "this model cannot think while a tool is forced: use NATIVE mode, or leave the effort out"
        yield FieldViolation("reasoning_effort", fix)
    if forced and not is_object_schema(request.output_schema_json):
        fix = 'in FORCED_TOOL mode the root must have "type": "object", for the answer is the arguments of a tool'
        yield FieldViolation("output_schema_json", fix)
    if request.temperature is not None and request.temperature > _MAX_TEMPERATURE:
        yield FieldViolation("temperature", "this provider takes 0 to 1")
    if request.tool_choice is not None:
        yield from _impossible_choice(request.tool_choice)


def _impossible_choice(choice: ToolChoice) -> Iterator[FieldViolation]:
    if choice.mode is ToolMode.NONE:
        fix = "this provider cannot forbid tools that it is told of: leave `tools` out"
        yield FieldViolation("tool_choice.mode", fix)
    if choice.disable_parallel_calls:
        fix = "this provider cannot forbid parallel calls: leave it out"
        yield FieldViolation("tool_choice.disable_parallel_calls", fix)


# The prompt


def _prompt(request: CompletionRequest, model: ModelSpec) -> dict[str, Any]:
    mark = cache_point(request.system_cache_breakpoint)
    system: Any = [{"text": request.system}, *mark] if request.system else None
    if request.native_json is not None:
        prompt = native_prompt(request, model)
        turns: list[list[Any]] = [[turn] for turn in prompt.turns_json]
        answered = native_answers(prompt.turns)
        if prompt.system:
            system = [{"text": prompt.system}] if isinstance(prompt.system, str) else prompt.system_json
    elif request.messages is not None:
        turns = _message_turns(request.messages)
        answered = message_answers(request.messages)
    else:
        turns, answered = [[_turn("user", [{"text": request.text or ""}])]], []
    if request.continuation is not None:
        state, state_as_turns = _state(request.continuation, "continuation")
        turns.insert(place_of_state(state, answered), state_as_turns)
    fields = {"messages": _alternating([turn for group in turns for turn in group])}
    return {**fields, "system": system} if system else fields


def _turn(role: str, content: list[Any]) -> dict[str, Any]:
    return {"role": role, "content": content}


def _alternating(turns: list[Any]) -> list[Any]:
    """Join neighbouring turns of one side: the API refuses two in a row. Turns in its own format stay as they are."""
    joined: list[Any] = []
    for turn in turns:
        last = joined[-1] if joined else None
        if isinstance(turn, dict) and isinstance(last, dict) and last["role"] == turn["role"]:
            last["content"] += turn["content"]
        else:
            joined.append(turn)
    return joined


def _message_turns(messages: Sequence[Message]) -> list[list[Any]]:
    """Return each message as turns: one, or as many as the continuation that stands in its place."""
    media = 0
    turns = []
    for index, message in enumerate(messages):
        where = f"messages.messages[{index}].parts"
        if any(isinstance(part, Continuation) for part in message.parts):
            turns.append(_state(sole_continuation(message.parts, where), f"{where}[0].continuation")[1])
            continue
        blocks = []
        for number, part in enumerate(message.parts):
            media += isinstance(part, MediaPart)
            blocks.append(_block(part, f"{where}[{number}].{part_field(part)}", media))
            blocks += [] if isinstance(part, Continuation) else cache_point(part.cache_breakpoint)
        turns.append([_turn(message.role.value, blocks)])
    return turns


def _state(continuation: Continuation, field: str) -> tuple[list[Any], list[Any]]:
    """Return the turns of the state, as values and as text."""
    values, texts = state_turns(continuation, field)
    if not all(isinstance(value, dict) and "role" in value for value in values):
        msg = f"{field}.state_json"
        raise refused(msg, "must be the array of turns that the answer carried, untouched")
    return values, list(texts)


def _block(part: Part, path: str, number: int) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"text": part.text}
        case MediaPart():
            return media_block(part, path, number)
        case ToolCallPart():
            if part.free_text:
                msg = f"{path}.free_text"
                raise refused(msg, "this provider's tools take JSON, never free text")
            arguments = embedded_arguments(part.arguments_json or "{}", f"{path}.arguments_json")
            return {"toolUse": {"toolUseId": part.id, "name": part.name, "input": arguments}}
        case ToolResultPart():
            content = [{"text": part.output}] if part.output else []
            failed = {"status": "error"} if part.failed else {}
            return {"toolResult": {"toolUseId": part.call_id, "content": content, **failed}}
        case Continuation():
            raise refused(path, "a continuation stands for its whole turn: leave it alone in its message")


# Tools and output


def _inference(request: CompletionRequest, model: ModelSpec) -> dict[str, Any]:
    limit = model.max_output_tokens if request.max_output_tokens is None else request.max_output_tokens
    fields: dict[str, Any] = {"maxTokens": limit}
    if request.temperature is not None:
        fields["temperature"] = request.temperature
    if request.top_p is not None:
        fields["topP"] = request.top_p
    if request.stop_sequences:
        fields["stopSequences"] = request.stop_sequences
    return fields


def _tools(request: CompletionRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    tools: list[dict[str, Any]] = []
    for index, tool in enumerate(request.tools):
        strict = {"strict": True} if tool.strict else {}
        tools.append(_tool(tool.name, tool.description, parameters(tool, index), **strict))
        tools += cache_point(tool.cache_breakpoint)
    choice = {} if request.tool_choice is None else {"toolChoice": _choice(request.tool_choice)}
    return {"toolConfig": {"tools": tools, **choice}}


def _tool(name: str, description: str, schema: object, **fields: Any) -> dict[str, Any]:
    described = {"description": description} if description else {}
    return {"toolSpec": {"name": name, **described, "inputSchema": {"json": schema}, **fields}}


def _choice(choice: ToolChoice) -> dict[str, Any]:
    if choice.mode is ToolMode.NAMED:
        return {"tool": {"name": choice.name}}
    return {"any": {}} if choice.mode is ToolMode.REQUIRED else {"auto": {}}


def _forced_tool(request: CompletionRequest) -> dict[str, Any]:
    schema = embedded(request.output_schema_json, "output_schema_json")
    tool = _tool(FORCED_TOOL, "Give the answer.", schema)
    return {"toolConfig": {"tools": [tool], "toolChoice": {"tool": {"name": FORCED_TOOL}}}}


def _reasoning_and_output(request: CompletionRequest, model: ModelSpec, *, forced: bool) -> dict[str, Any]:
    dialect = dialect_of(model)
    fields: dict[str, Any] = {}
    if dialect is not None and request.reasoning_effort is not None:
        fields = dialect.fields(request.reasoning_effort)
    if request.output_schema_json and not forced:
        # The API wants the schema as a text, which it is already: key order and integers stay.
        schema = bytes(embedded(request.output_schema_json, "output_schema_json")).decode()
        text = {"type": "json_schema", "structure": {"jsonSchema": {"schema": schema, "name": SCHEMA_NAME}}}
        fields["outputConfig"] = {"textFormat": text, **fields.get("outputConfig", {})}
    return fields
