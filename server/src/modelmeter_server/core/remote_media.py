"""Media that a provider would fetch by itself: found in any wire format, at any depth.

A URL that the provider fetches leaves the deployment's egress rules behind and makes an answer depend on somebody
else's server. Plain text that mentions a URL is nothing of the kind, and neither are `data:` URLs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .caller_json import field_path

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FOUND: Final = 100
"""Places that are told: in a deep document a path is long, and nobody reads a thousand."""

# Of OpenAI, and of the servers that speak its formats: Mistral fetches documents, vLLM sound and films.
_OPENAI_URLS: Final = ("image_url", "file_url", "document_url", "audio_url", "video_url")
# Bytes by their name, and yet OpenRouter and Mistral take a URL there.
_OPENAI_BYTES: Final = ("file_data", "input_audio")
_GEMINI_URIS: Final = ("fileUri", "file_uri")
_BEDROCK_PLACES: Final = ("s3Location", "s3_location")
_TELLING: Final = frozenset((*_OPENAI_URLS, *_OPENAI_BYTES, *_GEMINI_URIS, *_BEDROCK_PLACES, "source"))

# Data of tools and callers, which no provider reads as content: a tool that takes an `image_url` is nobody's fetch.
_OPAQUE: Final = frozenset(
    (
        "arguments",
        "args",
        "input_schema",
        "inputSchema",
        "metadata",
        "parameters",
        "schema",
        "parametersJsonSchema",
    )
)
_TOOL_USES: Final = frozenset(("tool_use", "server_tool_use", "mcp_tool_use"))

_Place = tuple["_Place | None", str | int]
"""A step and the place that it starts from; `None` is the root."""


def is_data_url(url: str) -> bool:
    """Tell whether the URL carries its bytes itself, so that nothing is fetched."""
    return url[:5].lower() == "data:"


def remote_media(value: object, path: str) -> list[str]:
    """Return the paths of the media in a JSON value that the provider would fetch, in the order of the text.

    Stops looking once it has found `MAX_FOUND`.
    """
    found: list[str] = []
    waiting: list[tuple[object, _Place | None]] = [(value, None)]
    while waiting and len(found) < MAX_FOUND:
        node, place = waiting.pop()
        if isinstance(node, dict):
            if not node.keys().isdisjoint(_TELLING):
                found += [f"{_path(path, place)}.{inner}" for inner in _own(node)]
            inside = [(member, (place, name)) for name, member in node.items() if _may_hold(member)]
            waiting += [each for each in reversed(inside) if not _is_opaque(node, each[1][1])]
        elif isinstance(node, list):
            inside = [(item, (place, index)) for index, item in enumerate(node) if _may_hold(item)]
            waiting += reversed(inside)
    return found


def _may_hold(value: object) -> bool:
    return isinstance(value, dict | list) and bool(value)


def _path(path: str, place: _Place | None) -> str:
    """Spell a place; done for what is found only, because a prompt has thousands of places."""
    steps = []
    while place is not None:
        place, step = place
        steps.append(step)
    for step in reversed(steps):
        path = field_path(path, step)
    return path


def _own(block: dict[str, object]) -> Iterator[str]:
    for name in _OPENAI_URLS:
        url = block.get(name)
        if isinstance(url, dict):
            if _is_remote(url.get("url")):
                yield f"{name}.url"
        elif _is_remote(url):
            yield name
    for name in _OPENAI_BYTES:
        value = block.get(name)
        if isinstance(value, str) and value.lstrip()[:8].lower().startswith(("http:", "https:")):
            yield name
    for name in _GEMINI_URIS:
        if _is_remote(block.get(name)):
            yield name
    for name in _BEDROCK_PLACES:
        if isinstance(block.get(name), dict):
            yield name
    source = block.get("source")
    if isinstance(source, dict) and str(source.get("type")).lower() == "url":
        url = source.get("url")
        if not (isinstance(url, str) and is_data_url(url)):
            yield "source.url"


def _is_remote(url: object) -> bool:
    return isinstance(url, str) and not is_data_url(url)


def _is_opaque(block: dict[str, object], name: str | int) -> bool:
    if name == "input":
        return block.get("type") in _TOOL_USES or "toolUseId" in block
    if name == "response":  # of a Gemini functionResponse
        return "name" in block
    return name in _OPAQUE
