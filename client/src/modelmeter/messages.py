"""What goes into a prompt: messages with typed parts, and tools. All values are immutable.

Plain text is a part as it stands: `Message.user("What is in this picture?", Image("image/png", data))`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from .enums import Role, ToolMode


@dataclass(frozen=True)
class _Media:
    media_type: str
    """IANA media type, such as `image/png` or `application/pdf`."""
    data: bytes | None = None
    """The bytes themselves."""
    url: str | None = None
    """In place of `data`: a URL that the provider would fetch. Refused unless the deployment allows it."""
    name: str = ""
    """File name shown to the model with a document; empty for none."""

    def __post_init__(self) -> None:
        if (self.data is None) == (self.url is None):
            message = f"{type(self).__name__} takes data or a url, exactly one of them"
            raise ValueError(message)


class Image(_Media):
    """An image; in user messages only. Raises ValueError unless exactly one of `data` and `url` is given."""


class Audio(_Media):
    """Audio; in user messages only. Raises ValueError unless exactly one of `data` and `url` is given."""


class Document(_Media):
    """A document, such as a PDF; in user messages only.

    Raises ValueError unless exactly one of `data` and `url` is given.
    """


@dataclass(frozen=True)
class CacheBreakpoint:
    """The end of a stretch of the prompt that the provider is to keep in its cache, from the prompt's beginning on.

    At most 4 in a request; refused where the provider cannot mark the place.
    """

    ttl: float | None = None
    """Seconds to keep it, one of the times that the provider offers. None: its default."""


@dataclass(frozen=True)
class ToolCall:
    """A call of one of the caller's tools, proposed by the model. Check the name against the tools offered."""

    id: str
    """The provider's id of the call, to be repeated in the result."""
    name: str
    """The tool's name, as the model wrote it."""
    arguments_json: str = ""
    """The arguments as JSON text, exactly as generated."""
    free_text: bool = False
    """True when the tool takes free text, so that `arguments_json` is not JSON."""

    @property
    def arguments(self) -> Any:
        """Return the arguments parsed, or the text itself for a tool that takes free text.

        Raises ValueError when the text is not JSON; a server of this contract reports such a call as an
        error instead of handing it out.
        """
        if self.free_text:
            return self.arguments_json
        return json.loads(self.arguments_json) if self.arguments_json else {}


@dataclass(frozen=True)
class ToolResult:
    """What a tool call gave; in user messages only."""

    call_id: str
    """`ToolCall.id` of the call that this answers."""
    output: str = ""
    """The result as text for the model; JSON is sent as it stands."""
    failed: bool = False
    """True when the tool failed; `output` then says how."""


@dataclass(frozen=True)
class Continuation:
    """A provider's own state for the next turn. Return it untouched, to the same kind of provider."""

    provider: str
    """The provider kind that issued it, such as `anthropic`. Another kind refuses it."""
    state_json: str
    """The state as JSON text."""
    target: str = ""
    """The provider instance that issued it, the only one that a model with targets sends it back to."""


@dataclass(frozen=True)
class Cached:
    """A part up to whose end the provider is to keep the prompt in its cache: `Cached("A long text")`."""

    part: str | Image | Audio | Document | ToolCall | ToolResult
    """What is said."""
    ttl: float | None = None
    """Seconds to keep it, one of the times that the provider offers. None: its default."""


Part: TypeAlias = str | Image | Audio | Document | ToolCall | ToolResult | Continuation | Cached
"""One piece of a message; a string is plain text."""


@dataclass(frozen=True)
class Message:
    """One turn of a conversation. Instructions do not stand here: they are the option `system`."""

    role: Role
    """Who speaks."""
    parts: tuple[Part, ...]
    """What is said, in order; at least one part."""

    @classmethod
    def user(cls, *parts: Part) -> Message:
        """Return a turn of the caller's side: text, media, tool results."""
        return cls(Role.USER, parts)

    @classmethod
    def assistant(cls, *parts: Part) -> Message:
        """Return a turn of the model's side: text, tool calls, continuations."""
        return cls(Role.ASSISTANT, parts)


@dataclass(frozen=True)
class Tool:
    """A tool that the model may call. The caller runs it."""

    name: str
    """Name, unique in the request: 1 to 64 characters of `A-Z a-z 0-9 _ -`."""
    description: str = ""
    """What the tool does, for the model."""
    parameters: Mapping[str, Any] | str | None = None
    """JSON Schema of the arguments, as a mapping or as JSON text; its key order is kept. None: no arguments."""
    strict: bool = False
    """Ask the provider to enforce the schema while it generates. Refused where the provider cannot."""
    cache_breakpoint: CacheBreakpoint | None = None
    """The provider is to keep the tools up to this one in its cache."""


@dataclass(frozen=True)
class ToolChoice:
    """Whether and which tool must be called."""

    mode: ToolMode | str = ToolMode.AUTO
    """How free the model is."""
    name: str = ""
    """The tool that must be called; with NAMED only."""
    disable_parallel_calls: bool = False
    """At most one call in the turn."""
