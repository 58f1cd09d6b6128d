"""Bad requests: every mistake at once, none reaches the provider."""

from __future__ import annotations

import grpc
import pytest

from modelmeter.v1 import error_pb2, message_pb2, model_service_pb2, usage_pb2
from modelmeter_server.core.errors import FieldViolation
from modelmeter_server.core.requests import FORCED_TOOL
from modelmeter_server.drivers.driver import RequestRefused
from modelmeter_server.rpc.boundary import MAX_REQUEST_BYTES
from tests.support.running_server import Details, asking, read_all, serving, streaming
from tests.support.scripted_driver import Hold, ScriptedDriver, answering


async def refused(request, driver=None) -> Details:
    """Send a request that must be refused before anything is sent; return the details."""
    driver = driver or ScriptedDriver(answering())
    async with serving(driver, channel_options=[("grpc.max_send_message_length", -1)]) as running:
        if isinstance(request, model_service_pb2.StreamCompleteRequest):
            _, error = await read_all(running.stub.StreamComplete(request, timeout=10))
        else:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await running.stub.Complete(request, timeout=10)
            error = caught.value
    assert driver.calls == [], "nothing may reach the provider"
    assert error is not None
    details = Details(error)
    assert details.info.reason == "REFUSED"
    assert details.model_error.certainty == usage_pb2.CERTAINTY_NONE
    assert details.model_error.attempts_total == 0
    assert error.code().value[0] == details.status.code
    return details


def fields(details: Details) -> set[str]:
    return {violation.field for violation in details.bad_request.field_violations}


async def test_an_unknown_model_is_not_found_by_its_name():
    details = await refused(asking(model="gpt-99"))
    assert details.status.code == grpc.StatusCode.NOT_FOUND.value[0]
    assert (details.resource.resource_type, details.resource.resource_name) == (
        "modelmeter.v1.Model",
        "gpt-99",
    )
    assert details.model_error.model_asked == "gpt-99"


async def test_an_unknown_model_does_not_hide_the_mistakes_of_the_wire_form():
    details = await refused(asking(model="gpt-99", call_id="7"))
    assert details.status.code == grpc.StatusCode.NOT_FOUND.value[0]
    assert fields(details) == {"call_id"}


async def test_a_request_that_names_no_model_says_so_beside_its_other_mistakes():
    details = await refused(asking(model="", call_id="7"))
    assert details.status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert fields(details) == {"model", "call_id"}


async def test_a_schema_that_is_wrong_is_one_mistake():
    details = await refused(asking(output_schema_json='{"$ref": "file:///etc/passwd"}'))
    assert [each.field for each in details.bad_request.field_violations] == ["output_schema_json"]


async def test_mistakes_of_the_wire_form_and_of_the_request_are_reported_together():
    request = asking("", call_id="7", output_schema_json="{")
    request.effect.key = "k"
    request.ceiling.tokens = 5
    request.schema_mode = 77  # type: ignore[assignment]  # a number that this version has no name for
    request.reasoning_effort = 78  # type: ignore[assignment]  # the same
    request.system_trust = message_pb2.TRUST_UNTRUSTED
    details = await refused(request)
    assert details.status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert fields(details) >= {
        "text",
        "call_id",
        "output_schema_json",
        "effect",
        "ceiling",
        "schema_mode",
        "reasoning_effort",
        "system_trust",
    }
    assert all(each.description for each in details.bad_request.field_violations)


async def test_more_attempts_than_the_model_allows_are_refused_by_the_names_of_their_fields():
    request = asking()
    request.retry_policy.max_attempts = 5
    request.retry_policy.ambiguous = True
    request.retry_policy.landed = True
    details = await refused(request)
    told = {each.field: each.description for each in details.bad_request.field_violations}
    assert set(told) == {f"retry_policy.{name}" for name in ("max_attempts", "ambiguous", "landed")}
    assert told["retry_policy.max_attempts"] == "the model allows 1 at most"


async def test_a_policy_that_asks_for_what_the_model_does_anyway_is_no_mistake():
    async with serving(ScriptedDriver(answering())) as running:
        request = asking()
        request.retry_policy.max_attempts = 1
        await running.stub.Complete(request, timeout=5)
        request.retry_policy.max_attempts = 0
        await running.stub.Complete(request, timeout=5)
        assert len(running.driver.calls) == 2


async def test_paths_in_a_stream_start_at_the_stream_request():
    request = streaming("", call_id="7")
    request.flush_interval.seconds = 9
    assert fields(await refused(request)) >= {"flush_interval", "request.call_id", "request.text"}


async def test_what_the_provider_cannot_do_is_refused_with_its_field():
    driver = ScriptedDriver(answering())

    def refuse(request):
        raise RequestRefused(FieldViolation("seed", "this provider has no seed: leave it out"))

    driver.refuse = refuse
    assert fields(await refused(asking(seed=1), driver)) == {"seed"}


async def test_a_tool_with_the_name_of_the_forced_tool_is_refused():
    details = await refused(asking(tools=[message_pb2.Tool(name=FORCED_TOOL)]))
    assert fields(details) == {"tools[0].name"}


async def test_a_request_that_is_too_large_is_refused_with_a_type():
    details = await refused(asking("x" * (MAX_REQUEST_BYTES + 1)))
    assert details.status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert f"{MAX_REQUEST_BYTES:,}" in details.status.message


async def test_bytes_that_are_no_message_are_refused_with_a_type():
    async with serving(ScriptedDriver(answering())) as running:
        raw = running.channel.unary_unary(
            "/modelmeter.v1.ModelService/Complete", request_serializer=bytes, response_deserializer=bytes
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await raw(b"\xff\xff\xff", timeout=5)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert Details(caught.value).model_error.kind == error_pb2.ERROR_KIND_REFUSED


async def test_a_full_server_sheds_with_a_wait_and_takes_calls_again_later():
    hold = Hold()
    async with serving(ScriptedDriver([hold, *answering()]), max_concurrent_calls=1) as running:
        first = running.stub.Complete(asking(), timeout=10)
        await hold.reached.wait()
        error = await running.error()
        hold.go.set()
        await first
        assert (await running.ask()).completion.text
    details = Details(error)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details.info.reason == "OVERLOADED"
    assert details.retry.retry_delay.ToSeconds() == 1
    assert details.metadata["grpc-retry-pushback-ms"] == "1000"


async def test_many_mistakes_fit_the_trailers_of_a_real_connection():
    request = asking()
    for index in range(1000):
        message = request.messages.messages.add(role=message_pb2.ROLE_USER)
        message.parts.add()
        message.parts[0].text = "" if index % 2 else "\N{SNOWMAN}"
        if index % 2:
            message.parts[0].ClearField("content")
    details = await refused(request)
    assert len(details.bad_request.field_violations) > 5
    assert "more mistakes" in details.bad_request.field_violations[-1].description


@pytest.mark.parametrize("shape", ["messages", "parts", "tools", "stop_sequences", "labels"])
async def test_a_request_of_too_many_things_is_refused_with_one_mistake_each(shape):
    request = asking()
    if shape == "messages":
        request.messages.messages.extend([message_pb2.Message()] * 50_000)
    elif shape == "parts":
        part = message_pb2.Part(text="a")
        turn = message_pb2.Message(role=message_pb2.ROLE_USER, parts=[part] * 10_000)
        request.messages.messages.extend([turn] * 5)
    elif shape == "labels":
        for index in range(50_000):
            request.labels[str(index)] = ""
    else:
        thing = {"tools": message_pb2.Tool(name="a"), "stop_sequences": "a"}[shape]
        getattr(request, shape).extend([thing] * 50_000)
    details = await refused(request)
    first = details.bad_request.field_violations[0]
    assert first.field == {"messages": "messages.messages", "parts": "messages.messages"}.get(shape, shape)
    assert "at most" in first.description


async def test_a_large_request_is_refused_for_its_mistakes_like_any_other():
    prose = "x" * (2 << 20)
    assert fields(await refused(asking(prose, call_id="7", stop_sequences=[""]))) >= {
        "call_id",
        "stop_sequences[0]",
    }
