"""How much one request may hold. Judged first: reading what is larger would cost everybody time and memory.

The limits are on how many things there are, not on how long they are: a long text or a large image costs a fraction of
what the same bytes cost as tiny values (measured: 4.6 us and 150 bytes for each value of a JSON text).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .caller_json import count_values, most_values
from .errors import FieldViolation
from .requests import CompletionRequest, Continuation, MediaPart, Message, Part, ToolCallPart, ToolResultPart

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_MESSAGES: Final = 10_000
MAX_PARTS: Final = 20_000
"""Parts of all messages together."""
MAX_TOOLS: Final = 1_000
MAX_STOP_SEQUENCES: Final = 1_000
MAX_VALUES: Final = 100_000
"""Values of all JSON texts of a request together: objects, arrays, texts, numbers, booleans and nulls."""

LARGE_JSON: Final = 32 * 1024
"""Characters of JSON that are planned beside the event loop: up to 50 ms if they are all tiny values (measured)."""
LARGE_PARTS: Final = 1_000
LARGE_BYTES: Final = 1 << 20
"""Text and media that are planned beside the event loop; copying and encoding takes a few ms for each MiB."""


def limit_violations(request: CompletionRequest) -> list[FieldViolation]:
    """Return where a request holds more than it may; nothing else about it is worth a look then."""
    found = list(_counts(request))
    excess = _excess_json(request)
    if excess is not None:
        fix = f"brings this request's JSON above {MAX_VALUES:,} values, the most that one request may hold"
        found.append(FieldViolation(excess, fix))
    return found


def is_large(request: CompletionRequest) -> bool:
    """Tell whether planning the request would keep the event loop from everybody else for long."""
    if sum(len(text) for _, text in _json_texts(request)) > LARGE_JSON:
        return True
    messages = request.messages or ()
    if len(messages) > LARGE_PARTS or sum(len(message.parts) for message in messages) > LARGE_PARTS:
        return True
    parts = sum(_bulk(part) for message in messages for part in message.parts)
    return len(request.text or "") + len(request.system) + parts > LARGE_BYTES


def _counts(request: CompletionRequest) -> Iterator[FieldViolation]:
    messages: tuple[Message, ...] = request.messages or ()
    if len(messages) > MAX_MESSAGES:
        yield FieldViolation("messages.messages", f"must be at most {MAX_MESSAGES:,}")
    elif sum(len(message.parts) for message in messages) > MAX_PARTS:
        yield FieldViolation("messages.messages", f"must have at most {MAX_PARTS:,} parts in all")
    if len(request.tools) > MAX_TOOLS:
        yield FieldViolation("tools", f"must be at most {MAX_TOOLS:,}")
    if len(request.stop_sequences) > MAX_STOP_SEQUENCES:
        yield FieldViolation("stop_sequences", f"must be at most {MAX_STOP_SEQUENCES:,}")


def _excess_json(request: CompletionRequest) -> str | None:
    """Return the field whose JSON is the first to exceed the limit."""
    # A value takes a character and what parts it from the next one another.
    if sum(len(text) for _, text in _json_texts(request)) <= MAX_VALUES:
        return None
    if sum(most_values(text) for _, text in _json_texts(request)) <= MAX_VALUES:
        return None
    left = MAX_VALUES
    for field, text in _json_texts(request):
        left -= count_values(text, left)
        if left < 0:
            return field
    return None


def _json_texts(request: CompletionRequest) -> Iterator[tuple[str, str]]:
    """Return every JSON text with its field."""
    if request.native_json:
        yield "native_json", request.native_json
    for index, tool in enumerate(request.tools):
        if tool.parameters_json:
            yield f"tools[{index}].parameters_json", tool.parameters_json
    if request.output_schema_json:
        yield "output_schema_json", request.output_schema_json
    if request.provider_options_json:
        yield "provider_options_json", request.provider_options_json
    if request.continuation is not None:
        yield "continuation.state_json", request.continuation.state_json
    for index, message in enumerate(request.messages or ()):
        for number, part in enumerate(message.parts):
            match part:
                case ToolCallPart(free_text=False):
                    field = f"messages.messages[{index}].parts[{number}].tool_call.arguments_json"
                    yield field, part.arguments_json
                case Continuation():
                    field = f"messages.messages[{index}].parts[{number}].continuation.state_json"
                    yield field, part.state_json
                case _:
                    pass


def _bulk(part: Part) -> int:
    match part:
        case MediaPart():
            return len(part.data) + len(part.url or "")
        case ToolCallPart() | Continuation():
            return 0  # JSON, counted as such
        case ToolResultPart():
            return len(part.output)
        case _:
            return len(part.text)
