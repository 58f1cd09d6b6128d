"""What those who watch see of sessions: over a socket and emulated, with the bill of each turn and of all."""

from __future__ import annotations

import uuid
from typing import Any

import grpc.aio
import pytest

import modelmeter
from modelmeter.v1 import event_pb2
from modelmeter.v1 import event_service_pb2 as pb
from modelmeter.v1.event_service_pb2_grpc import EventServiceStub
from modelmeter_server.core.events import Family, Severity, kind_of
from modelmeter_server.core.models import ModelSpec
from modelmeter_server.core.outcomes import Certainty, Kind
from modelmeter_server.core.pricing import PriceTable, Tier
from modelmeter_server.core.sampling import Sampling
from modelmeter_server.telemetry import conventions as names
from tests.support import anthropic_events
from tests.support import responses_events as responses
from tests.support.fault_server import FaultServer
from tests.support.fault_server import Reply as HttpReply
from tests.support.hosted_answers import FORMS
from tests.support.ledgers import ledger_in
from tests.support.provider_service import provider_service
from tests.support.session_service import MODEL, fail, sessions
from tests.support.socket_server import Reply, answered, frames, wrapped
from tests.support.watching import Observed

PRICED = "priced"
PRICE = PriceTable(currency="USD", tiers=(Tier(input=5_000_000_000, output=25_000_000_000),))
MODELS = [
    ModelSpec(
        name=PRICED,
        provider="openai_responses",
        provider_kind="openai_responses",
        provider_model="gpt-5.2",
        price=PRICE,
    )
]
BROKEN = Reply(frames(responses.created()), reset=True)


def own(seen: Observed):
    """Return the events of sessions."""
    return [event for event in seen.events() if kind_of(event).startswith("response.")]


async def talked(*replies: Reply, turns=("a", "b"), seen: Observed | None = None, **options):
    """Talk with a priced model over a socket; return what was seen and what the client was told."""
    seen = seen or Observed()
    async with sessions(*replies, telemetry=seen.telemetry, models=MODELS) as served:
        ids = [str(uuid.uuid4()) for _ in turns]
        async with served.service.client.session(PRICED, **options) as session:
            for prompt, id in zip(turns, ids, strict=True):
                try:
                    await session.ask(prompt, call_id=id)
                except Exception:  # noqa: BLE001 - its bill is what is looked at
                    pass
    return seen, session, ids


async def test_a_session_is_told_from_its_first_turn_to_its_end():
    seen, session, ids = await talked(
        Reply(answered("r1")), Reply(answered("r2")), conversation_id="chat-1", session_id="s-1"
    )
    assert [kind_of(event) for event in own(seen)] == [
        "response.session_started",
        *("response.turn_started", "response.turn_completed") * 2,
        "response.session_ended",
    ]
    assert {event.session_id for event in own(seen)} == {"s-1"}
    assert {event.conversation_id for event in seen.events()} == {"chat-1"}
    started, first, first_end, second, _, ended = own(seen)
    assert (started.model_asked, started.emulated) == (PRICED, False)
    assert [first.call_id, second.call_id] == ids
    assert first_end.call_id == ids[0]
    assert (first.turn, first.previous_response_id, second.previous_response_id) == (1, "", "r1")
    assert (ended.reason, ended.turns, ended.turns_completed) == ("client_close", 2, 2)
    assert session.ended.totals.turns == 2


async def test_a_turn_is_told_with_the_bill_of_its_call():
    seen, session, _ = await talked(Reply(answered("r1")), turns=("a",))
    end, ended = own(seen)[-2:]
    completed = seen.event("prompt.completed")
    assert (end.usage, end.certainty, end.cost) == (completed.usage, Certainty.EXACT, completed.cost)
    assert end.cost.nano_units > 0
    assert (end.provider_response_id, end.status, end.reason, end.connection) == ("r1", "completed", "", 1)
    assert end.total_time >= 0
    assert ended.usage.input_tokens == completed.usage.input_tokens
    assert ended.cost_nano_units == {"USD": end.cost.nano_units} == session.ended.totals.cost_nano_units
    assert (ended.certainty, ended.cost_certainty) == (Certainty.EXACT, end.cost.certainty)


async def test_a_turn_that_dies_is_told_with_what_is_known_and_the_sums_say_so():
    seen, _, _ = await talked(BROKEN, Reply(answered("r2")), keep_transcript=True)
    ends = [event for event in own(seen) if kind_of(event) == "response.turn_completed"]
    assert [(end.status, end.severity) for end in ends] == [
        ("error", Severity.WARNING),
        ("completed", Severity.INFO),
    ]
    assert ends[0].usage is None
    assert ends[0].certainty is Certainty.UNKNOWN
    ended = own(seen)[-1]
    assert (ended.certainty, ended.turns, ended.turns_completed) == (Certainty.AT_LEAST, 2, 1)
    assert kind_of(seen.events()[-1]) == "response.session_ended"


async def test_a_turn_that_is_sent_twice_is_told_as_two_attempts_and_one_turn():
    limit = Reply([wrapped(400, "websocket_connection_limit_reached")])
    seen, session, _ = await talked(Reply(answered("r1")), limit, Reply(answered("r2")), keep_transcript=True)
    told = [kind for kind in seen.kinds() if not kind.startswith(("prompt.", "response.session"))]
    turn = ("response.turn_started", "attempt", "response.turn_completed")
    assert told == [*turn, *turn[:2], "retry", *turn[1:]]
    attempts = [event.number for event in seen.events() if kind_of(event) in ("attempt", "retry")]
    assert attempts == [1, 1, 2, 2]
    assert [span.attributes[names.ATTEMPT] for span in seen.attempt_spans] == [1, 1, 2]
    assert seen.metrics()[names.RETRIES] == [({names.TARGET: "openai_responses"}, 1)]
    # The provider answered the first one, which may be billed.
    assert session.ended.totals.certainty is modelmeter.Certainty.AT_LEAST


async def test_a_session_without_a_turn_is_not_told():
    seen, _, _ = await talked(turns=())
    assert own(seen) == []


async def test_an_emulated_session_is_told_in_the_same_way_and_says_so():
    seen, reply = (
        Observed(),
        HttpReply(chunks=[anthropic_events.stream(anthropic_events.text_block(0, "Hi."))]),
    )
    async with (
        FaultServer(reply) as provider,
        provider_service(provider, telemetry=seen.telemetry) as service,
        service.client.session("anthropic", conversation_id="chat-2") as session,
    ):
        await session.ask("a")
        provider.script([HttpReply(status=500)])
        await fail(session, "b")
    started, _, end, _, failed, ended = own(seen)
    assert started.emulated
    assert (end.status, end.certainty, end.connection) == ("completed", Certainty.EXACT, 0)
    assert end.usage.input_tokens == 12
    assert end.provider_response_id
    assert (failed.status, failed.reason) == ("error", Kind.UNAVAILABLE.value.lower())
    assert (ended.turns, ended.turns_completed) == (2, 1)


async def test_watchers_and_queries_know_sessions_and_their_filters():
    seen = Observed()
    async with (
        sessions(Reply(answered("r1")), Reply(answered("r2")), telemetry=seen.telemetry) as served,
        grpc.aio.insecure_channel(served.service.address) as channel,
    ):
        stub = EventServiceStub(channel)
        watch: Any = stub.WatchEvents(pb.WatchEventsRequest(filter=pb.EventFilter(session_id="s-2")))
        await watch.read()
        for id in ("s-1", "s-2"):
            async with served.open(session_id=id, conversation_id="chat-1") as session:
                await session.ask("a")
        found: list[event_pb2.Event] = []
        while len(found) < 4:
            found += (await watch.read()).events
        watch.cancel()
        wanted = pb.EventFilter(kinds=["response.session_ended"], conversation_id="chat-1")
        ended = (await stub.QueryEvents(pb.QueryEventsRequest(filter=wanted))).events
        sums = (await stub.GetInsights(pb.GetInsightsRequest(conversation_id="chat-1"))).insights
    assert [event.kind for event in found] == [
        "response.session_started",
        "response.turn_started",
        "response.turn_completed",
        "response.session_ended",
    ]
    assert found[2].turn_completed.usage.input_tokens == 30
    assert found[2].turn_completed.status == "completed"
    assert [event.session_ended.session_id for event in ended] == ["s-2", "s-1"]
    assert (sums.calls, sums.by_conversation[0].name, sums.by_conversation[0].calls) == (2, "chat-1", 2)


async def test_a_label_of_the_turn_names_its_conversation_rather_than_the_session_does():
    seen = Observed()
    async with sessions(Reply(answered("r1")), telemetry=seen.telemetry) as served:
        session = await served.service.client.open_session(MODEL, conversation_id="of the session")
        await session.ask("a", labels={"conversation_id": "of the turn"})
        await session.close()
    assert seen.event("prompt.completed").conversation_id == "of the turn"
    assert seen.event("response.turn_completed").conversation_id == "of the session"


async def test_a_sampled_session_is_told_whole_or_only_where_it_failed():
    seen = Observed(sampling=Sampling(rates={Family.RESPONSE: 0.0}))
    await talked(Reply(answered("r1")), BROKEN, seen=seen, keep_transcript=True)
    assert [(kind_of(event), event.status) for event in own(seen)] == [("response.turn_completed", "error")]


async def test_hosted_tools_of_a_turn_are_told_once_with_the_call_that_used_them():
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "rivers"}}
    told = frames(responses.created(), responses.ended(search, responses.message("ok")))
    seen, _, ids = await talked(Reply(told), turns=("a",))
    tools = [event for event in seen.events() if kind_of(event).startswith("tool.")]
    assert [(event.tool_call_id, event.call_id) for event in tools] == [("ws_1", ids[0])] * 2
    assert seen.event("response.turn_completed").hosted_tool_calls == 1
    assert seen.event("response.session_ended").hosted_tool_calls == 1


async def test_hosted_tools_of_an_emulated_turn_are_counted_as_those_over_a_socket():
    seen, form = Observed(), FORMS["anthropic mcp"]
    reply = HttpReply(headers={"content-type": "text/event-stream"}, chunks=[form.stream])
    async with (
        FaultServer(reply) as provider,
        provider_service(provider, telemetry=seen.telemetry) as service,
        service.client.session("anthropic") as session,
    ):
        await session.ask("a")
    assert seen.event("response.turn_completed").hosted_tool_calls == len(form.tools) == 1
    assert seen.event("response.session_ended").hosted_tool_calls == 1


async def test_hosted_tools_of_a_turn_that_failed_are_told_as_they_are_counted():
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "rivers"}}
    told = frames(responses.created(), responses.ended(search, status="failed"))
    seen, _, _ = await talked(Reply(told), turns=("a",))
    tools = [kind for kind in seen.kinds() if kind.startswith("tool.")]
    assert tools == ["tool.hosted_invoked", "tool.hosted_completed"]
    assert seen.kinds().index("tool.hosted_completed") < seen.kinds().index("prompt.failed")
    assert seen.event("response.turn_completed").hosted_tool_calls == 1


async def test_a_turn_that_is_replayed_buys_nothing_and_adds_nothing_to_the_sums(tmp_path):
    seen, id = Observed(), str(uuid.uuid4())
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "rivers"}}
    told = frames(responses.created(), responses.ended(search, responses.message("ok")))
    async with (
        ledger_in(tmp_path) as ledger,
        sessions(Reply(told), telemetry=seen.telemetry, models=MODELS, ledger=ledger) as served,
        served.service.client.session(PRICED) as session,
    ):
        bought = await session.ask("a", call_id=id)
        again = await session.ask("a", call_id=id)
    assert (bought.replayed, again.replayed) == (False, True)
    assert bought.cost is not None
    assert session.ended is not None
    ends = [event for event in own(seen) if kind_of(event) == "response.turn_completed"]
    assert [(end.replayed, end.cost.nano_units) for end in ends] == [
        (False, bought.cost.nano_units),
        (True, bought.cost.nano_units),
    ]
    totals, ended = session.ended.totals, own(seen)[-1]
    assert (totals.turns, totals.turns_completed) == (2, 2)
    assert totals.usage.input_tokens == ended.usage.input_tokens == bought.usage.input_tokens
    assert totals.cost_nano_units == ended.cost_nano_units == {"USD": bought.cost.nano_units}
    assert ended.hosted_tool_calls == 1
    assert [kind for kind in seen.kinds() if kind.startswith("tool.")] == [
        "tool.hosted_invoked",
        "tool.hosted_completed",
    ]


async def test_each_turn_has_a_span_below_that_of_the_session_and_is_counted_as_a_call():
    seen, _, ids = await talked(Reply(answered("r1")), BROKEN, keep_transcript=True)
    (rpc,), turns = seen.rpc_spans, seen.attempt_spans
    assert rpc.name == "modelmeter.v1.ModelService/Session"
    assert rpc.attributes[names.RPC_STATUS] == "OK"
    assert [turn.name for turn in turns] == ["chat gpt-5.2"] * 2
    assert {turn.parent.span_id for turn in turns} == {rpc.context.span_id}
    assert [turn.attributes[names.CALL_ID] for turn in turns] == ids
    assert [turn.attributes.get(names.ERROR_TYPE) for turn in turns] == [None, "UNAVAILABLE"]
    assert {event.span_id for event in own(seen)} == {f"{rpc.context.span_id:016x}"}
    counted = seen.metrics()
    assert sum(count for _, count in counted[names.CALLS]) == 2
    assert sum(count for _, count in counted[names.INFERENCE_DURATION]) == 2
    assert counted[names.RPC_SERVER_DURATION][0][0][names.RPC_METHOD] == rpc.name


@pytest.mark.parametrize("part", ["_started", "_turn_completed", "_ended"])
async def test_no_turn_fails_because_somebody_looks_at_it(part, monkeypatch):
    monkeypatch.setattr(f"modelmeter_server.telemetry.sessions.SessionWatch.{part}", None)
    _, session, _ = await talked(Reply(answered("r1")), turns=("a",))
    assert session.ended.totals.turns_completed == 1
