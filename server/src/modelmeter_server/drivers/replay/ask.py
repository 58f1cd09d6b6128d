"""What a request asks for, read back from the body that would have gone to the provider.

The embedded provider knows no more than a real one: it reads the document, in the wire format of its script.
"""

from __future__ import annotations

from typing import Any

import msgspec

from modelmeter_server.core.json_text import loads_lenient
from modelmeter_server.core.requests import FORCED_TOOL
from modelmeter_server.core.text import well_formed

from .script import Wire

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


class _Names(msgspec.Struct, frozen=True, kw_only=True):
    """What one wire calls the members of its request."""

    system: str
    turns: str
    limit: str
    format: str
    parameters: str


_NAMES = {
    Wire.ANTHROPIC: _Names(
        system="system",
        turns="messages",
        limit="max_tokens",
        format="output_config",
        parameters="input_schema",
    ),
    Wire.OPENAI_RESPONSES: _Names(
        system="instructions",
        turns="input",
        limit="max_output_tokens",
        format="text",
        parameters="parameters",
    ),
}

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_ask(wire: Wire, body: bytes) -> Ask:
    """Read a request that this service encoded for that wire."""
    names = _NAMES[wire]
    # Turns in the provider's own format go through unread, and may hold what a strict reader refuses.
    document = loads_lenient(body)
    assert isinstance(document, dict)
    tools = [
        AskedTool(tool["name"], tool[names.parameters])
        for tool in document.get("tools") or ()
        # The provider's own tools have no parameters for anyone to fill in.
        if _object(tool).get("name") and names.parameters in tool
    ]
    demanded = _demanded(document.get("tool_choice"))
    forced = next((tool for tool in tools if tool.name == FORCED_TOOL == demanded), None)
    format = _object(_object(document.get(names.format)).get("format"))
    return Ask(
        size=_size(body, (names.system, names.turns, names.format, "tools")),
        model=str(document.get("model") or ""),
        excerpt=_excerpt(document.get(names.turns)),
        tools=tuple(tool for tool in tools if tool is not forced),
        demanded=None if forced else demanded,
        schema=forced.parameters if forced else format.get("schema"),
        is_forced=forced is not None,
        max_tokens=document.get(names.limit),
        stream=bool(document.get("stream")),
    )


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
    content = turn.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return " ".join(text for text in texts if isinstance(text, str)).strip()
