"""Chat Completions and its dialects: chunks or one JSON body in, what is known out.

`finish_reason` is the end and `[DONE]` proves nothing (R-C1). After the end reading goes on for the usage alone, so
that a whole answer stays one however its tail is lost (R-C3). Only choice 0 is read: a call has one answer, and one
usage pays for all choices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..answers import Answer, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta
from ..chat_usage import ChatUsage
from ..dialects import OPENAI, Dialect
from ..json_text import NotJson, dumps_compact, loads_event
from ..lenient import UNREADABLE, fill, word
from ..outcomes import Cause, End, Ending
from ..provider_errors import ProviderError, read_error
from ..requests import FORCED_TOOL, Continuation
from ..stop_reasons import CHAT_COMPLETIONS, Stop
from ..text import well_formed
from ..text_buffer import TextBuffer
from ..verdict import Draft
from .accumulator import Accumulator
from .chat_calls import ChatCall, ChatCalls
from .chat_extras import MessageExtras
from .chat_tools import ChatTools

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..errors import Failure
    from ..hosted import HostedTool
    from ..usage import Usage

KIND = "chat_completions"

_ROLE = frozenset(("role", "content", "channel"))  # `channel` (Groq) names what the reasoning is part of
_NOT_RETURNED = frozenset(("audio",))  # an API takes its id back, never the sound

_STOPPED = ProviderError(message="the provider said finish_reason `error`")
"""`finish_reason: "error"` is no end and names no error; whatever the stream says besides is better (R-E2)."""


class _Choice(msgspec.Struct):
    index: Any = None
    delta: Any = None
    message: Any = None
    finish_reason: Any = None
    usage: Any = None
    error: Any = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    x_groq: Any = None
    id: Any = None
    model: Any = None
    service_tier: Any = None
    search_results: Any = None
    citations: Any = None
    error: Any = None
    error_type: Any = None
    error_message: Any = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


def _read_chunk(data: bytes) -> _Chunk:
    """Read a chunk that the fast path does not take, member by member. Raises NotJson if nothing can be read."""
    document = loads_event(data)
    choices = document.pop("choices", None) if isinstance(document, dict) else None
    chunk = fill(_Chunk, document)
    chunk.choices = _choices(choices)
    return chunk


def _choices(choices: object) -> list[_Choice]:
    return (
        [fill(_Choice, each) for each in choices if isinstance(each, dict)]
        if isinstance(choices, list)
        else []
    )


class ChatCompletionsAccumulator(Accumulator):
    """Read one answer of a server that speaks Chat Completions."""

    def __init__(self, *args: Any, dialect: Dialect = OPENAI, **options: Any) -> None:
        """`dialect` says what this server does differently; the rest as for every accumulator."""
        super().__init__(*args, **options)
        self._dialect = dialect
        self._content = TextBuffer()
        self._thoughts = TextBuffer()
        self._thought_field = ""
        """The member of the message that the reasoning stood in."""
        self._layout: list[tuple[str, list[Any]]] = []
        """Typed content (Mistral): the parts in their order, each with its pieces."""
        self._calls = ChatCalls(self._has_room)
        self._extras = MessageExtras(self._has_room)
        self._tools = ChatTools(self._extras)
        self._forced: ChatCall | None = None
        self._announced = 0
        self._silent: list[ChatCall] = []
        """Calls that were not announced yet: most of the time one."""
        self._has_delta = False
        self._refused = False
        self._reason: str | None = None
        self._goes_on = False
        """More was generated after the last stop reason and usage: some gateways write one into every chunk."""
        self._is_whole = False
        """Whole without a stop reason: one document, or `[DONE]` of a dialect that never says why it stopped."""
        self._meter = ChatUsage(dialect)
        self._source: bytes = b""
        """The last chunk that only the slow path could read: numbers in it may read as null."""
        # Servers write the grammar's default name out, and some a name of their own: every name but `error` is a chunk.
        self._handlers |= {"": self._on_chunk, "message": self._on_chunk}

    # Events

    def feed_event(self, name: str, data: bytes) -> None:
        """Take one event; whatever its name is, unless it is `error`, its data is a chunk."""
        try:
            self._handlers.get(name, self._on_chunk)(data)
        except NotJson:
            self._skip(name)

    def _on_chunk(self, data: bytes) -> None:
        try:
            chunk = _decode_chunk(data)
        except UNREADABLE:
            if data.strip() == b"[DONE]":
                self._on_done()
                return
            chunk = _read_chunk(data)
            self._source = data
        if self._response_id is None or self._model_served is None:
            self._take_head(chunk)
        choices = chunk.choices
        first = None
        for choice in choices or ():
            if choice.index and type(choice.index) is int:
                self._take_other(choice)
            else:
                first = choice
                self._take_choice(choice)
        if (
            chunk.usage is not None
            or chunk.x_groq is not None
            or (first is not None and first.usage is not None)
        ):
            self._take_usage(chunk, first)
        if chunk.service_tier and chunk.service_tier != self._service_tier:
            self._service_tier = word(chunk.service_tier) or self._service_tier
        if chunk.error or chunk.error_type or chunk.error_message or (not choices and _is_flat_error(data)):
            self._on_error(data)

    def _take_head(self, chunk: _Chunk) -> None:
        # The first of each: some servers write another id into every chunk, Azure empty ones into the first.
        self._response_id = self._response_id or word(chunk.id) or None
        self._model_served = self._model_served or word(chunk.model) or None

    def _on_done(self) -> None:
        self.done = True
        if self._dialect.no_finish_reason and not self._complete and self._meter.has_both:
            self._complete = self._is_whole = self.generated = True
            self._close()

    def _on_error(self, data: bytes) -> None:
        if self._error is _STOPPED:
            self._error = None
        super()._on_error(data)

    def _fail(self, error: ProviderError) -> None:
        self.awaits_tail = True
        if self._error in (None, _STOPPED):
            self._error = error

    def _take_other(self, choice: _Choice) -> None:
        """Take of another choice only that it was generated: it is paid for and is not the answer."""
        delta = choice.delta
        if isinstance(delta, dict) and any(value for name, value in delta.items() if name != "role"):
            self.generated = True

    def _take_choice(self, choice: _Choice) -> None:
        delta = choice.delta
        if type(delta) is dict:
            self._has_delta = True
            if self._complete and any(value for name, value in delta.items() if name != "role"):
                self._goes_on, self.awaits_tail = True, False
            content = delta.get("content")
            if content and len(delta) == 1 and type(content) is str and not self._layout:
                # Nearly every chunk: the same as below, without a call for each step.
                self.generated = True
                piece = self._content.append(content)
                if piece and self._keeps_deltas and not self._expectation.forced_tool:
                    self._emit(TextDelta(piece))
            else:
                self._take_delta(delta)
        elif isinstance(choice.message, dict) and not self._has_delta:
            # A server that only pretends to stream sends the whole message in one chunk.
            self._take_delta(choice.message, is_whole=True)
        if choice.finish_reason:
            self._take_finish(word(choice.finish_reason))
        if choice.error and (error := read_error({"error": choice.error})) is not None:
            self._fail(error)

    def _take_delta(self, delta: dict[str, Any], *, is_whole: bool = False) -> None:
        content = delta.get("content")
        if content:
            self.generated = True
            if type(content) is str:
                self._add_text(content)
            else:
                self._add_parts(content)
        for name, value in delta.items():
            if value and name not in _ROLE:
                self.generated = True
                self._take_member(name, value, delta, is_whole=is_whole)

    def _take_member(self, name: str, value: Any, delta: dict[str, Any], *, is_whole: bool) -> None:
        fields = self._dialect.reasoning_fields
        if name in fields and isinstance(value, str):
            # Some servers send the same text under two names.
            if name == next(field for field in fields if delta.get(field)):
                self._thought_field = self._thought_field or name
                self._add_thought(value)
        elif name == "tool_calls" and isinstance(value, list):
            for fragment in value:
                if isinstance(fragment, dict):
                    self._take_fragment(fragment, is_whole=is_whole)
        elif name == "function_call" and isinstance(value, dict):
            self._take_fragment({"function": value})
        elif name == "refusal":
            self._refused = True
        elif name not in _NOT_RETURNED:
            self._extras.add(name, value)

    # Text and reasoning

    def _add_text(self, text: str) -> None:
        if self._layout:
            self._lay("text", text)
        piece = self._content.append(text)
        # In forced mode the arguments are the answer; text is none (R-T2).
        if piece and self._keeps_deltas and not self._expectation.forced_tool:
            self._emit(TextDelta(piece))

    def _add_thought(self, text: str) -> None:
        piece = self._thoughts.append(text)
        if piece and self._keeps_deltas:
            self._emit(ReasoningDelta(piece))

    def _add_parts(self, content: Any) -> None:
        """Take typed content: `[{"type": "thinking", "thinking": [...]}, {"type": "text", "text": ...}]`."""
        for part in content if isinstance(content, list) else ():
            if not isinstance(part, dict):
                continue
            if not self._layout and self._content:
                self._lay("text", str(self._content))
            kind = word(part.get("type"))
            if kind == "text" and isinstance(part.get("text"), str):
                if not self._layout:
                    self._lay("text", "")
                self._add_text(part["text"])
            elif kind == "thinking":
                text = _thinking(part.get("thinking"))
                self._lay("thinking", text)
                self._add_thought(text)
            else:
                self._lay("", part)

    def _lay(self, kind: str, piece: Any) -> None:
        if kind and self._layout and self._layout[-1][0] == kind:
            self._layout[-1][1].append(piece)
        elif self._has_room():
            self._layout.append((kind, [piece]))

    # Tool calls

    def _take_fragment(self, fragment: dict[str, Any], *, is_whole: bool = False) -> None:
        taken = self._calls.take(fragment, is_whole=is_whole)
        if taken is None:
            return
        call, piece = taken
        if call.is_announced:
            self._emit_arguments(call, piece)
            return
        silent = [each for each in self._silent if each is not call]
        for earlier in silent:
            self._announce(earlier)
        self._silent = [call, *(each for each in silent if not each.is_announced)]
        # An id may come after the name, never after the first argument.
        if call.id or call.arguments:
            self._announce(call)

    def _announce(self, call: ChatCall) -> None:
        """Say that the call is there, once its name tells whose it is."""
        if call.is_announced or not call.name:
            return
        call.is_announced = True
        if self._expectation.forced_tool and call.name == FORCED_TOOL:
            # Of two calls of the forced tool the first is the answer.
            self._forced = self._forced or call
        else:
            call.call_index = self._announced
            self._announced += 1
            self._emit(ToolCallDelta(index=call.call_index, id=call.id, name=call.name))
        self._emit_arguments(call, str(call.arguments))

    # The end

    def _take_finish(self, reason: str) -> None:
        if reason == "error":
            self._fail(_STOPPED)
        elif reason:
            self.awaits_tail, self._goes_on = True, False
            self._reason = reason
            self._complete = self.generated = True
            self._close()

    def _close(self) -> None:
        """Let go of half a character that was held back, and of calls whose id never came."""
        rest = self._content.close()
        if rest and not self._expectation.forced_tool:
            self._emit(TextDelta(rest))
        if rest := self._thoughts.close():
            self._emit(ReasoningDelta(rest))
        for call in self._calls.opened:
            rest = call.arguments.close()
            if call.is_announced:
                self._emit_arguments(call, rest)
            else:
                self._announce(call)

    # Usage

    def _take_usage(self, chunk: _Chunk, choice: _Choice | None) -> None:
        groq = chunk.x_groq if isinstance(chunk.x_groq, dict) else {}
        if groq.get("error") and (error := read_error({"error": groq["error"]})) is not None:
            self._fail(error)  # why the stream was stopped early, beside a finish or without one
        inside = choice.usage if choice is not None else None
        changed = self._meter.take(
            chunk.usage,
            inside,
            groq.get("usage"),
            at_stop=self._reason is not None,
            source=self._source if self._body is None else self._body,
        )
        if changed and self._goes_on:
            self.awaits_tail, self._goes_on = True, False
        self.usage_changed = self.usage_changed or changed
        # Looked for here alone, so that other chunks do not pay for it: who tells sources tells usage beside them.
        self._tools.take_sources(chunk.search_results, chunk.citations)
        self._service_tier = word(self._meter.raw.get("service_tier")) or self._service_tier

    def _usage(self) -> Usage | None:
        return self._meter.usage(self._tools.requests(self._meter.hosted))

    def _usage_is_final(self) -> bool:
        is_final = self._meter.is_final and not self._goes_on
        return is_final or (self._is_whole and self._meter.has_both)

    def _reaches_its_end(self, ending: Ending) -> bool:
        """A stop reason is no end of what goes on after it, unless the server ends it there in good order."""
        return self._complete and (self.done or ending.end is End.CLEAN or not self._goes_on)

    def _reported_nanos(self) -> int | None:
        return self._meter.reported_nanos()

    # What is known

    @property
    def _started(self) -> bool:
        return self._response_id is not None or self.generated

    @property
    def _stop_reason(self) -> str | None:
        return self._reason

    def _text(self) -> str:
        return str(self._content)

    def _reasoning(self) -> str:
        return str(self._thoughts)

    def _is_forced(self, call: ChatCall) -> bool:
        return self._expectation.forced_tool and call.name == FORCED_TOOL

    def _called(self) -> list[ChatCall]:
        return [call for call in self._calls.opened if not self._is_forced(call)]

    def _open_calls(self) -> tuple[tuple[str, str, str], ...]:
        return tuple((call.id, call.name, str(call.arguments)) for call in self._called())

    def _forced_arguments(self) -> str | None:
        forced = next((call for call in self._calls.opened if self._is_forced(call)), None)
        return None if forced is None else str(forced.arguments)

    def _hosted_tools(self) -> Iterable[HostedTool]:
        return self._tools.uses(self._meter.hosted)

    def _draft(self) -> Draft:
        calls = self._tool_calls()
        stop = self._stop()
        evidence = self._evidence()
        return Draft(
            text=evidence.partial_text,
            stop=Stop.TOOLS if calls and stop is Stop.FINISHED else stop,
            stop_reason=self._reason or "",
            evidence=evidence,
            tool_calls=calls,
            calls_need_ids=False,
            forced_arguments=self._forced_arguments(),
            refusal="the model refused to answer" if self._refused else None,
            hosted_tools=tuple(self._hosted_tools()),
            continuation=self._continuation() if calls else None,
            service_tier=self._service_tier,
        )

    def _tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(call.call() for call in self._called())

    def _stop(self) -> Stop:
        if self._reason is None:
            return Stop.FINISHED if self._dialect.no_finish_reason else Stop.UNRECOGNIZED
        own = self._dialect.stop_reasons.get(self._reason)
        return own or CHAT_COMPLETIONS.get(self._reason, Stop.UNRECOGNIZED)

    def _continuation(self) -> Continuation | None:
        """Return the turn in the provider's own words: signatures and encrypted reasoning go back untouched."""
        message: dict[str, Any] = {"role": "assistant", "content": self._turn_content()}
        if self._thought_field:
            message[self._thought_field] = str(self._thoughts)
        message |= self._extras.members()
        message["tool_calls"] = [call.turn() for call in self._called()]
        try:
            return Continuation(KIND, dumps_compact([message]))
        except NotJson:  # nested too deeply to be written: no caller can send it back
            return None

    def _turn_content(self) -> Any:
        if not self._layout:
            return self._text() or None
        return [_part(kind, pieces) for kind, pieces in self._layout]

    def _conclude(self) -> Answer | Failure:
        if self._error is not None:  # in one document, where the base class knows of none
            return self._finish_error(self._error, Ending(end=End.CLEAN, cause=Cause.PROVIDER))
        return super()._conclude()

    # One JSON body

    def _finish_document(self, document: object, ending: Ending) -> Answer | Failure:
        """Judge a document. An error in it wins, whatever its choices look like (R-E2)."""
        error = read_error(document)
        if error is None or not isinstance(document, dict) or document.get("error") == {}:
            return super()._finish_document(document, ending)
        self._take_members(_stop_first(document))
        return self._finish_error(error, ending)

    def _take_document(self, document: dict[str, object]) -> bool:
        self._take_members(_stop_first(document))
        choice = _first(document.get("choices"))
        if choice is None or not (isinstance(choice.message, dict) or isinstance(choice.delta, dict)):
            return False
        self.generated = self.generated or self._error is None
        self._complete = self._is_whole = True
        self._close()
        return True

    def _take_members(self, members: Mapping[str, object]) -> None:
        for name, value in members.items():
            if name == "choices" and not self._is_whole:
                choice = _first(value)
                if choice is not None:
                    self._take_choice(choice)
                    self._take_usage(_Chunk(), choice)
            elif name in ("id", "model"):
                self._take_head(fill(_Chunk, {name: value}))
            elif name in ("usage", "x_groq", "search_results", "citations"):
                self._take_usage(fill(_Chunk, {name: value}), None)
            elif name == "service_tier":
                self._service_tier = word(value) or self._service_tier


def _is_flat_error(data: bytes) -> bool:
    """Tell whether a chunk without choices is an error document: `{"object": "error", ...}` (Mistral)."""
    return b'"error"' in data and read_error(loads_event(data)) is not None


def _first(choices: object) -> _Choice | None:
    """Return choice 0 of a document; of choices without it the first."""
    listed = _choices(choices)
    return next((each for each in listed if each.index == 0), listed[0] if listed else None)


def _stop_first(document: dict[str, object]) -> dict[str, object]:
    """Put the stop reason first: in a whole document the usage is told together with it, wherever it stands."""
    return {"choices": document.get("choices"), **document}


def _thinking(value: object) -> str:
    """Return the text of a thinking part: a text, or a list of parts of text."""
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


def _part(kind: str, pieces: list[Any]) -> Any:
    if not kind:
        return pieces[0]
    text = {"type": "text", "text": well_formed("".join(pieces))}
    return {"type": "thinking", "thinking": [text]} if kind == "thinking" else text
