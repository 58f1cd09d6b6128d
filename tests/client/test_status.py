"""The reader of status details takes any bytes, and never raises."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from modelmeter import LostContactError, ModelmeterError
from modelmeter._lost import CallRecord, error_without_outcome
from modelmeter._status import DETAILS_KEY, error_from_rpc
from modelmeter.v1 import error_pb2
from tests.support.scripted_service import model_error, status_of

GOOD = status_of(model_error(error_pb2.ERROR_KIND_INTERRUPTED)).SerializeToString()


class Failed(grpc.RpcError):
    """What gRPC raises, with any trailers."""

    def __init__(self, code: grpc.StatusCode, trailers: object) -> None:
        super().__init__()
        self._code = code
        self._trailers = trailers

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str | None:
        return None

    def initial_metadata(self) -> Any:
        return None

    def trailing_metadata(self) -> Any:
        return self._trailers


def _read(raw: bytes | str) -> ModelmeterError:
    error = Failed(grpc.StatusCode.ABORTED, ((DETAILS_KEY, raw),))
    return error_from_rpc(error, CallRecord(call_id="c", model="m"))


@given(st.binary(max_size=200))
def test_any_bytes_are_an_error_with_the_call_id(raw):
    error = _read(raw)
    assert error.call_id == "c"
    assert error.raw_status == raw


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_a_status_with_any_byte_changed_is_read_or_counts_as_not_told(index, byte):
    damaged = GOOD[:index] + bytes([byte]) + GOOD[index + 1 :]
    assert isinstance(_read(damaged), ModelmeterError)


@given(st.integers(0, len(GOOD) - 1))
def test_a_status_cut_anywhere_never_makes_up_a_bill(length):
    error = _read(GOOD[:length])
    if isinstance(error, LostContactError):
        assert not error.usage.told
    else:
        assert error.usage.input_tokens == 11


def test_trailers_of_the_wrong_kind_count_as_none():
    assert isinstance(_read("text in a binary trailer"), LostContactError)
    for trailers in (None, (), (("other", b"x"),)):
        error = error_from_rpc(Failed(grpc.StatusCode.UNKNOWN, trailers), CallRecord(call_id="c"))
        assert isinstance(error, LostContactError)
        assert error.raw_status == b""


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses; last error: refused"),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!"),
    ],
)
@pytest.mark.parametrize("evidence", [{"started": True}, {"generated": True}], ids=["started", "generated"])
def test_what_a_status_says_counts_less_than_what_the_call_has_shown(code, text, evidence):
    assert not error_without_outcome(CallRecord(call_id="c"), code, text).may_have_generated
    error = error_without_outcome(CallRecord(call_id="c", **evidence), code, text)
    assert (type(error), error.certainty) == (LostContactError, "UNKNOWN")
    assert (error.may_have_generated, error.retryable) == (True, False)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))
def test_any_wait_and_any_attempt_time_can_be_read(seconds, nanos):
    duration = Duration(seconds=seconds, nanos=nanos)
    attempts = [error_pb2.Attempt(elapsed=duration)]
    error = model_error(error_pb2.ERROR_KIND_OVERLOADED, retry_after=duration, attempts=attempts)
    read = _read(status_of(error).SerializeToString())
    assert read.retry_after == read.attempts[0].elapsed == seconds + nanos / 1e9
