"""When nobody tells the outcome, the client says what it knows and invents nothing."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import grpc
import pytest
from google.rpc import status_pb2

from modelmeter import (
    AsyncClient,
    Cause,
    Certainty,
    Disposition,
    EffectOutcome,
    ErrorKind,
    LostContactError,
    ModelmeterError,
    NotConnectedError,
    RefusedError,
    Stage,
)
from modelmeter.v1 import completion_pb2, error_pb2, usage_pb2
from modelmeter.v1.model_service_pb2 import CompleteResponse, StreamCompleteResponse
from tests.client.faces import face
from tests.support.scripted_service import (
    DETAILS_KEY,
    aborting,
    answering,
    completion,
    failing,
    model_error,
    returning,
    serve,
    status_of,
    streaming,
)

CALL_ID = "6f2c1c9b-5b0c-4f7e-8a86-6b1c9f0e2d11"
TEXT = StreamCompleteResponse(text=completion_pb2.TextDelta(text="a"))
STARTED = StreamCompleteResponse(started=completion_pb2.CompletionStarted(target="t"))


def _usage(certainty: Any, **counters: Any) -> StreamCompleteResponse:
    snapshot = completion_pb2.UsageSnapshot(usage=usage_pb2.Usage(**counters), certainty=certainty)
    return StreamCompleteResponse(usage=snapshot)


async def _caught(call) -> ModelmeterError:
    with pytest.raises(ModelmeterError) as caught:
        await call
    return caught.value


def _assert_nothing_is_known(error: ModelmeterError) -> None:
    assert type(error) is LostContactError
    assert (error.kind, error.certainty) == (ErrorKind.UNSPECIFIED, Certainty.UNKNOWN)
    assert not error.usage.told
    assert error.disposition is Disposition.UNSPECIFIED
    assert error.effect_outcome is EffectOutcome.INTERRUPTED
    assert (error.may_have_generated, error.retryable, error.cost) == (True, False, None)
    assert (error.call_id, error.model_asked) == (CALL_ID, "model")
    assert CALL_ID in error.message
    assert "A server with a ledger can tell" in error.message


async def test_a_deadline_of_the_clients_own_leaves_the_bill_unknown(client, service):
    service.script("Complete", service.hanging())
    error = await _caught(client.complete("model", "hi", call_id=CALL_ID, timeout=0.2))
    _assert_nothing_is_known(error)
    assert (error.code, error.cause) == (grpc.StatusCode.DEADLINE_EXCEEDED, Cause.DEADLINE)
    assert error.stage is Stage.UNSPECIFIED


async def test_after_the_fence_the_request_is_known_to_be_written(client, service):
    service.script("Complete", service.hanging(fence=True))
    error = await _caught(client.complete("model", "hi", call_id=CALL_ID, timeout=0.2))
    _assert_nothing_is_known(error)
    assert error.stage is Stage.WRITTEN


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (grpc.StatusCode.UNAVAILABLE, Cause.NETWORK),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Cause.LIMIT),
        (grpc.StatusCode.UNKNOWN, Cause.UNSPECIFIED),
        (grpc.StatusCode.INTERNAL, Cause.UNSPECIFIED),
        (grpc.StatusCode.PERMISSION_DENIED, Cause.UNSPECIFIED),
        (grpc.StatusCode.CANCELLED, Cause.UNSPECIFIED),
    ],
)
async def test_a_status_without_details_is_no_verdict(client, service, code, cause):
    service.script("Complete", aborting(code, "said a proxy"))
    error = await _caught(client.complete("model", "hi", call_id=CALL_ID))
    _assert_nothing_is_known(error)
    assert (error.code, error.cause) == (code, cause)
    assert "said a proxy" in error.message


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\xff\xff",
        status_pb2.Status(code=8, message="without details").SerializeToString(),
        status_of(model_error(error_pb2.ERROR_KIND_CEILING)).SerializeToString()[:-9],
    ],
    ids=["empty", "garbage", "a status without details", "a status cut short"],
)
async def test_details_that_cannot_be_read_are_no_verdict(client, service, raw):
    service.script("Complete", aborting(grpc.StatusCode.RESOURCE_EXHAUSTED, "", [(DETAILS_KEY, raw)]))
    error = await _caught(client.complete("model", "hi", call_id=CALL_ID))
    _assert_nothing_is_known(error)
    assert error.raw_status == raw


async def test_an_error_that_cannot_be_decoded_inside_good_details_is_no_verdict(client, service):
    status = status_of(model_error(error_pb2.ERROR_KIND_CEILING))
    status.details[1].value = b"\x0a\xff"
    trailers = [(DETAILS_KEY, status.SerializeToString())]
    service.script("Complete", aborting(grpc.StatusCode.RESOURCE_EXHAUSTED, "", trailers))
    _assert_nothing_is_known(await _caught(client.complete("model", "hi", call_id=CALL_ID)))


async def test_trailers_too_large_for_the_receiver_are_no_rate_limit(client, service):
    trailers = [(DETAILS_KEY, b"x" * 200_000)]
    service.script("Complete", aborting(grpc.StatusCode.ABORTED, "", trailers, fence=True))
    error = await _caught(client.complete("model", "hi", call_id=CALL_ID))
    _assert_nothing_is_known(error)
    assert (error.code, error.stage) == (grpc.StatusCode.RESOURCE_EXHAUSTED, Stage.WRITTEN)


async def test_trailers_above_the_default_limit_of_grpc_arrive(client, service):
    padding = ("x-padding", "p" * 20_000)
    status = status_of(model_error(error_pb2.ERROR_KIND_UNUSABLE)).SerializeToString()
    service.script("Complete", aborting(grpc.StatusCode.ABORTED, "", [padding, (DETAILS_KEY, status)]))
    assert (await _caught(client.complete("model", "hi"))).kind is ErrorKind.UNUSABLE


async def test_an_answer_without_a_completion_is_no_answer(client, service):
    service.script("Complete", returning(CompleteResponse()))
    error = await _caught(client.complete("model", "hi", call_id=CALL_ID))
    _assert_nothing_is_known(error)
    assert "without an outcome" in error.message


async def test_a_server_that_lacks_the_method_has_bought_nothing(client, service):
    service.script("Complete", aborting(grpc.StatusCode.UNIMPLEMENTED, "Method not found!"))
    error = await _caught(client.complete("model", "hi"))
    assert type(error) is LostContactError
    assert (error.certainty, error.may_have_generated) == (Certainty.NONE, False)
    assert error.effect_outcome is EffectOutcome.REJECTED


async def test_a_lookup_that_fails_has_bought_nothing(client, service):
    service.script("ListModels", aborting(grpc.StatusCode.INTERNAL, "oops"))
    error = await _caught(client.models())
    assert type(error) is LostContactError
    assert (error.certainty, error.disposition) == (Certainty.NONE, Disposition.DID_NOT_HAPPEN)
    assert (error.may_have_generated, error.call_id) == (False, "")


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("policy", ["pick_first", "round_robin"])
@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
async def test_without_a_connection_nothing_was_sent(kind, host, policy):
    with socket.socket() as taken:  # bound and never listening: a connection to it is refused
        taken.bind(("127.0.0.1", 0))
        options = {"grpc.lb_policy_name": policy}
        async with face(kind, f"{host}:{taken.getsockname()[1]}", options=options) as client:
            error = await _caught(client.complete("model", "hi", call_id=CALL_ID))
    assert type(error) is NotConnectedError
    assert (error.certainty, error.disposition) == (Certainty.NONE, Disposition.DID_NOT_HAPPEN)
    assert (error.may_have_generated, error.retryable) == (False, True)
    assert (error.effect_outcome, error.stage) == (EffectOutcome.REJECTED, Stage.NOT_WRITTEN)
    assert error.call_id == CALL_ID


@pytest.mark.parametrize("policy", ["pick_first", "round_robin"])
async def test_a_connection_that_breaks_in_mid_call_may_have_bought(service, policy):
    service.script("Complete", service.hanging())
    options = {"grpc.lb_policy_name": policy}
    async with serve(service) as address, AsyncClient(address, options=options) as client:
        call = asyncio.create_task(client.complete("model", "hi", call_id=CALL_ID))
        await service.reached.wait()
        # Leaving the block kills the server while the call runs.
    error = await _caught(call)
    _assert_nothing_is_known(error)
    assert not isinstance(error, NotConnectedError)


@pytest.mark.parametrize(
    ("messages", "stage", "disposition", "outcome"),
    [
        ([], Stage.UNSPECIFIED, Disposition.UNSPECIFIED, EffectOutcome.INTERRUPTED),
        ([STARTED], Stage.WRITTEN, Disposition.UNSPECIFIED, EffectOutcome.INTERRUPTED),
        ([STARTED, TEXT], Stage.OUTPUT, Disposition.LANDED, EffectOutcome.PERFORMED),
    ],
    ids=["nothing", "started", "text"],
)
async def test_a_stream_that_breaks_says_how_far_it_had_come(
    client, service, messages, stage, disposition, outcome
):
    broken = aborting(grpc.StatusCode.UNAVAILABLE, "connection reset")
    service.script("StreamComplete", streaming(*messages, then=broken))
    error = await _caught(client.events("model", "hi"))
    assert type(error) is LostContactError
    assert (error.stage, error.disposition, error.effect_outcome) == (stage, disposition, outcome)
    assert (error.certainty, error.usage.told) == (Certainty.UNKNOWN, False)


async def test_the_last_usage_that_a_broken_stream_told_is_kept(client, service):
    told = [_usage(usage_pb2.CERTAINTY_AT_LEAST, input_tokens=9, output_tokens=n) for n in (40, 30)]
    service.script("StreamComplete", streaming(*told, then=aborting(grpc.StatusCode.UNAVAILABLE)))
    error = await _caught(client.events("model", "hi"))
    assert (error.usage.input_tokens, error.usage.output_tokens) == (9, 30)
    assert (error.certainty, error.effect_outcome) == (Certainty.AT_LEAST, EffectOutcome.METERED)
    assert (error.disposition, error.retryable) == (Disposition.LANDED, False)


async def test_a_snapshot_that_told_nothing_leaves_the_bill_unknown(client, service):
    nothing = _usage(usage_pb2.CERTAINTY_AT_LEAST)
    service.script("StreamComplete", streaming(nothing, then=aborting(grpc.StatusCode.UNAVAILABLE)))
    assert (await _caught(client.events("model", "hi"))).certainty is Certainty.UNKNOWN


async def test_a_failure_told_in_band_survives_trailers_that_a_proxy_dropped(client, service):
    failed = StreamCompleteResponse(failed=model_error(error_pb2.ERROR_KIND_INTERRUPTED))
    bare = aborting(grpc.StatusCode.RESOURCE_EXHAUSTED, "trailers too large")
    service.script("StreamComplete", streaming(TEXT, failed, then=bare))
    error = await _caught(client.events("model", "hi"))
    assert error.kind is ErrorKind.INTERRUPTED
    assert error.usage.input_tokens == 11


async def test_a_failure_told_in_band_counts_when_the_status_is_ok(client, service):
    failed = StreamCompleteResponse(failed=model_error(error_pb2.ERROR_KIND_UNACCOUNTED))
    service.script("StreamComplete", streaming(failed))
    assert (await _caught(client.events("model", "hi"))).kind is ErrorKind.UNACCOUNTED


async def test_a_stream_that_ends_well_without_an_outcome_is_lost(client, service):
    service.script("StreamComplete", streaming(TEXT))
    error = await _caught(client.events("model", "hi"))
    assert type(error) is LostContactError
    assert "without an outcome" in error.message


async def test_the_status_of_a_failed_stream_wins_over_its_last_event(client, service):
    failed = StreamCompleteResponse(failed=model_error(error_pb2.ERROR_KIND_UNACCOUNTED))
    status = failing(model_error(error_pb2.ERROR_KIND_INTERRUPTED))
    service.script("StreamComplete", streaming(failed, then=status))
    assert (await _caught(client.events("model", "hi"))).kind is ErrorKind.INTERRUPTED


async def test_metadata_that_no_call_can_hold_is_a_value_error_of_either_client(client, service):
    for ask in (client.complete, client.events):
        with pytest.raises(ValueError, match="printable ASCII"):
            await ask("model", "hi", metadata={"a": "x\n"})
    assert service.requests == []


async def test_a_huge_timeout_is_no_deadline_in_the_past(client, service):
    assert (await client.complete("model", "hi", timeout=1e18)).text == "hello"
    assert service.time_remaining[0] > 1e7


def _assert_refused_before_it_was_read(error: ModelmeterError) -> None:
    assert (type(error), error.code) == (RefusedError, grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert (error.certainty, error.disposition) == (Certainty.NONE, Disposition.DID_NOT_HAPPEN)
    assert (error.may_have_generated, error.retryable) == (False, False)
    assert (error.cause, error.effect_outcome) == (Cause.LIMIT, EffectOutcome.REJECTED)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("most", [1_000, -1], ids=["at the client", "at the server"])
async def test_a_request_that_is_too_large_to_be_read_was_certainly_not_billed(address, service, kind, most):
    options = {"grpc.max_send_message_length": most}
    async with face(kind, address, options=options) as client:
        _assert_refused_before_it_was_read(await _caught(client.complete("model", "x" * 5_000_000)))
        _assert_refused_before_it_was_read(await _caught(client.events("model", "x" * 5_000_000)))
    assert service.requests == []


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_an_answer_that_is_too_large_may_have_been_billed(address, service, kind):
    service.script("Complete", answering(completion(text="x" * 5_000)))
    async with face(kind, address, options={"grpc.max_receive_message_length": 1_000}) as client:
        error = await _caught(client.complete("model", "hi", call_id=CALL_ID))
    _assert_nothing_is_known(error)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("target", ["", "ipv4:here", "unix:"])
async def test_to_what_is_no_address_nothing_was_sent(kind, target):
    async with face(kind, target) as client:
        error = await _caught(client.complete("model", "hi"))
    assert (type(error), error.certainty) == (NotConnectedError, Certainty.NONE)
    assert not error.may_have_generated


async def test_an_answer_that_does_not_say_how_sure_its_bill_is_is_no_outcome(client, service):
    said = completion_pb2.Completion(text="hello")
    service.script("Complete", answering(said))
    service.script("StreamComplete", streaming(StreamCompleteResponse(completion=said)))
    _assert_nothing_is_known(await _caught(client.complete("model", "hi", call_id=CALL_ID)))
    _assert_nothing_is_known(await _caught(client.events("model", "hi", call_id=CALL_ID)))


async def test_a_failure_of_no_kind_and_no_certainty_is_no_verdict(client, service):
    service.script("Complete", failing(error_pb2.ModelError()))
    _assert_nothing_is_known(await _caught(client.complete("model", "hi", call_id=CALL_ID)))
    in_band = streaming(StreamCompleteResponse(failed=error_pb2.ModelError()))
    service.script("StreamComplete", in_band)
    _assert_nothing_is_known(await _caught(client.events("model", "hi", call_id=CALL_ID)))
