"""A key that a provider echoes reaches no caller, in whatever word of the provider it stands."""

from __future__ import annotations

import json

import msgspec
import pytest

from modelmeter_server.core.answers import Answer, ToolCall
from modelmeter_server.core.errors import Failure, failure
from modelmeter_server.core.hosted import HostedTool
from modelmeter_server.core.outcomes import Certainty, Kind
from modelmeter_server.core.text import REDACTED, scrub
from modelmeter_server.core.usage import AdditionalUsage, Usage
from modelmeter_server.drivers.provider_words import without_keys
from tests.conformance.asking import ask
from tests.support import anthropic_events, responses_events
from tests.support.fault_server import FaultServer, Reply
from tests.support.provider_service import API_KEY, provider_service
from tests.support.wire_bytes import sse

KEY = "sk-echoed"
ECHO = f"<{KEY}>"
CLEAN = f"<{REDACTED}>"


def clean(text: str) -> str:
    return scrub(text, (KEY,))


def usage(tool: str) -> Usage:
    return Usage(input_tokens=1, output_tokens=2, hosted_tool_requests={tool: 3})


def answer(word: str) -> Answer:
    return Answer(
        text=f"the model may write {KEY}",
        tool_calls=(ToolCall(id="a", name="b", arguments_json=json.dumps(KEY)),),
        usage=usage(word),
        additional_usage=(AdditionalUsage(kind=word, usage=usage(word), model=word),),
        stop_reason=word,
        model_served=word,
        provider_response_id=word,
        provider_request_id=word,
        hosted_tools=(
            HostedTool(
                type=word,
                id=word,
                status=word,
                name=word,
                server=word,
                arguments_json=json.dumps(KEY),
                result_json=json.dumps(word),
                error=word,
            ),
        ),
        service_tier=word,
    )


def failed(word: str) -> Failure:
    return failure(
        Kind.INTERRUPTED,
        f"stopped: {word}",
        certainty=Certainty.AT_LEAST,
        usage=usage(word),
        additional_usage=(AdditionalUsage(kind=word, usage=usage(word)),),
        model_served=word,
        provider_code=word,
        provider_request_id=word,
        provider_response_id=word,
    )


@pytest.mark.parametrize("result", [answer, failed])
def test_every_word_of_the_provider_is_scrubbed_and_nothing_of_the_model(result):
    assert without_keys(result(ECHO), clean) == result(CLEAN)


@pytest.mark.parametrize("field", ["message", "model_served", "provider_code", "provider_request_id"])
def test_one_word_with_a_key_is_enough(field):
    result = msgspec.structs.replace(failure(Kind.UNAVAILABLE, "fine"), **{field: ECHO})
    assert getattr(without_keys(result, clean), field) == CLEAN


@pytest.mark.parametrize("result", [answer("fine"), failed("fine"), Answer(text=KEY)])
def test_a_result_without_a_key_stays_itself(result):
    assert without_keys(result, clean) is result


STOPPED = {"type": "message_delta", "usage": {"output_tokens": 7}}
ECHOES = {
    "request id": ("anthropic", Reply(500, {"request-id": API_KEY}, chunks=[b"{}"])),
    "request id of an answer": (
        "anthropic",
        Reply(
            headers={"request-id": API_KEY},
            chunks=[anthropic_events.stream(anthropic_events.text_block(0, "Hi"))],
        ),
    ),
    "stop reason": (
        "anthropic",
        Reply(
            chunks=[
                sse(
                    anthropic_events.start(),
                    {**STOPPED, "delta": {"stop_reason": API_KEY}},
                    {"type": "message_stop"},
                )
            ]
        ),
    ),
    "refusal category": (
        "anthropic",
        Reply(
            chunks=[
                sse(
                    anthropic_events.start(),
                    {**STOPPED, "delta": {"stop_reason": "refusal", "stop_details": {"category": API_KEY}}},
                    {"type": "message_stop"},
                )
            ]
        ),
    ),
    "model and id": (
        "anthropic",
        Reply(
            chunks=[
                sse(
                    {
                        "type": "message_start",
                        "message": {"id": API_KEY, "model": API_KEY, "usage": {"input_tokens": 1}},
                    }
                )
            ]
        ),
    ),
    "name of a malformed tool call": (
        "openai_responses",
        Reply(
            chunks=[responses_events.document({**responses_events.call(), "name": API_KEY, "arguments": "{"})]
        ),
    ),
}


@pytest.mark.parametrize("face", ["unary", "stream"])
@pytest.mark.parametrize("place", ECHOES)
async def test_an_echoed_key_does_not_reach_the_caller(place, face):
    kind, reply = ECHOES[place]
    async with FaultServer(reply) as provider, provider_service(provider) as service:
        heard = await ask(service.client, face, kind, "hello")
        (outcome,) = service.memory.outcomes
    assert API_KEY not in repr(outcome)
    assert API_KEY.encode() not in getattr(heard.result, "raw_status", b"")
    assert API_KEY not in repr(heard.result)
