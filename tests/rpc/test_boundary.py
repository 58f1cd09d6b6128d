"""Whatever breaks inside, no text of an exception reaches a caller."""

from __future__ import annotations

import asyncio
import logging

import grpc
import pytest
from structlog.testing import capture_logs

from modelmeter.v1 import error_pb2, model_service_pb2_grpc, usage_pb2
from modelmeter_server.core.outcomes import Cause, Certainty, Disposition, Kind
from modelmeter_server.engine.catalog import Catalog
from modelmeter_server.engine.engine import Engine
from modelmeter_server.rpc import model_service
from modelmeter_server.rpc.authorization import OpenHouse
from modelmeter_server.rpc.boundary import Boundary
from modelmeter_server.rpc.health import HealthService
from modelmeter_server.rpc.ledger_service import LedgerService
from modelmeter_server.rpc.model_service import ModelService
from modelmeter_server.rpc.services import SERVICE, add_services
from tests.support.running_server import MODEL, Details, Memory, asking, read_all, serving, streaming
from tests.support.scripted_driver import (
    Explode,
    Hold,
    ScriptedDriver,
    Step,
    Written,
    answering,
    closing,
    opening,
    text,
)

SECRET = "sk-very-secret"


def everything(error: grpc.aio.AioRpcError) -> str:
    """Return all that a caller can see of an error."""
    metadata = [*(error.initial_metadata() or ()), *(error.trailing_metadata() or ())]
    return " ".join(map(repr, [error.details(), error.debug_error_string(), *metadata]))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_fault_in_a_driver_is_a_bug_with_the_bill_and_without_its_text(stream):
    script: list[Step] = [Written(), opening(), text("He"), Explode(RuntimeError(SECRET))]
    with capture_logs() as logs:
        async with serving(ScriptedDriver(script)) as running:
            error = await running.error(stream=stream)
    assert error.code() is grpc.StatusCode.INTERNAL
    assert SECRET not in everything(error)
    told = Details(error).model_error
    assert told.kind == error_pb2.ERROR_KIND_BUG
    assert told.disposition == error_pb2.DISPOSITION_LANDED
    assert (told.certainty, told.usage.input_tokens) == (usage_pb2.CERTAINTY_AT_LEAST, 25)
    assert running.memory.failures[0].kind is Kind.BUG
    assert [line["call_id"] for line in logs if line["log_level"] == "error"] == [told.call_id]


@pytest.mark.parametrize(
    ("script", "disposition", "certainty"),
    [
        ([Explode(RuntimeError(SECRET))], Disposition.DID_NOT_HAPPEN, Certainty.NONE),
        ([Written(), Explode(RuntimeError(SECRET))], Disposition.DID_NOT_HAPPEN, Certainty.UNKNOWN),
        ([Written(), opening(), Explode(RuntimeError(SECRET))], Disposition.LANDED, Certainty.AT_LEAST),
    ],
)
async def test_the_bill_of_a_bug_goes_by_the_ladder(script, disposition, certainty):
    async with serving(ScriptedDriver(script)) as running:
        await running.error()
    (failed,) = running.memory.failures
    assert (failed.kind, failed.disposition, failed.certainty) == (Kind.BUG, disposition, certainty)


async def test_a_cancellation_from_inside_is_a_typed_error_and_not_a_hang():
    async with serving(ScriptedDriver([Written(), opening(), Explode(asyncio.CancelledError())])) as running:
        error = await running.error()
    assert error.code() is grpc.StatusCode.INTERNAL
    assert Details(error).model_error.usage.input_tokens == 25


async def test_a_cancellation_that_escapes_a_handler_is_a_typed_error_and_not_a_hang(monkeypatch):
    def escape(*_args):
        raise asyncio.CancelledError

    monkeypatch.setattr(model_service, "completion_request", escape)
    async with serving(ScriptedDriver(answering())) as running:
        error = await running.error()
    assert error.code() is grpc.StatusCode.INTERNAL
    assert Details(error).info.reason == "BUG"


@pytest.mark.parametrize("broken", ["completion_request", "flush_interval", "event_from"])
async def test_a_fault_in_a_servicer_is_a_bug_without_its_text(monkeypatch, broken):
    def explode(*_args):
        raise ValueError(SECRET)

    monkeypatch.setattr(model_service, broken, explode)
    with capture_logs() as logs:
        async with serving(ScriptedDriver(answering())) as running:
            error = await running.error(stream=True)
    assert error.code() is grpc.StatusCode.INTERNAL
    assert SECRET not in everything(error)
    call_id = Details(error).model_error.call_id
    assert any(line.get("call_id") == call_id for line in logs)


async def test_a_fault_while_streaming_ends_the_call_and_is_told_under_its_id(monkeypatch):
    def explode(*_args):
        raise ValueError(SECRET)

    monkeypatch.setattr(model_service, "event_from", explode)
    driver = ScriptedDriver([Written(), opening(), Hold(), closing()])
    async with serving(driver) as running:
        error = await running.error(stream=True)
        async with asyncio.timeout(1):
            await driver.calls[0].closed.wait()
    assert driver.calls[0].cut_by is Cause.BUG
    assert Details(error).model_error.call_id == running.memory.outcomes[0].call_id


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_cannot_be_written_keeps_its_bill(monkeypatch, stream):
    def unwritable(completion, outcome, answer):
        raise UnicodeEncodeError("utf-8", SECRET, 0, 1, "surrogates not allowed")

    monkeypatch.setattr(model_service, "fill_completion", unwritable)
    async with serving(ScriptedDriver(answering())) as running:
        error = await running.error(stream=stream)
    assert error.code() is grpc.StatusCode.INTERNAL
    assert SECRET not in everything(error)
    told = Details(error).model_error
    assert told.disposition == error_pb2.DISPOSITION_LANDED
    assert (told.usage.output_tokens, told.certainty) == (9, usage_pb2.CERTAINTY_EXACT)


async def test_interceptors_inside_are_asked_for_every_call_and_their_faults_keep_their_text():
    asked: list[str] = []

    class Inside(grpc.aio.ServerInterceptor):
        async def intercept_service(self, continuation, handler_call_details):
            asked.append(handler_call_details.method)
            if len(asked) > 1:
                raise RuntimeError(SECRET)
            return await continuation(handler_call_details)

    server = grpc.aio.server(interceptors=[Boundary(), OpenHouse(), Inside()])
    driver = ScriptedDriver(answering())
    engine = Engine(Catalog([MODEL]), {driver.name: driver}, Memory())
    add_services(server, ModelService(engine), LedgerService(engine), HealthService(SERVICE))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        await stub.Complete(asking(), timeout=5)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Complete(asking(), timeout=5)
        _, streamed = await read_all(stub.StreamComplete(streaming(), timeout=5))
    await server.stop(0)
    assert streamed is not None
    for error in (caught.value, streamed):
        assert error.code() is grpc.StatusCode.INTERNAL
        assert SECRET not in everything(error)
        assert Details(error).info.reason == "BUG"
    assert len(asked) == 3


async def test_requests_of_a_stream_that_cannot_be_read_are_refused_with_a_type():
    async with serving(ScriptedDriver(answering())) as running:
        ask = running.channel.stream_stream(
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            request_serializer=bytes,
            response_deserializer=bytes,
        )
        call = ask(timeout=5)
        await call.write(b"\xff\xff\xff")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_unknown_method_stays_unimplemented():
    async with serving(ScriptedDriver(answering())) as running:
        raw = running.channel.unary_unary(
            "/modelmeter.v1.ModelService/Nothing", request_serializer=bytes, response_deserializer=bytes
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await raw(b"", timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_the_library_has_nothing_to_complain_about(caplog):
    with caplog.at_level(logging.WARNING):
        async with serving(ScriptedDriver(answering(), [Explode(RuntimeError(SECRET))])) as running:
            await running.ask()
            await running.error()
            await running.error(stream=True)
    assert [record.message for record in caplog.records if record.name.startswith("grpc")] == []
