"""From a request to the body of `generateContent` and `streamGenerateContent`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from modelmeter_server.core.capability_checks import capability_violations
from modelmeter_server.core.continuations import message_answers, native_answers
from modelmeter_server.core.errors import FieldViolation
from modelmeter_server.core.requests import (
    FORCED_TOOL,
    SchemaMode,
    ToolMode,
)
from modelmeter_server.drivers.driver import PreparedRequest, RequestRefused
from modelmeter_server.drivers.json_body import (
    embedded,
    finished,
    is_object_schema,
    native_prompt,
    parameters,
    place_of_state,
)

from .address import target
from .capabilities import CAPABILITIES
from .contents import Contents

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.requests import CompletionRequest, ToolChoice

MAX_STOP_SEQUENCES: Final = 5
"""As the API documents it."""

_MAX_TEMPERATURE: Final = 2.0
_INT32: Final = range(-(2**31), 2**31)
_MODES: Final = {
    ToolMode.AUTO: "AUTO",
    ToolMode.NONE: "NONE",
    ToolMode.REQUIRED: "ANY",
    ToolMode.NAMED: "ANY",
}


def encode(request: CompletionRequest, model: ModelSpec) -> PreparedRequest:
    """Turn a checked request into the provider's. Raises RequestRefused for what this provider cannot do."""
    mode = request.schema_mode or model.schema_mode
    forced = bool(request.output_schema_json) and mode is SchemaMode.FORCED_TOOL
    mistakes = [*capability_violations(request, CAPABILITIES, mode), *_impossible(request, forced=forced)]
    if mistakes:
        raise RequestRefused(*mistakes)
    body = _prompt(request, model)
    body.update(_forced_tool(request) if forced else _tools(request))
    body["generationConfig"] = _generation(request, model, forced=forced)
    if model.service_tier is not None:
        body["serviceTier"] = model.service_tier
    return PreparedRequest(
        target=target(model.provider_model, buffered=model.buffered),
        body=finished(body, request, model, turns="contents"),
    )


def _impossible(request: CompletionRequest, *, forced: bool) -> Iterator[FieldViolation]:
    if forced and not is_object_schema(request.output_schema_json):
        fix = 'in FORCED_TOOL mode the root must have "type": "object", for the answer is the arguments of a tool'
        yield FieldViolation("output_schema_json", fix)
    if request.tool_choice is not None and request.tool_choice.disable_parallel_calls:
        fix = "this provider cannot be kept from calling tools in parallel: leave it out"
        yield FieldViolation("tool_choice.disable_parallel_calls", fix)
    if request.temperature is not None and request.temperature > _MAX_TEMPERATURE:
        yield FieldViolation("temperature", "this provider takes 0 to 2")
    for name in ("top_k", "seed"):
        value = getattr(request, name)
        if value is not None and value not in _INT32:
            yield FieldViolation(name, "this provider takes numbers of 32 bits")
    if len(request.stop_sequences) > MAX_STOP_SEQUENCES:
        yield FieldViolation("stop_sequences", f"this provider takes at most {MAX_STOP_SEQUENCES}")


# The prompt


def _prompt(request: CompletionRequest, model: ModelSpec) -> dict[str, Any]:
    system: Any = [{"text": request.system}] if request.system else None
    contents = Contents()
    state = None if request.continuation is None else contents.state(request.continuation, "continuation")
    if request.native_json is not None:
        prompt = native_prompt(request, model)
        groups: list[list[Any]] = [[turn] for turn in prompt.turns_json]
        place = _place(state, native_answers(prompt.turns))
        if prompt.system:
            system = [{"text": prompt.system}] if isinstance(prompt.system, str) else prompt.system_json
    elif request.messages is not None:
        place = _place(state, message_answers(request.messages))
        groups = []
        for index, message in enumerate(request.messages):
            if state is not None and index == place:
                contents.remember(state.values)
            groups.append(contents.turns(message, index))
    else:
        groups, place = [[{"role": "user", "parts": [{"text": request.text or ""}]}]], _place(state, [])
    if state is not None:
        groups.insert(place, state.turns)
    fields = {"systemInstruction": {"parts": system}} if system else {}
    return {**fields, "contents": [turn for group in groups for turn in group]}


def _place(state: Any, answered: list[frozenset[str]]) -> int:
    return 0 if state is None else place_of_state(state.values, answered)


# Tools and output


def _tools(request: CompletionRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    declarations = [
        {
            "name": tool.name,
            **({"description": tool.description} if tool.description else {}),
            **({"parametersJsonSchema": parameters(tool, index)} if tool.parameters_json else {}),
        }
        for index, tool in enumerate(request.tools)
    ]
    choice = _choice(request.tool_choice, strict=any(tool.strict for tool in request.tools))
    return {
        "tools": [{"functionDeclarations": declarations}],
        **({"toolConfig": {"functionCallingConfig": choice}} if choice else {}),
    }


def _choice(choice: ToolChoice | None, *, strict: bool) -> dict[str, Any]:
    """Render a choice. Strictness has no mark of its own for each tool: VALIDATED holds all calls to their schemas,
    and so does ANY by itself."""
    mode = choice.mode if choice is not None else ToolMode.AUTO
    if mode is ToolMode.AUTO:
        return {"mode": "VALIDATED"} if strict else {"mode": "AUTO"} if choice is not None else {}
    named = {"allowedFunctionNames": [choice.name]} if choice is not None and mode is ToolMode.NAMED else {}
    return {"mode": _MODES[mode], **named}


def _forced_tool(request: CompletionRequest) -> dict[str, Any]:
    tool = {
        "name": FORCED_TOOL,
        "description": "Give the answer.",
        "parametersJsonSchema": embedded(request.output_schema_json, "output_schema_json"),
    }
    choice = {"mode": "ANY", "allowedFunctionNames": [FORCED_TOOL]}
    return {
        "tools": [{"functionDeclarations": [tool]}],
        "toolConfig": {"functionCallingConfig": choice},
    }


def _generation(request: CompletionRequest, model: ModelSpec, *, forced: bool) -> dict[str, Any]:
    limit = model.max_output_tokens if request.max_output_tokens is None else request.max_output_tokens
    config: dict[str, Any] = {"maxOutputTokens": limit}
    for name, field in (
        ("temperature", "temperature"),
        ("topP", "top_p"),
        ("topK", "top_k"),
        ("seed", "seed"),
    ):
        value = getattr(request, field)
        if value is not None:
            config[name] = value
    if request.stop_sequences:
        config["stopSequences"] = request.stop_sequences
    if request.reasoning_effort is not None:
        config["thinkingConfig"] = {"thinkingLevel": request.reasoning_effort.value.upper()}
    if request.output_schema_json and not forced:
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = embedded(request.output_schema_json, "output_schema_json")
    return config
