"""Where each dialect of Chat Completions has its embeddings, and what counting leaves of a body."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.dialects import COMPATIBLE, DIALECTS
from modelmeter_server.drivers.count_body import without
from modelmeter_server.drivers.openai_embeddings import target_of


@pytest.mark.parametrize("name", DIALECTS)
def test_embeddings_stand_beside_the_chat_completions_of_a_dialect(name):
    dialect = DIALECTS[name]
    folder, completions, rest = dialect.path.partition("/chat/completions")
    assert completions
    assert target_of(dialect).partition("?")[0] == f"{folder}/embeddings{rest}"


def test_the_api_version_goes_with_embeddings_too():
    dialect = msgspec.structs.replace(COMPATIBLE, path="/chat/completions", api_version="2024-10-21")
    assert target_of(dialect) == "/embeddings?api-version=2024-10-21"


def test_a_path_of_its_own_says_nothing_about_embeddings():
    assert target_of(msgspec.structs.replace(COMPATIBLE, path="/ask")) == "/v1/embeddings"


NAMES = st.sampled_from(["model", "messages", "stream", "tools", "top_p", "x"])
# Text that no parser would write the same way again.
TEXTS = st.sampled_from([b'{"b": 1,  "a":2}', b"1.50", b'"\\u0041"', b"12345678901234567890123", b"[ ]"])


@given(st.dictionaries(NAMES, TEXTS), st.frozensets(NAMES))
def test_what_is_counted_is_what_would_be_sent_byte_for_byte(members, names):
    body = b"{" + b",".join(b'"%b":%b' % (name.encode(), raw) for name, raw in members.items()) + b"}"
    left = {name: raw for name, raw in members.items() if name not in names}
    assert (
        without(body, names)
        == b"{" + b",".join(b'"%b":%b' % (name.encode(), raw) for name, raw in left.items()) + b"}"
    )
