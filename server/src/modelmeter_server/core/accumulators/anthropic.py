"""Anthropic Messages: events or one JSON body in, what is known out.

Every counter in every event is a running total (R-U1). `message_start` is the start, so that any failure after it
has landed; only `message_stop` makes the answer whole (R-A1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..answers import HostedTool, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta
from ..counters import counter
from ..json_text import dumps_compact
from ..lenient import EventDecoder, fill
from ..requests import FORCED_TOOL, Continuation
from ..stop_reasons import ANTHROPIC, Stop
from ..text import well_formed
from ..text_buffer import TextBuffer
from ..usage import AdditionalUsage, Usage, with_cache_beside_input
from ..usage_meter import RunningTotals, part_of, reported_cost
from ..verdict import Draft
from .accumulator import Accumulator

KIND = "anthropic"

_INPUT = "input_tokens"
_WRITE = "cache_creation_input_tokens"
_READ = "cache_read_input_tokens"
_OUTPUT = "output_tokens"
_WRITE_5M = "ephemeral_5m_input_tokens"
_WRITE_1H = "ephemeral_1h_input_tokens"

# Iterations of these types are billed beside the top level; `message` entries are what the top level sums up (R-U8).
_BESIDE_TOP_LEVEL = ("compaction", "advisor")


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
    index: int = 0
    content_block: Any = None


class _BlockDelta(msgspec.Struct):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    citation: Any = None


class _ContentBlockDelta(msgspec.Struct):
    index: int = 0
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
_read_message_delta = EventDecoder(_MessageDelta)


class _Block:
    """One content block: as it was opened, and what its deltas added."""

    __slots__ = ("call_index", "citations", "json", "opened", "signature", "text", "type")

    def __init__(self, opened: dict[str, Any]) -> None:
        self.opened = opened
        self.type = str(opened.get("type", ""))
        self.text = TextBuffer()
        self.json = TextBuffer()
        self.signature = ""
        self.citations: list[Any] = []
        self.call_index: int | None = None
        """Position among the caller's tool calls."""

    @property
    def name(self) -> str:
        return well_formed(str(self.opened.get("name") or ""))

    @property
    def id(self) -> str:
        return well_formed(str(self.opened.get("id") or ""))

    def arguments(self) -> str:
        """Return the argument text: fragments, else the `input` that the block was opened with (R-T3)."""
        fragments = str(self.json)
        if fragments:
            return fragments
        opened = self.opened.get("input")
        return well_formed(dumps_compact(opened)) if opened else ""


class AnthropicAccumulator(Accumulator):
    """Read one answer of the Messages API."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._begun = False
        self._totals = RunningTotals((_INPUT, _WRITE, _READ), _OUTPUT)
        self._beside: tuple[AdditionalUsage, ...] = ()
        self._raw_usage: dict[str, Any] = {}
        self._blocks: dict[int, _Block] = {}
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

    def _on_message_start(self, data: bytes) -> None:
        self._begun = self.generated = True
        self._take_head(_read_start(data).message)

    def _take_head(self, message: _Message) -> None:
        self._response_id = well_formed(message.id) or self._response_id
        self._model_served = well_formed(message.model) or self._model_served
        self._take_usage(message.usage)

    def _on_block_start(self, data: bytes) -> None:
        self.generated = True
        event = _read_block_start(data)
        opened = event.content_block if isinstance(event.content_block, dict) else {}
        self._open(event.index, _Block(opened))

    def _open(self, index: int, block: _Block) -> None:
        self._blocks[index] = block
        if block.type == "tool_use" and not self._is_forced(block):
            block.call_index = self._calls
            self._calls += 1
            self._emit(ToolCallDelta(index=block.call_index, id=block.id, name=block.name))
        if text := block.opened.get("text"):
            self._emit_text(block, block.text.append(str(text)))
        if thinking := block.opened.get("thinking"):
            self._emit_reasoning(block.text.append(str(thinking)))

    def _is_forced(self, block: _Block) -> bool:
        return self._expectation.forced_tool and block.name == FORCED_TOOL

    def _on_block_delta(self, data: bytes) -> None:
        self.generated = True
        event = _read_block_delta(data)
        delta = event.delta
        block = self._blocks.get(event.index)
        if block is None:
            block = self._blocks[event.index] = _Block({"type": _TYPE_BY_DELTA.get(delta.type, "")})
        if delta.text:
            piece = block.text.append(delta.text)
            if self._keeps_deltas:
                self._emit_text(block, piece)
        elif delta.partial_json:
            self._add_arguments(block, delta.partial_json)
        elif delta.thinking:
            self._emit_reasoning(block.text.append(delta.thinking))
        elif delta.signature:
            block.signature = delta.signature
        elif delta.citation is not None:
            block.citations.append(delta.citation)

    def _emit_text(self, block: _Block, piece: str) -> None:
        # In forced mode the arguments are the answer and its text; other text is none (R-T2).
        if piece and self._keeps_deltas and block.type == "text" and not self._expectation.forced_tool:
            self._emit(TextDelta(piece))

    def _emit_reasoning(self, piece: str) -> None:
        if piece and self._keeps_deltas:
            self._emit(ReasoningDelta(piece))

    def _add_arguments(self, block: _Block, fragment: str) -> None:
        self._emit_arguments(block, block.json.append(fragment))

    def _emit_arguments(self, block: _Block, piece: str) -> None:
        if not piece or not self._keeps_deltas:
            return
        if block.call_index is not None:
            self._emit(ToolCallDelta(index=block.call_index, arguments_json=piece))
        elif self._is_forced(block):
            self._emit(TextDelta(piece))

    def _on_block_stop(self, data: bytes) -> None:
        block = self._blocks.get(_read_block_start(data).index)
        if block is not None:
            self._close(block)

    def _close(self, block: _Block) -> None:
        """Let go of half a character that was held back for a delta which never came."""
        rest = block.text.close()
        if block.type == "thinking":
            self._emit_reasoning(rest)
        else:
            self._emit_text(block, rest)
        self._emit_arguments(block, block.json.close())

    def _on_message_delta(self, data: bytes) -> None:
        self.generated = True
        event = _read_message_delta(data)
        self._take_stop(event.delta.stop_reason, event.delta.stop_details)
        self._take_usage(event.usage)

    def _take_stop(self, reason: str | None, details: Any) -> None:
        if reason:
            self._stopped = well_formed(reason)
            self._stop_details = details

    def _on_message_stop(self, data: bytes) -> None:
        self.generated = self._complete = self.done = True
        for block in self._blocks.values():
            self._close(block)

    # Usage

    def _take_usage(self, usage: Any) -> None:
        if not isinstance(usage, Mapping):
            return
        self._raw_usage.update(usage)
        if self._totals.take(usage, at_stop=self._stopped is not None):
            self.usage_changed = True
        for name in (_WRITE_5M, _WRITE_1H):
            self._totals.remember(name, part_of(usage, "cache_creation", name))
        self._totals.remember("thinking", part_of(usage, "output_tokens_details", "thinking_tokens"))
        if isinstance(usage.get("iterations"), list):
            self._beside = tuple(_beside_top_level(usage["iterations"]))
        if isinstance(usage.get("service_tier"), str):
            self._service_tier = well_formed(usage["service_tier"])

    def _usage(self) -> Usage | None:
        get = self._totals.get
        whole = with_cache_beside_input(get(_INPUT), get(_WRITE), get(_READ))
        if whole is None and get(_OUTPUT) is None:
            return None
        return Usage(
            input_tokens=whole,
            output_tokens=get(_OUTPUT),
            cache_write_tokens=get(_WRITE),
            cache_write_5m_tokens=get(_WRITE_5M),
            cache_write_1h_tokens=get(_WRITE_1H),
            cache_read_tokens=get(_READ),
            reasoning_tokens=get("thinking"),
            hosted_tool_requests=_hosted_requests(self._raw_usage.get("server_tool_use")),
        )

    def _usage_is_final(self) -> bool:
        return self._totals.output_is_final

    def _additional_usage(self) -> tuple[AdditionalUsage, ...]:
        return self._beside

    # What is known

    @property
    def _started(self) -> bool:
        return self._begun

    @property
    def _stop_reason(self) -> str | None:
        return self._stopped

    def _ordered(self) -> list[_Block]:
        return [self._blocks[index] for index in sorted(self._blocks)]

    def _text(self) -> str:
        return "".join(str(block.text) for block in self._ordered() if block.type == "text")

    def _reasoning(self) -> str:
        return "".join(str(block.text) for block in self._ordered() if block.type == "thinking")

    def _called(self) -> list[_Block]:
        calls = [block for block in self._blocks.values() if block.call_index is not None]
        return sorted(calls, key=lambda block: block.call_index or 0)

    def _open_calls(self) -> tuple[tuple[str, str, str], ...]:
        return tuple((block.id, block.name, block.arguments()) for block in self._called())

    def _forced_arguments(self) -> str | None:
        forced = [b for b in self._ordered() if b.type == "tool_use" and self._is_forced(b)]
        return forced[0].arguments() if forced else None

    def _draft(self) -> Draft:
        reason = self._stopped or ""
        evidence = self._evidence()
        return Draft(
            text=evidence.partial_text,
            stop=ANTHROPIC.get(reason, Stop.UNRECOGNIZED),
            stop_reason=reason,
            evidence=evidence,
            tool_calls=tuple(
                ToolCall(id=id, name=name, arguments_json=arguments or "{}")
                for id, name, arguments in self._open_calls()
            ),
            forced_arguments=self._forced_arguments(),
            refusal=self._refusal(),
            hosted_tools=tuple(_hosted_tools(self._ordered())),
            continuation=self._continuation(),
            service_tier=self._service_tier,
            reported_cost=reported_cost(self._raw_usage, evidence.certainty),
        )

    def _refusal(self) -> str | None:
        if self._stopped != "refusal":
            return None
        category = self._stop_details.get("category") if isinstance(self._stop_details, dict) else None
        return "the model refused to answer" + (f" ({well_formed(str(category))})" if category else "")

    def _continuation(self) -> Continuation | None:
        """Return the turn in the provider's own blocks: signed thinking must go back untouched."""
        if not self._calls:
            return None
        content = ",".join(_turn_block(block) for block in self._ordered())
        return Continuation(KIND, f'[{{"role":"assistant","content":[{content}]}}]')

    # One JSON body

    def _take_document(self, document: dict[str, object]) -> bool:
        message = fill(_Message, document)
        if document.get("type") == "error" or not isinstance(message.content, list):
            return False
        self._begun = self.generated = True
        self._take_stop(message.stop_reason, message.stop_details)
        self._take_head(message)
        for index, content in enumerate(message.content):
            if isinstance(content, dict):
                block = _Block(content)
                block.signature = str(content.get("signature") or "")
                self._open(index, block)
                self._close(block)
        self._complete = True
        return True

    def _take_members(self, members: Mapping[str, object]) -> None:
        for name, value in members.items():
            if name == "stop_reason" and isinstance(value, str):
                self._take_stop(value, None)
            elif name in ("id", "model", "usage"):
                self._take_head(fill(_Message, {name: value}))


_TYPE_BY_DELTA = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "thinking"}


def _beside_top_level(iterations: list[Any]) -> list[AdditionalUsage]:
    return [
        AdditionalUsage(
            kind=well_formed(each["type"]),
            model=well_formed(each["model"]) if isinstance(each.get("model"), str) else None,
            usage=_iteration_usage(each),
        )
        for each in iterations
        if isinstance(each, dict) and str(each.get("type", "")).startswith(_BESIDE_TOP_LEVEL)
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


def _hosted_requests(told: Any) -> dict[str, int]:
    """Read `{"web_search_requests": 2}` as `{"web_search": 2}`; what was not used is left out."""
    if not isinstance(told, dict):
        return {}
    return {
        well_formed(name.removesuffix("_requests")): requests
        for name, value in told.items()
        if (requests := counter(value))
    }


def _hosted_tools(blocks: list[_Block]) -> list[HostedTool]:
    return [
        HostedTool(type=block.name or block.type, id=block.id)
        for block in blocks
        if block.type in ("server_tool_use", "mcp_tool_use")
    ]


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
    turn.pop("input", None)
    return dumps_compact(turn)[:-1] + f',"input":{block.arguments() or "{}"}}}'
