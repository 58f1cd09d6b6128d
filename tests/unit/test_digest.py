"""The digest of a request: the vectors of its page, another implementation of the page, and what must not change it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.digest import (
    FIELDS,
    completion_fields,
    digest,
    digest_of,
    embedding_digest,
    embedding_fields,
    first_difference,
)
from modelmeter_server.core.embeddings import EmbeddingRequest, InputType
from modelmeter_server.core.journal import Effect
from modelmeter_server.core.requests import (
    CacheBreakpoint,
    CallCeiling,
    CompletionRequest,
    Continuation,
    MediaKind,
    MediaPart,
    Message,
    ReasoningEffort,
    Role,
    SchemaMode,
    Sensitivity,
    TextPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolMode,
    ToolResultPart,
    TurnScope,
)
from tests.support import ROOT

PAGE = (ROOT / "docs" / "digest.md").read_text(encoding="utf-8")
VECTORS = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
REQUEST = CompletionRequest(model="claude", call_id="c", text="Hi")
BATCH = EmbeddingRequest(model="small", call_id="c", inputs=("a", "b"))


# The page, implemented once more from its words alone


def packed(value: Any) -> bytes:
    """Encode a value as the page says."""
    if isinstance(value, bool):
        return b"Y" if value else b"N"
    if isinstance(value, int):
        return b"I" + value.to_bytes(8, "big", signed=True)
    if isinstance(value, float):
        return b"D" + struct.pack("!d", 0.0 if value == 0 else value)
    if isinstance(value, str | bytes):
        data = value.encode() if isinstance(value, str) else value
        return (b"T" if isinstance(value, str) else b"B") + len(data).to_bytes(8, "big") + data
    count = len(value).to_bytes(8, "big")
    if isinstance(value, list):
        return b"L" + count + b"".join(map(packed, value))
    return (
        b"R" + count + b"".join(packed(name) + packed(value[name]) for name in sorted(value, key=str.encode))
    )


def digests(fields: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """Return the digest of a request and those of its fields, in hex."""
    each = {
        name: hashlib.sha256(b"modelmeter.field.v1\n" + packed(name) + packed(fields[name])).digest()
        for name in FIELDS
        if fields.get(name) is not None
    }
    whole = b"".join(packed(name) + value for name, value in each.items())
    request = hashlib.sha256(b"modelmeter.request.v1\n" + whole).hexdigest()
    return request, {name: value.hex()[:16] for name, value in each.items()}


def with_bytes(value: Any) -> Any:
    """Read a vector: bytes stand in Base64."""
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return base64.b64decode(value["base64"])
    if isinstance(value, dict):
        return {name: with_bytes(each) for name, each in value.items()}
    return [with_bytes(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["digest"][:8])
def test_the_vectors_of_the_page_are_right(vector):
    fields = with_bytes(vector["fields"])
    assert digests(fields) == (vector["digest"], vector["field_digests"])
    ours = digest_of(fields)
    assert (ours.request, ours.fields) == (vector["digest"], vector["field_digests"])


def test_the_vectors_set_every_field_of_the_page():
    named = set(re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", PAGE, re.MULTILINE))
    assert named == set(FIELDS)
    assert {name for vector in VECTORS for name in vector["fields"]} == named


texts = st.text(st.characters(codec="utf-8"), max_size=12)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
continuations = st.builds(Continuation, names, texts)
parts = st.one_of(
    st.builds(TextPart, texts),
    st.builds(
        MediaPart,
        kind=st.sampled_from(MediaKind),
        media_type=texts,
        data=st.binary(max_size=8),
        url=st.none() | names,
        name=texts,
    ),
    st.builds(ToolCallPart, id=texts, name=texts, arguments_json=texts, free_text=st.booleans()),
    st.builds(ToolResultPart, call_id=texts, output=texts, failed=st.booleans()),
    continuations,
)
messages = st.builds(Message, st.sampled_from(Role), st.lists(parts, max_size=3).map(tuple))
fields = {
    "messages": st.none() | st.lists(messages, max_size=3).map(tuple),
    "text": st.none() | texts,
    "native_json": st.none() | texts,
    "system": texts,
    "tools": st.lists(
        st.builds(Tool, name=names, description=texts, parameters_json=texts, strict=st.booleans()),
        max_size=2,
    ).map(tuple),
    "tool_choice": st.none()
    | st.builds(ToolChoice, mode=st.sampled_from(ToolMode), name=texts, disable_parallel_calls=st.booleans()),
    "output_schema_json": texts,
    "schema_mode": st.none() | st.sampled_from(SchemaMode),
    "max_output_tokens": st.none() | st.integers(1, 2**31 - 1),
    "temperature": st.none() | st.floats(allow_nan=False),
    "top_p": st.none() | st.floats(0, 1),
    "top_k": st.none() | st.integers(-(2**31), 2**31 - 1),
    "seed": st.none() | st.integers(-(2**63), 2**63 - 1),
    "stop_sequences": st.lists(names, max_size=3).map(tuple),
    "reasoning_effort": st.none() | st.sampled_from(ReasoningEffort),
    "provider_options_json": texts,
    "continuation": st.none() | continuations,
    "turn": st.none() | st.builds(TurnScope, previous_response_id=st.none() | texts, generate=st.booleans()),
}
requests = st.builds(CompletionRequest, model=st.just("m"), call_id=st.just("c"), **fields)


@given(requests, names)
def test_two_implementations_agree(request_, identity):
    ours = digest(request_, identity)
    assert (ours.request, ours.fields) == digests(dict(completion_fields(request_, identity)))


@given(requests, requests)
def test_digests_are_equal_exactly_when_the_fields_are(one, other):
    same = completion_fields(one, "m") == completion_fields(other, "m")
    first, second = digest(one, "m"), digest(other, "m")
    assert (first.request == second.request) is same
    assert (first_difference(first.fields, second.fields) == "") is same


@given(requests, st.sampled_from(sorted(fields)), st.data())
def test_the_field_that_was_changed_is_named(request_, name, data):
    changed = msgspec.structs.replace(request_, **{name: data.draw(fields[name])})
    before, after = digest(request_, "m"), digest(changed, "m")
    differs = first_difference(before.fields, after.fields)
    assert differs in ("", name)
    assert (differs == "") is (before.request == after.request)


@pytest.mark.parametrize(
    "change",
    [
        {"call_id": "other"},
        {"labels": {"a": "b"}},
        {"effect": Effect(run_id="r", key="k")},
        {"ceiling": CallCeiling(tokens=1)},
        {"replay_only": True},
        {"sensitivity": Sensitivity.SECRET},
        {"model": "alias"},
        {"system_cache_breakpoint": CacheBreakpoint(3600.0)},
        {"end_user_id": "u-1"},
        {"affinity_key": "k"},
    ],
)
def test_what_does_not_change_the_answer_does_not_change_the_digest(change):
    assert digest(msgspec.structs.replace(REQUEST, **change), "m") == digest(REQUEST, "m")


MARK = CacheBreakpoint(300.0)


@pytest.mark.parametrize(
    "part",
    [
        TextPart("Hi"),
        MediaPart(kind=MediaKind.IMAGE, media_type="image/png", data=b"x"),
        ToolCallPart(id="t", name="look"),
        ToolResultPart(call_id="t", output="a cat"),
    ],
)
def test_a_mark_of_what_to_cache_does_not_change_the_digest(part):
    marked = msgspec.structs.replace(part, cache_breakpoint=MARK)
    tool = Tool(name="look")
    before, after = (
        msgspec.structs.replace(REQUEST, text=None, messages=(Message(Role.USER, (each,)),), tools=(offered,))
        for each, offered in ((part, tool), (marked, msgspec.structs.replace(tool, cache_breakpoint=MARK)))
    )
    assert digest(after, "m") == digest(before, "m")


# What a digest covers is decided for each field by name: whoever adds one decides here, and in docs/digest.md.

LEFT_OUT = {
    CompletionRequest: {
        "affinity_key",
        "call_id",
        "ceiling",
        "effect",
        "end_user_id",
        "retry_policy",
        "labels",
        "replay_only",
        "sensitivity",
        "system_cache_breakpoint",
    },
    EmbeddingRequest: {
        "call_id",
        "ceiling",
        "effect",
        "labels",
        "replay_only",
        "retry_policy",
        "sensitivity",
    },
    TextPart: {"cache_breakpoint"},
    MediaPart: {"cache_breakpoint"},
    ToolCallPart: {"cache_breakpoint"},
    ToolResultPart: {"cache_breakpoint"},
    Tool: {"cache_breakpoint"},
    ToolChoice: set(),
    Continuation: {"target"},
    Message: set(),
}
COVERED = {
    CompletionRequest: set(FIELDS) - {"operation", "inputs", "dimensions", "input_type"},
    EmbeddingRequest: {"model", "inputs", "dimensions", "input_type", "provider_options_json"},
    TextPart: {"text"},
    MediaPart: {"kind", "media_type", "data", "url", "name"},
    ToolCallPart: {"id", "name", "arguments_json", "free_text"},
    ToolResultPart: {"call_id", "output", "failed"},
    Tool: {"name", "description", "parameters_json", "strict"},
    ToolChoice: {"mode", "name", "disable_parallel_calls"},
    Continuation: {"provider", "state_json"},
    Message: {"role", "parts"},
}


@pytest.mark.parametrize("kind", LEFT_OUT, ids=lambda kind: kind.__name__)
def test_each_field_of_a_request_is_covered_or_left_out_on_purpose(kind):
    assert not LEFT_OUT[kind] & COVERED[kind]
    assert set(kind.__struct_fields__) == LEFT_OUT[kind] | COVERED[kind]


@pytest.mark.parametrize(
    ("fields_of", "kind"),
    [(completion_fields(REQUEST, "m"), CompletionRequest), (embedding_fields(BATCH, "m"), EmbeddingRequest)],
)
def test_the_digest_has_the_fields_that_it_says(fields_of, kind):
    assert fields_of.keys() == {"operation"} | COVERED[kind]
    assert list(fields_of) == [name for name in FIELDS if name in fields_of]


# Batches of texts

batches = st.builds(
    EmbeddingRequest,
    model=st.just("m"),
    call_id=st.just("c"),
    inputs=st.lists(names, min_size=1, max_size=3).map(tuple),
    dimensions=st.none() | st.integers(1, 65_536),
    input_type=st.none() | st.sampled_from(InputType),
    provider_options_json=texts,
)


@given(batches, batches)
def test_two_implementations_agree_on_batches(one, other):
    ours, another = embedding_digest(one, "m"), embedding_digest(other, "m")
    assert (ours.request, ours.fields) == digests(dict(embedding_fields(one, "m")))
    assert (ours.request == another.request) is (embedding_fields(one, "m") == embedding_fields(other, "m"))


@pytest.mark.parametrize(
    "change",
    [
        {"call_id": "other"},
        {"model": "alias"},
        {"labels": {"a": "b"}},
        {"effect": Effect(run_id="r", key="k")},
        {"ceiling": CallCeiling(tokens=1)},
        {"replay_only": True},
        {"sensitivity": Sensitivity.SECRET},
    ],
)
def test_what_does_not_change_the_vectors_does_not_change_the_digest(change):
    assert embedding_digest(msgspec.structs.replace(BATCH, **change), "m") == embedding_digest(BATCH, "m")


def test_texts_joined_otherwise_are_another_batch():
    joined = msgspec.structs.replace(BATCH, inputs=("ab",))
    assert embedding_digest(joined, "m").request != embedding_digest(BATCH, "m").request


def test_a_batch_is_never_a_completion():
    differs = first_difference(digest(REQUEST, "m").fields, embedding_digest(BATCH, "m").fields)
    assert differs == "operation"


def test_another_model_under_the_same_alias_is_another_request():
    before, after = digest(REQUEST, "anthropic/m-1"), digest(REQUEST, "anthropic/m-2")
    assert first_difference(before.fields, after.fields) == "model"


def test_equal_numbers_have_equal_digests():
    one = msgspec.structs.replace(REQUEST, temperature=1)
    assert digest(one, "m") == digest(msgspec.structs.replace(REQUEST, temperature=1.0), "m")


def test_a_field_of_a_later_version_is_named_after_those_that_are_known():
    assert first_difference({"text": "a"}, {"text": "a", "tone": "b"}) == "tone"
    assert first_difference({"text": "a"}, {"text": "b", "tone": "b"}) == "text"
