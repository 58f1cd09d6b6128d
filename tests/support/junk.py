"""Any JSON value, as a hostile provider or caller may put it in the place of another."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_NAMES = st.sampled_from(["data", "index", "embedding", "usage", "prompt_tokens", "type", "content", "x"])

JUNK: st.SearchStrategy[Any] = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)
"""Values that `json.dumps` writes; NaN and infinity among them, which it writes as Python does."""
