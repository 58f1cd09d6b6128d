"""What a provider can do to one request, by name and for each wire format: the vocabulary of the tests of retries.

Every reply ends its connection, so that no request is sent anew for a stale one; `-kept` leaves it open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from . import anthropic_events, chat_events, gemini_chunks, responses_events
from .fault_server import End, Reply
from .wire_bytes import Json, body, sse

_ERRORS: dict[str, tuple[int, str, str]] = {
    "limited": (429, "rate_limit_error", "RESOURCE_EXHAUSTED"),
    "overloaded": (529, "overloaded_error", "RESOURCE_EXHAUSTED"),
    "failing": (500, "api_error", "INTERNAL"),
    "away": (503, "api_error", "UNAVAILABLE"),
    "timed_out": (408, "timeout_error", "DEADLINE_EXCEEDED"),
    "wrong": (400, "invalid_request_error", "INVALID_ARGUMENT"),
    "unauthorised": (401, "authentication_error", "UNAUTHENTICATED"),
    "unpaid": (402, "billing_error", "FAILED_PRECONDITION"),
    "missing": (404, "not_found_error", "NOT_FOUND"),
    "too_large": (413, "request_too_large", "INVALID_ARGUMENT"),
}


def reply(wire: str, name: str) -> Reply:
    """Return what a provider of this wire format does under this name."""
    plain = name.removesuffix("-kept").removesuffix("-named")
    made = _error(wire, *_ERRORS[plain]) if plain in _ERRORS else _OTHERS[plain](wire)
    if name.endswith("-named"):
        made.headers = {"retry-after": "120"}
    made.close = not name.endswith("-kept") and made.end == "clean"
    return made


def names() -> list[str]:
    """Return every name, without its endings."""
    return [*_ERRORS, *_OTHERS]


def _error(wire: str, status: int, kind: str, word: str) -> Reply:
    documents: dict[str, Json] = {
        "anthropic": anthropic_events.error(kind),
        "gemini": gemini_chunks.error(status, word),
    }
    document = documents.get(wire, {"error": {"type": kind, "code": None, "message": "synthetic"}})
    return Reply(status=status, chunks=[body(document)])


def _streamed(data: bytes, end: End = "clean") -> Reply:
    return Reply(headers={"content-type": "text/event-stream"}, chunks=[data], end=end)


def _answer(wire: str) -> Reply:
    return _streamed(
        {
            "anthropic": lambda: anthropic_events.stream(anthropic_events.text_block(0, "Hello.")),
            "openai_responses": lambda: responses_events.stream("Hello."),
            "chat_completions": lambda: chat_events.stream("Hello."),
            "gemini": lambda: gemini_chunks.stream(gemini_chunks.text("Hello.")),
        }[wire]()
    )


def _begun(wire: str) -> bytes:
    """Return the beginning of an answer, up to its first text."""
    events: dict[str, Iterable[object]] = {
        "anthropic": (
            anthropic_events.start(),
            anthropic_events.opened(0),
            anthropic_events.text(0, "Hel"),
        ),
        "openai_responses": (
            responses_events.created(),
            responses_events.added(0, {"type": "message"}),
            responses_events.text(0, "Hel"),
        ),
        "chat_completions": (chat_events.role(), chat_events.text("Hel")),
    }
    if wire == "gemini":
        return gemini_chunks.sse(gemini_chunks.chunk(gemini_chunks.text("Hel")))
    return sse(*events[wire])


def _blank(wire: str) -> bytes:
    """Return a whole answer that says nothing and is billed."""
    if wire == "gemini":
        return gemini_chunks.sse(gemini_chunks.chunk(finish="STOP", told=gemini_chunks.USAGE))
    if wire == "anthropic":
        return anthropic_events.stream(anthropic_events.text_block(0))
    return responses_events.stream() if wire == "openai_responses" else chat_events.stream()


def _scolded(wire: str) -> bytes:
    """Return a stream whose first event is an error, before anything was generated."""
    if wire == "gemini":
        return gemini_chunks.sse(gemini_chunks.error(503, "UNAVAILABLE"))
    if wire == "anthropic":
        return sse(anthropic_events.error("overloaded_error"))
    if wire == "openai_responses":
        return sse(responses_events.error("server_error"))
    return sse({"error": {"type": "server_error", "code": None, "message": "synthetic"}})


_OTHERS: dict[str, Callable[[str], Reply]] = {
    "answer": _answer,
    "silence": lambda wire: Reply(silent=True, end="truncate"),
    "reset": lambda wire: Reply(silent=True, end="reset"),
    "stall": lambda wire: Reply(silent=True, end="stall"),
    "cut": lambda wire: _streamed(_begun(wire), "truncate"),
    "started": lambda wire: _streamed(sse(anthropic_events.start()), "truncate"),
    "empty": lambda wire: Reply(framing="length"),
    "blank": lambda wire: _streamed(_blank(wire)),
    "scolded": lambda wire: _streamed(_scolded(wire)),
    "quota": lambda wire: Reply(
        status=429, chunks=[body({"error": {"type": "insufficient_quota", "code": "insufficient_quota"}})]
    ),
}
