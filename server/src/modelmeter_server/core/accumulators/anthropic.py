"""Anthropic Messages: events or one JSON body in, what is known out.

Every counter in every event is a running total (R-U1). `message_start` is the start, so that any failure after it
has landed; only `message_stop` makes the answer whole (R-A1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ..answers import ReasoningDelta, TextDelta, ToolCallDelta
from ..counters import counter
from ..json_text import NotJson, dumps_compact, loads_event, loads_strict
from ..lenient import UNREADABLE, EventDecoder, fill, word
from ..requests import FORCED_TOOL, Continuation
from ..stop_reasons import ANTHROPIC, Stop
from ..text import cut_utf8, well_formed
from ..text_buffer import TextBuffer
from ..usage import AdditionalUsage, Usage, with_cache_beside_input
from ..usage_meter import RunningTotals, part_of, reported_nanos
from ..verdict import Draft
from .accumulator import Accumulator, spelled
from .anthropic_tools import billed_tool, hosted_requests, hosted_tools

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..hosted import HostedTool

KIND = "anthropic"

_INPUT = "input_tokens"
_WRITE = "cache_creation_input_tokens"
_READ = "cache_read_input_tokens"
_OUTPUT = "output_tokens"
_WRITE_5M = "ephemeral_5m_input_tokens"
_WRITE_1H = "ephemeral_1h_input_tokens"

# Iterations of these types are billed beside the top level; `message` entries are what the top level sums up (R-U8).
_BESIDE_TOP_LEVEL = ("compaction", "advisor")


# What else changes the price besides the service tier, and its values that do not.
_PRICE_FACTORS = {"inference_geo": ("global", "not_available"), "speed": ("standard",)}

_EVIDENCE = frozenset(
    ("message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta")
)


class _Message(msgspec.Struct):
    id: str = ""
    model: str = ""
    usage: Any = None
    stop_reason: str | None = None
    stop_details: Any = None
    content: Any = None


class _MessageStart(msgspec.Struct):
    message: _Message = msgspec.field(default_factory=_Message)


class _BlockStart(msgspec.Struct):
    index: int | None = None
    content_block: Any = None


class _BlockDelta(msgspec.Struct):
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    citation: Any = None


class _ContentBlockDelta(msgspec.Struct):
    index: int | None = None
    delta: _BlockDelta = msgspec.field(default_factory=_BlockDelta)


class _Stop(msgspec.Struct):
    stop_reason: str | None = None
    stop_details: Any = None


class _MessageDelta(msgspec.Struct):
    delta: _Stop = msgspec.field(default_factory=_Stop)
    usage: Any = None


_read_start = EventDecoder(_MessageStart)
_read_block_start = EventDecoder(_BlockStart)
_read_block_delta = EventDecoder(_ContentBlockDelta)
_decode_block_delta = _read_block_delta.strictly
_read_message_delta = EventDecoder(_MessageDelta)


class _Block:
    """One content block: as it was opened, and what its deltas added."""

    __slots__ = ("call_index", "citations", "is_closed", "json", "opened", "signature", "text", "type")

    def __init__(self, opened: dict[str, Any]) -> None:
        self.opened = opened
        self.type = word(opened.get("type"))
        self.text = TextBuffer()
        """The thinking, in a block of thinking."""
        self.json = TextBuffer()
        self.signature = word(opened.get("signature"))
        told = opened.get("citations")
        self.citations: list[Any] = list(told) if isinstance(told, list) else []
        self.call_index: int | None = None
        """Position among the caller's tool calls."""
        self.is_closed = False

    @property
    def name(self) -> str:
        return word(self.opened.get("name"))

    @property
    def id(self) -> str:
        return word(self.opened.get("id"))

    def arguments(self) -> str:
        """Return the argument text: fragments, else the `input` that the block was opened with (R-T3)."""
        return str(self.json) or spelled(self.opened.get("input") or None)


class AnthropicAccumulator(Accumulator):
    """Read one answer of the Messages API."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._begun = False
        self._totals = RunningTotals((_INPUT, _WRITE, _READ), _OUTPUT)
        self._beside: tuple[AdditionalUsage, ...] = ()
        self._raw_usage: dict[str, Any] = {}
        self._cost_came_with_stop = False
        self._hosted: dict[str, int] = {}
        """Requests to the provider's own tools, as told."""
        self._hosted_at_stop: set[str] = set()
        self._hosted_results: dict[str, int] = {}
        self._blocks: dict[int, _Block] = {}
        """The block that an index means now."""
        self._opened: list[tuple[int, _Block]] = []
        """Every block with its index: gateways use one twice, and what was opened is part of the answer."""
        self._last_index = -1
        self._forced: _Block | None = None
        self._calls = 0
        self._stopped: str | None = None
        self._stop_details: Any = None
        self._handlers |= {
            "content_block_delta": self._on_block_delta,
            "content_block_start": self._on_block_start,
            "content_block_stop": self._on_block_stop,
            "message_start": self._on_message_start,
            "message_delta": self._on_message_delta,
            "message_stop": self._on_message_stop,
        }

    # Events

    def _proves_generation(self, name: str) -> bool:
        return name in _EVIDENCE

    def _on_message_start(self, data: bytes) -> None:
        message = _read_start(data).message
        self._begun = self.generated = True
        self._take_head(message)

    def _take_head(self, message: _Message) -> None:
        self._response_id = well_formed(message.id) or self._response_id
        self._model_served = well_formed(message.model) or self._model_served
        self._take_usage(message.usage)

    def _on_block_start(self, data: bytes) -> None:
        event = _read_block_start(data)
        self.generated = True
        if self._has_room():
            opened = event.content_block if isinstance(event.content_block, dict) else {}
            self._open(self._last_index + 1 if event.index is None else event.index, _Block(opened))

    def _open(self, index: int, block: _Block) -> None:
        if before := self._blocks.get(index):
            self._close(before)
        self._blocks[index] = block
        self._last_index = index
        self._opened.append((index, block))
        if block.type == "tool_use":
            self._begin_call(block)
        elif (tool := billed_tool(block)) is not None:
            self._hosted_results[tool] = self._hosted_results.get(tool, 0) + 1
        self._add_text(block, word(block.opened.get("thinking" if block.type == "thinking" else "text")))

    def _begin_call(self, block: _Block) -> None:
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
        index = self._last_index if event.index is None else event.index
        block = self._blocks.get(index)
        if block is not None and block.type == "text" and delta.text:
            # Nearly every event: the same as below, without a call for each step (a third of an event's cost).
            piece = block.text.append(delta.text)
            if piece and self._keeps_deltas:
                self._emit_text(block, piece)
            return
        if block is None or not _fits(delta, block):
            # Its start was lost, or it is another kind of text: thinking must not become the answer (R-X5).
            if not self._has_room():
                return
            block = _Block({"type": _block_type(delta)})
            self._open(index, block)
        if delta.text:
            self._add_text(block, delta.text)
        elif delta.partial_json:
            self._emit_arguments(block, block.json.append(delta.partial_json))
        elif delta.thinking:
            self._add_text(block, delta.thinking)
        elif delta.signature:
            block.signature = delta.signature
        elif delta.citation is not None:
            block.citations.append(delta.citation)

    def _add_text(self, block: _Block, text: str) -> None:
        piece = block.text.append(text)
        if piece and self._keeps_deltas:
            self._emit_text(block, piece)

    def _emit_text(self, block: _Block, piece: str) -> None:
        if block.type == "thinking":
            self._emit(ReasoningDelta(piece))
        # In forced mode the arguments are the answer and its text; other text is none (R-T2).
        elif block.type == "text" and not self._expectation.forced_tool:
            self._emit(TextDelta(piece))

    def _on_block_stop(self, data: bytes) -> None:
        index = _read_block_start(data).index
        self.generated = True
        block = self._blocks.get(self._last_index if index is None else index)
        if block is not None:
            self._close(block)

    def _close(self, block: _Block) -> None:
        """Let go of half a character that was held back, and of arguments that never came in fragments."""
        if rest := block.text.close():
            self._emit_text(block, rest)
        self._emit_arguments(block, block.json.close())
        if not block.is_closed and not block.json:
            self._emit_arguments(block, block.arguments())
        block.is_closed = True

    def _on_message_delta(self, data: bytes) -> None:
        event = _read_message_delta(data)
        self.generated = True
        self._take_stop(event.delta.stop_reason, event.delta.stop_details)
        self._take_usage(event.usage)

    def _take_stop(self, reason: str | None, details: Any) -> None:
        if reason:
            self._stopped = well_formed(reason)
            self._stop_details = details

    def _on_message_stop(self, data: bytes) -> None:
        loads_event(data)  # broken data is no event (R-S1), and this one would make an answer
        self.generated = self._complete = self.done = True
        for block in self._blocks.values():
            self._close(block)

    # Usage

    def _take_usage(self, usage: Any) -> None:
        if not isinstance(usage, Mapping):
            return
        if reported_nanos(usage) is not None:
            self._cost_came_with_stop = self._stopped is not None
        self._raw_usage.update((name, value) for name, value in usage.items() if value is not None)
        self._take_counters(usage)
        self._take_hosted(usage.get("server_tool_use"))
        if isinstance(usage.get("iterations"), list):
            beside = tuple(_beside_top_level(usage["iterations"]))
            self.usage_changed = self.usage_changed or beside != self._beside
            self._beside = beside
        self._service_tier = word(usage.get("service_tier")) or self._service_tier

    def _take_hosted(self, told: Any) -> None:
        """Take `{"web_search_requests": 2}` as two requests to `web_search`."""
        for name, value in told.items() if isinstance(told, dict) else ():
            tool, requests = well_formed(name.removesuffix("_requests")), counter(value)
            if requests is not None and self._stopped is not None:
                self._hosted_at_stop.add(tool)
            if requests is not None and self._hosted.get(tool) != requests:
                self._hosted[tool] = requests
                self.usage_changed = True

    def _take_counters(self, usage: Mapping[str, Any]) -> None:
        before = self._totals.changes
        counted = self._totals.take(usage, at_stop=self._stopped is not None)
        if counted.input:
            for name in (_WRITE_5M, _WRITE_1H):
                self._totals.remember(name, part_of(usage, "cache_creation", name))
        if counted.output:
            self._totals.remember("thinking", part_of(usage, "output_tokens_details", "thinking_tokens"))
        self.usage_changed = self.usage_changed or before != self._totals.changes

    def _usage(self) -> Usage | None:
        get = self._totals.get
        whole = with_cache_beside_input(get(_INPUT), get(_WRITE), get(_READ))
        if whole is None and get(_OUTPUT) is None and not any(self._hosted.values()):
            return None
        return Usage(
            input_tokens=whole,
            output_tokens=get(_OUTPUT),
            cache_write_tokens=get(_WRITE),
            cache_write_5m_tokens=get(_WRITE_5M),
            cache_write_1h_tokens=get(_WRITE_1H),
            cache_read_tokens=get(_READ),
            reasoning_tokens=get("thinking"),
            hosted_tool_requests=hosted_requests(
                self._hosted, self._hosted_results, frozenset(self._hosted_at_stop)
            ),
        )

    def _usage_is_final(self) -> bool:
        return self._totals.output_is_final

    def _additional_usage(self) -> tuple[AdditionalUsage, ...]:
        return self._beside

    def _reported_nanos(self) -> int | None:
        return reported_nanos(self._raw_usage)

    def _cost_is_final(self) -> bool:
        return self._cost_came_with_stop

    def _price_factor(self) -> str | None:
        for name, usual in _PRICE_FACTORS.items():
            told = word(self._raw_usage.get(name))
            if told and told not in usual:
                return f"{name}={told}"
        return None

    # What is known

    @property
    def _started(self) -> bool:
        return self._begun

    @property
    def _stop_reason(self) -> str | None:
        return self._stopped

    def _ordered(self) -> list[_Block]:
        return [block for _, block in sorted(self._opened, key=lambda opened: opened[0])]

    def _text(self) -> str:
        return "".join(str(block.text) for block in self._ordered() if block.type == "text")

    def _reasoning(self) -> str:
        return "".join(str(block.text) for block in self._ordered() if block.type == "thinking")

    def _called(self) -> list[_Block]:
        return [block for _, block in self._opened if block.call_index is not None]

    def _open_calls(self) -> tuple[tuple[str, str, str], ...]:
        return tuple((block.id, block.name, block.arguments()) for block in self._called())

    def _forced_arguments(self) -> str | None:
        return self._forced.arguments() if self._forced is not None else None

    def _hosted_tools(self) -> Iterable[HostedTool]:
        return hosted_tools(self._ordered())

    def _draft(self) -> Draft:
        reason = self._stopped or ""
        evidence = self._evidence()
        return Draft(
            text=evidence.partial_text,
            stop=ANTHROPIC.get(reason, Stop.UNRECOGNIZED),
            stop_reason=reason,
            evidence=evidence,
            tool_calls=self._whole_calls(),
            forced_arguments=self._forced_arguments(),
            refusal=self._refusal(),
            hosted_tools=tuple(self._hosted_tools()),
            continuation=self._continuation(),
            service_tier=self._service_tier,
        )

    def _refusal(self) -> str | None:
        if self._stopped != "refusal":
            return None
        told = self._stop_details.get("category") if isinstance(self._stop_details, dict) else None
        category = cut_utf8(word(told), 64)
        return "the model refused to answer" + (f" ({category})" if category else "")

    def _continuation(self) -> Continuation | None:
        """Return the turn in the provider's own blocks: signed thinking must go back untouched.

        A pause goes on from the turn too: uses of the provider's own tools stand nowhere else.
        """
        if not self._calls and ANTHROPIC.get(self._stopped or "") is not Stop.CONTINUE:
            return None
        try:
            content = ",".join(_turn_block(block) for block in self._ordered() if block.type)
        except NotJson:  # nested too deeply to be written: no caller can send it back
            return None
        return Continuation(KIND, f'[{{"role":"assistant","content":[{content}]}}]')

    # One JSON body

    def _take_document(self, document: dict[str, object]) -> bool:
        message = fill(_Message, document)
        if document.get("type") == "error" or not isinstance(message.content, list):
            return False
        self._begun = self.generated = True
        self._take_stop(message.stop_reason, message.stop_details)
        self._take_head(message)
        self._take_content(message.content)
        self._complete = True
        return True

    def _take_content(self, content: list[Any]) -> None:
        for index, each in enumerate(content):
            if not self._has_room():
                return
            block = _Block(each if isinstance(each, dict) else {})
            self._open(index, block)
            self._close(block)

    def _take_members(self, members: Mapping[str, object]) -> None:
        for name, value in members.items():
            if name == "stop_reason" and isinstance(value, str):
                self._take_stop(value, None)
            elif name in ("id", "model", "usage"):
                self._take_head(fill(_Message, {name: value}))
            elif name == "content" and isinstance(value, list):
                self._take_content(value)


def _block_type(delta: _BlockDelta) -> str:
    if delta.text:
        return "text"
    return "thinking" if delta.thinking or delta.signature else ""


def _fits(delta: _BlockDelta, block: _Block) -> bool:
    is_thinking = block.type == "thinking"
    return not ((delta.thinking and not is_thinking) or (delta.text and is_thinking))


def _beside_top_level(iterations: list[Any]) -> list[AdditionalUsage]:
    return [
        AdditionalUsage(
            kind=word(each.get("type")), model=word(each.get("model")) or None, usage=_iteration_usage(each)
        )
        for each in iterations
        if isinstance(each, dict) and word(each.get("type")).startswith(_BESIDE_TOP_LEVEL)
    ]


def _iteration_usage(each: dict[str, Any]) -> Usage:
    write, read = counter(each.get(_WRITE)), counter(each.get(_READ))
    return Usage(
        input_tokens=with_cache_beside_input(counter(each.get(_INPUT)), write, read),
        output_tokens=counter(each.get(_OUTPUT)),
        cache_write_tokens=write,
        cache_write_5m_tokens=part_of(each, "cache_creation", _WRITE_5M),
        cache_write_1h_tokens=part_of(each, "cache_creation", _WRITE_1H),
        cache_read_tokens=read,
    )


def _turn_block(block: _Block) -> str:
    """Return the block as it must go back: opened fields, with what the deltas added."""
    turn = dict(block.opened)
    if block.type == "text":
        turn["text"] = str(block.text)
    if block.type == "thinking":
        turn["thinking"] = str(block.text)
        turn["signature"] = block.signature
    if block.citations:
        turn["citations"] = block.citations
    if not block.type.endswith("tool_use"):
        return dumps_compact(turn)
    # The arguments go back as the very text that was generated, not as a reading of it.
    arguments = block.arguments() or "{}"
    loads_strict(arguments)
    turn.pop("input", None)
    return f'{dumps_compact(turn)[:-1]},"input":{arguments}}}'
