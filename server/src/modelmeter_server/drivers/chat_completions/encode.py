"""From a request to the body of `POST {base}/v1/chat/completions`, in the server's dialect. Pure.

The target is the dialect's path below the base URL. A base URL that ends with `/v1` works with a path that begins with
it; the driver that joins the two does not repeat it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from modelmeter_server.core.capability_checks import capability_violations
from modelmeter_server.core.dialects import OPENAI, Dialect
from modelmeter_server.core.errors import FieldViolation
from modelmeter_server.core.requests import FORCED_TOOL, SchemaMode, ToolMode
from modelmeter_server.drivers.driver import PreparedRequest, RequestRefused
from modelmeter_server.drivers.json_body import (
    NO_PARAMETERS,
    embedded,
    finished,
    is_object_schema,
    parameters,
)
from modelmeter_server.drivers.strict_schema import strict_complaints

from .capabilities import capabilities
from .messages import prompt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.requests import CompletionRequest, ToolChoice

SCHEMA_NAME: Final = "modelmeter_response"
"""What the schema is called; the API wants a name and the model sees it."""

_MAX_TEMPERATURE: Final = 2.0
_CHOICES: Final = {ToolMode.AUTO: "auto", ToolMode.NONE: "none", ToolMode.REQUIRED: "required"}


def encode(request: CompletionRequest, model: ModelSpec, dialect: Dialect = OPENAI) -> PreparedRequest:
    """Turn a checked request into the provider's. Raises RequestRefused for what this dialect cannot do."""
    mode = request.schema_mode or model.schema_mode
    forced = bool(request.output_schema_json) and mode is SchemaMode.FORCED_TOOL
    able = capabilities(dialect)
    mistakes = [*capability_violations(request, able, mode), *_impossible(request, dialect, forced=forced)]
    if mistakes:
        raise RequestRefused(*mistakes)
    limit = model.max_output_tokens if request.max_output_tokens is None else request.max_output_tokens
    messages, leading = prompt(request, model, dialect)
    body: dict[str, Any] = {
        "model": model.provider_model,
        "messages": messages,
        dialect.max_tokens_field: limit,
    }
    body.update(_forced_tool(request, dialect) if forced else _tools(request))
    body.update(_output(request, dialect, forced=forced))
    body.update(_sampling(request, dialect))
    if request.end_user_id:
        body[dialect.end_user_field] = request.end_user_id
    if model.service_tier is not None:
        body["service_tier"] = model.service_tier
    if dialect.store_switch:
        body["store"] = False
    body.update(_transport(dialect, buffered=model.buffered))
    return PreparedRequest(
        target=_target(dialect), body=finished(body, request, model, turns="messages", leading=leading)
    )


def _target(dialect: Dialect) -> str:
    query = f"?api-version={quote(dialect.api_version, safe='')}" if dialect.api_version else ""
    return dialect.path + query


def _transport(dialect: Dialect, *, buffered: bool) -> dict[str, Any]:
    if buffered:
        return {"stream": False}
    return {"stream": True, **({"stream_options": {"include_usage": True}} if dialect.stream_options else {})}


# What this dialect cannot do


def _impossible(request: CompletionRequest, dialect: Dialect, *, forced: bool) -> Iterator[FieldViolation]:
    if request.output_schema_json and dialect.strict_schemas:
        yield from _outside_strict(request.output_schema_json, "output_schema_json")
    elif forced and not is_object_schema(request.output_schema_json):
        fix = 'in FORCED_TOOL mode the root must have "type": "object", for the answer is the arguments of a tool'
        yield FieldViolation("output_schema_json", fix)
    for index, tool in enumerate(request.tools):
        path = f"tools[{index}]"
        if tool.strict and not dialect.strict:
            yield FieldViolation(f"{path}.strict", "this server has no strict tools: leave it out")
        elif tool.strict and dialect.strict_schemas:
            yield from _outside_strict(tool.parameters_json or NO_PARAMETERS, f"{path}.parameters_json")
    if request.tool_choice is not None:
        yield from _impossible_choice(request.tool_choice, dialect)
    if request.temperature is not None and request.temperature > _MAX_TEMPERATURE:
        yield FieldViolation("temperature", "this provider takes 0 to 2")
    most = dialect.max_stop_sequences
    if most and len(request.stop_sequences) > most:
        yield FieldViolation("stop_sequences", f"this provider takes at most {most}")


def _impossible_choice(choice: ToolChoice, dialect: Dialect) -> Iterator[FieldViolation]:
    if choice.mode is not ToolMode.AUTO and not dialect.tool_choice:
        yield FieldViolation("tool_choice.mode", "this server leaves the choice to the model: AUTO only")
    if choice.disable_parallel_calls and not dialect.parallel_switch:
        fix = "this server cannot be kept from parallel calls: leave it out"
        yield FieldViolation("tool_choice.disable_parallel_calls", fix)


def _outside_strict(schema: str, field: str) -> Iterator[FieldViolation]:
    complaints = strict_complaints(schema)
    if complaints:
        yield FieldViolation(field, f"lies outside what this provider enforces: {'; '.join(complaints)}")


# Tools and output


def _tools(request: CompletionRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                **({"description": tool.description} if tool.description else {}),
                "parameters": parameters(tool, index),
                **({"strict": True} if tool.strict else {}),
            },
        }
        for index, tool in enumerate(request.tools)
    ]
    return (
        {"tools": tools} if request.tool_choice is None else {"tools": tools, **_choice(request.tool_choice)}
    )


def _choice(choice: ToolChoice) -> dict[str, Any]:
    named = {"type": "function", "function": {"name": choice.name}}
    rendered: dict[str, Any] = {"tool_choice": _CHOICES.get(choice.mode, named)}
    if choice.disable_parallel_calls:
        rendered["parallel_tool_calls"] = False
    return rendered


def _forced_tool(request: CompletionRequest, dialect: Dialect) -> dict[str, Any]:
    function: dict[str, Any] = {
        "name": FORCED_TOOL,
        "description": "Give the answer.",
        "parameters": embedded(request.output_schema_json, "output_schema_json"),
    }
    if dialect.strict:
        function["strict"] = True
    fields: dict[str, Any] = {
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": FORCED_TOOL}},
    }
    if dialect.parallel_switch:
        fields["parallel_tool_calls"] = False
    return fields


def _output(request: CompletionRequest, dialect: Dialect, *, forced: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if request.output_schema_json and not forced:
        schema: dict[str, Any] = {"name": SCHEMA_NAME, **({"strict": True} if dialect.strict else {})}
        schema["schema"] = embedded(request.output_schema_json, "output_schema_json")
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if request.reasoning_effort is not None:
        place = fields
        *outer, name = dialect.effort_field.split(".")
        for step in outer:
            place = place.setdefault(step, {})
        place[name] = request.reasoning_effort.value
    return fields


def _sampling(request: CompletionRequest, dialect: Dialect) -> dict[str, Any]:
    told = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        dialect.seed_field: request.seed,
        "stop": list(request.stop_sequences) or None,
    }
    return {name: value for name, value in told.items() if value is not None}
