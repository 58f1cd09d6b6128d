"""The client's session: turns by their ids, ends that nobody told, and what it does not know."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest

import modelmeter
from modelmeter import LostContactError, ModelmeterError, SessionEndReason, SessionTransport
from modelmeter.enums import Cause, Certainty, Disposition, ErrorKind
from modelmeter.errors import DrainingError, UnreachableError
from modelmeter.v1 import completion_pb2, model_service_pb2, model_service_pb2_grpc, session_pb2, usage_pb2
from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.errors import failure
from modelmeter_server.core.outcomes import Code, Kind
from modelmeter_server.rpc.status import trailer
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


def over(reason):
    number = session_pb2.SessionEndReason.Value(f"SESSION_END_REASON_{reason}")
    ended = session_pb2.SessionClosed(session_id="s-1", reason=number)
    return Response(ended=ended)


def refusing():
    """Return the trailers of a session that the server ends, whatever becomes of its turn."""
    failed = failure(Kind.REFUSED, "over", code=Code.FAILED_PRECONDITION)
    return trailer(CallOutcome(call_id="", model_asked="m", result=failed), failed).metadata


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


@pytest.mark.parametrize(
    ("reason", "error"), [("DRAIN", DrainingError), ("IDLE", UnreachableError), ("AGE", UnreachableError)]
)
async def test_a_turn_that_the_server_never_took_says_that_nothing_was_sent(reason, error):
    async def play(hear, context):
        await context.write(OPENED)
        await hear()
        await context.write(over(reason))

    async with playing(play) as (client, _), client.session("m") as session:
        turn = await session.turn("a")
        with pytest.raises(error) as caught:
            await turn.result()
        with pytest.raises(error) as too_late:
            await session.turn("b", call_id="c-2")
    for failed, call_id in ((caught.value, turn.call_id), (too_late.value, "c-2")):
        assert (failed.certainty, failed.disposition) == (Certainty.NONE, Disposition.DID_NOT_HAPPEN)
        assert (failed.call_id, failed.retryable, failed.may_have_generated) == (call_id, True, False)


async def test_a_turn_that_had_begun_may_be_billed_although_its_session_ended():
    async def play(hear, context):
        await context.write(OPENED)
        call_id = (await hear()).turn.request.call_id
        await context.write(Response(call_id=call_id, started=completion_pb2.CompletionStarted()))
        await context.write(over("IDLE"))

    async with playing(play) as (client, _), client.session("m") as session:
        with pytest.raises(LostContactError):
            await session.ask("a")


async def test_a_status_about_the_session_is_no_word_of_the_turn_under_way():
    async def play(hear, context):
        await context.write(OPENED)
        call_id = (await hear()).turn.request.call_id
        await context.write(
            Response(call_id=call_id, started=completion_pb2.CompletionStarted(call_id=call_id))
        )
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "over", refusing())

    async with playing(play) as (client, _), client.session("m") as session:
        turn = await session.turn("a")
        with pytest.raises(LostContactError) as caught:
            await turn.result()
    assert caught.value.may_have_generated
    assert caught.value.certainty is Certainty.UNKNOWN


async def ask_on(session, prompt, turns):
    """Send turns until none is taken any more."""
    while True:
        turns.append(await session.turn(prompt))


@pytest.mark.parametrize("round", range(15))
async def test_a_write_that_comes_too_late_hides_neither_status_nor_messages(round):
    async def play(hear, context):
        await context.write(OPENED)
        await context.write(answer((await hear()).turn.request.call_id, "first"))
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "over", refusing())

    async with playing(play) as (client, _), client.session("m") as session:
        turns = [await session.turn("a")]
        with pytest.raises(ModelmeterError) as caught:
            await ask_on(session, "b" * round, turns)
        assert (await turns[0].result()).text == "first"
        for turn in turns[1:]:
            with pytest.raises(LostContactError) as lost:
                await turn.result()
            assert lost.value.code is grpc.StatusCode.FAILED_PRECONDITION
    assert (caught.value.kind, caught.value.code.name) == (ErrorKind.REFUSED, "FAILED_PRECONDITION")


async def test_who_writes_while_the_session_is_cancelled_is_not_cancelled_with_it():
    async def play(_hear, context):
        await context.write(OPENED)
        await asyncio.Event().wait()

    async with playing(play) as (client, _):
        session = await client.open_session("m")
        asyncio.get_running_loop().call_soon(session.cancel)
        turns: list[modelmeter.AsyncSessionTurn] = []
        with pytest.raises(ModelmeterError):
            await ask_on(session, "x" * 100_000, turns)
        for turn in turns:
            with pytest.raises(LostContactError) as caught:
                await turn.result()
            assert caught.value.cause is Cause.CALLER


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
