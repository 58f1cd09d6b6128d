"""From a play and a request to what happens on the wire: real provider bytes, pauses, and an end. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.outcomes import Stage

from .anthropic_wire import AnthropicFace
from .ask import read_ask
from .bedrock_wire import BedrockFace
from .chat_completions_wire import ChatCompletionsFace
from .gemini_wire import GeminiFace
from .openai_responses_wire import OpenAIResponsesFace
from .reply import Reply, compose, reply_key
from .script import Play, PlayEnd, Script, Wire

if TYPE_CHECKING:
    from .wire import WireFace

Step = bytes | float
"""Body bytes of one read, or seconds of silence."""

FACES: dict[Wire, WireFace] = {
    Wire.ANTHROPIC: AnthropicFace(),
    Wire.BEDROCK: BedrockFace(),
    Wire.CHAT_COMPLETIONS: ChatCompletionsFace(),
    Wire.GEMINI: GeminiFace(),
    Wire.OPENAI_RESPONSES: OpenAIResponsesFace(),
}


class Rendition(msgspec.Struct, frozen=True, kw_only=True):
    """All that happens after a request, in order."""

    stops_at: Stage | None
    """No head comes: the exchange ends at this stage."""
    delay: float
    """Seconds before the first byte, or before the end when there is none."""
    status: int
    headers: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]
    end: PlayEnd


def render(script: Script, play: Play, body: bytes, target: str = "") -> Rendition:
    """Return what the provider does with the request that has this body and this path."""
    face = FACES[script.wire]
    ask = read_ask(script.wire, body, target)
    reply = compose(play, ask, reply_key(script.name, body))
    parts, content_type = _body(face, play, reply, is_stream=ask.stream)
    id_header = {face.request_id_header: f"req_{reply.key}"} if face.request_id_header else {}
    told = {"content-type": content_type, **id_header, **dict(play.headers)}
    return Rendition(
        stops_at=play.stops_at,
        delay=play.delay,
        status=play.status,
        headers=tuple(told.items()),
        steps=_paced(parts, play.pause),
        end=play.end,
    )


def _body(face: WireFace, play: Play, reply: Reply, *, is_stream: bool) -> tuple[list[bytes], str]:
    if play.body is not None:
        return [play.body.encode()], "text/plain; charset=utf-8"
    if not 200 <= play.status < 300:
        return [face.error_document(play.error, reply)] if play.error else [], "application/json"
    if is_stream:
        return _stream(face, play, reply), face.stream_type
    return _document(face, play, reply), "application/json"


def _stream(face: WireFace, play: Play, reply: Reply) -> list[bytes]:
    events = face.events(reply)
    if play.error is not None:
        kept = events[: play.error.after]
        return kept + face.error_events(play.error, reply, len(kept))
    # A slice to 0 cuts everything, one to `None` nothing.
    return events[: play.cut_after]


def _document(face: WireFace, play: Play, reply: Reply) -> list[bytes]:
    """Return the one JSON body. It is cut where the events would have been, in proportion."""
    if play.error is not None:
        return [face.error_document(play.error, reply)]
    document = face.document(reply)
    if play.cut_after is None:
        return [document]
    events = face.events(reply)
    kept = len(events[: play.cut_after])
    return [document[: len(document) * kept // len(events)]] if kept else []


def _paced(parts: list[bytes], pause: float) -> tuple[Step, ...]:
    """Put a pause between every two parts; without pauses they are one read, as small answers are."""
    if not pause:
        parts = [b"".join(parts)] if parts else []
    steps: list[Step] = []
    for part in parts:
        steps += [pause, part]
    return tuple(steps[1:])
