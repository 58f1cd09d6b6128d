"""What a request asks for, read back from the body that would have gone to the provider.

The embedded provider knows no more than a real one: it reads the document, in the wire format of its script.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from modelmeter_server.core.json_text import loads_lenient
from modelmeter_server.core.requests import FORCED_TOOL
from modelmeter_server.core.text import well_formed

from .script import Wire

if TYPE_CHECKING:
    from collections.abc import Callable

EXCERPT_CHARACTERS = 60
"""How much of the prompt an answer repeats."""


class AskedTool(msgspec.Struct, frozen=True):
    """A tool that the model may call."""

    name: str
    parameters: Any
    """JSON Schema of its arguments."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request, as far as an answer depends on it."""

    size: int
    """Bytes of the prompt: system text, turns, tools and schema as the document has them."""
    model: str
    excerpt: str
    """The start of the user's last words, on one line."""
    tools: tuple[AskedTool, ...] = ()
    """The caller's own; the forced tool is not among them."""
    demanded: str | None = None
    """Name of the tool that must be called; empty for any."""
    schema: Any = None
    """What the answer must satisfy; `None` for free text."""
    is_forced: bool = False
    """The schema stands on the forced tool, whose arguments are the answer."""
    max_tokens: int | None = None
    stream: bool = False

    def tool(self, name: str | None) -> AskedTool | None:
        """Return the tool of this name; without a name the demanded one, else the first."""
        name = name or self.demanded
        return next((tool for tool in self.tools if not name or tool.name == name), None)


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What one wire's document says, in the words of none."""

    tools: list[AskedTool]
    demanded: str | None
    schema: Any
    limit: Any
    turns: Any
    prompt: tuple[str, ...]
    """Members that a model has to read."""


_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
# The model and the operation, of Gemini and of Bedrock.
_TARGET = re.compile(r"/([^/:?]+)(?::(\w+)|/(converse(?:-stream)?))(?:\?.*)?$")
_STREAMING = ("streamGenerateContent", "converse-stream")


def read_ask(wire: Wire, body: bytes, target: str = "") -> Ask:
    """Read a request that this service encoded for that wire; some wires say the model in the path."""
    # Turns in the provider's own format go through unread, and may hold what a strict reader refuses.
    document = loads_lenient(body)
    assert isinstance(document, dict)
    asked = _READERS[wire](document)
    forced = next((tool for tool in asked.tools if tool.name == FORCED_TOOL == asked.demanded), None)
    named = _TARGET.search(target)
    return Ask(
        size=_size(body, asked.prompt),
        model=unquote(named[1]) if named else str(document.get("model") or ""),
        excerpt=_excerpt(asked.turns),
        tools=tuple(tool for tool in asked.tools if tool is not forced),
        demanded=None if forced else asked.demanded,
        schema=forced.parameters if forced else asked.schema,
        is_forced=forced is not None,
        max_tokens=asked.limit if isinstance(asked.limit, int) else None,
        stream=(named[2] or named[3]) in _STREAMING if named else bool(document.get("stream")),
    )


def _anthropic(document: dict[str, Any]) -> _Asked:
    return _Asked(
        tools=_tools(document.get("tools"), "input_schema"),
        demanded=_demanded(document.get("tool_choice")),
        schema=_inside(document, "output_config", "format", "schema"),
        limit=document.get("max_tokens"),
        turns=document.get("messages"),
        prompt=("system", "messages", "output_config", "tools"),
    )


def _openai_responses(document: dict[str, Any]) -> _Asked:
    return _Asked(
        tools=_tools(document.get("tools"), "parameters"),
        demanded=_demanded(document.get("tool_choice")),
        schema=_inside(document, "text", "format", "schema"),
        limit=document.get("max_output_tokens"),
        turns=document.get("input"),
        prompt=("instructions", "input", "text", "tools"),
    )


def _chat_completions(document: dict[str, Any]) -> _Asked:
    choice = document.get("tool_choice")
    return _Asked(
        tools=_tools([_object(tool).get("function") for tool in _items(document.get("tools"))], "parameters"),
        demanded=_demanded(_object(choice).get("function") or choice),
        schema=_inside(document, "response_format", "json_schema", "schema"),
        limit=document.get("max_completion_tokens"),
        turns=document.get("messages"),
        prompt=("messages", "response_format", "tools"),
    )


def _gemini(document: dict[str, Any]) -> _Asked:
    declared = [
        each
        for tool in _items(document.get("tools"))
        for each in _items(_object(tool).get("functionDeclarations"))
    ]
    choice = _object(_inside(document, "toolConfig", "functionCallingConfig"))
    allowed = _items(choice.get("allowedFunctionNames"))
    return _Asked(
        # A declaration without parameters takes none.
        tools=_tools(
            [{"parametersJsonSchema": {}, **_object(each)} for each in declared], "parametersJsonSchema"
        ),
        demanded=_demanded({"name": allowed[0] if allowed else ""}) if choice.get("mode") == "ANY" else None,
        schema=_inside(document, "generationConfig", "responseJsonSchema"),
        limit=_inside(document, "generationConfig", "maxOutputTokens"),
        turns=document.get("contents"),
        prompt=("systemInstruction", "contents", "generationConfig", "tools"),
    )


def _bedrock(document: dict[str, Any]) -> _Asked:
    config = _object(document.get("toolConfig"))
    specs = [_object(_object(tool).get("toolSpec")) for tool in _items(config.get("tools"))]
    choice = _object(config.get("toolChoice"))
    schema = _inside(document, "outputConfig", "textFormat", "structure", "jsonSchema", "schema")
    return _Asked(
        tools=_tools([{**spec, "json": _inside(spec, "inputSchema", "json")} for spec in specs], "json"),
        demanded="" if "any" in choice else _demanded(choice.get("tool")),
        schema=loads_lenient(schema.encode()) if isinstance(schema, str) else None,
        limit=_inside(document, "inferenceConfig", "maxTokens"),
        turns=document.get("messages"),
        prompt=("system", "messages", "outputConfig", "toolConfig"),
    )


_READERS: dict[Wire, Callable[[dict[str, Any]], _Asked]] = {
    Wire.ANTHROPIC: _anthropic,
    Wire.BEDROCK: _bedrock,
    Wire.CHAT_COMPLETIONS: _chat_completions,
    Wire.GEMINI: _gemini,
    Wire.OPENAI_RESPONSES: _openai_responses,
}


def _tools(tools: Any, parameters: str) -> list[AskedTool]:
    """Return the caller's tools: the provider's own have no parameters for anyone to fill in."""
    return [
        AskedTool(tool["name"], tool[parameters])
        for tool in _items(tools)
        if _object(tool).get("name") and parameters in tool
    ]


def _inside(document: dict[str, Any], *names: str) -> Any:
    value: Any = document
    for name in names:
        value = _object(value).get(name)
    return value


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _object(value: Any) -> dict[str, Any]:
    """Return an object; provider options may have put anything else in its place."""
    return value if isinstance(value, dict) else {}


def _size(body: bytes, names: tuple[str, ...]) -> int:
    """Return the bytes of these members: what a model would have to read."""
    try:
        members = _members.decode(body)
    except msgspec.DecodeError:
        return len(body)
    return sum(len(memoryview(members[name])) for name in names if name in members)


def _demanded(choice: Any) -> str | None:
    """Return the name of the tool that must be called, empty for any, `None` if none must be."""
    if choice == "required":
        return ""
    if not isinstance(choice, dict):
        return None
    if choice.get("type") == "any":
        return ""
    name = choice.get("name")
    return name if isinstance(name, str) else None


def _excerpt(turns: Any) -> str:
    last = next((text for turn in reversed(_list(turns)) if (text := _user_text(turn))), "")
    words = well_formed(" ".join(last[: 4 * EXCERPT_CHARACTERS].split()))
    return words if len(words) <= EXCERPT_CHARACTERS else words[: EXCERPT_CHARACTERS - 1].rstrip() + "…"


def _list(turns: Any) -> list[Any]:
    return turns if isinstance(turns, list) else [{"role": "user", "content": turns}]


def _user_text(turn: Any) -> str:
    if not isinstance(turn, dict) or turn.get("role") != "user":
        return ""
    content = turn.get("content", turn.get("parts"))
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return " ".join(text for text in texts if isinstance(text, str)).strip()
