"""What is kept of an outcome comes back as it was, also from another version of this service."""

from __future__ import annotations

import json
from array import array

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.answers import Answer, Finish, ToolCall
from modelmeter_server.core.calls import Attempt, CallOutcome
from modelmeter_server.core.embeddings import Embeddings
from modelmeter_server.core.errors import Failure, failure
from modelmeter_server.core.hosted import HostedTool
from modelmeter_server.core.outcomes import Certainty, Kind, Stage
from modelmeter_server.core.pricing import Cost, CostSource
from modelmeter_server.core.requests import Continuation
from modelmeter_server.core.usage import AdditionalUsage, Usage
from modelmeter_server.ledger.contents import ContentUnreadable, decode, encode

USAGE = Usage(input_tokens=3, output_tokens=4, hosted_tool_requests={"search": 2})
COST = Cost(nano_units=7, currency="USD", source=CostSource.PROVIDER, certainty=Certainty.EXACT)
ANSWER = Answer(
    text="Grüße 🙂",
    tool_calls=(ToolCall(id="t", name="look", arguments_json='{"a": 1}', free_text=True),),
    usage=USAGE,
    additional_usage=(AdditionalUsage(kind="compaction", usage=USAGE, model="small"),),
    certainty=Certainty.EXACT,
    cost=COST,
    finish=Finish.TOOL_CALLS,
    structured_json="{}",
    hosted_tools=(HostedTool(type="search"),),
    continuation=Continuation("anthropic", "[]"),
)
BROKEN = failure(
    Kind.INTERRUPTED,
    "the connection broke",
    stage=Stage.OUTPUT,
    certainty=Certainty.AT_LEAST,
    usage=USAGE,
    cost=COST,
    partial_text="Gr",
)
ATTEMPT = Attempt(
    number=1, target="t", stage=Stage.OUTPUT, certainty=Certainty.EXACT, elapsed=0.5, usage=USAGE
)


def outcome(result: Answer | Failure) -> CallOutcome:
    return CallOutcome(call_id="c", model_asked="m", result=result, attempts=(ATTEMPT,), attempts_total=1)


@pytest.mark.parametrize("result", [ANSWER, BROKEN], ids=["answer", "failure"])
def test_what_was_kept_comes_back(result):
    content = decode(encode(outcome(result)))
    assert content.result == result
    assert content.attempts == (ATTEMPT,)


vectors = st.lists(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=2),
    min_size=1,
    max_size=3,
)


@given(vectors)
def test_vectors_come_back_to_the_bit(values):
    fields = {name: getattr(ANSWER, name) for name in Answer.__struct_fields__}
    kept = Embeddings(**fields, vectors=tuple(array("f", each) for each in values), revision="r@2")
    content = decode(encode(outcome(kept)))
    assert isinstance(content.result, Embeddings)
    assert [each.tobytes() for each in content.result.vectors] == [each.tobytes() for each in kept.vectors]
    assert (content.result.revision, content.result.usage, content.result.cost) == ("r@2", USAGE, COST)


def test_vectors_are_base64_of_little_endian_floats():
    kept = Embeddings(vectors=(array("f", [1.0, -0.0]),), revision="r@2")
    document = json.loads(encode(outcome(kept)))
    assert document["vectors"] == {"revision": "r@2", "values": ["AACAPwAAAIA="]}


@pytest.mark.parametrize("text", ["?", "AAA=", "AAAAAAA="])
def test_vectors_that_are_damaged_cannot_be_read(text):
    document = json.loads(encode(outcome(Embeddings(vectors=(array("f", [1.0]),), revision="r@1"))))
    document["vectors"]["values"] = [text]
    with pytest.raises(ContentUnreadable, match="vectors"):
        _ = decode(json.dumps(document).encode()).result


def test_what_a_later_version_adds_is_passed_over():
    document = json.loads(encode(outcome(ANSWER)))
    document["answer"]["mood"] = "good"
    document["weather"] = {"is": "fine"}
    assert decode(json.dumps(document).encode()).result == ANSWER


def test_what_an_earlier_version_did_not_write_has_its_default():
    assert decode(b'{"v":1,"answer":{"text":"Hi"}}').result == Answer(text="Hi")


def test_a_half_character_is_replaced_and_the_answer_kept():
    kept = decode(encode(outcome(msgspec.structs.replace(ANSWER, text="a\ud800b")))).result
    assert kept == msgspec.structs.replace(ANSWER, text="a\N{REPLACEMENT CHARACTER}b")


def test_the_providers_body_is_no_part_of_it():
    echoing = msgspec.structs.replace(BROKEN, provider_body=b"an echo")
    assert b"echo" not in encode(outcome(echoing))
    assert decode(encode(outcome(echoing))).result == BROKEN


@pytest.mark.parametrize(
    "data", [b"", b"null", b"{", b'{"v":2,"answer":{"text":"Hi"}}', b'{"v":1,"answer":{}}']
)
def test_what_cannot_be_read_is_said(data):
    with pytest.raises(ContentUnreadable):
        decode(data)


def test_an_empty_content_has_no_result():
    with pytest.raises(ContentUnreadable):
        _ = decode(b'{"v":1}').result
