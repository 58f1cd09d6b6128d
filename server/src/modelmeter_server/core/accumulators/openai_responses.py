"""OpenAI Responses: events or one JSON body in, what is known out.

The terminal event carries the whole response and is the authority; what was streamed before it stands in only where
its output is empty (R-O1). Usage comes with the terminal event and never before, so that a cut stream is unaccounted.
Items interleave and gateways change their ids on the way: they are told apart by `output_index`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ..answers import Answer, HostedTool, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta
from ..counters import counter
from ..json_text import NotJson, dumps_compact
from ..ladder import severed
from ..lenient import EventDecoder, word
from ..outcomes import Cause, End, Ending, Stage
from ..provider_errors import ProviderError, read_error
from ..requests import FORCED_TOOL, Continuation
from ..stop_reasons import OPENAI_RESPONSES, Stop
from ..text import well_formed
from ..text_buffer import TextBuffer
from ..usage import Usage
from ..usage_meter import part_of, reported_nanos
from ..verdict import Draft, judge
from .accumulator import Accumulator, spelled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..errors import Failure

KIND = "openai_responses"

_ACCEPTED = ("queued", "in_progress")
"""A body with one of these states has been accepted and will run; an event with one proves nothing (R-O1)."""


class _Delta(msgspec.Struct):
    output_index: int = 0
    content_index: int = 0
    summary_index: int = 0
    delta: str = ""


class _Done(msgspec.Struct):
    output_index: int = 0
    content_index: int = 0
    summary_index: int = 0
    text: str = ""
    arguments: str = ""
    input: str = ""


class _ItemEvent(msgspec.Struct):
    output_index: int = 0
    item: Any = None


class _ResponseEvent(msgspec.Struct):
    response: Any = None


_read_delta = EventDecoder(_Delta)
_read_done = EventDecoder(_Done)
_read_item = EventDecoder(_ItemEvent)
_read_response = EventDecoder(_ResponseEvent)


class _Item:
    """One output item while it streams."""

    __slots__ = ("arguments", "call_index", "fields", "is_refusal", "reasoning", "texts")

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        """As last told by `output_item.added` or `.done`."""
        self.texts: dict[int, TextBuffer] = {}
        self.reasoning: dict[int, TextBuffer] = {}
        self.arguments = TextBuffer()
        self.call_index: int | None = None
        self.is_refusal = False

    @property
    def is_commentary(self) -> bool:
        """Say whether the message is a remark on the work and not the answer."""
        return self.fields.get("phase") == "commentary"

    def text(self) -> str:
        return _joined(self.texts)

    def thoughts(self) -> str:
        """Return what is billed and no part of the answer (R-X5)."""
        return _joined(self.reasoning) + (self.text() if self.is_commentary else "")

    def whole(self) -> dict[str, Any]:
        """Return the item in the provider's shape, with streamed parts where `output_item.done` never came."""
        item = dict(self.fields)
        if self.arguments and not item.get("arguments") and not item.get("input"):
            item["input" if item.get("type") == "custom_tool_call" else "arguments"] = str(self.arguments)
        if self.texts and not item.get("content"):
            item.setdefault("type", "message")
            item["content"] = [{"type": "output_text", "text": self.text()}]
        return item


class OpenAIResponsesAccumulator(Accumulator):
    """Read one answer of the Responses API."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._items: dict[int, _Item] = {}
        self._forced: _Item | None = None
        self._calls = 0
        self._status: str | None = None
        self._reason: str | None = None
        self._output: list[dict[str, Any]] = []
        self._failure: ProviderError | None = None
        self._raw_usage: dict[str, Any] = {}
        self._usage_told: Usage | None = None
        self._is_final = False
        self._hosted_requests: dict[str, int] = {}
        self._handlers |= {
            "response.output_text.delta": self._on_text_delta,
            "response.output_text.done": self._on_text_done,
            "response.reasoning_text.delta": self._on_reasoning_delta,
            "response.reasoning_summary_text.delta": self._on_summary_delta,
            "response.refusal.delta": self._on_refusal,
            "response.refusal.done": self._on_refusal,
            "response.function_call_arguments.delta": self._on_arguments_delta,
            "response.custom_tool_call_input.delta": self._on_arguments_delta,
            "response.function_call_arguments.done": self._on_arguments_done,
            "response.custom_tool_call_input.done": self._on_arguments_done,
            "response.output_item.added": self._on_item,
            "response.output_item.done": self._on_item_done,
            "response.created": self._on_progress,
            "response.queued": self._on_progress,
            "response.in_progress": self._on_progress,
            "response.completed": partial(self._on_end, "completed"),
            "response.incomplete": partial(self._on_end, "incomplete"),
            "response.failed": partial(self._on_end, "failed"),
            "response.done": partial(self._on_end, "completed"),
        }

    # Events

    def _proves_generation(self, name: str) -> bool:
        return name.endswith(".delta") or name.startswith("response.output_item.")

    def _item(self, index: int) -> _Item:
        self.generated = True
        item = self._items.get(index)
        if item is None:
            item = _Item()
            if self._has_room():
                self._items[index] = item
        return item

    def _part(self, parts: dict[int, TextBuffer], index: int) -> TextBuffer:
        buffer = parts.get(index)
        if buffer is None:
            buffer = TextBuffer()
            if self._has_room():
                parts[index] = buffer
        return buffer

    def _on_text_delta(self, data: bytes) -> None:
        event = _read_delta(data)
        item = self._item(event.output_index)
        self._emit_text(item, self._part(item.texts, event.content_index).append(event.delta))

    def _on_text_done(self, data: bytes) -> None:
        """End a text part. Its `text` repeats the deltas and counts only where none came (R-O1: text once)."""
        event = _read_done(data)
        item = self._item(event.output_index)
        buffer = self._part(item.texts, event.content_index)
        self._emit_text(item, buffer.append(event.text) if not buffer else "")
        self._emit_text(item, buffer.close())

    def _emit_text(self, item: _Item, piece: str) -> None:
        if not piece or not self._keeps_deltas:
            return
        if item.is_commentary:
            self._emit(ReasoningDelta(piece))
        elif not self._expectation.forced_tool:
            self._emit(TextDelta(piece))

    def _on_reasoning_delta(self, data: bytes) -> None:
        event = _read_delta(data)
        self._add_reasoning(event.output_index, event.content_index, event.delta)

    def _on_summary_delta(self, data: bytes) -> None:
        event = _read_delta(data)
        self._add_reasoning(event.output_index, event.summary_index, event.delta)

    def _add_reasoning(self, output_index: int, index: int, text: str) -> None:
        piece = self._part(self._item(output_index).reasoning, index).append(text)
        if piece and self._keeps_deltas:
            self._emit(ReasoningDelta(piece))

    def _on_refusal(self, data: bytes) -> None:
        self._item(_read_delta(data).output_index).is_refusal = True

    def _on_arguments_delta(self, data: bytes) -> None:
        event = _read_delta(data)
        item = self._item(event.output_index)
        self._emit_arguments(item, item.arguments.append(event.delta))

    def _on_arguments_done(self, data: bytes) -> None:
        event = _read_done(data)
        self._end_arguments(self._item(event.output_index), event.arguments or event.input)

    def _end_arguments(self, item: _Item, whole: str) -> None:
        """End a call's arguments. The whole text repeats the deltas and counts only where none came."""
        if not item.arguments:
            self._emit_arguments(item, item.arguments.append(whole))
        self._emit_arguments(item, item.arguments.close())

    def _emit_arguments(self, item: _Item, piece: str) -> None:
        if not piece or not self._keeps_deltas:
            return
        if item.call_index is not None:
            self._emit(ToolCallDelta(index=item.call_index, arguments_json=piece))
        elif item is self._forced:
            self._emit(TextDelta(piece))

    def _on_item(self, data: bytes) -> None:
        self._take_item(data)

    def _on_item_done(self, data: bytes) -> None:
        item = self._take_item(data)
        if _is_call(item.fields):
            self._end_arguments(item, _call(item.fields).arguments_json)

    def _take_item(self, data: bytes) -> _Item:
        event = _read_item(data)
        item = self._item(event.output_index)
        if not isinstance(event.item, dict):
            return item
        item.fields = event.item
        if self._is_forced(event.item):
            # Of two calls of the forced tool the first is the answer.
            self._forced = self._forced or item
        elif item.call_index is None and _is_call(event.item):
            item.call_index = self._calls
            self._calls += 1
            call = _call(event.item)
            self._emit(ToolCallDelta(index=item.call_index, id=call.id, name=call.name))
        return item

    def _is_forced(self, item: Mapping[str, Any]) -> bool:
        return (
            self._expectation.forced_tool
            and item.get("type") == "function_call"
            and item.get("name") == FORCED_TOOL
        )

    def _on_progress(self, data: bytes) -> None:
        response = _read_response(data).response
        if isinstance(response, dict):
            self._take_head(response)

    def _on_end(self, status: str, data: bytes) -> None:
        """Take a terminal event; its name gives the status where the object has none of an end (R-S0)."""
        response = _read_response(data).response
        # Without its response object the event says neither what was answered nor what it cost: the ladder decides.
        self.done = True
        if not isinstance(response, dict):
            return
        told = response.get("status")
        if status == "failed" or not isinstance(told, str) or told in ("", *_ACCEPTED):
            response = {**response, "status": status}
        self._take_response(response)

    # The response object

    def _take_head(self, response: Mapping[str, Any]) -> None:
        self._response_id = word(response.get("id")) or self._response_id
        self._model_served = word(response.get("model")) or self._model_served
        self._service_tier = word(response.get("service_tier")) or self._service_tier
        self._take_usage(response.get("usage"))

    def _take_response(self, response: Mapping[str, Any]) -> None:
        self._take_status(response)
        self._take_head(response)
        self._output = _items_of(response)
        self.generated = self.generated or bool(self._output)
        self._hosted_requests = _hosted_requests(response.get("tool_usage"))
        self._failure = read_error({"error": response.get("error")})
        self._complete = self._status is not None

    def _take_status(self, response: Mapping[str, Any]) -> None:
        status = response.get("status")
        details = response.get("incomplete_details")
        if not isinstance(status, str):
            return
        self._status = self._reason = well_formed(status)
        reason = word(details.get("reason")) if isinstance(details, dict) else ""
        if status == "incomplete" and reason:
            self._reason = f"incomplete:{reason}"

    def _take_usage(self, usage: Any) -> None:
        """Keep the last usage object with both counts; null or a partial one says nothing (R-U3).

        A count that is there but odd makes it no partial one: it must not cost the other (R-U7).
        """
        if not isinstance(usage, dict):
            return
        if usage.get("input_tokens") is None or usage.get("output_tokens") is None:
            return
        told = _read_usage(usage)
        if told.input_tokens is None and told.output_tokens is None:
            return
        self.usage_changed = self.usage_changed or told != self._usage_told
        self._raw_usage, self._usage_told = usage, told
        self._is_final = told.output_tokens is not None and self._status not in (None, *_ACCEPTED)

    def _usage(self) -> Usage | None:
        if self._usage_told is None:
            return None
        return msgspec.structs.replace(self._usage_told, hosted_tool_requests=self._hosted_requests)

    def _usage_is_final(self) -> bool:
        return self._is_final

    def _reported_nanos(self) -> int | None:
        return reported_nanos(self._raw_usage)

    # What is known

    @property
    def _started(self) -> bool:
        return self._response_id is not None or self.generated

    @property
    def _stop_reason(self) -> str | None:
        return self._reason

    def _whole_items(self) -> list[dict[str, Any]]:
        """Return the terminal output, or what was streamed where that holds no answer (R-O1)."""
        if any(_is_call(item) or _text_of(item) or _is_refusal(item) for item in self._output):
            return self._output
        streamed = [self._items[index].whole() for index in sorted(self._items)]
        return (
            streamed
            if any(_is_call(item) or _text_of(item) for item in streamed)
            else self._output or streamed
        )

    def _text(self) -> str:
        return well_formed("".join(_text_of(item) for item in self._whole_items()))

    def _reasoning(self) -> str:
        streamed = "".join(self._items[index].thoughts() for index in sorted(self._items))
        return streamed or well_formed("".join(_reasoning_of(item) for item in self._output))

    def _tool_calls(self) -> Iterator[ToolCall]:
        for item in self._whole_items():
            if _is_call(item) and not self._is_forced(item):
                yield _call(item)

    def _open_calls(self) -> tuple[tuple[str, str, str], ...]:
        return tuple((call.id, call.name, call.arguments_json) for call in self._tool_calls())

    def _forced_arguments(self) -> str | None:
        forced = [item for item in self._whole_items() if self._is_forced(item)]
        return _call(forced[0]).arguments_json if forced else None

    def _draft(self) -> Draft:
        reason = self._reason or ""
        calls = tuple(self._tool_calls())
        stop = OPENAI_RESPONSES.get(reason, Stop.UNRECOGNIZED)
        evidence = self._evidence()
        return Draft(
            text=evidence.partial_text,
            stop=Stop.TOOLS if calls and stop is Stop.FINISHED else stop,
            stop_reason=reason,
            evidence=evidence,
            tool_calls=tuple(_with_arguments(call) for call in calls),
            forced_arguments=self._forced_arguments(),
            refusal=self._refusal(),
            hosted_tools=tuple(_hosted_tools(self._whole_items())),
            continuation=self._continuation() if calls else None,
            service_tier=self._service_tier,
        )

    def _refusal(self) -> str | None:
        refused = any(_is_refusal(item) for item in self._output)
        refused = refused or any(item.is_refusal or _is_refusal(item.fields) for item in self._items.values())
        return "the model refused to answer" if refused else None

    def _continuation(self) -> Continuation | None:
        try:
            return Continuation(KIND, dumps_compact(self._whole_items()))
        except NotJson:  # nested too deeply to be written: no caller can send it back
            return None

    # The end

    def _conclude(self) -> Answer | Failure:
        if self._status == "failed":
            return self._conclude_failed()
        if self._status in _ACCEPTED:
            self.generated = True
            ending = Ending(end=End.CLEAN, cause=Cause.PROVIDER, stage=Stage.OUTPUT)
            return severed(
                self._evidence(), ending, f"the provider accepted the call and will run it ({self._status})"
            )
        return super()._conclude()

    def _finish_error(self, error: ProviderError, ending: Ending) -> Answer | Failure:
        if self._status == "failed":
            # The failed response may name nothing that the error event before it had not named better.
            if self._failure is None or self._failure.own_code == "error":
                self._failure = error
            return self._conclude_failed()
        return super()._finish_error(error, ending)

    def _conclude_failed(self) -> Answer | Failure:
        """Judge `response.failed`: usage makes it unusable, output without usage unaccounted, else its code (R-E3)."""
        error = self._failure or self._error or ProviderError()
        evidence = self._evidence()
        if evidence.usage is not None:
            draft = self._draft()
            code = error.visible_code(self._scrub)
            why = f"the provider says that the generation failed ({code})"
            return judge(msgspec.structs.replace(draft, refusal=why, provider_code=code), self._expectation)
        return super()._finish_error(error, Ending(end=End.CLEAN, cause=Cause.PROVIDER))

    # One JSON body

    def _take_document(self, document: dict[str, object]) -> bool:
        is_response = isinstance(document.get("output"), list) or document.get("object") == "response"
        if is_response and isinstance(document.get("status"), str):
            self._take_response(document)
            return True
        return False

    def _take_members(self, members: Mapping[str, object]) -> None:
        for name in members:
            if name in ("status", "incomplete_details"):
                self._take_status(members)
            elif name in ("id", "model", "usage"):
                self._take_head({name: members[name]})
            elif name == "output":
                self._output = _items_of(members)


def _joined(parts: dict[int, TextBuffer]) -> str:
    return "".join(str(parts[index]) for index in sorted(parts))


def _read_usage(usage: dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=counter(usage.get("input_tokens")),
        output_tokens=counter(usage.get("output_tokens")),
        cache_read_tokens=part_of(usage, "input_tokens_details", "cached_tokens"),
        cache_write_tokens=part_of(usage, "input_tokens_details", "cache_write_tokens"),
        reasoning_tokens=part_of(usage, "output_tokens_details", "reasoning_tokens"),
    )


def _items_of(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    output = response.get("output")
    return [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []


def _is_call(item: Mapping[str, Any]) -> bool:
    return item.get("type") in ("function_call", "custom_tool_call")


def _call(item: Mapping[str, Any]) -> ToolCall:
    """Read a call; the id that a result must name is `call_id`, not the item's own."""
    free_text = item.get("type") == "custom_tool_call"
    arguments = item.get("input" if free_text else "arguments")
    return ToolCall(
        id=word(item.get("call_id")),
        name=word(item.get("name")),
        # Compatible servers send an object instead of text.
        arguments_json=spelled(arguments),
        free_text=free_text,
    )


def _with_arguments(call: ToolCall) -> ToolCall:
    if call.arguments_json or call.free_text:
        return call
    return msgspec.structs.replace(call, arguments_json="{}")


def _parts(item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    content = item.get("content")
    if isinstance(content, list):
        yield from (part for part in content if isinstance(part, dict))


def _text_of(item: Mapping[str, Any]) -> str:
    if item.get("type") != "message" or item.get("phase") == "commentary":
        return ""
    return "".join(_string(part.get("text")) for part in _parts(item) if part.get("type") == "output_text")


def _is_refusal(item: Mapping[str, Any]) -> bool:
    return any(part.get("type") == "refusal" for part in _parts(item))


def _reasoning_of(item: Mapping[str, Any]) -> str:
    if item.get("type") != "reasoning":
        return ""
    summary = item.get("summary")
    parts = [part for part in summary if isinstance(part, dict)] if isinstance(summary, list) else []
    return "".join(_string(part.get("text")) for part in [*_parts(item), *parts])


def _string(value: object) -> str:
    """Return a text as it is: half a character may stand at the end of one part and the rest in the next."""
    return value if isinstance(value, str) else ""


def _hosted_tools(items: list[dict[str, Any]]) -> Iterator[HostedTool]:
    for item in items:
        type = word(item.get("type"))
        if type.endswith("_call") and not _is_call(item):
            yield HostedTool(
                type=type.removesuffix("_call"), id=word(item.get("id")), status=word(item.get("status"))
            )


def _hosted_requests(tool_usage: Any) -> dict[str, int]:
    """Read `{"web_search": {"num_requests": 2}}`; what was not used is left out."""
    if not isinstance(tool_usage, dict):
        return {}
    return {
        well_formed(name): requests
        for name, value in tool_usage.items()
        if isinstance(value, dict) and (requests := counter(value.get("num_requests")))
    }
