"""Neighbouring deltas of one kind joined: fewer messages, the same answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.accumulators import coalesce
from modelmeter_server.core.answers import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from tests.support.wire_bytes import joined_calls, joined_text

TEXT = st.text(max_size=3)
DELTAS: st.SearchStrategy[list[Delta]] = st.lists(
    TEXT.map(TextDelta)
    | TEXT.map(ReasoningDelta)
    | st.builds(ToolCallDelta, index=st.integers(0, 2), arguments_json=TEXT)
)


def test_neighbours_of_one_kind_are_joined_and_others_kept_apart():
    deltas: list[Delta] = [
        TextDelta("a"),
        TextDelta("b"),
        ReasoningDelta("c"),
        ReasoningDelta("d"),
        TextDelta("e"),
    ]
    assert coalesce(deltas) == [TextDelta("ab"), ReasoningDelta("cd"), TextDelta("e")]


def test_the_start_of_a_call_is_joined_with_its_arguments_and_never_with_another_start():
    first = [ToolCallDelta(index=0, id="a", name="one"), ToolCallDelta(index=0, arguments_json="{")]
    second = [ToolCallDelta(index=1, id="b", name="two"), ToolCallDelta(index=1, arguments_json="}")]
    assert coalesce([*first, *second]) == [
        ToolCallDelta(index=0, id="a", name="one", arguments_json="{"),
        ToolCallDelta(index=1, id="b", name="two", arguments_json="}"),
    ]
    assert len(coalesce([first[0], first[0]])) == 2


def test_nothing_is_nothing():
    assert coalesce([]) == []


@given(DELTAS)
def test_joining_changes_no_text_and_no_order_and_is_done_at_once(deltas: list[Delta]):
    joined = coalesce(deltas)
    assert joined_text(joined) == joined_text(deltas)
    assert [call[2] for call in joined_calls(joined)] == [call[2] for call in joined_calls(deltas)]
    assert coalesce(joined) == joined
    assert len(joined) <= len(deltas)
