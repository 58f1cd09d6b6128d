"""How sessions are opened, how they end, and that the end is told last and once."""

import asyncio
import contextlib

import grpc
import pytest

from modelmeter import Completion, ModelmeterError, SessionEndReason
from modelmeter.enums import Cause, Certainty, ErrorKind
from modelmeter.errors import DrainingError
from modelmeter.v1 import model_service_pb2, model_service_pb2_grpc, session_pb2
from modelmeter_server.core.session_events import SessionEnded, TurnCompleted
from modelmeter_server.drivers.http import Timeouts
from tests.support import responses_events as responses
from tests.support import session_service
from tests.support.session_service import MODEL, fail, take
from tests.support.socket_server import Reply, answered, frames

PATIENT = Timeouts(total=20)
PARTIAL = frames(responses.created(), responses.text(0, "par"))
HELD = Reply(PARTIAL, hold=True)


def sessions(*replies):
    return session_service.sessions(*replies, timeouts=PATIENT)


async def begun(served):
    """Wait until the provider has been asked for a turn."""
    await served.provider.arrived.wait()


async def raw(served, *messages, timeout=10):
    """Send these messages and return what came back, with the code."""
    async with grpc.aio.insecure_channel(served.service.address) as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        call = stub.Session(iter(messages), timeout=timeout)
        heard = []
        with contextlib.suppress(grpc.aio.AioRpcError):
            while (message := await call.read()) is not grpc.aio.EOF:
                heard.append(message)
        return heard, await call.code(), await call.initial_metadata()


def opening(**fields):
    return model_service_pb2.SessionRequest(open=session_pb2.SessionOpen(model=MODEL, **fields))


def turn(text="Hi"):
    request = model_service_pb2.CompleteRequest(text=text)
    return model_service_pb2.SessionRequest(turn=model_service_pb2.SessionTurn(request=request))


async def test_the_messages_come_in_order_and_the_end_is_the_last():
    async with sessions(Reply(answered("r1"))) as served:
        heard, code, metadata = await raw(served, opening(session_id="mine", conversation_id="talk"), turn())
    kinds = [message.WhichOneof("event") for message in heard]
    assert kinds[0] == "opened"
    assert kinds[-2:] == ["turn_ended", "ended"]
    assert kinds.count("started") == kinds.count("ended") == 1
    assert (heard[0].opened.session_id, heard[0].opened.conversation_id) == ("mine", "talk")
    assert ("modelmeter-session-id", "mine") in tuple(metadata)
    assert code is grpc.StatusCode.OK
    assert {each.conversation_id for each in served.events} == {"talk"}


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([], grpc.StatusCode.INVALID_ARGUMENT),
        ([turn()], grpc.StatusCode.INVALID_ARGUMENT),
        (
            [model_service_pb2.SessionRequest(open=session_pb2.SessionOpen(model="nobody"))],
            grpc.StatusCode.NOT_FOUND,
        ),
        ([opening(conversation_id="x" * 300)], grpc.StatusCode.INVALID_ARGUMENT),
        ([opening(when_busy=9)], grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_a_session_that_cannot_be_opened_ends_as_a_call_would(messages, code):
    async with sessions() as served:
        heard, ended_with, _ = await raw(served, *messages)
    assert (heard, ended_with) == ([], code)


async def test_one_session_too_many_is_shed():
    async with sessions() as served:
        served.service.engine.sessions.bound(limit=1, idle_seconds=60, age_seconds=60)
        async with served.open():
            with pytest.raises(ModelmeterError) as caught:
                async with served.open():
                    pass
        async with served.open():
            pass
    assert caught.value.kind is ErrorKind.OVERLOADED


async def test_a_second_turn_at_once_is_refused_unsent():
    async with sessions(HELD) as served, served.open() as session:
        await session.turn("a")
        await begun(served)
        refused = await fail(session, "b")
        await session.close(cut=True)
    assert (refused.kind, refused.code.name, refused.certainty) == (
        ErrorKind.REFUSED,
        "FAILED_PRECONDITION",
        Certainty.NONE,
    )
    assert len(served.provider.asked) == 1


async def test_turns_wait_in_order_where_a_session_queues_them():
    replies = [Reply(answered(f"r{number}", f"{number}")) for number in range(5)]
    async with sessions(*replies) as served, served.open(when_busy="queue") as session:
        turns = [await session.turn(str(number)) for number in range(5)]
        texts = [(await each.result()).text for each in turns]
    assert texts == [str(number) for number in range(5)]
    assert served.inputs == [[str(number)] for number in range(5)]


async def test_a_close_waits_for_what_is_under_way_and_tells_its_reason_again():
    async with sessions(*(Reply(answered(f"r{number}")) for number in range(3))) as served:
        async with served.open(when_busy="queue") as session:
            turns = [await session.turn("a") for _ in range(3)]
            end = await session.close("that is all")
        assert [isinstance(await each.result(), Completion) for each in turns] == [True] * 3
    assert (end.reason, end.detail, end.totals.turns) == (SessionEndReason.CLIENT_CLOSE, "that is all", 3)


async def test_a_close_that_cuts_tells_the_bill_of_the_turn_under_way_and_refuses_the_rest():
    async with sessions(HELD) as served, served.open(when_busy="queue") as session:
        running, waiting = await session.turn("a"), await session.turn("b")
        await begun(served)
        await session.close(cut=True)
        with pytest.raises(ModelmeterError) as cut:
            await running.result()
        with pytest.raises(ModelmeterError) as never:
            await waiting.result()
    assert (cut.value.kind, cut.value.cause) == (ErrorKind.UNACCOUNTED, Cause.CALLER)
    assert (never.value.kind, never.value.certainty) == (ErrorKind.UNREACHABLE, Certainty.NONE)
    assert session.ended.totals.turns == 1


async def test_a_caller_that_leaves_gets_the_turn_cut_recorded_and_the_session_ended_once():
    async with sessions(HELD) as served:
        async with served.open() as session:
            turn = await session.turn("a")
            await begun(served)
            session.cancel()
            with pytest.raises(ModelmeterError) as caught:
                await turn.result()
        await served.service.engine.drain(5)
        (outcome,) = served.service.memory.outcomes
    assert caught.value.cause is Cause.CALLER
    assert (outcome.result.kind.name, outcome.result.cause.name) == ("UNACCOUNTED", "CALLER")
    assert [type(each) for each in served.events][-2:] == [TurnCompleted, SessionEnded]
    assert served.events[-1].reason == "client_close"
    assert sum(isinstance(each, SessionEnded) for each in served.events) == 1


@pytest.mark.parametrize("steps", range(12))
async def test_a_caller_that_leaves_while_the_session_ends_takes_no_socket_and_no_end_along(steps):
    async with sessions(Reply(answered("r1"))) as served:
        session = await served.service.client.open_session(MODEL)
        await session.ask("a")
        closing = asyncio.create_task(session.close(cut=True))
        for _ in range(steps):
            await asyncio.sleep(0)  # the server is in this loop: it comes one step further
        session.cancel()
        await closing
        await served.service.server.stop(5)
        assert sum(isinstance(each, SessionEnded) for each in served.events) == 1
        async with asyncio.timeout(5):
            await served.provider.left.wait()


async def test_a_deadline_ends_turn_and_session_before_it_passes():
    # Long enough for a busy machine to send the turn first, and to tell its end within what is kept of it.
    async with sessions(HELD) as served:
        async with served.open(timeout=3.0) as session:
            failed, end = await take(session)
            assert isinstance(failed, ModelmeterError)
            assert (failed.kind, failed.code.name) == (ErrorKind.UNACCOUNTED, "DEADLINE_EXCEEDED")
            assert end.status == "error"
            await session.close()
        assert session.ended.reason is SessionEndReason.DEADLINE


async def test_a_turn_has_a_time_of_its_own_and_the_session_goes_on():
    async with sessions(HELD, Reply(answered("r2"))) as served, served.open() as session:
        failed = await fail(session, timeout=1.0)  # long enough for a busy machine to send it
        await session.ask("b", previous_response_id="")
    assert (failed.code.name, failed.cause) == ("DEADLINE_EXCEEDED", Cause.DEADLINE)
    assert served.connections == [1, 2]


@pytest.mark.parametrize(("bounds", "reason"), [((0.5, 60.0), "IDLE"), ((60.0, 0.5), "AGE")])
async def test_a_session_that_is_left_alone_or_too_old_is_ended_by_the_server(bounds, reason):
    idle, age = bounds
    async with sessions(Reply(answered("r1"))) as served:
        served.service.engine.sessions.bound(limit=9, idle_seconds=idle, age_seconds=age)
        async with served.open() as session:
            await session.ask("a")
            await asyncio.wait((session._reading,))
            assert session.ended.reason.name == reason
            with pytest.raises(ModelmeterError):
                await session.turn("a")


async def test_a_session_is_not_idle_while_a_turn_runs():
    goes_on = asyncio.Event()
    whole = answered("r1")
    async with sessions(Reply(whole[:2], after=goes_on, rest=whole[2:])) as served:
        served.service.engine.sessions.bound(limit=9, idle_seconds=0.5, age_seconds=60)
        async with served.open() as session:
            turn = await session.turn("a")
            await begun(served)
            asyncio.get_running_loop().call_later(1.0, goes_on.set)
            assert (await turn.result()).text == "ok"


async def test_a_server_that_drains_lets_the_turn_end_and_then_the_session():
    goes_on = asyncio.Event()
    whole = answered("r1")
    async with sessions(Reply(whole[:2], after=goes_on, rest=whole[2:])) as served, served.open() as session:
        turn = await session.turn("a")
        await begun(served)
        draining = asyncio.create_task(served.service.server.stop(10))
        await asyncio.sleep(0)  # it refuses from its first step on
        assert served.service.engine.is_draining
        goes_on.set()
        assert (await turn.result()).text == "ok"
        await asyncio.wait((session._reading,))
        assert session.ended.reason is SessionEndReason.DRAIN
        assert await draining == 0


@pytest.mark.parametrize("steps", range(12))
async def test_a_turn_that_meets_a_drain_is_answered_or_sent_elsewhere(steps):
    async with sessions(Reply(answered("r1"))) as served, served.open() as session:
        turn = await session.turn("a")
        for _ in range(steps):
            await asyncio.sleep(0)  # the server is in this loop: it comes one step further
        draining = asyncio.create_task(served.service.engine.drain(10))
        heard = (await asyncio.gather(turn.result(), return_exceptions=True))[0]
        if isinstance(heard, Completion):
            assert heard.text == "ok"
        else:
            assert isinstance(heard, DrainingError)
            assert (heard.certainty, heard.retryable, heard.call_id) == (Certainty.NONE, True, turn.call_id)
            assert not served.provider.asked
        assert await draining == 0
        await asyncio.wait((session._reading,))
        assert session.ended.reason is SessionEndReason.DRAIN


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(PARTIAL, reset=True), SessionEndReason.RESPONSE_FAILED),
        (Reply(reset=True), SessionEndReason.TRANSPORT_ERROR),
    ],
)
async def test_a_session_ends_with_a_failed_turn_where_that_is_asked(reply, reason):
    async with sessions(reply) as served, served.open(end_on_failure=True) as session:
        await fail(session)
        await asyncio.wait((session._reading,))
        assert session.ended.reason is reason


async def test_the_events_of_a_session_hold_no_content():
    replies = Reply(answered("r1", "hunter2")), Reply(PARTIAL, reset=True)
    async with sessions(*replies) as served, served.open(keep_transcript=True) as session:
        await session.ask("hunter1")
        await fail(session, "hunter3")
    assert "hunter" not in repr(served.events)
    assert [each.status for each in served.events if isinstance(each, TurnCompleted)] == [
        "completed",
        "error",
    ]
