"""The W3C trace context (https://www.w3.org/TR/trace-context/): which trace a call belongs to. Pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
"""Names of the metadata."""

_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16


class TraceContext(msgspec.Struct, frozen=True):
    """A place in a trace, as its ids are written."""

    trace_id: str
    """32 lower-case hexadecimal digits, not all zero."""
    span_id: str
    """16 of them."""
    is_sampled: bool = False


def parse_traceparent(text: str) -> TraceContext | None:
    """Return what a `traceparent` says; `None` when it says nothing that can be relied on.

    A version later than 00 may have more at its end, which is ignored; version ff is none.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    if version == "ff" or (version == "00" and rest) or trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & 1))
