"""Sessions with models that have no WebSocket: ordinary calls that carry everything, and say so."""

import json

import pytest

from modelmeter import SessionTransport
from modelmeter.enums import Certainty, ErrorKind
from modelmeter_server.core.transcripts import Transcript
from tests.support import anthropic_events
from tests.support.fault_server import FaultServer, Reply
from tests.support.provider_service import provider_service
from tests.support.session_service import fail, take

ANSWER = Reply(chunks=[anthropic_events.stream(anthropic_events.text_block(0, "Hello."))])


def text_of(content):
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def said(request):
    return [(each["role"], text_of(each["content"])) for each in json.loads(request.body)["messages"]]


@pytest.fixture
async def served():
    async with FaultServer(ANSWER) as provider, provider_service(provider) as service:
        yield service


async def test_each_turn_is_an_ordinary_call_with_all_that_was_said(served):
    async with served.client.session("anthropic") as session:
        assert session.transport is SessionTransport.EMULATED
        await session.ask("a")
        completion, end = await take(session, "b")
    first, second = map(said, served.provider.requests)
    assert first == [("user", "a")]
    assert second == [("user", "a"), ("assistant", "Hello."), ("user", "b")]
    assert (completion.certainty, end.status, end.connection) == (Certainty.EXACT, "completed", 0)
    assert session.ended.totals.turns_completed == 2
    assert len(served.memory.outcomes) == 2


async def test_a_new_conversation_forgets_the_old_one(served):
    async with served.client.session("anthropic") as session:
        await session.ask("a")
        await session.ask("b", previous_response_id="")
        await session.ask("c")
    assert [said(request) for request in served.provider.requests][1:] == [
        [("user", "b")],
        [("user", "b"), ("assistant", "Hello."), ("user", "c")],
    ]


async def test_a_failed_turn_is_no_part_of_the_conversation(served):
    async with served.client.session("anthropic") as session:
        await session.ask("a")
        served.provider.script([Reply(status=500)])
        assert (await fail(session, "b")).kind is ErrorKind.UNAVAILABLE
        await session.ask("c")
    assert said(served.provider.requests[-1])[-1] == ("user", "c")
    assert len(said(served.provider.requests[-1])) == 3


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"previous_response_id": "resp_1"}, "turn.previous_response_id"),
        ({"generate": False}, "turn.generate"),
        ({"native_json": '[{"role":"user","content":"x"}]'}, "turn.request.native_json"),
    ],
)
async def test_what_needs_a_socket_is_refused_by_name(served, options, field):
    prompt = None if "native_json" in options else "a"
    async with served.client.session("anthropic") as session:
        failed = await fail(session, prompt, **options)
    assert field in [each.field for each in failed.violations]
    assert served.provider.requests == []


async def test_a_conversation_too_long_to_be_kept_is_refused_unsent(served, monkeypatch):
    monkeypatch.setattr(Transcript.__init__, "__defaults__", (50,))
    async with served.client.session("anthropic") as session:
        await session.ask("a long first turn")
        failed = await fail(session, "b")
        await session.ask("c", previous_response_id="")
    assert (failed.kind, failed.code.name) == (ErrorKind.REFUSED, "FAILED_PRECONDITION")
    assert len(served.provider.requests) == 2
