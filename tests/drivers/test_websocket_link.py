"""The sockets of a session: when one is used again, when it is replaced, and what never crosses from one to another."""

import asyncio
import json
import logging
import socket
import ssl

import pytest
import trustme

from modelmeter_server.core.outcomes import Cause, Kind
from modelmeter_server.drivers.driver import RequestRefused
from tests.support import responses_events as responses
from tests.support.completion_requests import ask
from tests.support.connect_proxy import ConnectProxy
from tests.support.provider_service import API_KEY
from tests.support.socket_server import Reply, answered, frames, socket_server, wrapped
from tests.support.socket_turns import Witness, ended, line

GENERATING = frames(responses.created(), responses.text(0, "par"))


async def test_turns_share_a_socket_and_a_turn_is_the_body_of_a_call_beside_its_type():
    async with socket_server(Reply(answered("r1")), Reply(answered("r2"))) as server, line(server) as way:
        await way.answer("first")
        await way.answer("second", previous="r1")
    first, second = server.asked
    assert (first.connection, second.connection, server.connections) == (1, 1, 1)
    assert next(iter(first.document)) == "type"
    assert first.document["type"] == "response.create"
    assert not {"stream", "background", "previous_response_id"} & first.document.keys()
    assert second.document["previous_response_id"] == "r1"
    assert server.headers[0]["Authorization"] == f"Bearer {API_KEY}"


async def test_a_turn_that_generates_nothing_is_answered_empty():
    whole = responses.event("completed", response=responses.response(usage=responses.USAGE))
    async with socket_server(Reply(frames(responses.created(), whole))) as server, line(server) as way:
        answer = await way.answer(generate=False)
    assert answer.usage is not None
    assert (answer.text, answer.usage.input_tokens) == ("", 30)
    assert server.asked[0].document["generate"] is False


@pytest.mark.parametrize("name", ["type", "generate", "stream_id"])
async def test_what_the_session_says_itself_is_refused_in_the_options(name):
    request = ask(provider_options_json=json.dumps({name: "x"}))
    async with socket_server() as server, line(server) as way:
        with pytest.raises(RequestRefused) as caught:
            way.turn(request)
    assert caught.value.violations[0].field == f"provider_options_json.{name}"


async def test_a_cut_turn_closes_its_socket_and_the_next_one_opens_another():
    witness = Witness()
    replies = Reply(GENERATING, hold=True), Reply(answered("r2", "clean"))
    async with socket_server(*replies) as server, line(server) as way:
        call = way.turn(witness=witness)
        running = asyncio.create_task(ended(call))
        await witness.hear("progressed")
        call.cut(Cause.CALLER, "gone")
        failed = await running
        heard = len(witness.frames)
        answer = await way.answer()
    assert (failed.kind, failed.cause) == (Kind.UNACCOUNTED, Cause.CALLER)
    assert answer.text == "clean"
    assert [each.connection for each in server.asked] == [1, 2]
    assert len(witness.frames) == heard


async def test_a_turn_that_is_cut_while_it_connects_was_not_sent_and_leaves_nothing_half_open():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        async with line(f"http://127.0.0.1:{silent.getsockname()[1]}") as way:
            call = way.turn()
            running = asyncio.create_task(ended(call))
            await asyncio.sleep(0)
            call.cut(Cause.DEADLINE, "late")
            failed = await running
    assert (failed.kind, failed.cause) == (Kind.UNREACHABLE, Cause.DEADLINE)


async def test_a_cancelled_turn_closes_its_socket():
    witness = Witness()
    async with socket_server(Reply(GENERATING, hold=True)) as server, line(server) as way:
        running = asyncio.create_task(way.turn(witness=witness).run())
        await witness.hear("progressed")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not way.link.is_ready()


async def test_a_socket_that_is_too_old_is_replaced_between_turns():
    async with (
        socket_server(Reply(answered("r1")), Reply(answered("r2"))) as server,
        line(server, age=1e-9) as way,
    ):
        await way.answer()
        await way.answer()
    assert [each.connection for each in server.asked] == [1, 2]


async def test_no_socket_is_replaced_within_a_turn_however_old_it_is():
    witness, goes_on = Witness(), asyncio.Event()
    whole = answered("r1", "whole")
    reply = Reply(whole[:3], after=goes_on, rest=whole[3:])
    async with socket_server(reply) as server, line(server, age=1e-9) as way:
        running = asyncio.create_task(way.answer(witness=witness))
        await witness.hear("progressed")
        goes_on.set()
        assert (await running).text == "whole"
    assert (server.connections, witness.connections) == (1, [1])


async def test_a_socket_that_the_provider_has_ended_gets_no_other_turn():
    ending = Reply(answered("r1"), close=1001)
    async with socket_server(ending, Reply(answered("r2"))) as server, line(server) as way:
        await way.answer()
        await server.closed.wait()
        assert not way.link.is_ready()
        await way.answer()
    assert [each.connection for each in server.asked] == [1, 2]


async def test_what_comes_between_turns_is_no_part_of_the_next():
    late = frames(responses.event("done", response=responses.response(status="failed") | {"id": "r1"}))
    replies = Reply([*answered("r1"), *late]), Reply(answered("r2", "two"))
    async with socket_server(*replies) as server, line(server) as way:
        await way.answer()
        answer = await way.answer(previous="r1")
    assert (answer.text, way.link.connection) == ("two", 1)


async def test_a_message_in_many_fragments_is_one_event():
    class Fragments(list):
        def __iter__(self):
            return iter([[each[at : at + 7] for at in range(0, len(each), 7)] for each in super().__iter__()])

    async with socket_server(Reply(Fragments(answered("r1", "whole")))) as server, line(server) as way:
        assert (await way.answer()).text == "whole"


async def test_a_turn_larger_than_any_buffer_arrives_whole():
    text = "x" * 3_000_000
    async with socket_server(Reply(answered("r1"))) as server, line(server) as way:
        await way.answer(text)
    assert server.asked[0].document["input"][0]["content"] == text


async def test_the_way_leads_through_the_configured_proxy_alone(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    async with (
        ConnectProxy("user", "word") as proxy,
        socket_server(Reply(answered("r1"))) as server,
        line(server, proxy=f"http://user:word@127.0.0.1:{proxy.port}") as way,
    ):
        await way.answer()
    assert len(proxy.tunnels) == 1


async def test_tls_is_spoken_and_its_certificate_checked(tmp_path):
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    async with socket_server(Reply(answered("r1")), tls=context) as server:
        async with line(server, ca_file=str(trusted)) as way:
            await way.answer()
        async with line(server) as way:
            failed = await way.fail()
    assert (failed.kind, failed.retryable) == (Kind.UNREACHABLE, False)


async def test_no_key_and_no_prompt_is_logged_at_any_level(caplog):
    caplog.set_level(logging.DEBUG)
    async with socket_server(Reply(answered("r1", "hunter2"))) as server, line(server) as way:
        await way.answer("hunter1")
    assert API_KEY not in caplog.text
    assert "hunter" not in caplog.text


async def test_a_key_that_the_provider_echoes_reaches_nobody():
    echo = wrapped(400, API_KEY).replace("synthetic", f"your key {API_KEY}")
    async with socket_server(Reply([echo])) as server, line(server) as way:
        failed = await way.fail()
    assert API_KEY not in repr(failed)


async def test_a_provider_without_sockets_has_no_line():
    async with socket_server() as server, line(server) as way:
        way.driver._socket_age = None
        assert way.driver.open_link() is None
