"""The JSON document that goes to a provider: caller JSON embedded as it was written, options beside what is owned.

Key order steers generation and prompt caches, and integers must stay integers: caller JSON is read once to judge it
and then embedded as text. Nothing that is not JSON is ever embedded.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from modelmeter_server.core.caller_json import CallerJson, field_path, read_caller_json, remembering
from modelmeter_server.core.continuations import results_start, state_calls
from modelmeter_server.core.errors import FieldViolation
from modelmeter_server.core.json_text import NotJson, dumps_compact, loads_strict
from modelmeter_server.core.native_prompt import (
    NativePrompt,
    NotAPrompt,
    instruction_violations,
    media_violations,
    read_native_prompt,
)
from modelmeter_server.core.provider_options import FIELD as OPTIONS
from modelmeter_server.core.requests import Continuation

from .driver import BodyRefused, RequestRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.requests import CompletionRequest, Part, Tool, ToolResultPart

NO_PARAMETERS: Final = '{"type":"object","properties":{}}'
"""The schema of a tool that takes nothing."""

_DATA_URL: Final = re.compile(r"data:([^;,]+)(?:;[^;,]*)*?;base64,([A-Za-z0-9+/]+={0,2})", re.IGNORECASE)
# Lists of the body that options add to; every other value of the body stands.
_GROWING: Final = frozenset(("include", "tools"))
_FAILED: Final = "The tool failed"


def refused(field: str, description: str) -> RequestRefused:
    """Return the refusal of one field."""
    return RequestRefused(FieldViolation(field, description))


def embedded(text: str, field: str) -> msgspec.Raw:
    """Return caller JSON to be embedded as it stands. Raises RequestRefused for text that is not JSON."""
    try:
        return msgspec.Raw(_fit(text))
    except NotJson as error:
        raise refused(field, f"must be JSON: {error}") from None


def embedded_arguments(text: str, field: str) -> msgspec.Raw:
    """Return the arguments of a tool call, an object, as the model wrote them. Raises RequestRefused.

    Of a name that the model told twice the last value is kept, as every common parser does.
    """
    try:
        value = loads_strict(text)
    except NotJson as error:
        raise refused(field, f"must be JSON: {error}") from None
    if not isinstance(value, dict):
        raise refused(field, "must be a JSON object: this provider takes no other arguments")
    try:
        return msgspec.Raw(read_caller_json(text).text.encode())
    except NotJson:
        return msgspec.Raw(dumps_compact(value).encode())


def parameters(tool: Tool, index: int) -> msgspec.Raw:
    """Return the schema of a tool's arguments."""
    return embedded(tool.parameters_json or NO_PARAMETERS, f"tools[{index}].parameters_json")


def is_object_schema(text: str) -> bool:
    """Tell whether a schema can be that of a tool's arguments; of text that is not JSON, embedding it tells more."""
    try:
        schema = loads_strict(text)
    except NotJson:
        return True
    return isinstance(schema, dict) and schema.get("type") == "object"


def native_prompt(request: CompletionRequest, model: ModelSpec) -> NativePrompt:
    """Return the native prompt of a request; `finished` judges what stands in it. Raises RequestRefused."""
    try:
        prompt = read_native_prompt(request.native_json or "", model.provider_kind)
    except NotAPrompt as error:
        msg = "native_json"
        raise refused(msg, str(error)) from None
    if prompt.system and request.system:
        msg = "native_json.system"
        raise refused(msg, "instructions have one place: use this or the request's `system`, not both")
    return prompt


def sole_continuation(parts: Sequence[Part], where: str) -> Continuation:
    """Return the continuation of a message that has one. Raises RequestRefused when there is more in the message."""
    if len(parts) != 1 or not isinstance(parts[0], Continuation):
        raise refused(where, "a continuation stands for its whole turn: leave it alone in its message")
    return parts[0]


def state_turns(continuation: Continuation, field: str) -> tuple[list[Any], list[msgspec.Raw]]:
    """Return a continuation's turns, as values and as the text to be embedded. Raises RequestRefused."""
    path = f"{field}.state_json"
    document = _read(continuation.state_json, path)
    if not isinstance(document.value, list):
        raise refused(path, "must be the array of turns that the answer carried, untouched")
    return document.value, msgspec.json.decode(document.text, type=list[msgspec.Raw])


def place_of_state(state: list[Any], answered: Sequence[frozenset[str]]) -> int:
    """Return the index of the turn that a continuation beside the prompt goes before. Raises RequestRefused."""
    start = results_start(answered, state_calls(state))
    if start is None:
        fix = "goes before the tool results that answer its calls: end the prompt with these results"
        msg = "continuation"
        raise refused(msg, fix)
    return start


def result_text(part: ToolResultPart) -> str:
    """Return a tool's output for an API that has no mark for a failed call: the text has to say it."""
    return ": ".join(filter(None, (_FAILED, part.output))) if part.failed else part.output


def base64_text(data: bytes) -> str:
    """Return inline bytes as providers take them."""
    return base64.b64encode(data).decode()


def split_data_url(url: str) -> tuple[str, str] | None:
    """Return the media type and the base64 text of a `data:` URL; `None` if it is not base64."""
    match = _DATA_URL.fullmatch(url)
    return (match[1], match[2]) if match else None


def finished(
    body: dict[str, Any],
    request: CompletionRequest,
    model: ModelSpec,
    *,
    turns: str,
    leading: int = 0,
    tools_in: str = "",
) -> bytes:
    """Add the provider options, encode, and look once more at what leaves.

    `turns` names the list of turns; `leading` of them are the request's own instructions, which that format keeps
    there. `tools_in` names the member that holds the tools, where the body itself does not.

    Raises RequestRefused if an option would override what the request or the service set, and BodyRefused if the
    finished body instructs from within the thread or makes the provider fetch media.
    """
    if request.provider_options_json:
        options = _read(request.provider_options_json, OPTIONS)
        if not isinstance(options.value, dict):
            raise refused(OPTIONS, "must be a JSON object")
        members = _members(options.text)
        if tools_in and "tools" in members:
            _merge(body.setdefault(tools_in, {}), {"tools": members.pop("tools")}, OPTIONS)
        _merge(body, members, OPTIONS)
    encoded = msgspec.json.encode(body)
    mistakes = _second_look(encoded, model, turns, leading)
    if mistakes:
        raise BodyRefused(*mistakes)
    return encoded


def _merge(body: dict[str, Any], options: dict[str, msgspec.Raw], path: str) -> None:
    for name, value in options.items():
        where = field_path(path, name)
        own = body.get(name)
        begins = bytes(value)[:1]
        if name not in body:
            body[name] = value
        elif isinstance(own, dict) and begins == b"{":
            _merge(own, _members(value), where)
        elif isinstance(own, list) and begins == b"[" and name in _GROWING and path == OPTIONS:
            own += _new_items(own, value)
        else:
            raise refused(where, "is reserved: the request or the service sets it")


def _new_items(own: list[Any], value: msgspec.Raw) -> list[msgspec.Raw]:
    """Return the items that do not stand already: the API takes each name once."""
    names = {item for item in own if isinstance(item, str)}
    return [
        item
        for item in msgspec.json.decode(value, type=list[msgspec.Raw])
        if bytes(item)[:1] != b'"' or msgspec.json.decode(item) not in names
    ]


def _members(text: str | msgspec.Raw) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(text, type=dict[str, msgspec.Raw])


def _second_look(encoded: bytes, model: ModelSpec, turns: str, leading: int) -> list[FieldViolation]:
    try:
        body = msgspec.json.decode(encoded)
    except msgspec.MsgspecError:
        body = json.loads(encoded)  # numbers of many digits, which msgspec does not take
    listed = body.get(turns)
    mistakes = list(instruction_violations(listed[leading:] if isinstance(listed, list) else [], turns))
    if not model.allow_remote_media:
        for name, value in body.items():
            mistakes += media_violations(value, name)
    return mistakes


@remembering
def _fit(text: str) -> bytes:
    return read_caller_json(text).text.encode()


def _read(text: str, field: str) -> CallerJson:
    try:
        return read_caller_json(text)
    except NotJson as error:
        raise refused(field, f"must be JSON: {error}") from None
