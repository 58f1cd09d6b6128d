"""From a request to the body of `POST {base}/v1/responses`. Pure.

The target is `/v1/responses` below the base URL: `https://api.openai.com`, or a gateway with a path of its own. A
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
    Role,
    SchemaMode,
    TextPart,
    ToolCallPart,
    ToolMode,
    ToolResultPart,
)
from modelmeter_server.drivers.cache_marks import explicit
from modelmeter_server.drivers.driver import PreparedRequest, RequestRefused
from modelmeter_server.drivers.json_body import (
    NO_PARAMETERS,
    base64_text,
    embedded,
    finished,
    native_prompt,
    parameters,
    place_of_state,
    refused,
    result_text,
    state_turns,
)
from modelmeter_server.drivers.strict_schema import strict_complaints

from .capabilities import CAPABILITIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.requests import CompletionRequest, Message, ToolChoice

TARGET: Final = "/v1/responses"

SCHEMA_NAME: Final = "modelmeter_response"
"""What the schema is called; the API wants a name and the model sees it."""

_MAX_TEMPERATURE: Final = 2.0
_CHOICES: Final = {ToolMode.AUTO: "auto", ToolMode.NONE: "none", ToolMode.REQUIRED: "required"}
# The API wants a file name and tells the format by its end.
_FILE_ENDS: Final = {
    "application/pdf": ".pdf",
    "text/plain": ".txt",
    "text/markdown": ".md",
    "text/csv": ".csv",
}


def encode(request: CompletionRequest, model: ModelSpec) -> PreparedRequest:
    """Turn a checked request into the provider's. Raises RequestRefused for what this provider cannot do."""
    mode = request.schema_mode or model.schema_mode
    forced = bool(request.output_schema_json) and mode is SchemaMode.FORCED_TOOL
    mistakes = [*capability_violations(request, CAPABILITIES, mode), *_impossible(request)]
    if mistakes:
        raise RequestRefused(*mistakes)
    limit = model.max_output_tokens if request.max_output_tokens is None else request.max_output_tokens
    body: dict[str, Any] = {"model": model.provider_model}
    body.update(_prompt(request, model))
    body["max_output_tokens"] = limit
    # Unless the bill must be recoverable nothing is kept at the provider; reasoning has to travel with the answer.
    body["store"] = model.recoverable
    if model.recoverable and not model.buffered:  # in the background a body has no answer yet
        body["background"] = True
    body["include"] = ["reasoning.encrypted_content"]
    body.update(_forced_tool(request) if forced else _tools(request))
    body.update(_output(request, forced=forced))
    if request.end_user_id:
        body["safety_identifier"] = request.end_user_id
    if model.service_tier is not None:
        body["service_tier"] = model.service_tier
    body["stream"] = not model.buffered
    return PreparedRequest(target=TARGET, body=finished(body, request, model, turns="input"))


def _impossible(request: CompletionRequest) -> Iterator[FieldViolation]:
    if request.output_schema_json:
        yield from _outside_strict(request.output_schema_json, "output_schema_json")
    for index, tool in enumerate(request.tools):
        if tool.strict:
            yield from _outside_strict(
                tool.parameters_json or NO_PARAMETERS, f"tools[{index}].parameters_json"
            )
    if request.temperature is not None and request.temperature > _MAX_TEMPERATURE:
        yield FieldViolation("temperature", "this provider takes 0 to 2")


def _outside_strict(schema: str, field: str) -> Iterator[FieldViolation]:
    complaints = strict_complaints(schema)
    if complaints:
        yield FieldViolation(field, f"lies outside what this provider enforces: {'; '.join(complaints)}")


# The prompt


def _prompt(request: CompletionRequest, model: ModelSpec) -> dict[str, Any]:
    system: Any = request.system
    if request.native_json is not None:
        prompt = native_prompt(request, model)
        if prompt.system is not None and not isinstance(prompt.system, str):
            msg = "native_json.system"
            raise refused(msg, "must be text: this provider takes no blocks")
        items: list[list[Any]] = [[item] for item in prompt.turns_json]
        answered = native_answers(prompt.turns)
        system = system or prompt.system
    elif request.messages is not None:
        custom = _custom_calls(request)
        items = [_items(message, index, custom) for index, message in enumerate(request.messages)]
        answered = message_answers(request.messages)
    else:
        items, answered = [[{"role": "user", "content": request.text or ""}]], []
    if request.continuation is not None:
        values, state = state_turns(request.continuation, "continuation")
        items.insert(place_of_state(values, answered), list(state))
    fields = {"instructions": system} if system else {}
    return {**fields, "input": [item for group in items for item in group]}


def _items(message: Message, index: int, custom: frozenset[str]) -> list[Any]:
    """Return a message as items: the API keeps tool calls and their results beside messages, not in them."""
    items: list[Any] = []
    content: list[Any] | None = None  # of the message that is still open
    for number, part in enumerate(message.parts):
        path = f"messages.messages[{index}].parts[{number}].{part_field(part)}"
        if isinstance(part, MediaPart) or (isinstance(part, TextPart) and message.role is Role.USER):
            if content is None:
                content = []
                items.append({"role": "user", "content": content})
            content.append(_content(part, path) | explicit(part.cache_breakpoint))
        else:
            content = None
            items += _own_items(part, path, custom)
    return items


def _own_items(
    part: TextPart | ToolCallPart | ToolResultPart | Continuation, path: str, custom: frozenset[str]
) -> list[Any]:
    match part:
        case TextPart():
            return [{"role": "assistant", "content": part.text}]
        case ToolCallPart(free_text=True):
            call = {"call_id": part.id, "name": part.name, "input": part.arguments_json}
            return [{"type": "custom_tool_call", **call}]
        case ToolCallPart():
            call = {"call_id": part.id, "name": part.name, "arguments": part.arguments_json or "{}"}
            return [{"type": "function_call", **call}]
        case ToolResultPart():
            kind = "custom_tool_call_output" if part.call_id in custom else "function_call_output"
            return [{"type": kind, "call_id": part.call_id, "output": _output_of(part)}]
        case Continuation():
            return list(state_turns(part, path)[1])


def _output_of(result: ToolResultPart) -> str | list[dict[str, Any]]:
    """Return what a tool gave: a text, or a list of one part where a mark needs a part to stand in."""
    text, mark = result_text(result), explicit(result.cache_breakpoint)
    return [{"type": "input_text", "text": text, **mark}] if mark else text


def _custom_calls(request: CompletionRequest) -> frozenset[str]:
    """Return the ids of the calls of free-text tools, whose results are items of another type."""
    found: set[str] = set()
    for index, message in enumerate(request.messages or ()):
        for number, part in enumerate(message.parts):
            if isinstance(part, ToolCallPart) and part.free_text:
                found.add(part.id)
            elif isinstance(part, Continuation):
                path = f"messages.messages[{index}].parts[{number}].continuation"
                found.update(_custom_ids(state_turns(part, path)[0]))
    if request.continuation is not None:
        found.update(_custom_ids(state_turns(request.continuation, "continuation")[0]))
    return frozenset(found)


def _custom_ids(items: list[Any]) -> Iterator[str]:
    for item in items:
        if (
            isinstance(item, dict)
            and item.get("type") == "custom_tool_call"
            and isinstance(item.get("call_id"), str)
        ):
            yield item["call_id"]


def _content(part: TextPart | MediaPart, path: str) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    url = f"data:{part.media_type};base64,{base64_text(part.data)}" if part.url is None else part.url
    if part.kind is MediaKind.IMAGE:
        return {"type": "input_image", "detail": "auto", "image_url": url}
    if part.kind is MediaKind.AUDIO:
        raise refused(path, "this provider takes no audio")
    if part.url is not None and part.url[:5].lower() != "data:":
        return {"type": "input_file", "file_url": url}
    name = part.name or "document" + _FILE_ENDS.get(part.media_type, "")
    return {"type": "input_file", "filename": name, "file_data": url}


# Tools and output


def _tools(request: CompletionRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    tools = [
        {
            "type": "function",
            "name": tool.name,
            **({"description": tool.description} if tool.description else {}),
            "parameters": parameters(tool, index),
            "strict": tool.strict,  # always said: left out, the API would make it true
        }
        for index, tool in enumerate(request.tools)
    ]
    return (
        {"tools": tools} if request.tool_choice is None else {"tools": tools, **_choice(request.tool_choice)}
    )


def _choice(choice: ToolChoice) -> dict[str, Any]:
    named = {"type": "function", "name": choice.name}
    rendered: dict[str, Any] = {"tool_choice": _CHOICES.get(choice.mode, named)}
    if choice.disable_parallel_calls:
        rendered["parallel_tool_calls"] = False
    return rendered


def _forced_tool(request: CompletionRequest) -> dict[str, Any]:
    tool = {
        "type": "function",
        "name": FORCED_TOOL,
        "description": "Give the answer.",
        "parameters": embedded(request.output_schema_json, "output_schema_json"),
        "strict": True,
    }
    choice = {"type": "function", "name": FORCED_TOOL}
    return {"tools": [tool], "tool_choice": choice, "parallel_tool_calls": False}


def _output(request: CompletionRequest, *, forced: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if request.output_schema_json and not forced:
        schema = embedded(request.output_schema_json, "output_schema_json")
        named = {"type": "json_schema", "name": SCHEMA_NAME, "strict": True}
        fields["text"] = {"format": {**named, "schema": schema}}
    if request.reasoning_effort is not None:
        fields["reasoning"] = {"effort": request.reasoning_effort.value}
    for name in ("temperature", "top_p"):
        value = getattr(request, name)
        if value is not None:
            fields[name] = value
    return fields
