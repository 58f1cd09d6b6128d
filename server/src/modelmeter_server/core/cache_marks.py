"""Where a request marks the end of what a provider is to keep in its prompt cache, and whether the provider can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from .errors import FieldViolation
from .message_checks import part_field
from .requests import CacheBreakpoint, CompletionRequest, Continuation, Part, Role, TextPart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .models import CacheMarks

MAX_BREAKPOINTS: Final = 4
"""Most in a request: the same number at Anthropic, Bedrock and OpenAI."""

FIELD: Final = "cache_breakpoint"
SYSTEM_FIELD: Final = "system_cache_breakpoint"

# Places that a provider may be able to mark, besides the fields of the parts.
TOOLS: Final = "tools"
SYSTEM: Final = "system"
ASSISTANT_TEXT: Final = "assistant text"
PLACES: Final = (
    TOOLS,
    SYSTEM,
    "text",
    ASSISTANT_TEXT,
    "image",
    "audio",
    "document",
    "tool_call",
    "tool_result",
)


class _Mark(NamedTuple):
    field: str
    place: str
    breakpoint: CacheBreakpoint


def cache_violations(request: CompletionRequest, able: CacheMarks) -> Iterator[FieldViolation]:
    """Return what is wrong with the breakpoints of a request for a provider of these abilities."""
    marks = list(_marks(request))
    if request.system_cache_breakpoint is not None and not request.system:
        yield FieldViolation(SYSTEM_FIELD, "needs `system`: set it or leave this out")
    if len(marks) > MAX_BREAKPOINTS:
        yield FieldViolation(
            marks[MAX_BREAKPOINTS].field, f"is one too many: at most {MAX_BREAKPOINTS} in a request"
        )
    for mark in marks:
        yield from _mark(mark, able)
    if able.longest_first:
        yield from _order(marks, able)


def _mark(mark: _Mark, able: CacheMarks) -> Iterator[FieldViolation]:
    if mark.place not in able.places:
        fix = f"can be put here: it has {_listed(able.places)}" if able.places else "can be put anywhere"
        yield FieldViolation(mark.field, f"this model's provider has no mark that {fix}")
    elif mark.breakpoint.seconds is not None and mark.breakpoint.seconds not in able.lifetimes:
        known = ", ".join(f"{seconds} s" for seconds in able.lifetimes)
        yield FieldViolation(f"{mark.field}.ttl", f"is no time that this provider offers: it offers {known}")


def _order(marks: list[_Mark], able: CacheMarks) -> Iterator[FieldViolation]:
    """Return marks that are kept longer than one before them, which these providers refuse."""
    shortest: float = max(able.lifetimes, default=0)
    usual = min(able.lifetimes, default=0)
    for mark in marks:
        seconds = usual if mark.breakpoint.seconds is None else mark.breakpoint.seconds
        if seconds > shortest:
            yield FieldViolation(
                f"{mark.field}.ttl", "is longer than that of a mark before it: put the longest first"
            )
        shortest = min(shortest, seconds)


def _marks(request: CompletionRequest) -> Iterator[_Mark]:
    """Yield the breakpoints in the order in which the provider reads the prompt."""
    for index, tool in enumerate(request.tools):
        if tool.cache_breakpoint is not None:
            yield _Mark(f"tools[{index}].{FIELD}", TOOLS, tool.cache_breakpoint)
    if request.system_cache_breakpoint is not None:
        yield _Mark(SYSTEM_FIELD, SYSTEM, request.system_cache_breakpoint)
    for index, message in enumerate(request.messages or ()):
        for number, part in enumerate(message.parts):
            if not isinstance(part, Continuation) and part.cache_breakpoint is not None:
                field = f"messages.messages[{index}].parts[{number}].{FIELD}"
                yield _Mark(field, _place(part, message.role), part.cache_breakpoint)


def _place(part: Part, role: Role) -> str:
    is_said = isinstance(part, TextPart) and role is Role.ASSISTANT
    return ASSISTANT_TEXT if is_said else part_field(part)


def _listed(places: tuple[str, ...]) -> str:
    return ", ".join(f"`{place}`" for place in places)
