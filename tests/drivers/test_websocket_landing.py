"""How far a turn got when it ended, and what that means for its bill."""

import asyncio

import pytest

from modelmeter_server.core.outcomes import Cause, Certainty, Code, Disposition, Kind, Stage
from modelmeter_server.drivers.http import Limits, Timeouts
from tests.support import responses_events as responses
from tests.support.limits import no_more_files
from tests.support.provider_service import API_KEY
from tests.support.socket_server import Reply, answered, frames, socket_server, wrapped
from tests.support.socket_turns import Witness, ended, line

BEGUN = frames(responses.created())
GENERATING = frames(responses.created(), responses.added(0, responses.message("")), responses.text(0, "par"))


async def test_where_nobody_listens_nothing_was_sent():
    async with socket_server() as server:
        url = server.url
    witness = Witness()
    async with line(url) as way:
        failed = await way.fail(witness=witness)
    assert (failed.kind, failed.stage, failed.certainty) == (
        Kind.UNREACHABLE,
        Stage.NOT_WRITTEN,
        Certainty.NONE,
    )
    assert witness.told == ["send_failed"]


async def test_that_no_socket_can_be_opened_here_is_no_fault_of_the_provider():
    async with socket_server() as server, line(server) as way:
        with no_more_files():
            failed = await way.fail()
    assert (failed.kind, failed.cause, failed.stage) == (Kind.OVERLOADED, Cause.LIMIT, Stage.NOT_WRITTEN)


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (401, Kind.REFUSED, Code.FAILED_PRECONDITION),
        (404, Kind.REFUSED, Code.NOT_FOUND),
        (429, Kind.RATE_LIMITED, Code.RESOURCE_EXHAUSTED),
        (503, Kind.UNREACHABLE, Code.UNAVAILABLE),
        (200, Kind.UNREACHABLE, Code.UNAVAILABLE),
    ],
)
async def test_an_upgrade_that_is_refused_is_classed_by_its_status_and_nothing_was_sent(status, kind, code):
    body = (
        b'{"error":{"type":"invalid_request_error","code":"x","message":"no %s"},"status":401}'
        % API_KEY.encode()
    )
    async with socket_server(refuse=(status, body)) as server, line(server) as way:
        failed = await way.fail()
    assert (failed.kind, failed.code, failed.http_status) == (kind, code, status)
    assert (failed.stage, failed.certainty) == (Stage.NOT_WRITTEN, Certainty.NONE)
    assert API_KEY not in failed.message
    assert server.asked == []


async def test_a_turn_that_was_not_wholly_written_cannot_have_been_had():
    breaks = asyncio.Event()
    witness = Witness()
    async with socket_server(deaf_until=breaks) as server, line(server) as way:
        running = asyncio.create_task(way.fail("x" * 20_000_000, witness))
        await witness.hear("sending")
        breaks.set()
        failed = await running
    assert (failed.kind, failed.stage, failed.certainty) == (Kind.UNREACHABLE, Stage.WRITING, Certainty.NONE)
    assert "written" not in witness.told


async def test_silence_after_a_turn_was_written_says_nothing_about_its_bill():
    async with socket_server(Reply(reset=True)) as server, line(server) as way:
        failed = await way.fail()
    assert (failed.kind, failed.stage, failed.certainty) == (
        Kind.UNAVAILABLE,
        Stage.WRITTEN,
        Certainty.UNKNOWN,
    )
    assert not failed.retryable


async def test_a_turn_that_generated_and_broke_is_unaccounted():
    async with socket_server(Reply(GENERATING, reset=True)) as server, line(server) as way:
        failed = await way.fail()
    assert (failed.kind, failed.disposition, failed.partial_text) == (
        Kind.UNACCOUNTED,
        Disposition.LANDED,
        "par",
    )
    assert failed.estimated_output_tokens == 1


@pytest.mark.parametrize("code", [1000, 1001, 1008, 1011, 1012, 1013])
async def test_a_close_before_generation_is_unavailable_and_only_a_server_that_goes_may_be_asked_again(code):
    async with socket_server(Reply(BEGUN, close=code)) as server, line(server) as way:
        failed = await way.fail()
    assert (failed.kind, failed.certainty, failed.cause) == (
        Kind.UNAVAILABLE,
        Certainty.UNKNOWN,
        Cause.PROVIDER,
    )
    assert failed.retryable == (code in (1001, 1012, 1013))
    assert str(code) in failed.message


@pytest.mark.parametrize("code", [1000, 1001, 1009, 1011])
async def test_a_close_after_generation_is_unaccounted(code):
    async with socket_server(Reply(GENERATING, close=code)) as server, line(server) as way:
        failed = await way.fail()
    assert (failed.kind, failed.stage, failed.certainty) == (
        Kind.UNACCOUNTED,
        Stage.OUTPUT,
        Certainty.UNKNOWN,
    )


async def test_a_turn_too_big_for_the_provider_is_refused():
    async with socket_server(Reply(close=1009)) as server, line(server) as way:
        failed = await way.fail()
    assert (failed.kind, failed.code, failed.provider_code) == (
        Kind.REFUSED,
        Code.INVALID_ARGUMENT,
        "message_too_big",
    )


@pytest.mark.parametrize(
    ("reply", "kind", "cause"),
    [
        (Reply(hold=True), Kind.UNAVAILABLE, Cause.IDLE_TIMEOUT),
        (Reply(GENERATING, hold=True), Kind.UNACCOUNTED, Cause.IDLE_TIMEOUT),
    ],
)
async def test_a_provider_that_falls_silent_is_given_up(reply, kind, cause):
    quick = Timeouts(first_byte=0.1, idle=0.1, total=5)
    async with socket_server(reply) as server, line(server, timeouts=quick) as way:
        failed = await way.fail()
    assert (failed.kind, failed.cause) == (kind, cause)


async def test_an_error_with_a_number_waits_for_the_end_of_its_response():
    ending = responses.event("failed", response=responses.response(status="failed", usage=responses.USAGE))
    error = responses.error("server_error", sequence_number=3)
    async with (
        socket_server(Reply(frames(responses.created(), error, ending))) as server,
        line(server) as way,
    ):
        failed = await way.fail()
        assert failed.usage is not None
        assert (failed.kind, failed.usage.output_tokens, failed.certainty) == (
            Kind.UNUSABLE,
            8,
            Certainty.EXACT,
        )
        assert way.link.is_ready()


async def test_an_error_with_a_number_and_no_end_is_decided_after_the_tail():
    error = frames(responses.created(), responses.error("rate_limit_exceeded", sequence_number=1))
    quick = Timeouts(tail=0.1, total=5)
    async with socket_server(Reply(error, hold=True)) as server, line(server, timeouts=quick) as way:
        failed = await way.fail()
        assert failed.kind is Kind.RATE_LIMITED
        assert not way.link.is_ready()


async def test_a_frame_of_the_protocol_ends_the_turn_and_leaves_the_socket():
    refused = Reply([wrapped(429, "rate_limit_exceeded", **{"Retry-After": "7"})])
    async with socket_server(refused, Reply(answered("r"))) as server, line(server) as way:
        failed = await way.fail()
        await way.answer()
        assert (failed.kind, failed.retry_after, way.link.connection) == (Kind.RATE_LIMITED, 7.0, 1)


async def test_the_connection_limit_is_unavailable_and_costs_the_socket():
    limit = Reply([wrapped(400, "websocket_connection_limit_reached")])
    async with socket_server(limit, Reply(answered("r"))) as server, line(server) as way:
        failed = await way.fail()
        await way.answer()
    assert (failed.kind, failed.provider_code) == (Kind.UNAVAILABLE, "websocket_connection_limit_reached")
    assert [each.connection for each in server.asked] == [1, 2]


async def test_events_of_another_response_are_no_part_of_the_answer():
    other = answered("resp_other", "wrong")
    own = answered("resp_own", "right")
    async with socket_server(Reply([own[0], other[0], other[-1], *own[1:]])) as server, line(server) as way:
        answer = await way.answer()
    assert (answer.text, answer.provider_response_id) == ("right", "resp_own")


async def test_an_event_over_the_limit_is_a_dead_connection():
    big = frames(responses.created(), responses.text(0, "x" * 5_000))
    limits = Limits(event_bytes=4_000)
    async with socket_server(Reply(big, hold=True)) as server, line(server, limits=limits) as way:
        failed = await way.fail()
    assert (failed.kind, failed.cause) == (Kind.UNAVAILABLE, Cause.LIMIT)


async def test_an_answer_over_the_limit_is_broken_off_with_what_is_known():
    many = [frames(responses.text(0, "x" * 1_000))[0]] * 20
    async with (
        socket_server(Reply(many, hold=True)) as server,
        line(server, limits=Limits(answer_bytes=9_000)) as way,
    ):
        failed = await way.fail()
    assert (failed.kind, failed.cause) == (Kind.UNACCOUNTED, Cause.LIMIT)


async def test_a_fault_of_our_own_keeps_the_bill_by_the_ladder():
    witness = Witness(fault=RuntimeError("planted"))
    async with socket_server(Reply(GENERATING, hold=True)) as server, line(server) as way:
        call = way.turn(witness=witness)
        failed = await ended(call)
    assert (failed.kind, failed.certainty) == (Kind.BUG, Certainty.UNKNOWN)
    assert str(call.fault) == "planted"
    assert "planted" not in failed.message


async def test_a_ledger_that_cannot_note_the_turn_keeps_it_from_leaving():
    witness = Witness(permit=False)
    async with socket_server() as server, line(server) as way:
        call = way.turn(witness=witness)
        failed = await ended(call)
    assert (failed.kind, call.attempts, server.asked) == (Kind.LEDGER_DOWN, (), [])


async def test_an_attempt_says_how_the_turn_ended():
    async with socket_server(Reply(answered("r")), Reply(reset=True)) as server, line(server) as way:
        good, bad = way.turn(witness=Witness(permit=True)), way.turn()
        await good.run()
        await bad.run()
    assert [(each.attempts[0].kind, each.attempts[0].stage) for each in (good, bad)] == [
        (None, Stage.OUTPUT),
        (Kind.UNAVAILABLE, Stage.WRITTEN),
    ]
    assert good.received > 0
