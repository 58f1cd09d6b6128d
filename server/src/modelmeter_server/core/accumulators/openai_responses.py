"""OpenAI Responses: events or one JSON body in, what is known out.

The terminal event carries the whole response and is the authority; what was streamed before it stands in only where
its output is empty (R-O1). Usage comes with the terminal event and never before, so that a cut stream is unaccounted.
Items interleave and gateways change their ids on the way: they are told apart by `output_index`, and by their ids
only where a server tells no index (llama.cpp).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ..answers import Answer, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta
from ..json_text import NotJson, dumps_compact
from ..ladder import severed
from ..lenient import EventDecoder, word
from ..outcomes import Cause, End, Ending, Stage
from ..provider_errors import ProviderError, read_error
from ..requests import FORCED_TOOL, Continuation
from ..stop_reasons import OPENAI_RESPONSES, Stop
from ..text import well_formed
from ..text_buffer import TextBuffer
from ..usage import AdditionalUsage, Usage
from ..verdict import Draft, judge
from .accumulator import MAX_PARTS, Accumulator
from .responses_items import (
    arguments_name,
    is_blank,
    is_call,
    is_refusal,
    parts_in,
    reasoning_of,
    text_of,
    tool_call,
    with_arguments,
    written,
)
from .responses_tools import ToolUsage, hosted_tools, read_tool_usage
from .responses_usage import ResponsesUsage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..errors import Failure
    from ..hosted import HostedTool

KIND = "openai_responses"

_ACCEPTED = ("queued", "in_progress")
"""A body with one of these states has been accepted and will run; an event with one proves nothing (R-O1)."""

_ERROR_MEMBERS = ("error", "error_type", "error_message")


class _Delta(msgspec.Struct):
    output_index: int | None = None
    content_index: int = 0
    summary_index: int = 0
    delta: str = ""


class _Done(msgspec.Struct):
    output_index: int | None = None
    content_index: int = 0
    summary_index: int = 0
    text: str = ""
    arguments: str = ""
    input: str = ""


class _ItemId(msgspec.Struct):
    item_id: str = ""


class _ItemEvent(msgspec.Struct):
    output_index: int | None = None
    item: Any = None


class _ResponseEvent(msgspec.Struct):
    response: Any = None


_read_delta = EventDecoder(_Delta)
_read_done = EventDecoder(_Done)
_read_item = EventDecoder(_ItemEvent)
_read_item_id = EventDecoder(_ItemId)
_read_response = EventDecoder(_ResponseEvent)


class _Item:
    """One output item while it streams."""

    __slots__ = ("arguments", "call_index", "fields", "is_done", "is_refusal", "reasoning", "texts")

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        """As last told by `output_item.added` or `.done`."""
        self.texts: dict[int, TextBuffer] = {}
        self.reasoning: dict[int, TextBuffer] = {}
        self.arguments = TextBuffer()
        self.call_index: int | None = None
        self.is_refusal = False
        self.is_done = False

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
            item[arguments_name(item)] = str(self.arguments)
        if self.texts and not written(item) and not is_refusal(item):
            item.setdefault("type", "message")
            item["content"] = [{"type": "output_text", "text": self.text()}]
        return item

    def mend(self, item: dict[str, Any]) -> dict[str, Any]:
        """Return this item as the terminal object tells it, with the streamed part where that is blank (R-O1)."""
        if not is_blank(item):
            return item
        streamed = self.whole()
        if streamed.get("type", item["type"]) != item["type"] or self.is_commentary:
            return item
        name = arguments_name(item) if is_call(item) else "content"
        # Of a call that was never announced only the argument text is known, and not under which name it belongs.
        told = streamed.get(name) or (str(self.arguments) if is_call(item) else None)
        return {**item, name: told} if told else item


class OpenAIResponsesAccumulator(Accumulator):
    """Read one answer of the Responses API."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._items: dict[int, _Item] = {}
        self._places: dict[str, int] = {}
        """Index of each item by its ids, for events that tell no index."""
        self._last_place = 0
        self._forced: _Item | None = None
        self._calls = 0
        self._status: str | None = None
        self._reason: str | None = None
        self._output: list[dict[str, Any]] = []
        self._failure: ProviderError | None = None
        self._meter = ResponsesUsage()
        self._tools = ToolUsage({}, (), is_told=False)
        self._source: bytes = b""
        """The event that tells the response object now."""
        self._settled: list[dict[str, Any]] | None = None
        """The whole items, once nothing can change them."""
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

    def _item(self, told: int | None, data: bytes) -> _Item:
        """Return the item that an event is about, by its index if it tells one."""
        self.generated = True
        index = self._places.get(_read_item_id(data).item_id, self._last_place) if told is None else told
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
        item = self._item(event.output_index, data)
        self._emit_text(item, self._part(item.texts, event.content_index).append(event.delta))

    def _on_text_done(self, data: bytes) -> None:
        """End a text part. Its `text` repeats the deltas and counts only where none came (R-O1: text once)."""
        event = _read_done(data)
        item = self._item(event.output_index, data)
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
        self._add_reasoning(self._item(event.output_index, data), event.content_index, event.delta)

    def _on_summary_delta(self, data: bytes) -> None:
        event = _read_delta(data)
        self._add_reasoning(self._item(event.output_index, data), event.summary_index, event.delta)

    def _add_reasoning(self, item: _Item, index: int, text: str) -> None:
        piece = self._part(item.reasoning, index).append(text)
        if piece and self._keeps_deltas:
            self._emit(ReasoningDelta(piece))

    def _on_refusal(self, data: bytes) -> None:
        self._item(_read_delta(data).output_index, data).is_refusal = True

    def _on_arguments_delta(self, data: bytes) -> None:
        event = _read_delta(data)
        item = self._item(event.output_index, data)
        self._emit_arguments(item, item.arguments.append(event.delta))

    def _on_arguments_done(self, data: bytes) -> None:
        event = _read_done(data)
        self._end_arguments(self._item(event.output_index, data), event.arguments or event.input)

    def _end_arguments(self, item: _Item, whole: str) -> None:
        """End a call's arguments. The whole text repeats the deltas and counts only where none came."""
        if not item.arguments:
            self._emit_arguments(item, item.arguments.append(whole))
        self._emit_arguments(item, item.arguments.close())

    def _on_item(self, data: bytes) -> None:
        self._take_item(data, opens=True)

    def _on_item_done(self, data: bytes) -> None:
        item = self._take_item(data, opens=False)
        if is_call(item.fields):
            self._end_arguments(item, tool_call(item.fields).arguments_json)

    def _place_of(self, item: Any, *, opens: bool) -> int:
        """Return the index of an item whose event tells none: that of its id, else of the open one, or the next."""
        known = [self._places[id] for id in _ids_of(item) if id in self._places]
        if known:
            return known[0]
        last = self._items.get(self._last_place)
        is_next = opens or last is None or last.is_done
        return max(self._items, default=-1) + 1 if is_next else self._last_place

    def _take_item(self, data: bytes, *, opens: bool) -> _Item:
        event = _read_item(data)
        index = event.output_index
        if index is None:
            index = self._place_of(event.item, opens=opens)
        item = self._item(index, data)
        self._last_place, item.is_done = index, not opens
        if len(self._places) < MAX_PARTS:
            self._places.update((id, index) for id in _ids_of(event.item))
        if not isinstance(event.item, dict) or not self._has_room_for(parts_in(event.item)):
            return item
        item.fields = event.item
        if self._is_forced(event.item):
            # Of two calls of the forced tool the first is the answer.
            if self._forced is None:
                self._forced = item
                self._emit_arguments(item, str(item.arguments))
        elif item.call_index is None and is_call(event.item):
            item.call_index = self._calls
            self._calls += 1
            call = tool_call(event.item)
            # With the arguments that came before anybody said whose they are.
            told = str(item.arguments)
            self._emit(ToolCallDelta(index=item.call_index, id=call.id, name=call.name, arguments_json=told))
        return item

    def _has_room_for(self, parts: int) -> bool:
        self._parts += parts
        if self._parts > MAX_PARTS:
            self.done = True
        return not self.done

    def _is_forced(self, item: Mapping[str, Any]) -> bool:
        return (
            self._expectation.forced_tool
            and item.get("type") == "function_call"
            and item.get("name") == FORCED_TOOL
        )

    def _on_progress(self, data: bytes) -> None:
        self._source = data
        response = _read_response(data).response
        if isinstance(response, dict):
            self._take_head(response)

    def _on_end(self, status: str, data: bytes) -> None:
        """Take a terminal event; its name gives the status (R-S0).

        `completed` gives way to another end in the object: `response.done` repeats any end, and an answer that says
        itself that it was cut or cancelled must not pass for a whole one.
        """
        response = _read_response(data).response
        # Without its response object the event says neither what was answered nor what it cost: the ladder decides.
        self.done = True
        if not isinstance(response, dict):
            return
        told = response.get("status")
        if status != "completed" or not isinstance(told, str) or told in ("", *_ACCEPTED):
            response = {**response, "status": status}
        self._source = data
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
        self._take_output(response.get("output"))
        self.generated = self.generated or bool(self._output)
        self._failure = _error_in(response)
        self._complete = self._status is not None
        self._take_tools(response)

    def _take_output(self, output: Any) -> None:
        """Keep the items up to the limit of parts; the count starts anew, for they repeat what was streamed."""
        self._output, self._settled, self._parts = [], None, 0
        for item in output if isinstance(output, list) else ():
            self._parts += 1 + (parts_in(item) if isinstance(item, dict) else 0)
            if self._parts > MAX_PARTS:
                return
            if isinstance(item, dict):
                self._output.append(item)

    def _take_tools(self, response: Mapping[str, Any]) -> None:
        told = read_tool_usage(response, self._whole_items())
        self.usage_changed = self.usage_changed or told != self._tools
        self._tools = told

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
        at_stop = self._status not in (None, *_ACCEPTED)
        source = self._source if self._body is None else self._body
        changed = self._meter.take(usage, at_stop=at_stop, source=source)
        self.usage_changed = self.usage_changed or changed

    def _usage(self) -> Usage | None:
        told = self._meter.usage()
        if told is None and not self._tools.is_told:
            return None
        return msgspec.structs.replace(told or Usage(), hosted_tool_requests=self._tools.requests)

    def _additional_usage(self) -> tuple[AdditionalUsage, ...]:
        return self._tools.beside

    def _usage_is_final(self) -> bool:
        return self._meter.is_final

    def _reported_nanos(self) -> int | None:
        return self._meter.reported_nanos()

    # What is known

    @property
    def _started(self) -> bool:
        return self._response_id is not None or self.generated

    @property
    def _stop_reason(self) -> str | None:
        return self._reason

    def _whole_items(self) -> list[dict[str, Any]]:
        """Return the terminal output, or what was streamed where that holds no answer (R-O1)."""
        if self._settled is not None:
            return self._settled
        items = self._chosen_items()
        if self._complete:
            self._settled = items
        return items

    def _chosen_items(self) -> list[dict[str, Any]]:
        if any(is_call(item) or text_of(item) or is_refusal(item) for item in self._output):
            return self._mended()
        streamed = [self._items[index].whole() for index in sorted(self._items)]
        return (
            streamed if any(is_call(item) or text_of(item) for item in streamed) else self._output or streamed
        )

    def _mended(self) -> list[dict[str, Any]]:
        """Return the terminal output with the streamed part of each item that is blank there."""
        calls = {
            word(each.fields.get("call_id")): each for each in self._items.values() if is_call(each.fields)
        }
        mended = []
        for index, item in enumerate(self._output):
            named = calls.get(word(item.get("call_id"))) if is_call(item) else None
            streamed = named or self._items.get(index)
            mended.append(item if streamed is None else streamed.mend(item))
        return mended

    def _text(self) -> str:
        return well_formed("".join(text_of(item) for item in self._whole_items()))

    def _reasoning(self) -> str:
        streamed = "".join(self._items[index].thoughts() for index in sorted(self._items))
        return streamed or well_formed("".join(reasoning_of(item) for item in self._output))

    def _tool_calls(self) -> Iterator[ToolCall]:
        for item in self._whole_items():
            if is_call(item) and not self._is_forced(item):
                yield tool_call(item)

    def _open_calls(self) -> tuple[tuple[str, str, str], ...]:
        return tuple((call.id, call.name, call.arguments_json) for call in self._tool_calls())

    def _forced_arguments(self) -> str | None:
        forced = [item for item in self._whole_items() if self._is_forced(item)]
        return tool_call(forced[0]).arguments_json if forced else None

    def _hosted_tools(self) -> Iterable[HostedTool]:
        return hosted_tools(self._whole_items())

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
            tool_calls=tuple(with_arguments(call) for call in calls),
            forced_arguments=self._forced_arguments(),
            refusal=self._refusal(),
            hosted_tools=tuple(self._hosted_tools()),
            continuation=self._continuation() if calls else None,
            service_tier=self._service_tier,
        )

    def _refusal(self) -> str | None:
        refused = any(is_refusal(item) for item in self._output)
        refused = refused or any(item.is_refusal or is_refusal(item.fields) for item in self._items.values())
        return "the model refused to answer" if refused else None

    def _continuation(self) -> Continuation | None:
        try:
            return Continuation(KIND, dumps_compact(self._whole_items()))
        except NotJson:  # nested too deeply to be written: no caller can send it back
            return None

    # The end

    def _emit_untold(self, answer: Answer) -> None:
        """Emit also the arguments of calls that were announced and got none: `{}`, or what came with the end."""
        if ToolCallDelta not in self._emitted:
            super()._emit_untold(answer)
            return
        if TextDelta not in self._emitted and answer.text:
            self._emit(TextDelta(answer.text))
        silent = {
            word(item.fields.get("call_id")): item
            for item in self._items.values()
            if item.call_index is not None and not item.arguments
        }
        for call in answer.tool_calls:
            item = silent.pop(call.id, None)
            if item is not None:
                self._emit_arguments(item, call.arguments_json)

    def _conclude(self) -> Answer | Failure:
        if self._parts > MAX_PARTS:
            return self._sever(Ending(end=End.CLEAN, cause=Cause.LIMIT, stage=Stage.OUTPUT))
        if self._status == "failed":
            return self._conclude_failed()
        if self._status in _ACCEPTED:
            self.generated = True
            ending = Ending(end=End.CLEAN, cause=Cause.PROVIDER, stage=Stage.OUTPUT)
            return severed(
                self._evidence(), ending, f"the provider accepted the call and will run it ({self._status})"
            )
        if self._failure is not None:
            # An error beside a finish: the error wins (R-E0), and the ladder keeps the bill.
            return super()._finish_error(self._failure, Ending(end=End.CLEAN, cause=Cause.PROVIDER))
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
        if not isinstance(document.get("output"), list) and document.get("object") != "response":
            return False
        # Without a status it is no answer; what it cost stands in it all the same.
        self._take_response(document)
        return self._complete

    def _take_members(self, members: Mapping[str, object]) -> None:
        for name in members:
            if name in ("status", "incomplete_details"):
                self._take_status(members)
            elif name in ("id", "model", "service_tier", "usage"):
                self._take_head({name: members[name]})
            elif name == "output":
                self._take_output(members[name])
        self._take_tools(members)


def _ids_of(item: Any) -> list[str]:
    """Return what other events may call an item: the id of the call it makes, which is unique, or its own."""
    told = [word(item.get(name)) for name in ("call_id", "id")] if isinstance(item, dict) else []
    return [id for id in told if id]


def _joined(parts: dict[int, TextBuffer]) -> str:
    return "".join(str(parts[index]) for index in sorted(parts))


def _error_in(response: Mapping[str, Any]) -> ProviderError | None:
    """Read the error of a response object; an empty one is how some servers write null."""
    return read_error({name: response.get(name) or None for name in _ERROR_MEMBERS})
