"""What is kept of one use of a provider's tool, and how much of all of them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from modelmeter_server.core.hosted import (
    MAX_JSON,
    MAX_TOTAL_JSON,
    HostedTool,
    hosted_tool,
    present,
    within_limits,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
NOTHING: list[object] = [None, "", {}, []]


@given(values)
def test_what_a_tool_gave_is_json_text_of_the_value(value: Any):
    text = hosted_tool("t", result=value).result_json
    assert text == "" if value in NOTHING else json.loads(text) == value


@given(st.dictionaries(st.text(max_size=3), values, max_size=3))
def test_arguments_that_came_as_text_stay_as_they_were_generated(value: dict[str, Any]):
    text = json.dumps(value, indent=1)
    assert hosted_tool("t", arguments=text).arguments_json == text


@given(st.text())
@example("[")
@example("5")
def test_arguments_are_always_json_text_or_nothing(text: str):
    told = hosted_tool("t", arguments=text).arguments_json
    assert not told or json.loads(told) is not None


@given(st.integers(-3, 3))
def test_json_is_kept_whole_or_left_out_whole(more: int):
    quotes = 2
    tool = hosted_tool("t", arguments="a" * (MAX_JSON - quotes + more), result="b")
    assert tool.omitted is (more > 0)
    assert (not tool.arguments_json) is tool.omitted
    assert tool.result_json == '"b"'


def test_nesting_that_cannot_be_written_is_left_out():
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    assert hosted_tool("t", result=deep) == HostedTool(type="t", omitted=True)


@given(st.lists(st.integers(0, MAX_JSON), max_size=60))
def test_every_use_stays_and_the_json_of_all_has_a_bound(sizes: list[int]):
    tools = [HostedTool(type=str(index), result_json="x" * size) for index, size in enumerate(sizes)]
    kept = within_limits(tools)
    assert [tool.type for tool in kept] == [tool.type for tool in tools]
    assert sum(len(tool.result_json) for tool in kept) <= MAX_TOTAL_JSON
    assert all(tool.omitted or tool == before for tool, before in zip(kept, tools, strict=True))
    if sum(sizes) <= MAX_TOTAL_JSON:
        assert list(kept) == tools


@given(st.one_of(st.none(), st.integers(), st.text(), st.lists(st.text()), st.booleans()))
def test_odd_words_are_none(odd: Any):
    tool = hosted_tool("t", id=odd, status=odd, name=odd, server=odd, error=odd)
    assert all(isinstance(getattr(tool, name), str) for name in ("id", "status", "name", "server", "error"))


def test_an_error_is_told_by_its_code_and_its_words():
    told = {"type": "mcp_error", "code": 404, "message": "gone"}
    assert hosted_tool("t", error=told).error == "404: mcp_error: gone"
    assert hosted_tool("t", error={"code": None, "message": ["x"]}).error == ""
    assert len(hosted_tool("t", error="e" * 5_000).error) == 1_024


def test_members_keep_the_providers_order():
    told = {"b": 1, "x": 2, "a": None, "c": 0}
    assert list((present(told, ("c", "a", "b")) or {}).items()) == [("b", 1), ("c", 0)]
    assert present({"x": 1}, ("a",)) is None
