"""What all accumulators share: the shape of the body, the state of the answer, and the ladder at its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ..answers import FREE_TEXT, Answer, Delta, Expectation, TextDelta, ToolCall, ToolCallDelta
from ..errors import Failure
from ..hosted import within_limits
from ..json_text import NotJson, dumps_compact, leading_members, loads_event, loads_lenient
from ..ladder import Evidence, severed
from ..lenient import EventDecoder
from ..outcomes import Cause, Certainty, Disposition, End, Ending, Stage
from ..provider_errors import ProviderError, failure_before_generation, read_error, read_error_event
from ..sse import EVENT_LIMIT, EventTooLarge, SseEvent, SseSplitter
from ..text import well_formed
from ..usage import AdditionalUsage, Usage
from ..verdict import Draft, judge
from .deltas import coalesce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..hosted import HostedTool

BYTES_PER_TOKEN = 4
"""Rough size of a token in the UTF-8 text of European languages; an estimate that is always marked as one."""

MAX_PARTS = 10_000
"""Blocks, or items and their parts, that one answer may have. Recorded answers have dozens; each costs hundreds of
bytes of memory for an event of fifty, which is what a hostile provider would send."""

_UNNAMED = ("", "message")  # `message` is the grammar's default: some servers write it out before every event


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known at one moment of a stream."""

    started: bool
    generated: bool
    complete: bool
    error: ProviderError | None
    stop_reason: str | None
    text: str
    reasoning: str
    tool_calls: tuple[tuple[str, str, str], ...]
    """(id, name, argument text so far) of the caller's tools."""
    forced_input: str | None
    """Argument text of the forced tool so far; `None` when it was not called."""
    usage: Usage | None
    additional_usage: tuple[AdditionalUsage, ...]
    certainty: Certainty
    model_served: str | None
    response_id: str | None


class _Named(msgspec.Struct):
    type: str = ""


_read_type = EventDecoder(_Named)
_BOM = b"\xef\xbb\xbf"
_FIELDS = (b"event", b"data", b"retry", b"id")
_OPENING_LIMIT = 65_536
"""Bytes kept of a body that is no event stream so far: a JSON text or number may be all of it."""


class OpenCall(Protocol):
    """A block or item that may be a tool call."""

    @property
    def call_index(self) -> int | None:
        """Position among the caller's tool calls; `None` when it is none of them."""


class Accumulator(ABC):
    """Read one provider answer from its bytes, as a stream of events or as one JSON body (R-H4).

    Feed it every byte, then call `finish` once. `snapshot` may be called at any moment.
    """

    def __init__(
        self,
        expectation: Expectation = FREE_TEXT,
        *,
        deltas: bool = False,
        event_limit: int = EVENT_LIMIT,
        scrub: Callable[[str], str] = str,
    ) -> None:
        """Start before the first byte.

        `deltas` keeps what arrives for `drain`; `scrub` removes configured keys from any text of the provider that a
        caller may read; an event over `event_limit` bytes is a dead connection.
        """
        self.done = False
        """Reading can end: the provider's end marker came, and what follows does not matter (R-O1)."""
        self.awaits_tail = False
        """Only a tail is still expected, so that the shorter tail timeout applies."""
        self.usage_changed = False
        """Another usage was told since this flag was last lowered."""
        self.skipped_events = 0
        """Events whose data was not JSON; each was skipped (R-S1)."""
        self.generated = False
        self._expectation = expectation
        self._scrub = scrub
        self._splitter = SseSplitter(event_limit=event_limit)
        self._keeps_deltas = deltas
        self._deltas: list[Delta] = []
        self._emitted: set[type[Delta]] = set()
        self._first_bytes: bytes | None = b""
        self._is_blank = True
        self._opening = bytearray()
        self._foreign = False
        self._body: bytearray | None = None
        self._error: ProviderError | None = None
        self._complete = False
        self._forced: Any = None
        """The block or item that calls the forced tool, in the shape of the wire format."""
        self._parts = 0
        self._response_id: str | None = None
        self._model_served: str | None = None
        self._service_tier: str | None = None
        self._handlers: dict[str, Callable[[bytes], None]] = {"error": self._on_error}
        """What to do with an event, by its name; other events are nothing."""

    # Feeding

    def hear(self, header: Callable[[str], str | None]) -> None:  # noqa: B027 - most formats tell nothing there
        """Take what the headers of a success tell, before any byte; `header` finds one by its name."""

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the body. Raises EventTooLarge; the events before the large one count."""
        visible = chunk
        if self._is_blank:
            chunk, visible = self._find_shape(chunk)
        if self._body is not None:
            self._take_body(visible)
            return
        try:
            events = self._splitter.feed(chunk)
        except EventTooLarge as error:
            self._take(error.events)
            raise
        if not self._splitter.recognised:
            self._opening += visible[: _OPENING_LIMIT - len(self._opening)]
            self._foreign = self._foreign or b"\n" in visible or b"\r" in visible
        self._take(events)

    def _take_body(self, piece: bytes) -> None:
        """Take more of a body that is one document; it is read at its end."""
        assert self._body is not None
        self._body += piece

    def _take(self, events: list[SseEvent]) -> None:
        handlers = self._handlers
        for event in events:
            if self.done:
                return
            handler = handlers.get(event.name)
            if handler is None:
                self.feed_event(event.name, event.data)
                continue
            try:
                handler(event.data)
            except NotJson:
                self._skip(event.name)

    def feed_event(self, name: str, data: bytes) -> None:
        """Take one event. The name decides what it is; the JSON `type` only when there is no name (R-S0)."""
        try:
            handler = self._handlers.get(name)
            if handler is not None:
                handler(data)
            elif name in _UNNAMED:
                self._take_unnamed(data)
            else:
                self._take_unknown(name)
        except NotJson:
            self._skip(name)

    def _skip(self, name: str) -> None:
        self.skipped_events += 1
        self._take_unknown(name)

    def _take_unnamed(self, data: bytes) -> None:
        type = _read_type(data).type
        handler = self._handlers.get(type)
        if handler is not None:
            handler(data)
        elif type:
            self._take_unknown(type)
        elif b'"error' in data and read_error(loads_event(data)) is not None:
            # `data: {"error": {...}}` of compatible servers and gateways (R-E2).
            self._on_error(data)

    def _take_unknown(self, name: str) -> None:
        """Take what the name alone tells: of an event without a handler, or whose data is broken."""
        if self._proves_generation(name):
            self.generated = True

    def _proves_generation(self, name: str) -> bool:
        """Say whether an event is evidence of generation by its name alone."""
        return False

    def _find_shape(self, chunk: bytes) -> tuple[bytes, bytes]:
        """Tell a JSON document from an event stream by its first character; the label is not asked (R-H4).

        Returns the bytes to read, and what of them is no blank start. White space goes on to the splitter at once:
        held back, an endless run of it would cost quadratic time.
        """
        visible = chunk.lstrip()
        if self._first_bytes is not None:
            chunk = self._first_bytes + chunk
            if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
                self._first_bytes = chunk
                return b"", b""
            self._first_bytes = None
            visible = chunk.removeprefix(_BOM).lstrip()
        if visible:
            self._is_blank = False
        if visible[:1] in (b"{", b"["):
            self._body = bytearray()
        return chunk, visible

    def _on_error(self, data: bytes) -> None:
        """Remember the first error; an event named `error` is one whatever its data says."""
        self.awaits_tail = True
        if self._error is None:
            try:
                document = loads_event(data)
            except NotJson:
                document = None
            self._error = read_error_event(document)

    def _has_room(self) -> bool:
        """Count one more part of the answer; over the limit reading ends, and the ladder decides."""
        self._parts += 1
        if self._parts > MAX_PARTS:
            self.done = True
        return not self.done

    # Deltas

    def _emit(self, delta: Delta) -> None:
        if self._keeps_deltas:
            self._deltas.append(delta)
            self._emitted.add(type(delta))

    def _emit_arguments(self, call: OpenCall, piece: str) -> None:
        """Emit argument text; that of the forced tool is the answer and so its text (R-T2)."""
        if not piece or not self._keeps_deltas:
            return
        if call.call_index is not None:
            self._emit(ToolCallDelta(index=call.call_index, arguments_json=piece))
        elif call is self._forced:
            self._emit(TextDelta(piece))

    def drain(self) -> list[Delta]:
        """Return the deltas since the last call, neighbours of one kind joined into one."""
        deltas, self._deltas = self._deltas, []
        return coalesce(deltas)

    # What is known

    def snapshot(self) -> Snapshot:
        """Return everything known at this moment."""
        evidence = self._evidence()
        return Snapshot(
            started=self._started,
            generated=self.generated,
            complete=self._complete,
            error=self._error,
            stop_reason=self._stop_reason,
            text=self._text(),
            reasoning=self._reasoning(),
            tool_calls=self._open_calls(),
            forced_input=self._forced_arguments(),
            usage=self._usage(),
            additional_usage=evidence.additional_usage,
            certainty=evidence.certainty,
            model_served=self._model_served,
            response_id=self._response_id,
        )

    def told_usage(self) -> tuple[Usage | None, tuple[AdditionalUsage, ...], Certainty]:
        """Return usage, additional usage and certainty alone: providers that tell them with every chunk are asked
        that often, and must not pay for the text each time.

        It goes to callers as it is, so that configured keys are scrubbed from the provider's words here.
        """
        usage, scrub = self._usage(), self._scrub
        additional = tuple(
            msgspec.structs.replace(extra, kind=scrub(extra.kind), model=extra.model and scrub(extra.model))
            for extra in self._additional_usage()
        )
        if usage is None or not usage.is_seen:
            return usage, additional, Certainty.UNKNOWN
        if usage.hosted_tool_requests:
            hosted = {scrub(tool): requests for tool, requests in usage.hosted_tool_requests.items()}
            usage = msgspec.structs.replace(usage, hosted_tool_requests=hosted)
        certainty = Certainty.EXACT if self._usage_is_final() else Certainty.AT_LEAST
        return usage, additional, certainty

    @property
    def _started(self) -> bool:
        return self.generated

    @property
    @abstractmethod
    def _stop_reason(self) -> str | None: ...

    @abstractmethod
    def _usage(self) -> Usage | None:
        """Return the figures told so far, zeros included; `None` when nothing was told."""

    @abstractmethod
    def _usage_is_final(self) -> bool: ...

    def _additional_usage(self) -> tuple[AdditionalUsage, ...]:
        return ()

    def _reported_nanos(self) -> int | None:
        return None

    def _cost_is_final(self) -> bool:
        """Say whether the reported cost came with the stop reason or after it."""
        return self._usage_is_final()

    def _price_factor(self) -> str | None:
        return None

    @abstractmethod
    def _text(self) -> str: ...

    @abstractmethod
    def _reasoning(self) -> str: ...

    @abstractmethod
    def _open_calls(self) -> tuple[tuple[str, str, str], ...]: ...

    def _whole_calls(self) -> tuple[ToolCall, ...]:
        """Return the calls of a whole answer; one without argument text was called with `{}` (R-T3)."""
        return tuple(
            ToolCall(id=id, name=name, arguments_json=arguments or "{}")
            for id, name, arguments in self._open_calls()
        )

    @abstractmethod
    def _forced_arguments(self) -> str | None: ...

    def evidence(self) -> Evidence:
        """Return what the ladder needs to know at this moment."""
        return self._evidence()

    def _evidence(self) -> Evidence:
        usage = self._usage()
        seen = usage if usage is not None and usage.is_seen else None
        text = self._text()
        return Evidence(
            generated=self.generated,
            usage=seen,
            usage_is_final=self._usage_is_final(),
            additional_usage=self._additional_usage(),
            reported_nanos=self._reported_nanos(),
            cost_is_final=self._cost_is_final(),
            estimated_output_tokens=None if self._usage_is_final() else self._estimate(text),
            model_served=self._model_served,
            service_tier=self._service_tier,
            price_factor=self._price_factor(),
            response_id=self._response_id,
            partial_text=text,
        )

    def _estimate(self, text: str) -> int | None:
        pieces = [text, self._reasoning(), self._forced_arguments() or ""]
        pieces += [arguments for _, _, arguments in self._open_calls()]
        size = sum(len(piece.encode()) for piece in pieces)
        return -(-size // BYTES_PER_TOKEN) or None

    # The end

    def finish(self, ending: Ending) -> Answer | Failure:
        """Judge what arrived, given how the reading ended. Call it once, after the last `feed`."""
        result = self._finish(ending)
        if isinstance(result, Failure):
            return self._with_hosted_tools(result)
        if self._keeps_deltas:
            self._emit_untold(result)
        return result

    def _with_hosted_tools(self, failed: Failure) -> Failure:
        """Return the failure with what the provider ran before it: that is done, and billed."""
        if failed.disposition is not Disposition.LANDED:
            return failed
        tools = within_limits(self._hosted_tools())
        return msgspec.structs.replace(failed, hosted_tools=tools) if tools else failed

    def _emit_untold(self, answer: Answer) -> None:
        """Emit what came only with the end, as in one JSON body, so that joined deltas are always the answer."""
        if TextDelta not in self._emitted and answer.text:
            self._emit(TextDelta(answer.text))
        if ToolCallDelta not in self._emitted:
            for index, call in enumerate(answer.tool_calls):
                self._emit(
                    ToolCallDelta(index=index, id=call.id, name=call.name, arguments_json=call.arguments_json)
                )
            return
        for index, (_, _, told) in enumerate(self._open_calls()):
            # The `{}` of a call without arguments is our reading, so that no delta has brought it.
            if not told and index < len(answer.tool_calls) and answer.tool_calls[index].arguments_json:
                self._emit(ToolCallDelta(index=index, arguments_json=answer.tool_calls[index].arguments_json))

    def _finish(self, ending: Ending) -> Answer | Failure:
        if self._body is not None:
            return self._finish_body(self._body, ending)
        self._take([event for event in self._splitter.close(ending.end is End.CLEAN) if _is_whole(event)])
        if self._error is not None:
            return self._finish_error(self._error, ending)
        if self._reaches_its_end(ending):
            return self._conclude()
        if self._is_blank or self._splitter.recognised:
            return self._sever(ending)
        if ending.end is End.CLEAN and len(self._opening) < _OPENING_LIMIT:
            # A text or a number: the first character could not tell that from an event stream.
            try:
                return self._finish_document(loads_lenient(bytes(self._opening)), ending)
            except NotJson:
                pass
        if self._is_foreign():
            self.generated = True
            return severed(
                self._evidence(), ending, "the provider's answer is neither an event stream nor JSON"
            )
        return self._sever(ending)

    def _sever(self, ending: Ending) -> Failure:
        if self._parts > MAX_PARTS:
            ending = msgspec.structs.replace(ending, cause=Cause.LIMIT)
        return severed(self._evidence(), ending, self._severed_message(ending))

    def _reaches_its_end(self, ending: Ending) -> bool:
        """Say whether the answer is whole: by its end marker, in nearly every format whatever came after it."""
        return self._complete

    def _is_foreign(self) -> bool:
        """Say whether text came that is no event stream at all, such as a proxy's page with status 200.

        Whoever wrote it, the request was accepted by someone: claiming that nothing happened would invite a second
        purchase (R-H6). A fragment of a first line says nothing while a field or a comment can begin like that.
        """
        word, colon, rest = self._opening.partition(b":")
        if colon:
            # `error: {` is no field of the grammar, but servers write it (R-S3), and nothing but an object after it.
            is_marked = word == b"error" and bytes(rest.removeprefix(b" ")[:1]) in (b"", b"{")
            return self._foreign or not (is_marked or word in (b"", *_FIELDS))
        return self._foreign or not any(field.startswith(word) for field in _FIELDS)

    def _conclude(self) -> Answer | Failure:
        """Judge an answer whose end marker came; one of too many parts was not read to its end."""
        if self._parts > MAX_PARTS:
            return self._sever(Ending(end=End.CUT, cause=Cause.LIMIT, stage=Stage.OUTPUT))
        return judge(self._draft(), self._expectation)

    def _hosted_tools(self) -> Iterable[HostedTool]:
        """Return the uses of the provider's own tools that were told so far."""
        return ()

    @abstractmethod
    def _draft(self) -> Draft:
        """Return the whole answer, unjudged."""

    def _finish_error(self, error: ProviderError, ending: Ending) -> Answer | Failure:
        evidence = self._evidence()
        stage = max(ending.stage, Stage.BODY)
        if evidence.generated or evidence.usage is not None:
            ended = Ending(end=ending.end, cause=Cause.PROVIDER, stage=stage)
            code = error.visible_code(self._scrub)
            message = f"the provider reported an error ({code}) after it had begun to answer"
            return severed(evidence, ended, message, provider_code=code, retry_after=error.retry_after)
        return failure_before_generation(
            error.http_status(),
            error,
            source="an error inside its answer",
            stage=stage,
            scrub=self._scrub,
            retry_after=error.retry_after,
            provider_response_id=self._response_id,
            model_served=self._model_served,
        )

    def _severed_message(self, ending: Ending) -> str:
        if self._parts > MAX_PARTS:
            return f"the provider's answer has more than {MAX_PARTS} parts"
        if ending.detail:
            return ending.detail
        if ending.end is End.CLEAN:
            return "the provider ended its answer before the end marker"
        return "the connection broke before the answer was whole"

    # One JSON body

    def _finish_body(self, body: bytearray, ending: Ending) -> Answer | Failure:
        """Judge an answer that came as one document (R-H6)."""
        if ending.end is End.CLEAN:
            try:
                document = loads_lenient(bytes(body))
            except NotJson:
                # Nothing on the way broke it: HTTP says that this was all.
                ending = msgspec.structs.replace(
                    ending, cause=Cause.PROVIDER, detail="the provider's document is not JSON"
                )
                return self._finish_cut_body(body, ending)
            return self._finish_document(document, ending)
        return self._finish_cut_body(body, ending)

    def _finish_document(self, document: object, ending: Ending) -> Answer | Failure:
        error = read_error(document)
        # An error wins over what stands beside it, which keeps its bill (R-E0, R-E2); an empty one says nothing.
        wins = error is not None and isinstance(document, dict) and bool(document.get("error"))
        if isinstance(document, dict) and self._take_document(document) and not wins:
            return self._conclude()
        if error is not None:
            return self._finish_error(error, ending)
        self.generated = True
        if isinstance(document, dict):
            self._take_members(document)
        return judge(self._non_answer(), self._expectation)

    def _non_answer(self) -> Draft:
        return Draft(
            text="",
            stop=self._draft().stop,
            stop_reason=self._stop_reason or "",
            evidence=self._evidence(),
            refusal="the provider's document is not an answer",
        )

    def _finish_cut_body(self, body: bytearray, ending: Ending) -> Answer | Failure:
        text = body.decode("utf-8", "replace")
        members, open_key = leading_members(text)
        is_whole = open_key is None and text.rstrip().endswith("}")
        error = read_error(members) if is_whole or members.get("error") else None
        if error is not None and (members.get("type") == "error" or next(iter(members)) == "error"):
            return self._finish_error(error, ending)
        # Also where an error began: what it would have said about generation was in the part that did not come.
        self.generated = True
        self._take_members(members)
        if error is not None:
            return self._finish_error(error, ending)
        detail = ending.detail or "the provider's document was cut"
        return severed(self._evidence(), ending, detail)

    @abstractmethod
    def _take_document(self, document: dict[str, object]) -> bool:
        """Take a whole answer document; return False if it is none of this format."""

    @abstractmethod
    def _take_members(self, members: Mapping[str, object]) -> None:
        """Take the bill from the members that are whole, in their order: the stop word may stand before the usage."""


def _is_whole(event: SseEvent) -> bool:
    """Say whether the last event counts although its blank line never came: if its data parses (R-S2)."""
    if not event.unterminated or event.data == b"[DONE]":
        return True
    try:
        loads_event(event.data)
    except NotJson:
        return False
    return True


def spelled(value: object) -> str:
    """Write a tool's arguments that came as a value and not as text; "" for none.

    What is nested too deeply to be written becomes an ellipsis, which no reader takes for JSON.
    """
    if isinstance(value, str):
        return well_formed(value)
    try:
        return dumps_compact(value) if value is not None else ""
    except NotJson:
        return "\N{HORIZONTAL ELLIPSIS}"
