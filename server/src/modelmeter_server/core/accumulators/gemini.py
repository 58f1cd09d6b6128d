"""Gemini: chunks, a growing array or one JSON body in, what is known out.

Every chunk is a whole response whose parts are deltas. There are no event names and no end marker: the end of the body
is the end, because a second finish may follow the first (R-G1). Usage stands on nearly every chunk and is a running
total (R-U5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from ..answers import Answer, ReasoningDelta, TextDelta, ToolCallDelta
from ..counters import counter
from ..errors import Failure, failure
from ..json_array import JsonArraySplitter
from ..json_text import NotJson, dumps_compact, loads_event, loads_lenient
from ..ladder import severed
from ..lenient import UNREADABLE, EventDecoder, fill, word
from ..outcomes import Cause, Certainty, Code, End, Ending, Kind, Stage
from ..provider_errors import read_error
from ..requests import FORCED_TOOL, Continuation
from ..sse import EVENT_LIMIT, EventTooLarge
from ..stop_reasons import GEMINI, GEMINI_BLOCKS, Stop
from ..text import cut_utf8, well_formed
from ..text_buffer import TextBuffer
from ..verdict import Draft, judge
from .accumulator import Accumulator, spelled
from .gemini_tools import GoogleTools
from .gemini_usage import GeminiCounts, GeminiTotals, read_counts
from .streamed_arguments import StreamedArguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..hosted import HostedTool
    from ..usage import Usage

KIND = "gemini"

_WORD_BYTES = 64
_MEDIA_ONLY = "the answer holds media only, which completions cannot carry yet"


class _Chunk(msgspec.Struct, rename="camel"):
    candidates: Any = None
    prompt_feedback: Any = None
    usage_metadata: Any = None
    model_version: str = ""
    response_id: str = ""


# The fast path: a chunk of plain text whose prompt is known, which nearly all are. A member of another type sends the
# chunk the slow way. Without cycles, none of them is the garbage collector's business.


class _Nothing(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    pass


class _PlainText(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    text: str


class _PlainContent(msgspec.Struct, gc=False):
    parts: list[_PlainText]


class _PlainCandidate(msgspec.Struct, rename="camel", gc=False):
    content: _PlainContent
    finish_reason: None = None
    index: Annotated[int, msgspec.Meta(ge=0, le=0)] = 0
    grounding_metadata: _Nothing | None = None
    url_context_metadata: _Nothing | None = None


class _PlainChunk(msgspec.Struct, rename="camel", gc=False):
    candidates: tuple[_PlainCandidate]
    usage_metadata: GeminiCounts = GeminiCounts()
    prompt_feedback: None = None
    error: None = None


_read_chunk = EventDecoder(_Chunk)
_decode_plain = msgspec.json.Decoder(_PlainChunk).decode


class _Run:
    """Neighbouring parts that hold nothing but text, or nothing but a thought: they go back as one."""

    __slots__ = ("is_thought", "pieces")

    def __init__(self, *, is_thought: bool) -> None:
        self.is_thought = is_thought
        self.pieces: list[str] = []

    def part(self) -> dict[str, Any]:
        text = "".join(self.pieces)
        return {"text": text, "thought": True} if self.is_thought else {"text": text}


class _Call:
    """One call of a tool, whole or while its arguments stream."""

    __slots__ = ("arguments_told", "call_index", "id", "is_open", "name", "opened", "streamed")

    def __init__(self, opened: dict[str, Any], position: int) -> None:
        call = opened["functionCall"]
        self.opened = opened
        self.name = word(call.get("name"))
        # Often there is none, and results must name the call that they answer.
        self.id = word(call.get("id")) or (f"{self.name}-{position}" if self.name else "")
        self.arguments_told = spelled(call.get("args"))
        self.streamed: StreamedArguments | None = None
        self.is_open = False
        self.call_index: int | None = None
        """Position among the caller's tool calls; `None` for the forced tool."""

    def arguments(self) -> str:
        """Return the argument text; of a call that is still open without its end, so that nobody takes it for whole."""
        if self.streamed is None:
            return self.arguments_told
        text = self.streamed.text()
        return text[:-1] if self.is_open else text

    def part(self) -> dict[str, Any]:
        """Return the part as it must go back: untouched, or put together as if it had come at once."""
        if self.streamed is None:
            return self.opened
        kept = {
            name: value
            for name, value in self.opened["functionCall"].items()
            if name not in ("willContinue", "partialArgs", "args")
        }
        return {**self.opened, "functionCall": {**kept, "args": loads_lenient(self.arguments().encode())}}


class GeminiAccumulator(Accumulator):
    """Read one answer of `generateContent` or `streamGenerateContent`."""

    def __init__(self, *args: Any, event_limit: int = EVENT_LIMIT, **options: Any) -> None:
        super().__init__(*args, event_limit=event_limit, **options)
        self._element_limit = event_limit
        self._array: JsonArraySplitter | None = None
        self._totals = GeminiTotals()
        self._counts = GeminiCounts()
        """The last usage object: most chunks repeat it or change one figure."""
        self._tools = GoogleTools()
        self._answer_text = TextBuffer()
        self._thoughts = TextBuffer()
        self._turn: list[_Run | _Call | dict[str, Any]] = []
        """The model's content as it must go back."""
        self._run: _Run | None = None
        """The last entry of the turn, while text is added to it."""
        self._calls: list[_Call] = []
        self._forced: _Call | None = None
        self._has_media = False
        # In forced mode the arguments are the answer and its text; other text is none (R-T2).
        self._emits_text = self._keeps_deltas and not self._expectation.forced_tool
        self._finished: str | None = None
        self._blocked: str | None = None
        self._handlers |= {"": self._on_chunk, "message": self._on_chunk}

    # Feeding

    def _take_body(self, piece: bytes) -> None:
        """Take more of a document; a growing array gives its elements as they end, like a stream its events."""
        if self._array is None and piece[:1] == b"[" and not self._body:
            self._array = JsonArraySplitter(element_limit=self._element_limit)
        if self._array is None:
            super()._take_body(piece)
            return
        try:
            elements = self._array.feed(piece)
        except EventTooLarge as error:
            self._take(error.events)
            raise
        for element in elements:
            if not self.done:
                self.feed_event("", element)

    def _on_chunk(self, data: bytes) -> None:
        try:
            chunk = _decode_plain(data)
        except UNREADABLE:
            self._take_any(data)
            return
        told, known = chunk.usage_metadata, self._counts
        if (
            self._response_id is None
            or (told.prompt is not None and told.prompt != known.prompt)
            or (told.tool_prompt is not None and told.tool_prompt != known.tool_prompt)
        ):
            # The chunk that names the answer, or that tells how the prompt is made up.
            self._take_any(data)
            return
        self.generated = True
        for part in chunk.candidates[0].content.parts:
            text, run = part.text, self._run
            if run is None or run.is_thought or not text:
                self._add_text(text)
                continue
            # Nearly every event: the same as `_add_text`, without a call for it.
            run.pieces.append(text)
            piece = self._answer_text.append(text)
            if self._emits_text and piece:
                self._emit(TextDelta(piece))
        if told != known:
            self._take_counts(told)

    def _take_any(self, data: bytes) -> None:
        self._take_chunk(_read_chunk(data))
        if b'"error' in data and read_error(loads_event(data)) is not None:
            self._on_error(data)

    def _take_chunk(self, chunk: _Chunk) -> None:
        self._take_head(chunk)
        self._take_candidates(chunk.candidates)
        if isinstance(chunk.prompt_feedback, dict):
            self._blocked = word(chunk.prompt_feedback.get("blockReason")) or self._blocked
        # After the candidates, whatever the order: figures beside a stop reason were told with it.
        if isinstance(chunk.usage_metadata, dict):
            self._take_counts(read_counts(chunk.usage_metadata))
            self._totals.take_details(chunk.usage_metadata)
            self._service_tier = well_formed(self._totals.tier) or None

    def _take_head(self, chunk: _Chunk) -> None:
        self._model_served = well_formed(chunk.model_version) or self._model_served
        self._response_id = well_formed(chunk.response_id) or self._response_id

    def _take_counts(self, told: GeminiCounts) -> None:
        self._totals.take(told, at_stop=self._finished is not None)
        if told != self._counts:
            self.usage_changed = True
            self._counts = told

    def _take_candidates(self, candidates: Any) -> None:
        """Take the one candidate that was asked for; others are nobody's answer, and only billed."""
        for candidate in candidates if isinstance(candidates, list) else ():
            if not isinstance(candidate, dict):
                continue
            self.generated = self.generated or bool(candidate.get("content") or candidate.get("finishReason"))
            if counter(candidate.get("index")) in (None, 0):
                self._take_candidate(candidate)

    def _take_candidate(self, candidate: dict[str, Any]) -> None:
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict):
                self._take_part(part)
        self._tools.take_metadata(candidate)
        reason = word(candidate.get("finishReason"))
        if reason:
            self._finished = reason
            if GEMINI.get(reason) is not Stop.LENGTH:
                self._close_call()

    # Parts

    def _take_part(self, part: dict[str, Any]) -> None:
        text, is_thought = part.get("text"), part.get("thought") is True
        if isinstance(part.get("functionCall"), dict):
            self._take_call(part, part["functionCall"])
            return
        if not isinstance(text, str):
            self._keep(part)
        elif part.keys() == {"text"}:
            self._add_text(text)
            return
        elif is_thought and part.keys() == {"text", "thought"}:
            if text:
                self._run_of(is_thought=True).pieces.append(text)
        else:
            self._keep(part)
        if isinstance(text, str):
            self._emit_text(text, is_thought=is_thought)

    def _keep(self, part: dict[str, Any]) -> None:
        """Keep a part as it is: a signature holds for its part and its place."""
        self._close_call()
        self._run = None
        if self._has_room():
            self._turn.append(part)
            self._tools.take_part(part)
            self._has_media = self._has_media or "inlineData" in part

    def _run_of(self, *, is_thought: bool) -> _Run:
        run = self._run
        if run is None or run.is_thought is not is_thought:
            self._close_call()
            run = self._run = _Run(is_thought=is_thought)
            if self._has_room():
                self._turn.append(run)
        return run

    def _add_text(self, text: str) -> None:
        if not text:  # closes streams, and is refused when it comes back
            return
        self._run_of(is_thought=False).pieces.append(text)
        self._emit_text(text, is_thought=False)

    def _emit_text(self, text: str, *, is_thought: bool) -> None:
        piece = (self._thoughts if is_thought else self._answer_text).append(text)
        if piece and is_thought:
            self._emit(ReasoningDelta(piece))
        elif piece and self._emits_text:
            self._emit(TextDelta(piece))

    # Calls

    def _take_call(self, part: dict[str, Any], told: dict[str, Any]) -> None:
        call = self._open_call()
        is_more = call is not None and (
            not told.get("name") or (told["name"] == call.name and "partialArgs" in told)
        )
        if call is None or not is_more:
            if not told:  # the end of a call that had ended by itself
                return
            call = self._begin_call(part)
        elif "thoughtSignature" in part:
            call.opened.setdefault("thoughtSignature", part["thoughtSignature"])
        if call.streamed is not None:
            call.streamed.add(told.get("partialArgs"))
        if told.get("willContinue") is not True:
            self._close_call()

    def _open_call(self) -> _Call | None:
        last = self._turn[-1] if self._turn else None
        return last if isinstance(last, _Call) and last.is_open else None

    def _begin_call(self, part: dict[str, Any]) -> _Call:
        self._close_call()
        self._run = None
        call = _Call(part, len(self._turn))
        call.is_open = True
        told = part["functionCall"]
        if told.get("willContinue") is True or "partialArgs" in told:
            call.streamed = StreamedArguments()
        if not self._has_room():
            return call
        self._turn.append(call)
        if self._expectation.forced_tool and call.name == FORCED_TOOL:
            # Of two calls of the forced tool the first is the answer.
            self._forced = self._forced or call
            return call
        call.call_index = len(self._calls)
        self._calls.append(call)
        self._emit(ToolCallDelta(index=call.call_index, id=call.id, name=call.name))
        return call

    def _close_call(self) -> None:
        """End the open call; its arguments are told now, because pieces at paths have no order as text."""
        call = self._open_call()
        if call is None:
            return
        call.is_open = False
        if call is self._forced:
            self._emit(TextDelta(call.arguments()))
        elif call.call_index is not None:
            self._emit(ToolCallDelta(index=call.call_index, arguments_json=call.arguments()))

    # What is known

    @property
    def _stop_reason(self) -> str | None:
        return self._finished

    def _usage(self) -> Usage | None:
        return self._totals.usage(self._tools.requests())

    def _usage_is_final(self) -> bool:
        return self._totals.is_final

    def _text(self) -> str:
        return str(self._answer_text)

    def _reasoning(self) -> str:
        return str(self._thoughts)

    def _open_calls(self) -> tuple[tuple[str, str, str], ...]:
        return tuple((call.id, call.name, call.arguments()) for call in self._calls)

    def _forced_arguments(self) -> str | None:
        return None if self._forced is None else self._forced.arguments()

    def _hosted_tools(self) -> Iterable[HostedTool]:
        return self._tools.uses()

    def _draft(self) -> Draft:
        reason = self._finished or ""
        stop = GEMINI.get(reason, Stop.UNRECOGNIZED)
        evidence = self._evidence()
        is_media_only = self._has_media and not evidence.partial_text and not self._calls
        return Draft(
            text=evidence.partial_text,
            stop=Stop.TOOLS if self._calls and stop is Stop.FINISHED else stop,
            stop_reason=reason,
            evidence=evidence,
            tool_calls=self._whole_calls(),
            forced_arguments=self._forced_arguments(),
            refusal=_MEDIA_ONLY if is_media_only and stop is not Stop.WITHDRAWN else None,
            hosted_tools=tuple(self._hosted_tools()),
            continuation=self._continuation() if self._calls else None,
            service_tier=self._service_tier,
        )

    def _continuation(self) -> Continuation | None:
        """Return the model's turn as it came: thought signatures must go back untouched and in their place."""
        try:
            parts = [entry if isinstance(entry, dict) else entry.part() for entry in self._turn]
            return Continuation(KIND, dumps_compact([{"role": "model", "parts": parts}]))
        except NotJson:  # nested too deeply, or cut in an argument: no caller can send it back
            return None

    # The end

    def _reaches_its_end(self, ending: Ending) -> bool:
        """A finish reason alone is no end, the end of the body is; a blocked prompt has said it all (R-E4)."""
        self._complete = self._is_blocked or (self._finished is not None and ending.end is End.CLEAN)
        return self._complete

    @property
    def _is_blocked(self) -> bool:
        if self._blocked is None or self.generated:
            return False
        return GEMINI_BLOCKS.get(self._blocked, Stop.WITHDRAWN) is Stop.WITHDRAWN

    def _conclude(self) -> Answer | Failure:
        if self._is_blocked:
            return self._blocked_prompt(self._blocked or "")
        if self._finished is None:
            return self._sever(Ending(end=End.CLEAN, cause=Cause.PROVIDER, stage=Stage.OUTPUT))
        for buffer, delta in ((self._answer_text, TextDelta), (self._thoughts, ReasoningDelta)):
            rest = buffer.close()
            if rest and (self._emits_text or delta is ReasoningDelta):
                self._emit(delta(rest))
        return super()._conclude()

    def _blocked_prompt(self, reason: str) -> Failure:
        """Refuse as HTTP 400 would: nothing was generated, and what the check of the prompt cost is spend."""
        usage = self._evidence().usage
        code = cut_utf8(self._scrub(reason), _WORD_BYTES)
        return failure(
            Kind.REFUSED,
            f"the provider blocked the prompt ({code})",
            cause=Cause.PROVIDER,
            stage=Stage.BODY,
            code=Code.INVALID_ARGUMENT,
            certainty=Certainty.NONE if usage is None else Certainty.EXACT,
            usage=usage,
            provider_code=code,
            provider_response_id=self._response_id,
            model_served=self._model_served,
            service_tier=self._service_tier,
        )

    # One JSON body, and an array of chunks

    def _finish_body(self, body: bytearray, ending: Ending) -> Answer | Failure:
        if self._array is None:
            return super()._finish_body(body, ending)
        is_whole = ending.end is End.CLEAN and self._array.is_closed
        if self._error is not None:
            return self._finish_error(self._error, ending)
        if self._reaches_its_end(ending if is_whole else msgspec.structs.replace(ending, end=End.RESET)):
            return self._conclude()
        if not is_whole:
            return self._finish_cut_body(bytearray(self._array.rest), ending)
        if self.generated or self._usage() is not None:
            return severed(self._evidence(), ending, self._severed_message(ending))
        self.generated = True
        return judge(self._non_answer(), self._expectation)

    def _take_document(self, document: dict[str, object]) -> bool:
        self._take_chunk(fill(_Chunk, document))
        if read_error(document) is not None:
            return False
        self._complete = self._is_blocked or self._finished is not None
        return self._complete or self.generated

    def _take_members(self, members: Mapping[str, object]) -> None:
        for name, value in members.items():
            self._take_chunk(fill(_Chunk, {name: value}))
