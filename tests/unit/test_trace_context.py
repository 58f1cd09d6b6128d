"""W3C trace context: what can be relied on is read, everything else is no context."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.trace_context import TraceContext, parse_traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(("flags", "sampled"), [("01", True), ("00", False), ("03", True), ("fe", False)])
def test_a_sound_header_is_read(flags, sampled):
    assert parse_traceparent(f"00-{TRACE}-{SPAN}-{flags}") == TraceContext(TRACE, SPAN, sampled)


def test_a_later_version_may_say_more():
    assert parse_traceparent(f"01-{TRACE}-{SPAN}-01-more") == TraceContext(TRACE, SPAN, is_sampled=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
    ],
)
def test_anything_else_is_no_context(text):
    assert parse_traceparent(text) is None


@given(st.text())
def test_no_text_is_an_error(text):
    assert parse_traceparent(text) is None or text.strip().count("-") >= 3
