"""The client's session: turns by their ids, ends that nobody told, and what it does not know."""

import asyncio
from contextlib import asynccontextmanager
from uuid import uuid4

import grpc
import pytest

import modelmeter
from modelmeter import (
    Certainty,
    Disposition,
    LostContactError,
    ModelmeterError,
    NotConnectedError,
    SessionEndReason,
    SessionTransport,
)
from modelmeter.v1 import completion_pb2, model_service_pb2, model_service_pb2_grpc, session_pb2, usage_pb2
from tests.support.scripted_service import ScriptedService

Response = model_service_pb2.SessionResponse
OPENED = Response(
    opened=session_pb2.SessionOpened(
        session_id="s-1", model="m", transport=session_pb2.SESSION_TRANSPORT_WEBSOCKET
    )
)
ENDED = Response(
    ended=session_pb2.SessionClosed(session_id="s-1", reason=session_pb2.SESSION_END_REASON_CLIENT_CLOSE)
)


class Service(ScriptedService):
    """Plays a session as a test says."""

    def __init__(self, play):
        super().__init__()
        self.play = play
        self.heard = []

    async def Session(self, requests, context):  # type: ignore[override]  # writes by itself
        async def hear():
            message = await anext(requests)
            self.heard.append(message)
            return message

        await hear()
        await self.play(hear, context)


@asynccontextmanager
async def playing(play):
    service = Service(play)
    server = grpc.aio.server()
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with modelmeter.AsyncClient(f"127.0.0.1:{port}") as client:
            yield client, service
    finally:
        await server.stop(0)


def answer(call_id, text):
    completion = completion_pb2.Completion(
        text=text, call_id=call_id, certainty=usage_pb2.CERTAINTY_EXACT, stop_reason="completed"
    )
    return Response(
        call_id=call_id,
        turn_ended=session_pb2.SessionTurnEnd(completion=completion, turn=1, status="completed"),
    )


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

    async with playing(play) as (client, _), client.session("m") as session:
        first, second = await session.turn("a"), await session.turn("b")
        assert [piece async for piece in second.text] == ["two"]
        assert (await first.result()).text == "one"
        assert (session.session_id, session.transport) == ("s-1", SessionTransport.WEBSOCKET)
    assert session.ended.reason is SessionEndReason.CLIENT_CLOSE


async def test_turns_carry_what_the_caller_says_of_them():
    async def play(hear, context):
        await context.write(OPENED)
        await context.write(answer((await hear()).turn.request.call_id, "x"))
        await hear()
        await context.write(ENDED)

    async with playing(play) as (client, service):
        async with client.session(
            "m", when_busy="queue", keep_transcript=True, conversation_id="c"
        ) as session:
            await session.ask("a", previous_response_id="", generate=False, timeout=2, system="Be brief.")
        opening, turn, close = service.heard
    assert (opening.open.when_busy, opening.open.keep_transcript) == (session_pb2.BUSY_POLICY_QUEUE, True)
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

    async with playing(play) as (client, _), client.session("m") as session:
        turn = await session.turn("a")
        with pytest.raises(LostContactError) as caught:
            await turn.result()
        with pytest.raises(ModelmeterError):
            await session.turn("b")
    assert caught.value.may_have_generated
    assert session.ended is None


async def test_a_session_that_ends_without_a_word_leaves_no_turn_waiting():
    async def play(hear, context):
        await context.write(OPENED)
        await hear()

    async with playing(play) as (client, _), client.session("m") as session:
        turn = await session.turn("a")
        with pytest.raises(LostContactError):
            await turn.result()
        with pytest.raises(RuntimeError):
            _ = turn.end


async def end_before_the_turn_is_begun(hear, context):
    await context.write(OPENED)
    await hear()
    await context.write(ENDED)


def assert_nothing_was_sent(error):
    assert (error.disposition, error.certainty) == (Disposition.DID_NOT_HAPPEN, Certainty.NONE)
    assert (error.retryable, error.may_have_generated) == (True, False)
    assert "in another session" in error.message


async def test_a_turn_that_meets_the_end_of_its_session_was_not_sent():
    async with playing(end_before_the_turn_is_begun) as (client, _), client.session("m") as session:
        for _ in range(2):  # on its way when the session ended, and after that
            with pytest.raises(NotConnectedError) as caught:
                await session.ask("a", call_id=(call_id := str(uuid4())))
            assert_nothing_was_sent(caught.value)
            assert caught.value.call_id == call_id


async def test_a_turn_that_had_begun_may_be_billed_although_its_session_ended():
    async def play(hear, context):
        await context.write(OPENED)
        call_id = (await hear()).turn.request.call_id
        await context.write(Response(call_id=call_id, started=completion_pb2.CompletionStarted()))
        await context.write(ENDED)

    async with playing(play) as (client, _), client.session("m") as session:
        with pytest.raises(LostContactError):
            await session.ask("a")


async def test_an_error_inside_the_block_cancels_the_session():
    left = asyncio.Event()

    async def play(_hear, context):
        try:
            await context.write(OPENED)
            await asyncio.Event().wait()
        finally:
            left.set()

    async with playing(play) as (client, _):
        with pytest.raises(ZeroDivisionError):
            async with client.session("m"):
                raise ZeroDivisionError
        await left.wait()


async def test_an_unknown_word_is_refused_before_anything_is_sent():
    async with playing(None) as (client, service):
        with pytest.raises(ValueError, match="BusyPolicy"):
            await client.open_session("m", when_busy="sometimes")
    assert service.heard == []
