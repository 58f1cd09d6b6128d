"""Bedrock's Converse API: frames or one JSON body in, what is known out.

`messageStart` proves nothing. `messageStop` has the stop reason and the `metadata` after it alone has the usage; the
answer is whole when both came (R-B1). Payloads have a random padding `p`, which nobody reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..answers import ReasoningDelta, TextDelta, ToolCallDelta
from ..counters import counter, saturating_add
from ..event_stream import BadFrame, Frame, FrameDecoder, FrameTooLarge
from ..json_text import NotJson, loads_event
from ..lenient import UNREADABLE, EventDecoder, fill, word
from ..outcomes import Cause, End, Ending, Stage
from ..provider_errors import ProviderError, read_amazon_error
from ..requests import FORCED_TOOL, Continuation
from ..sse import EVENT_LIMIT, EventTooLarge
from ..stop_reasons import BEDROCK, Stop
from ..text import well_formed
from ..usage import Usage, with_cache_beside_input
from ..usage_meter import RunningTotals
from ..verdict import Draft
from .accumulator import Accumulator
from .bedrock_blocks import CALL, CITATIONS, REASONING, RESULT, TEXT, Block, turn_block
from .bedrock_tools import hosted_tools, is_hosted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..answers import Answer
    from ..errors import Failure
    from ..hosted import HostedTool

KIND = "bedrock"

_INPUT = "inputTokens"
_WRITE = "cacheWriteInputTokens"
_READ = "cacheReadInputTokens"
_OUTPUT = "outputTokens"
_TTLS = ("5m", "1h")

_EVIDENCE = frozenset(("contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop"))


class _BlockStart(msgspec.Struct, rename="camel"):
    content_block_index: int | None = None
    start: Any = None


class _Delta(msgspec.Struct, rename="camel"):
    text: str = ""
    tool_use: Any = None
    reasoning_content: Any = None
    citation: Any = None
    tool_result: Any = None


class _BlockDelta(msgspec.Struct, rename="camel"):
    content_block_index: int | None = None
    delta: _Delta = msgspec.field(default_factory=_Delta)


class _MessageStop(msgspec.Struct, rename="camel"):
    stop_reason: str | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    usage: Any = None
    service_tier: Any = None
    trace: Any = None
    performance_config: Any = None


_read_block_start = EventDecoder(_BlockStart)
_read_block_delta = EventDecoder(_BlockDelta)
_decode_block_delta = _read_block_delta.strictly
_read_stop = EventDecoder(_MessageStop)
_read_metadata = EventDecoder(_Metadata)


class BedrockAccumulator(Accumulator):
    """Read one answer of Converse or ConverseStream."""

    def __init__(self, *args: Any, event_limit: int = EVENT_LIMIT, **options: Any) -> None:
        super().__init__(*args, event_limit=event_limit, **options)
        self._frame_limit = event_limit
        self._frames = FrameDecoder(frame_limit=event_limit)
        # Above it the first byte of a length is larger than any frame: what comes is no event stream.
        self._largest_first_byte = event_limit >> 24
        self._broken = ""
        self._begun = False
        self._totals = RunningTotals((_INPUT, _WRITE, _READ), _OUTPUT)
        self._blocks: dict[int, Block] = {}
        """The block that an index means now."""
        self._opened: list[tuple[int, Block]] = []
        """Every block with its index, in the order of their starts."""
        self._last_index = -1
        self._hosted: dict[str, int] = {}
        """Requests to the provider's own tools."""
        self._forced: Block | None = None
        self._calls = 0
        self._stopped: str | None = None
        self._has_metadata = False
        self._latency = ""
        self._handlers |= {
            "contentBlockDelta": self._on_block_delta,
            "contentBlockStart": self._on_block_start,
            "contentBlockStop": self._on_block_stop,
            "messageStart": self._on_message_start,
            "messageStop": self._on_message_stop,
            "metadata": self._on_metadata,
        }

    # Frames

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the body. Raises EventTooLarge; the frames before the large one count."""
        visible = chunk
        if self._is_blank:
            _, visible = self._find_shape(chunk)
            if not visible:
                return
            self._foreign = self._body is None and visible[0] > self._largest_first_byte
        if self._body is not None:
            self._body += visible
        elif not self._foreign:
            self._take_bytes(visible)

    def _take_bytes(self, chunk: bytes) -> None:
        try:
            self._take_frames(self._frames.feed(chunk))
        except BadFrame as error:
            self._take_frames(error.frames)
            if isinstance(error, FrameTooLarge):
                raise EventTooLarge(self._frame_limit, []) from None
            # Not what the provider meant to say, and nothing readable can follow: a dead connection.
            self._broken = str(error)
            self.done = True

    def _take_frames(self, frames: list[Frame]) -> None:
        handlers = self._handlers
        for frame in frames:
            if self.done:
                return
            headers = frame.headers
            name = headers.get(":event-type", "")
            handler = handlers.get(name)
            if handler is None or headers.get(":message-type") != "event":
                self._take_unusual(frame, name)
                continue
            try:
                handler(frame.payload)
            except NotJson:
                self._skip(name)

    def _take_unusual(self, frame: Frame, name: str) -> None:
        headers = frame.headers
        kind = headers.get(":message-type")
        if kind == "exception":
            self._take_error(headers.get(":exception-type", ""), _document(frame.payload))
        elif kind == "error":
            self._take_error(headers.get(":error-code", ""), {"message": headers.get(":error-message", "")})
        else:
            self.feed_event(name, frame.payload)

    def _take_error(self, type: str, document: object) -> None:
        """Remember the first error; the header names its type, whatever the payload says."""
        self.awaits_tail = True
        if self._error is None:
            told = read_amazon_error(document) or ProviderError()
            self._error = msgspec.structs.replace(told, type=type or told.type)

    # Events

    def _proves_generation(self, name: str) -> bool:
        return name in _EVIDENCE

    def _on_message_start(self, data: bytes) -> None:
        loads_event(data)
        self._begun = True

    def _on_block_start(self, data: bytes) -> None:
        event = _read_block_start(data)
        self.generated = True
        if self._has_room():
            kind, opened = _only_member(event.start)
            self._open(self._index(event.content_block_index, following=True), Block(kind, opened))

    def _index(self, told: int | None, *, following: bool = False) -> int:
        return self._last_index + following if told is None else told

    def _open(self, index: int, block: Block) -> None:
        if before := self._blocks.get(index):
            self._close(before)
        self._blocks[index] = block
        self._last_index = index
        self._opened.append((index, block))
        if block.is_clients:
            self._begin_call(block)
        elif is_hosted(block) and block.name:
            # Nobody tells how often a tool was asked, and a web search has a fee.
            self._hosted[block.name] = self._hosted.get(block.name, 0) + 1

    def _begin_call(self, block: Block) -> None:
        if self._expectation.forced_tool and block.name == FORCED_TOOL:
            # Of two calls of the forced tool the first is the answer.
            self._forced = self._forced or block
            return
        block.call_index = self._calls
        self._calls += 1
        self._emit(ToolCallDelta(index=block.call_index, id=block.id, name=block.name))

    def _on_block_delta(self, data: bytes) -> None:
        try:
            event = _decode_block_delta(data)
        except UNREADABLE:
            event = _read_block_delta.leniently(data)
        self.generated = True
        delta = event.delta
        index = self._index(event.content_block_index)
        block = self._blocks.get(index)
        if block is not None and block.kind == TEXT and delta.text:
            # Nearly every event: the same as below, without a call for each step.
            piece = block.text.append(delta.text)
            if piece and self._keeps_deltas:
                self._emit_text(block, piece)
            return
        kind = _kind_of(delta)
        if block is None or not _fits(kind, block):
            # Text and reasoning have no start; or its start was lost, or thinking would become the answer (R-X5).
            if not self._has_room():
                return
            block = Block(kind)
            self._open(max(index, 0), block)
        self._extend(block, delta)

    def _extend(self, block: Block, delta: _Delta) -> None:
        if delta.text:
            self._add_text(block, delta.text)
        if isinstance(delta.tool_use, dict):
            self._emit_arguments(block, block.json.append(_string(delta.tool_use.get("input"))))
        if isinstance(delta.reasoning_content, dict):
            self._add_reasoning(block, delta.reasoning_content)
        if delta.citation is not None and self._has_room():
            block.citations.append(delta.citation)
        if isinstance(delta.tool_result, list):
            block.results += [each for each in delta.tool_result if self._has_room()]

    def _add_reasoning(self, block: Block, told: Mapping[str, Any]) -> None:
        self._add_text(block, _string(told.get("text")))
        block.signature = word(told.get("signature")) or block.signature
        if redacted := word(told.get("redactedContent")):
            block.redacted.append(redacted)

    def _add_text(self, block: Block, text: str) -> None:
        piece = block.text.append(text)
        if piece and self._keeps_deltas:
            self._emit_text(block, piece)

    def _emit_text(self, block: Block, piece: str) -> None:
        if block.kind == REASONING:
            self._emit(ReasoningDelta(piece))
        # In forced mode the arguments are the answer and its text; other text is none (R-T2).
        elif block.kind == TEXT and not self._expectation.forced_tool:
            self._emit(TextDelta(piece))

    def _on_block_stop(self, data: bytes) -> None:
        index = self._index(_read_block_start(data).content_block_index)
        self.generated = True
        if block := self._blocks.get(index):
            self._close(block)

    def _close(self, block: Block) -> None:
        """Let go of half a character that was held back, and of arguments that never came in fragments."""
        if rest := block.text.close():
            self._emit_text(block, rest)
        self._emit_arguments(block, block.json.close())
        if not block.is_closed and not block.json:
            self._emit_arguments(block, block.arguments())
        block.is_closed = True

    def _on_message_stop(self, data: bytes) -> None:
        reason = _read_stop(data).stop_reason
        self.generated = True
        # The idle timeout stays in force, not that of a tail: without the metadata to come there is no answer.
        self._stopped = well_formed(reason or "")
        for block in self._blocks.values():
            self._close(block)
        self._settle()

    def _on_metadata(self, data: bytes) -> None:
        self._take_metadata(_read_metadata(data))
        self._has_metadata = True
        self._settle()

    def _settle(self) -> None:
        """The answer is whole with stop and metadata; without usage another metadata event may still tell it."""
        self._complete = self._stopped is not None and self._has_metadata
        usage = self._usage()
        self.done = self._complete and usage is not None and usage.is_seen
        self.awaits_tail = self.awaits_tail or self._complete

    # Usage

    def _take_metadata(self, told: _Metadata) -> None:
        self._take_usage(told.usage)
        if isinstance(told.service_tier, dict):
            self._service_tier = word(told.service_tier.get("type")) or self._service_tier
        if isinstance(told.performance_config, dict):
            self._latency = word(told.performance_config.get("latency")) or self._latency
        router = told.trace.get("promptRouter") if isinstance(told.trace, dict) else None
        if isinstance(router, dict):
            self._model_served = word(router.get("invokedModelId")) or self._model_served

    def _take_usage(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        before = self._totals.changes
        counted = self._totals.take(usage, at_stop=self._stopped is not None)
        if counted.input:
            for ttl in _TTLS:
                self._totals.remember(ttl, _written_for(ttl, usage.get("cacheDetails")))
        self.usage_changed = self.usage_changed or before != self._totals.changes

    def _usage(self) -> Usage | None:
        get = self._totals.get
        whole = with_cache_beside_input(get(_INPUT), get(_WRITE), get(_READ))
        if whole is None and get(_OUTPUT) is None:
            return None
        return Usage(
            input_tokens=whole,
            output_tokens=get(_OUTPUT),
            cache_write_tokens=get(_WRITE),
            cache_write_5m_tokens=get("5m"),
            cache_write_1h_tokens=get("1h"),
            cache_read_tokens=get(_READ),
            hosted_tool_requests=dict(self._hosted),
        )

    def _usage_is_final(self) -> bool:
        return self._totals.output_is_final

    def _price_factor(self) -> str | None:
        return f"latency={self._latency}" if self._latency not in ("", "standard") else None

    # What is known

    @property
    def _started(self) -> bool:
        return self._begun or self.generated

    @property
    def _stop_reason(self) -> str | None:
        return self._stopped

    def _ordered(self) -> list[Block]:
        return [block for _, block in sorted(self._opened, key=lambda opened: opened[0])]

    def _text(self) -> str:
        return "".join(str(block.text) for block in self._ordered() if block.kind == TEXT)

    def _reasoning(self) -> str:
        return "".join(str(block.text) for block in self._ordered() if block.kind == REASONING)

    def _open_calls(self) -> tuple[tuple[str, str, str], ...]:
        called = (block for _, block in self._opened if block.call_index is not None)
        return tuple((block.id, block.name, block.arguments()) for block in called)

    def _forced_arguments(self) -> str | None:
        return self._forced.arguments() if self._forced is not None else None

    def _hosted_tools(self) -> Iterable[HostedTool]:
        return hosted_tools(self._ordered())

    def _draft(self) -> Draft:
        reason = self._stopped or ""
        evidence = self._evidence()
        return Draft(
            text=evidence.partial_text,
            stop=BEDROCK.get(reason, Stop.UNRECOGNIZED),
            stop_reason=reason,
            evidence=evidence,
            tool_calls=self._whole_calls(),
            forced_arguments=self._forced_arguments(),
            hosted_tools=tuple(self._hosted_tools()),
            continuation=self._continuation(),
            service_tier=self._service_tier,
        )

    def _continuation(self) -> Continuation | None:
        """Return the turn in the provider's own blocks: signed reasoning must go back untouched."""
        if not self._calls:
            return None
        try:
            content = ",".join(text for block in self._ordered() if (text := turn_block(block)))
        except NotJson:  # nested too deeply to be written: no caller can send it back
            return None
        return Continuation(KIND, f'[{{"role":"assistant","content":[{content}]}}]')

    # The end

    def _finish(self, ending: Ending) -> Answer | Failure:
        if self._broken:
            stage = max(ending.stage, Stage.BODY)
            ending = Ending(end=End.RESET, cause=Cause.NETWORK, stage=stage, detail=self._broken)
        return super()._finish(ending)

    def _is_foreign(self) -> bool:
        return self._foreign

    # One JSON body

    def _finish_document(self, document: object, ending: Ending) -> Answer | Failure:
        if isinstance(document, dict) and "output" not in document and "usage" not in document:
            error = read_amazon_error(document)
            if error is not None:
                return self._finish_error(error, ending)
        return super()._finish_document(document, ending)

    def _take_document(self, document: dict[str, object]) -> bool:
        content = _content_of(document.get("output"))
        if content is None:
            return False
        self.generated = True
        self._take_reason(document.get("stopReason"))
        self._take_metadata(fill(_Metadata, document))
        self._take_content(content)
        self._complete = True
        return True

    def _take_reason(self, reason: object) -> None:
        if isinstance(reason, str):
            self._stopped = well_formed(reason)

    def _take_content(self, content: list[Any]) -> None:
        for index, each in enumerate(content):
            if not self._has_room():
                return
            kind, value = _only_member(each, whole=True)
            block = Block(kind, value if isinstance(value, dict) else None)
            block.whole = each if isinstance(each, dict) else None
            self._open(index, block)
            self._take_whole(block, value)
            self._close(block)

    def _take_whole(self, block: Block, value: Any) -> None:
        if block.kind == TEXT:
            self._add_text(block, _string(value))
        elif block.kind == REASONING:
            told = block.opened.get("reasoningText")
            self._add_reasoning(block, {**block.opened, **(told if isinstance(told, dict) else {})})
        elif block.kind == CITATIONS:
            block.kind = TEXT
            pieces = block.opened.get("content")
            for piece in pieces if isinstance(pieces, list) else ():
                self._add_text(block, _string(piece.get("text")) if isinstance(piece, dict) else "")

    def _take_members(self, members: Mapping[str, object]) -> None:
        for name, value in members.items():
            if name == "stopReason":
                self._take_reason(value)
            elif name == "output":
                self._take_content(_content_of(value) or [])
            else:
                self._take_metadata(fill(_Metadata, {name: value}))


def _document(payload: bytes) -> object:
    try:
        return loads_event(payload)
    except NotJson:
        return None


def _content_of(output: object) -> list[Any] | None:
    message = output.get("message") if isinstance(output, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, list) else None


def _only_member(union: object, *, whole: bool = False) -> tuple[str, Any]:
    """Return name and value of the one member of a union; names of tomorrow too."""
    for name, value in union.items() if isinstance(union, dict) else ():
        if whole or isinstance(value, dict):
            return name, value
    return "", None


def _kind_of(delta: _Delta) -> str:
    if delta.text:
        return TEXT
    if isinstance(delta.reasoning_content, dict):
        return REASONING
    if isinstance(delta.tool_use, dict):
        return CALL
    return RESULT if isinstance(delta.tool_result, list) else ""


def _fits(kind: str, block: Block) -> bool:
    """An empty delta and a citation fit every block."""
    return not kind or kind == block.kind


def _written_for(ttl: str, details: object) -> int | None:
    """Return the cache writes of one lifetime."""
    items = [item for item in details if isinstance(item, dict)] if isinstance(details, list) else []
    told = [counter(item.get(_INPUT)) for item in items if item.get("ttl") == ttl]
    figures = [figure for figure in told if figure is not None]
    return saturating_add(*figures) if figures else None


def _string(value: object) -> str:
    """Return a text as it is: half a character may stand at the end of one delta and the rest in the next."""
    return value if isinstance(value, str) else ""
