"""Events and documents of the Responses API, written by hand after the recorded ones; every figure can be chosen."""

from __future__ import annotations

from typing import Any

from .wire_bytes import Json, body, sse

USAGE: Json = {
    "input_tokens": 30,
    "input_tokens_details": {"cached_tokens": 10},
    "output_tokens": 8,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 38,
}


def response(
    *output: Json,
    status: str | None = "completed",
    reason: str | None = None,
    usage: object = None,
    **fields: Any,
) -> Json:
    """Return the response object, its members in the provider's order."""
    details = None if reason is None else {"reason": reason}
    head = {
        "id": "resp_1",
        "object": "response",
        "status": status,
        "error": None,
        "incomplete_details": details,
    }
    return {**head, "model": "m-1", "output": list(output), "usage": usage, **fields}


def event(name: str, **fields: Any) -> Json:
    """Return the event `response.<name>`."""
    return {"type": f"response.{name}", **fields}


def created() -> Json:
    return event("created", response=response(status="in_progress"))


def in_progress() -> Json:
    return event("in_progress", response=response(status="in_progress"))


def added(index: int, item: Json) -> Json:
    return event("output_item.added", output_index=index, item=item)


def item_done(index: int, item: Json) -> Json:
    return event("output_item.done", output_index=index, item=item)


def text(index: int, piece: str, part: int = 0) -> Json:
    return event("output_text.delta", output_index=index, content_index=part, delta=piece)


def text_done(index: int, whole: str, part: int = 0) -> Json:
    return event("output_text.done", output_index=index, content_index=part, text=whole)


def summary(index: int, piece: str) -> Json:
    return event("reasoning_summary_text.delta", output_index=index, summary_index=0, delta=piece)


def arguments(index: int, piece: str) -> Json:
    return event("function_call_arguments.delta", output_index=index, delta=piece)


def arguments_done(index: int, whole: str) -> Json:
    return event("function_call_arguments.done", output_index=index, arguments=whole)


def custom_input(index: int, piece: str) -> Json:
    return event("custom_tool_call_input.delta", output_index=index, delta=piece)


def ended(*output: Json, status: str = "completed", usage: object = USAGE, **fields: Any) -> Json:
    """Return the terminal event with its response object."""
    return event(status, response=response(*output, status=status, usage=usage, **fields))


def error(code: str | None, message: str = "synthetic", **fields: Any) -> Json:
    """Return an `error` event in its flat form."""
    return {"type": "error", "code": code, "message": message, "param": None, **fields}


def message(*texts: str, index: int = 0, **fields: Any) -> Json:
    """Return a message item with these parts."""
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    head = {"id": f"msg_{index}", "type": "message", "role": "assistant", "status": "completed"}
    return {**head, "content": parts, **fields}


def refusal(text: str = "I cannot help with that.") -> Json:
    """Return a message item that holds a refusal."""
    return {"id": "msg_0", "type": "message", "content": [{"type": "refusal", "refusal": text}]}


def call(name: str = "look", arguments: object = '{"at":1}', id: str = "call_1") -> Json:
    """Return a function call item; the id to answer is `call_id`."""
    return {"id": "fc_1", "type": "function_call", "call_id": id, "name": name, "arguments": arguments}


def custom_call(name: str = "run", text: str = "ls -l") -> Json:
    """Return a call of a tool that takes text."""
    return {"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_2", "name": name, "input": text}


def reasoning(*thoughts: str) -> Json:
    """Return a reasoning item."""
    summary = [{"type": "summary_text", "text": thought} for thought in thoughts]
    return {"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": "b3BhcXVl"}


def text_events(index: int, *pieces: str) -> list[Json]:
    """Return the events of a whole text message."""
    whole = "".join(pieces)
    return [
        added(index, {"id": f"msg_{index}", "type": "message", "status": "in_progress", "content": []}),
        *(text(index, piece) for piece in pieces),
        text_done(index, whole),
        item_done(index, message(whole, index=index)),
    ]


def call_events(index: int, item: Json, *pieces: str) -> list[Json]:
    """Return the events of a whole function call."""
    whole = "".join(pieces)
    return [
        added(index, {**item, "arguments": ""}),
        *(arguments(index, piece) for piece in pieces),
        arguments_done(index, whole),
        item_done(index, {**item, "arguments": whole}),
    ]


def stream(*pieces: str, **ending: Any) -> bytes:
    """Return a whole text answer as an event stream; `ending` goes to `ended`."""
    whole = "".join(pieces)
    return sse(created(), in_progress(), *text_events(0, *pieces), ended(message(whole), **ending))


def document(*output: Json, usage: object = USAGE, **fields: Any) -> bytes:
    """Return a response as one JSON body."""
    return body(response(*output, usage=usage, **fields))
