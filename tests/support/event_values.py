"""Hypothesis strategies for events of every kind, from the types of their fields."""

from __future__ import annotations

import types
import typing
from enum import Enum
from typing import Any

from hypothesis import strategies as st

from modelmeter_server.core.events import KINDS, SCHEMA_VERSION, Event, Payload
from modelmeter_server.core.pricing import Cost
from modelmeter_server.core.usage import Usage

from .domain_values import costs, counts

plain_texts = st.sampled_from(["", "claude", "msg_1", "a b", "\u20ac"]) | st.text(max_size=8)
"""Text as events hold it: well-formed."""

maybe = st.none() | counts

_OF_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: plain_texts,
    bool: st.booleans(),
    int: st.integers(0, 2**31 - 1),
    float: st.floats(0, 1e6),
    Usage: st.builds(
        Usage, input_tokens=maybe, output_tokens=maybe, hosted_tool_requests=st.just({"web_search": 1})
    ),
    Cost: costs,
    dict[str, int]: st.dictionaries(st.sampled_from(["USD", "EUR"]), counts),
    Payload: st.builds(
        Payload, text=plain_texts, truncated=st.booleans(), original_bytes=st.integers(0, 2**31 - 1)
    ),
}


def _of(hint: Any) -> st.SearchStrategy[Any]:
    if isinstance(hint, types.UnionType):
        return st.one_of(*(st.none() if each is types.NoneType else _of(each) for each in hint.__args__))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    return _OF_TYPE[hint]


def events_of(kind: type[Event]) -> st.SearchStrategy[Event]:
    """Return a strategy for the events of one kind."""
    hints = typing.get_type_hints(kind)
    fields = {name: _of(hints[name]) for name in kind.__struct_fields__ if name != "version"}
    return st.builds(kind, version=st.just(SCHEMA_VERSION), **fields)


events = st.one_of(*map(events_of, KINDS))
