"""What the turns of a session go on from, and what becomes of them when the provider has forgotten it."""

import asyncio
import uuid

import pytest

from modelmeter import CacheBreakpoint, Completion, Message, ModelmeterError, RetryPolicy, Role, ToolResult
from modelmeter.enums import Certainty, Disposition, ErrorKind
from modelmeter.messages import Continuation
from modelmeter_server.core.journal import CallState
from tests.support import responses_events as responses
from tests.support.ledgers import ledger_in, rows_of
from tests.support.session_service import fail, sessions, take
from tests.support.socket_server import Reply, answered, frames, wrapped

LIMIT = Reply([wrapped(400, "websocket_connection_limit_reached")])
FORGOTTEN = Reply([wrapped(400, "previous_response_not_found")])


def keeping(served):
    return served.open(keep_transcript=True)


def replies(count):
    return [Reply(answered(f"r{number}", f"answer {number}")) for number in range(1, count + 1)]


async def test_a_turn_goes_on_from_the_response_before_it_over_the_same_socket():
    async with sessions(*replies(3)) as served, served.open() as session:
        for prompt in ("a", "b", "c"):
            await session.ask(prompt)
    assert served.previous == [None, "r1", "r2"]
    assert served.inputs == [["a"], ["b"], ["c"]]
    assert served.connections == [1, 1, 1]


async def test_an_empty_previous_response_begins_anew_and_another_one_overrides():
    async with sessions(*replies(4)) as served, served.open() as session:
        await session.ask("a")
        await session.ask("b", previous_response_id="")
        await session.ask("c", previous_response_id="r1")
        await session.ask("d")
    assert served.previous == [None, None, "r1", "r3"]


async def test_each_turn_is_a_call_with_an_id_and_a_bill_of_its_own(tmp_path):
    ids = [str(uuid.uuid4()) for _ in range(2)]
    async with ledger_in(tmp_path) as ledger, sessions(*replies(2), ledger=ledger) as served:
        async with served.open() as session:
            for id in ids:
                assert (await session.ask("a", call_id=id)).settled
        rows = await rows_of(ledger)
    assert {row.call_id for row in rows} == set(ids)
    assert all(row.figures.input_tokens == 30 for row in rows)
    # What the provider remembers is read and billed again, so that room is held for it.
    held = {row.call_id: row.hold.input_tokens for row in rows}
    assert held[ids[1]] >= held[ids[0]] + 38


async def test_a_turn_whose_socket_was_lost_is_refused_unsent_where_no_transcript_is_kept():
    async with sessions(Reply(answered("r1"), close=1001), *replies(2)) as served, served.open() as session:
        await session.ask("a")
        await served.provider.closed.wait()
        lost = await fail(session, "b")
        again = await fail(session, "b")
        await session.ask("c", previous_response_id="")
    assert (lost.kind, lost.code.name, lost.certainty) == (
        ErrorKind.REFUSED,
        "FAILED_PRECONDITION",
        Certainty.NONE,
    )
    assert "keep_transcript" in str(lost)
    assert again.kind is ErrorKind.REFUSED
    assert served.inputs == [["a"], ["c"]]


async def test_a_turn_whose_socket_was_lost_goes_out_with_all_that_was_said():
    async with (
        sessions(Reply(answered("r1", "one"), close=1001), *replies(2)) as served,
        served.open(keep_transcript=True) as session,
    ):
        await session.ask("a")
        await served.provider.closed.wait()
        _, end = await take(session, "b")
        await session.ask("c")
    assert served.inputs == [["a"], ["a", "one", "b"], ["c"]]
    assert served.previous == [None, None, "r1"]
    assert (end.previous_response_id, end.connection) == (None, 2)


@pytest.mark.parametrize("refusal", [LIMIT, FORGOTTEN], ids=["limit", "forgotten"])
async def test_a_turn_that_certainly_did_not_happen_goes_out_once_more_and_both_are_attempts(
    refusal, tmp_path
):
    async with (
        ledger_in(tmp_path) as ledger,
        sessions(*replies(1), refusal, *replies(1), ledger=ledger) as served,
    ):
        async with served.open(keep_transcript=True) as session:
            await session.ask("a")
            completion, end = await take(session, "b")
        rows = await rows_of(ledger)
    assert served.inputs == [["a"], ["b"], ["a", "answer 1", "b"]]
    assert served.connections == ([1, 1, 2] if refusal is LIMIT else [1, 1, 1])
    assert [(each.number, each.kind.name) for each in completion.attempts][1] == (2, "UNSPECIFIED")
    assert (completion.attempts_total, end.status, end.totals.turns) == (2, "completed", 2)
    assert [row.attempts_total for row in rows] == [2, 1]


@pytest.mark.parametrize("refusal", [LIMIT, FORGOTTEN], ids=["limit", "forgotten"])
async def test_without_a_transcript_nothing_goes_out_twice(refusal):
    async with sessions(*replies(1), refusal) as served, served.open() as session:
        await session.ask("a")
        failed = await fail(session, "b")
        lost = await fail(session, "c")
    assert len(served.provider.asked) == 2
    assert failed.disposition is Disposition.DID_NOT_HAPPEN
    assert (lost.kind, lost.code.name) == (ErrorKind.REFUSED, "FAILED_PRECONDITION")


async def test_the_callers_own_response_that_is_forgotten_is_told_and_not_replaced():
    async with sessions(*replies(1), FORGOTTEN) as served, keeping(served) as session:
        await session.ask("a")
        failed = await fail(session, "b", previous_response_id="resp_elsewhere")
    assert (failed.provider_code, len(served.provider.asked)) == ("previous_response_not_found", 2)


async def test_a_second_refusal_is_the_last():
    async with (
        sessions(*replies(1), FORGOTTEN, LIMIT) as served,
        served.open(keep_transcript=True) as session,
    ):
        await session.ask("a")
        failed, end = await take(session, "b")
    assert isinstance(failed, ModelmeterError)
    assert (failed.kind, failed.attempts_total, end.status) == (ErrorKind.UNAVAILABLE, 2, "error")


async def test_a_kept_socket_that_dies_before_anything_came_back_costs_one_more_sending():
    async with (
        sessions(*replies(1), Reply(reset=True), *replies(1)) as served,
        served.open(keep_transcript=True) as session,
    ):
        await session.ask("a")
        completion, _ = await take(session, "b")
    assert (served.connections, completion.attempts_total) == ([1, 1, 2], 2)


async def test_the_bill_of_a_turn_that_was_sent_twice_is_that_of_both_sendings(tmp_path):
    async with (
        ledger_in(tmp_path) as ledger,
        sessions(*replies(1), Reply(reset=True), *replies(1), ledger=ledger) as served,
    ):
        async with served.open(keep_transcript=True) as session:
            await session.ask("a")
            completion, end = await take(session, "b")
        row = next(row for row in await rows_of(ledger) if row.call_id == completion.call_id)
    # The first sending had reached the provider, and nobody said what became of it.
    assert [each.certainty for each in completion.attempts] == [Certainty.UNKNOWN, Certainty.EXACT]
    assert completion.certainty is end.totals.certainty is Certainty.AT_LEAST
    assert row.state == CallState.UNSETTLED


async def test_a_second_sending_that_is_refused_here_hides_nothing_of_the_first():
    draining: list[asyncio.Task[int]] = []

    def answer(asked):
        if len(served.provider.asked) == 1:
            return replies(1)[0]
        draining.append(asyncio.create_task(served.service.engine.drain(10)))
        return Reply(reset=True)

    async with sessions(answer=answer) as served, served.open(keep_transcript=True) as session:
        await session.ask("a")
        failed = await fail(session, "b")
        await draining[0]
    assert (failed.kind, failed.certainty) == (ErrorKind.UNAVAILABLE, Certainty.UNKNOWN)
    assert "DRAINING" in str(failed)


async def test_a_turn_that_generated_is_never_sent_twice():
    partial = frames(responses.created(), responses.text(0, "par"))
    async with (
        sessions(Reply(partial, reset=True), *replies(1)) as served,
        served.open(keep_transcript=True) as session,
    ):
        failed = await fail(session)
    assert (failed.kind, len(served.provider.asked)) == (ErrorKind.UNACCOUNTED, 1)


async def test_a_transcript_holds_the_calls_of_tools_as_the_provider_sent_them():
    item = responses.call("look", '{"at":1}')
    called = responses.event(
        "completed", response=responses.response(item, usage=responses.USAGE) | {"id": "r1"}
    )
    async with (
        sessions(Reply(frames(called), close=1001), *replies(1)) as served,
        served.open(keep_transcript=True) as session,
    ):
        completion = await session.ask("look")
        await served.provider.closed.wait()
        await session.ask([Message(Role.USER, (ToolResult("call_1", "seen"),))])
    assert completion.tool_calls[0].name == "look"
    assert [each.get("type") for each in served.provider.asked[1].document["input"]] == [
        None,
        "function_call",
        "function_call_output",
    ]


async def test_a_turn_can_be_read_without_an_answer_being_written():
    whole = responses.event("completed", response=responses.response(usage=responses.USAGE) | {"id": "r1"})
    async with sessions(Reply(frames(whole)), Reply(answered("r2"))) as served, served.open() as session:
        warm = await session.ask("long", generate=False)
        await session.ask("b")
    assert (warm.text, warm.certainty, served.previous) == ("", Certainty.EXACT, [None, "r1"])


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"temperature": 9.0}, "turn.request.temperature"),
        ({"continuation": Continuation("openai_responses", "[{}]")}, "turn.request.continuation"),
        ({"retry_policy": RetryPolicy(1)}, "turn.request.retry_policy"),
        ({"system_cache_breakpoint": CacheBreakpoint()}, "turn.request.system_cache_breakpoint"),
        ({"timeout": -1}, "turn.timeout"),
        ({"provider_options": {"generate": True}}, "turn.request.provider_options_json.generate"),
    ],
)
async def test_a_mistake_is_named_refused_unsent_and_leaves_the_session_as_it_was(options, field):
    async with sessions(*replies(2)) as served, served.open() as session:
        await session.ask("a")
        failed = await fail(session, "b", **options)
        await session.ask("c")
    assert (failed.code.name, failed.violations[0].field) == ("INVALID_ARGUMENT", field)
    assert served.previous == [None, "r1"]


async def test_a_turn_cannot_name_another_model():
    from modelmeter.v1.model_service_pb2 import CompleteRequest

    async with sessions() as served, served.open() as session:
        failed = await fail(session, CompleteRequest(model="anthropic", text="a"))
    assert failed.violations[0].field == "turn.request.model"


async def test_a_recorded_turn_is_replayed_and_not_bought_again(tmp_path):
    id = str(uuid.uuid4())
    async with ledger_in(tmp_path) as ledger, sessions(*replies(2), ledger=ledger) as served:
        async with served.open() as first:
            await first.ask("a", call_id=id)
        async with served.open(keep_transcript=True) as second:
            replayed = await second.ask("a", call_id=id)
            await second.ask("b")
    assert isinstance(replayed, Completion)
    assert replayed.replayed
    assert served.inputs == [["a"], ["a", "answer 1", "b"]]
