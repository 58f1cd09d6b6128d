"""Which keys of `provider_options_json` pass through, and which belong to the request or to the service.

A reserved key is refused in every spelling, for providers and proxies take more than one: `max_tokens`,
`maxOutputTokens` and `max_completion_tokens` are one thing. Unknown keys pass through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from .caller_json import field_path, read_caller_json
from .errors import FieldViolation
from .hosted_options import key_violations, tool_violations
from .json_text import NotJson
from .native_prompt import media_violations
from .requests import CompletionRequest, SchemaMode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .models import ModelSpec

FIELD: Final = "provider_options_json"

_MODEL = "the request's `model` names the model"
_PROMPT = "the prompt stands in `text`, `messages` or `native_json`"
_SYSTEM = "instructions stand in the request's `system`"
_TOOLS = "the request's `tools` declare tools"
_CHOICE = "the request's `tool_choice` says this"
_LIMIT = "the request's `max_output_tokens` limits the output"
_EFFORT = "the request's `reasoning_effort` says this"
_SCHEMA = "the request's `output_schema_json` says this"
_ONE = "a call has one answer"
_TRANSPORT = "the service decides how the answer travels"
_STORE = "the service keeps nothing at the provider"
_TIER = "the deployment decides the service tier, because it changes the price"
_PLACE = "the deployment decides where the model runs, because it changes the price"
_STATE = "state stands in the request's `continuation`, never at the provider"
_SAMPLING = "the request has a field of its own for this"
_MEDIA = "answers hold text and tool calls only"

# Names without case, `_` and `-`, see `_normal`.
_RESERVED: Final = {
    **dict.fromkeys(("model", "models", "fallbacks"), _MODEL),
    **dict.fromkeys(("prompt", "messages", "input", "contents"), _PROMPT),
    **dict.fromkeys(("system", "systeminstruction", "instructions"), _SYSTEM),
    **dict.fromkeys(("functions", "toolspecs"), _TOOLS),
    **dict.fromkeys(("toolchoice", "toolconfig", "functioncall", "paralleltoolcalls"), _CHOICE),
    **dict.fromkeys(
        (
            "maxtokens",
            "maxoutputtokens",
            "maxcompletiontokens",
            "maxnewtokens",
            "maxtokenstosample",
            "numpredict",
        ),
        _LIMIT,
    ),
    **dict.fromkeys(("temperature", "topp", "topk", "seed", "stop", "stopsequences"), _SAMPLING),
    "reasoningeffort": _EFFORT,
    **dict.fromkeys(
        (
            "responseformat",
            "responseschema",
            "responsejsonschema",
            "responsemimetype",
            "outputformat",
            "guidedjson",
        ),
        _SCHEMA,
    ),
    **dict.fromkeys(("n", "candidatecount", "bestof"), _ONE),
    **dict.fromkeys(("stream", "streamoptions", "background", "backgroundoptions"), _TRANSPORT),
    "audio": _MEDIA,
    "store": _STORE,
    **dict.fromkeys(("servicetier", "speed", "performanceconfig"), _TIER),
    "inferencegeo": _PLACE,
    **dict.fromkeys(("previousresponseid", "conversation", "thread", "continuationtoken"), _STATE),
}
_RESERVED_WITHIN: Final = {
    "text": {"format": _SCHEMA},
    "outputconfig": {"format": _SCHEMA, "textformat": _SCHEMA, "effort": _EFFORT},
    "reasoning": {"effort": _EFFORT},
    "thinkingconfig": {"thinkinglevel": _EFFORT},
}
# Objects whose members stand for members of the body, in one provider's format or another's.
_CARRIERS: Final = frozenset(
    ("generationconfig", "inferenceconfig", "additionalmodelrequestfields", "extrabody")
)
_TOOL_CONFIG: Final = frozenset(("includeserversidetoolinvocations", "retrievalconfig"))
"""Members of Gemini's `toolConfig` that are about its own tools, not about the choice among the request's."""

_OBJECTS: Final = frozenset(("text", "outputconfig", "reasoning", "thinking"))
_MODALITIES: Final = frozenset(("modalities", "responsemodalities"))


def option_violations(request: CompletionRequest, model: ModelSpec) -> Iterator[FieldViolation]:
    """Return every mistake in the provider options; a reserved key is named as `provider_options_json.<key>`."""
    try:
        options = read_caller_json(request.provider_options_json).value
    except NotJson as error:
        yield FieldViolation(FIELD, f"must be JSON: {error}")
        return
    if not isinstance(options, dict):
        yield FieldViolation(FIELD, "must be a JSON object")
        return
    yield from _reserved(options, FIELD, model)
    if request.reasoning_effort is not None:
        yield from _thinking(options)
    mode = request.schema_mode or model.schema_mode
    if "tools" in options and request.output_schema_json and mode is SchemaMode.FORCED_TOOL:
        yield FieldViolation(
            f"{FIELD}.tools", "not together with a schema in FORCED_TOOL mode: use NATIVE mode"
        )
    if not model.allow_remote_media:
        yield from media_violations(options, FIELD)


def _reserved(options: dict[str, object], path: str, model: ModelSpec) -> Iterator[FieldViolation]:
    for name, value in options.items():
        where = field_path(path, name)
        normal = _normal(name)
        if normal == "tools":
            yield from tool_violations(value, where, model)
        elif normal == "toolconfig" and model.provider_kind == "gemini" and isinstance(value, dict) and value:
            yield from _tool_config(value, where)
        elif normal in _RESERVED:
            yield FieldViolation(where, f"is reserved: {_RESERVED[normal]}")
        elif normal in _CARRIERS and isinstance(value, dict):
            yield from _reserved(value, where, model)
        elif normal in _MODALITIES and not _is_text_alone(value):
            yield FieldViolation(where, f"{_MEDIA}: ask for no other modality")
        elif normal in _OBJECTS and not isinstance(value, dict):
            yield FieldViolation(where, "must be a JSON object")
        elif normal == "include" and not _is_texts(value):
            yield FieldViolation(where, "must be an array of texts")
        elif normal in _RESERVED_WITHIN and isinstance(value, dict):
            yield from _reserved_within(value, where, _RESERVED_WITHIN[normal])
        else:
            yield from key_violations(normal, value, where, model)


def _tool_config(config: dict[str, object], path: str) -> Iterator[FieldViolation]:
    for name in config:
        if _normal(name) not in _TOOL_CONFIG:
            yield FieldViolation(field_path(path, name), f"is reserved: {_CHOICE}")


def _reserved_within(
    options: dict[str, object], path: str, reserved: dict[str, str]
) -> Iterator[FieldViolation]:
    for name in options:
        reason = reserved.get(_normal(name))
        if reason:
            yield FieldViolation(field_path(path, name), f"is reserved: {reason}")


def _thinking(options: dict[str, object]) -> Iterator[FieldViolation]:
    """An effort decides how the model thinks; what is left to say is how its thinking is shown."""
    thinking = options.get("thinking")
    for name in thinking if isinstance(thinking, dict) else ():
        if name != "display":
            yield FieldViolation(field_path(f"{FIELD}.thinking", name), f"is reserved: {_EFFORT}")
    for carrier, members in options.items():
        if _normal(carrier) == "generationconfig" and isinstance(members, dict):
            yield from _thinking_budget(members, field_path(FIELD, carrier))


def _thinking_budget(config: dict[str, object], path: str) -> Iterator[FieldViolation]:
    for name, members in config.items():
        if _normal(name) == "thinkingconfig" and isinstance(members, dict):
            where = field_path(path, name)
            yield from (
                FieldViolation(field_path(where, each), f"is reserved: {_EFFORT}")
                for each in members
                if _normal(each) == "thinkingbudget"
            )


def _is_text_alone(value: object) -> bool:
    return _is_texts(value) and all(each.lower() == "text" for each in cast("list[str]", value))


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _normal(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()
