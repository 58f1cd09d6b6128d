"""What a wire format has to offer to be played: its events, its one document, its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from modelmeter_server.core.json_text import NotJson, loads_strict

if TYPE_CHECKING:
    from .reply import Reply
    from .script import ScriptedError

DECOY_TOKENS = 1
"""Output that is told before there is any, as providers do: a figure that must not be taken for the bill."""


SSE = "text/event-stream; charset=utf-8"


class WireFace(Protocol):
    """One provider's way of saying things."""

    request_id_header: str
    """Empty if the provider tells none."""
    stream_type: str
    """Content type of a stream."""

    def events(self, reply: Reply) -> list[bytes]:
        """Return the events of a whole answer, each with all that ends it."""

    def document(self, reply: Reply) -> bytes:
        """Return the same answer as one JSON body."""

    def error_events(self, error: ScriptedError, reply: Reply, position: int) -> list[bytes]:
        """Return how a stream reports an error after `position` events of the answer."""

    def error_document(self, error: ScriptedError, reply: Reply) -> bytes:
        """Return the body that reports an error instead of an answer."""


_encode = msgspec.json.Encoder().encode


def event(data: dict[str, Any]) -> bytes:
    """Return one server-sent event, named by the `type` of its data."""
    return b"event: %b\ndata: %b\n\n" % (data["type"].encode(), _encode(data))


def arguments_value(arguments: str) -> Any:
    """Return arguments as a document holds them: a value. What is not JSON has no place there but as a string."""
    try:
        return loads_strict(arguments) if arguments else {}
    except NotJson:
        return arguments
