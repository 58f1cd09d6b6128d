"""From a request to the body of `POST {base}/v1/messages`. Pure.

The target is `/v1/messages` below the base URL: `https://api.anthropic.com`, or a gateway with a path of its own. A
base URL that ends with `/v1` already works too; the driver that joins the two does not repeat it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from modelmeter_server.core.capability_checks import capability_violations
from modelmeter_server.core.continuations import message_answers, native_answers
from modelmeter_server.core.errors import FieldViolation
from modelmeter_server.core.message_checks import part_field
from modelmeter_server.core.requests import (
    FORCED_TOOL,
    Continuation,
    MediaKind,
    MediaPart,
    SchemaMode,
    TextPart,
    ToolCallPart,
    ToolMode,
    ToolResultPart,
)
from modelmeter_server.drivers.cache_marks import ephemeral
from modelmeter_server.drivers.driver import PreparedRequest, RequestRefused
from modelmeter_server.drivers.json_body import (
    base64_text,
    embedded,
    embedded_arguments,
    finished,
    is_object_schema,
    native_prompt,
    parameters,
    place_of_state,
    refused,
    sole_continuation,
    split_data_url,
    state_turns,
)

from .capabilities import CAPABILITIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.requests import CompletionRequest, Message, Part, ToolChoice

TARGET: Final = "/v1/messages"

VERSION: Final = "2023-06-01"
"""Pinned: 2026-10-21 answers 400 to temperature, top_p and top_k, even at their default values."""

_MAX_TEMPERATURE: Final = 1.0
_PDF: Final = "application/pdf"
_PLAIN: Final = "text/plain"
_CHOICES: Final = {
    ToolMode.AUTO: "auto",
    ToolMode.NONE: "none",
    ToolMode.REQUIRED: "any",
    ToolMode.NAMED: "tool",
}


def encode(request: CompletionRequest, model: ModelSpec) -> PreparedRequest:
    """Turn a checked request into the provider's. Raises RequestRefused for what this provider cannot do."""
    mode = request.schema_mode or model.schema_mode
    forced = bool(request.output_schema_json) and mode is SchemaMode.FORCED_TOOL
    mistakes = [*capability_violations(request, CAPABILITIES, mode), *_impossible(request, forced=forced)]
    if mistakes:
        raise RequestRefused(*mistakes)
    limit = model.max_output_tokens if request.max_output_tokens is None else request.max_output_tokens
    body: dict[str, Any] = {"model": model.provider_model, "max_tokens": limit}
    body.update(_prompt(request, model))
    body.update(_forced_tool(request) if forced else _tools(request))
    body.update(_thinking_and_output(request, forced=forced))
    body.update(_sampling(request))
    if request.end_user_id:
        body["metadata"] = {"user_id": request.end_user_id}
    if model.service_tier is not None:
        body["service_tier"] = model.service_tier
    body["stream"] = not model.buffered
    return PreparedRequest(
        target=TARGET,
        body=finished(body, request, model, turns="messages"),
        headers=(("anthropic-version", VERSION),),
    )


def _impossible(request: CompletionRequest, *, forced: bool) -> Iterator[FieldViolation]:
    if forced and request.reasoning_effort is not None:
        fix = "this provider cannot think while a tool is forced: use NATIVE mode, or leave the effort out"
        yield FieldViolation("reasoning_effort", fix)
    if forced and not is_object_schema(request.output_schema_json):
        fix = 'in FORCED_TOOL mode the root must have "type": "object", for the answer is the arguments of a tool'
        yield FieldViolation("output_schema_json", fix)
    if request.temperature is not None and request.temperature > _MAX_TEMPERATURE:
        yield FieldViolation("temperature", "this provider takes 0 to 1")


# The prompt


def _prompt(request: CompletionRequest, model: ModelSpec) -> dict[str, Any]:
    system: Any = request.system
    if request.system_cache_breakpoint is not None:
        system = [{"type": "text", "text": request.system, **ephemeral(request.system_cache_breakpoint)}]
    if request.native_json is not None:
        prompt = native_prompt(request, model)
        turns: list[list[Any]] = [[turn] for turn in prompt.turns_json]
        answered = native_answers(prompt.turns)
        if prompt.system:
            system = prompt.system_json
    elif request.messages is not None:
        turns = [_turns(message, index) for index, message in enumerate(request.messages)]
        answered = message_answers(request.messages)
    else:
        turns, answered = [[{"role": "user", "content": request.text or ""}]], []
    if request.continuation is not None:
        state, state_as_turns = _state(request.continuation, "continuation")
        turns.insert(place_of_state(state, answered), state_as_turns)
    fields = {"system": system} if system else {}
    return {**fields, "messages": [turn for group in turns for turn in group]}


def _turns(message: Message, index: int) -> list[Any]:
    """Return a message as turns: one, or as many as the continuation that stands in its place."""
    where = f"messages.messages[{index}].parts"
    if any(isinstance(part, Continuation) for part in message.parts):
        return _state(sole_continuation(message.parts, where), f"{where}[0].continuation")[1]
    blocks = [
        _block(part, f"{where}[{number}].{part_field(part)}") | _mark(part)
        for number, part in enumerate(message.parts)
    ]
    return [{"role": message.role.value, "content": blocks}]


def _state(continuation: Continuation, field: str) -> tuple[list[Any], list[Any]]:
    """Return the state's values, and it as turns: turns stay turns, blocks of content become a turn of the model."""
    values, texts = state_turns(continuation, field)
    with_role = [isinstance(value, dict) and "role" in value for value in values]
    if all(with_role):
        return values, list(texts)
    if any(with_role):
        msg = f"{field}.state_json"
        raise refused(msg, "must be the array of turns that the answer carried, untouched")
    return values, [{"role": "assistant", "content": texts}]


def _mark(part: Part) -> dict[str, Any]:
    return {} if isinstance(part, Continuation) else ephemeral(part.cache_breakpoint)


def _block(part: Part, path: str) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case MediaPart():
            return _media(part, path)
        case ToolCallPart():
            if part.free_text:
                msg = f"{path}.free_text"
                raise refused(msg, "this provider's tools take JSON, never free text")
            arguments = embedded_arguments(part.arguments_json or "{}", f"{path}.arguments_json")
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments}
        case ToolResultPart():
            failed = {"is_error": True} if part.failed else {}
            return {"type": "tool_result", "tool_use_id": part.call_id, "content": part.output, **failed}
        case Continuation():
            raise refused(path, "a continuation stands for its whole turn: leave it alone in its message")


def _media(part: MediaPart, path: str) -> dict[str, Any]:
    title = {"title": part.name} if part.name and part.kind is MediaKind.DOCUMENT else {}
    return {"type": part.kind.value, "source": _source(part, path), **title}


def _source(part: MediaPart, path: str) -> dict[str, Any]:
    if part.url is not None and part.url[:5].lower() != "data:":
        return {"type": "url", "url": part.url}
    if part.url is not None:
        inline = split_data_url(part.url)
        if inline is None:
            msg = f"{path}.url"
            raise refused(msg, "must be a base64 `data:` URL; better send the bytes in `data`")
        media_type, data = inline
    elif part.kind is MediaKind.DOCUMENT and part.media_type == _PLAIN:
        return {"type": "text", "media_type": _PLAIN, "data": _text(part.data, path)}
    else:
        media_type, data = part.media_type, base64_text(part.data)
    if part.kind is MediaKind.DOCUMENT and media_type != _PDF:
        msg = f"{path}.media_type"
        raise refused(msg, f"this provider takes documents as `{_PDF}` and `{_PLAIN}` bytes")
    return {"type": "base64", "media_type": media_type, "data": data}


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        msg = f"{path}.data"
        raise refused(msg, "must be UTF-8, for this provider takes plain text as text") from None


# Tools and output


def _tools(request: CompletionRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    tools = [
        {
            "name": tool.name,
            **({"description": tool.description} if tool.description else {}),
            "input_schema": parameters(tool, index),
            **({"strict": True} if tool.strict else {}),
            **ephemeral(tool.cache_breakpoint),
        }
        for index, tool in enumerate(request.tools)
    ]
    return (
        {"tools": tools}
        if request.tool_choice is None
        else {"tools": tools, "tool_choice": _choice(request.tool_choice)}
    )


def _choice(choice: ToolChoice) -> dict[str, Any]:
    rendered: dict[str, Any] = {"type": _CHOICES[choice.mode]}
    if choice.mode is ToolMode.NAMED:
        rendered["name"] = choice.name
    if choice.disable_parallel_calls:
        rendered["disable_parallel_tool_use"] = True
    return rendered


def _forced_tool(request: CompletionRequest) -> dict[str, Any]:
    tool = {
        "name": FORCED_TOOL,
        "description": "Give the answer.",
        "input_schema": embedded(request.output_schema_json, "output_schema_json"),
    }
    return {
        "tools": [tool],
        "tool_choice": {"type": "tool", "name": FORCED_TOOL, "disable_parallel_tool_use": True},
    }


def _thinking_and_output(request: CompletionRequest, *, forced: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    output: dict[str, Any] = {}
    if request.reasoning_effort is not None:
        fields["thinking"] = {"type": "adaptive"}
        output["effort"] = request.reasoning_effort.value
    if request.output_schema_json and not forced:
        schema = embedded(request.output_schema_json, "output_schema_json")
        output["format"] = {"type": "json_schema", "schema": schema}
    if output:
        fields["output_config"] = output
    return fields


def _sampling(request: CompletionRequest) -> dict[str, Any]:
    fields: dict[str, Any] = {"stop_sequences": request.stop_sequences} if request.stop_sequences else {}
    for name in ("temperature", "top_p", "top_k"):
        value = getattr(request, name)
        if value is not None:
            fields[name] = value
    return fields
