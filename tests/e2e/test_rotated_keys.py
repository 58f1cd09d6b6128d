"""A key that is replaced while the server runs: calls go with the new one, and neither shows anywhere."""

from __future__ import annotations

import io

import grpc
import pytest

import modelmeter
from modelmeter.v1 import event_service_pb2, event_service_pb2_grpc
from modelmeter_server.app import App
from modelmeter_server.config import load
from modelmeter_server.core.egress import Egress
from modelmeter_server.drivers import renewal
from modelmeter_server.telemetry.bus import EventFilter
from modelmeter_server.telemetry.log import configure_logging
from tests.support import anthropic_events as wire
from tests.support.fault_server import FaultServer, Reply

OLD, NEW, PRINTED = "key-of-yesterday-0123456789", "key-of-today-9876543210", "key-that-was-printed-55555"
GOOD = Reply(headers={"content-type": "text/event-stream"}, chunks=[wire.stream(wire.text_block(0, "Hello"))])


def echo(status: int) -> Reply:
    """Return an error that repeats every key that the server ever had."""
    message = f"no: {OLD} {NEW} {PRINTED}"
    body = f'{{"type":"error","error":{{"type":"invalid_request_error","message":"{message}"}}}}'
    return Reply(status=status, chunks=[body.encode()])


@pytest.mark.parametrize("status", [400, 401, 500])
async def test_neither_key_shows_in_errors_events_logs_or_representations(tmp_path, status):
    (tmp_path / "key").write_text(OLD)
    log = io.BytesIO()
    async with FaultServer(GOOD) as provider:
        file = tmp_path / "m.toml"
        file.write_text(
            f'[server]\nlisten = "127.0.0.1:0"\n[egress]\nallow = ["{provider.url.removeprefix("http://")}"]\n'
            f'[providers.p]\nkind = "anthropic"\nbase_url = "{provider.url}"\nallow_direct_models = true\n'
            f'api_keys = [{{ file = "key" }}, {{ command = ["sh", "-c", "echo {PRINTED}"] }}]\n'
        )
        settings = load(file, {"PATH": "/usr/bin:/bin"})
        app = App(settings)
        (address,) = await app.start()
        configure_logging("debug", log)
        try:
            async with modelmeter.AsyncClient(address) as client:
                for _ in range(2):
                    await client.complete("p/m", "Hi")
                (tmp_path / "next").write_text(NEW)
                (tmp_path / "next").replace(tmp_path / "key")
                for _ in range(2):
                    await client.complete("p/m", "Hi")
                provider.script([echo(status)] * 2)
                texts = []
                for _ in range(2):
                    with pytest.raises(modelmeter.ModelmeterError) as caught:
                        await client.complete("p/m", "Hi")
                    texts += [str(caught.value), repr(caught.value)]
            async with grpc.aio.insecure_channel(address) as channel:
                events = await event_service_pb2_grpc.EventServiceStub(channel).QueryEvents(
                    event_service_pb2.QueryEventsRequest()
                )
        finally:
            configure_logging("error", io.BytesIO())
            await app.stop(0)
    sent = [request.headers["x-api-key"] for request in provider.requests]
    assert set(sent[:2]) == {OLD, PRINTED}
    assert set(sent[2:4]) == {NEW, PRINTED}
    texts += [str(events), log.getvalue().decode(), repr(settings), repr(app.telemetry), str(vars(app))]
    assert not [(key, text) for key in (OLD, NEW, PRINTED) for text in texts if key in text]
    assert app.telemetry.happenings._redaction.clean(f"{OLD} {NEW} {PRINTED}") == " ".join(["[redacted]"] * 3)


SOURCES = {
    "file": 'api_key_file = "key"',
    "command": 'api_key_command = ["cat", "{folder}/key"]\napi_key_ttl = 0.001',
}


@pytest.mark.parametrize("source", SOURCES)
async def test_a_name_that_turns_out_to_be_a_key_is_cut_out_from_then_on(tmp_path, monkeypatch, source):
    """Names are remembered with what is left of them: not beyond the moment in which a key is learned."""
    monkeypatch.setattr(renewal, "BETWEEN_RENEWALS", -1.0)
    (tmp_path / "key").write_text(OLD)
    async with FaultServer(GOOD) as provider:
        file = tmp_path / "m.toml"
        file.write_text(
            f'[server]\nlisten = "127.0.0.1:0"\n[ledger]\nurl = "none"\n'
            f'[providers.p]\nkind = "anthropic"\nbase_url = "{provider.url}"\nallow_direct_models = true\n'
            + SOURCES[source].format(folder=tmp_path)
        )
        app = App(load(file, {"PATH": "/usr/bin:/bin"}))
        (address,) = await app.start()
        try:
            async with modelmeter.AsyncClient(address) as client:
                for _ in range(2):
                    await client.complete(f"p/{NEW}", "Hi")
                before = len(app.telemetry.bus.recent(EventFilter(tenant="default"), before=None, limit=100))
                (tmp_path / "next").write_text(NEW)
                (tmp_path / "next").replace(tmp_path / "key")
                while provider.requests[-1].headers["x-api-key"] != NEW:
                    await client.complete("p/m", "Hi")
                await client.complete(f"p/{NEW}", "Hi")
                told = app.telemetry.bus.recent(EventFilter(tenant="default"), before=None, limit=100)
        finally:
            await app.stop(0)
    last = [each for each in told if each.call_id == told[0].call_id]
    assert len(told) > before >= len(last) > 0
    assert any(NEW in str(each) for each in told[-before:])  # nobody could know it for a key then
    assert not [each for each in last if NEW in str(each)]


async def test_a_host_off_the_list_is_permission_denied_for_the_caller_and_costs_nothing(tmp_path):
    async with FaultServer(GOOD) as provider:
        file = tmp_path / "m.toml"
        file.write_text(
            f'[server]\nlisten = "127.0.0.1:0"\n'
            f'[providers.p]\nkind = "anthropic"\nbase_url = "{provider.url}"\nallow_direct_models = true\n'
        )
        app = App(load(file, {}))
        (address,) = await app.start()
        app.egress.reconfigure(Egress(hosts=frozenset()))
        try:
            async with modelmeter.AsyncClient(address) as client:
                with pytest.raises(modelmeter.RefusedError) as caught:
                    await client.complete("p/m", "Hi")
                (call,) = [each async for each in client.ledger.list_calls()]
        finally:
            await app.stop(0)
    assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED
    assert caught.value.certainty is modelmeter.Certainty.NONE
    assert provider.requests == []
    assert call.certainty is modelmeter.Certainty.NONE
