"""Scripts: what the embedded provider does when it is called, as values.

A script says nothing about bytes: `render` turns a play and a request into the bytes of the script's wire format.
"""

from __future__ import annotations

from enum import Enum, unique

import msgspec

from modelmeter_server.core.outcomes import Stage


@unique
class Wire(Enum):
    """Whose wire format a script is played in, and so which accumulator reads it."""

    ANTHROPIC = "anthropic"
    BEDROCK = "bedrock"
    CHAT_COMPLETIONS = "chat_completions"
    GEMINI = "gemini"
    OPENAI_RESPONSES = "openai_responses"


@unique
class PlayEnd(Enum):
    """What the connection does after the last scripted byte."""

    CLEAN = "clean"
    """The answer ends as HTTP says it should."""
    RESET = "reset"
    """The connection breaks."""
    STALL = "stall"
    """Nothing more comes; a timeout or the caller ends the call."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The usage that a play tells, in tokens; `None` is worked out from the sizes of request and answer."""

    input: int | None = None
    """Everything processed, cached tokens included."""
    output: int | None = None
    """Everything generated, reasoning included."""
    cache_read: int = 0
    """Part of the input."""
    cache_write: int = 0
    """Part of the input."""
    reasoning: int | None = None
    """Part of the output."""
    final: bool = True
    """Told again with the stop reason. Otherwise only before: a lower bound (Anthropic and Gemini)."""


class ScriptedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that the model makes."""

    name: str | None = None
    """`None`: the tool that the request demands, else its first; without any tool there is no call."""
    arguments: str | None = None
    """Argument text as generated, JSON or not; `None`: a sample that satisfies the tool's parameters."""
    id: str | None = None


class ScriptedError(msgspec.Struct, frozen=True, kw_only=True):
    """An error in the provider's own words: inside a 200, or as the body of another status."""

    type: str
    message: str = "a scripted error"
    code: str | None = None
    after: int = 0
    """Events before it; counted from the end when negative, as in a Python slice."""


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """What happens in one call. Without any field it is the plain, whole answer."""

    # What the model generates
    text: str | None = None
    """`None`: an answer that fits the request. Empty: no text at all."""
    reasoning: str = ""
    refusal: str | None = None
    """Words in which the model refuses; takes the place of any other answer."""
    tool_calls: tuple[ScriptedCall, ...] = ()
    structured: str | None = None
    """The document for a schema, as text that need not be JSON; ignored when the request has no schema."""
    stop_reason: str | None = None
    """The provider's own word; for Responses the status, or `incomplete:` with its reason."""
    usage: Figures | None = Figures()
    """`None`: the answer never tells its cost."""

    # How it arrives
    delay: float = 0.0
    """Seconds of silence before the first byte."""
    pieces: int | None = None
    """Pieces that each text comes in; `None`: one a word."""
    pause: float = 0.0
    """Seconds between events; without pauses all bytes come in one read."""
    cut_after: int | None = None
    """Events after which `end` happens; counted from the end when negative."""
    end: PlayEnd = PlayEnd.CLEAN
    error: ScriptedError | None = None

    # What comes instead of an answer
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    """The whole body, whatever it is."""
    stops_at: Stage | None = None
    """The call gets no further than this stage, which is before the answer's first byte."""


ANSWER = Play()
"""The plain answer: what a request gets when its script has nothing else in store."""


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """A script by its name, which is the model that callers ask for."""

    name: str
    wire: Wire = Wire.ANTHROPIC
    play: Play = ANSWER
    """What every call does that has no entry of its own."""
    calls: tuple[Play, ...] = ()
    """What the first calls do, one after the other."""

    def play_of(self, call: int) -> Play:
        """Return what the call of this number does; the first one is 0."""
        return self.calls[call] if call < len(self.calls) else self.play
