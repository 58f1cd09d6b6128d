"""The client's session for threads: the laws of its twin for asyncio, and those of threads."""

from __future__ import annotations

import asyncio
import threading

import grpc
import pytest

import modelmeter
from modelmeter import (
    Cause,
    LostContactError,
    ModelmeterError,
    NotConnectedError,
    SessionEndReason,
    SessionTransport,
)
from modelmeter.v1 import completion_pb2, session_pb2
from tests.client.test_session import (
    ENDED,
    OPENED,
    Response,
    answer,
    assert_nothing_was_sent,
    end_before_the_turn_is_begun,
    playing,
)
from tests.support.session_service import MODEL, sessions
from tests.support.socket_server import Reply, answered


async def used(play, use, **options):
    """Let `use` have the session of a played server, in a thread; return what it returns and what was heard."""
    async with playing(play) as (client, service):

        def work():
            with (
                modelmeter.Client(client._target) as threads,
                threads.session("m", **options) as session,
            ):
                return use(session)

        return await asyncio.to_thread(work), service.heard


async def test_what_comes_goes_to_the_turn_that_it_is_about():
    async def play(hear, context):
        await context.write(OPENED)
        first, second = [(await hear()).turn.request.call_id for _ in range(2)]
        await context.write(Response(call_id=second, text=completion_pb2.TextDelta(text="two")))
        await context.write(Response(call_id="nobody", text=completion_pb2.TextDelta(text="lost")))
        await context.write(answer(second, "two"))
        await context.write(answer(first, "one"))
        await hear()
        await context.write(ENDED)

    def use(session):
        first, second = session.turn("a"), session.turn("b")
        assert list(second.text) == ["two"]
        assert first.result().text == "one"
        assert first.end.status == "completed"
        assert (session.session_id, session.transport) == ("s-1", SessionTransport.WEBSOCKET)
        assert session.ended is None
        return session

    session, _ = await used(play, use)
    assert session.ended.reason is SessionEndReason.CLIENT_CLOSE


async def test_turns_carry_what_the_caller_says_of_them():
    async def play(hear, context):
        await context.write(OPENED)
        await context.write(answer((await hear()).turn.request.call_id, "x"))
        await hear()
        await context.write(ENDED)

    def use(session):
        return session.ask("a", previous_response_id="", generate=False, timeout=2, system="Be brief.")

    _, (opening, turn, close) = await used(play, use, when_busy="queue", conversation_id="c")
    assert (opening.open.when_busy, opening.open.conversation_id) == (session_pb2.BUSY_POLICY_QUEUE, "c")
    assert (turn.turn.HasField("previous_response_id"), turn.turn.generate) == (True, False)
    assert (turn.turn.timeout.seconds, turn.turn.request.system) == (2, "Be brief.")
    assert close.HasField("close")


async def test_a_turn_whose_server_is_gone_says_that_it_may_be_billed():
    async def play(hear, context):
        await context.write(OPENED)
        call_id = (await hear()).turn.request.call_id
        started = completion_pb2.CompletionStarted(call_id=call_id)
        await context.write(Response(call_id=call_id, started=started))
        await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

    def use(session):
        turn = session.turn("a")
        with pytest.raises(LostContactError) as caught:
            turn.result()
        session._reading.join(10)
        with pytest.raises(ModelmeterError):
            session.turn("b")
        return caught.value, session

    (lost, session), _ = await used(play, use)
    assert lost.may_have_generated
    assert session.ended is None


async def test_a_session_that_ends_without_a_word_leaves_no_turn_waiting():
    async def play(hear, context):
        await context.write(OPENED)
        await hear()

    def use(session):
        turn = session.turn("a")
        with pytest.raises(LostContactError):
            turn.result()
        with pytest.raises(RuntimeError):
            _ = turn.end

    await used(play, use)


async def test_a_turn_that_meets_the_end_of_its_session_was_not_sent():
    def use(session):
        for _ in range(2):  # on its way when the session ended, and after that
            with pytest.raises(NotConnectedError) as caught:
                session.ask("a")
            assert_nothing_was_sent(caught.value)

    await used(end_before_the_turn_is_begun, use)


async def test_an_error_inside_the_block_cancels_the_session_and_no_thread_stays():
    left = asyncio.Event()

    async def play(_hear, context):
        try:
            await context.write(OPENED)
            await asyncio.Event().wait()
        finally:
            left.set()

    threads = []

    def use(session):
        threads.append(session._reading)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await used(play, use)
    await asyncio.to_thread(threads[0].join, 10)
    assert not threads[0].is_alive()


async def test_a_session_cancelled_from_another_thread_says_who_did_it():
    waiting = threading.Event()

    async def play(hear, context):
        await context.write(OPENED)
        await hear()
        waiting.set()
        await asyncio.Event().wait()

    def use(session):
        turn = session.turn("a")
        canceller = threading.Thread(target=lambda: (waiting.wait(10), session.cancel()))
        canceller.start()
        with pytest.raises(LostContactError) as caught:
            turn.result()
        canceller.join()
        return caught.value

    lost, _ = await used(play, use)
    assert lost.cause is Cause.CALLER


async def test_a_session_that_is_not_opened_raises_what_the_server_says():
    async def play(_hear, context):
        await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

    async def silent(_hear, _context):
        pass

    for each in (play, silent):
        with pytest.raises(ModelmeterError):
            await used(each, lambda _session: None)


async def test_an_unknown_word_is_refused_before_anything_is_sent():
    async with playing(None) as (client, service):
        with modelmeter.Client(client._target) as threads, pytest.raises(ValueError, match="BusyPolicy"):
            threads.open_session("m", when_busy="sometimes")
    assert service.heard == []


# The whole way


async def test_turns_go_over_one_socket_and_each_has_its_bill():
    def talk(address):
        with modelmeter.Client(address) as client, client.session(MODEL, conversation_id="chat-1") as session:
            turn = session.turn("a")
            assert "".join(turn.text) == turn.completion.text
            session.ask("b")
            with pytest.raises(modelmeter.RefusedError):
                session.ask("c", temperature=-5)
        with pytest.raises(ModelmeterError, match="over"):
            session.turn("d")
        return session

    async with sessions(Reply(answered("r1")), Reply(answered("r2"))) as served:
        session = await asyncio.to_thread(talk, served.service.address)
    assert served.connections == [1, 1]
    assert served.previous == [None, "r1"]
    assert session.ended.reason is SessionEndReason.CLIENT_CLOSE
    assert session.ended.totals.turns_completed == 2
    assert session.ended.totals.certainty is modelmeter.Certainty.EXACT
