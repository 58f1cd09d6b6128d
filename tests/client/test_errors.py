"""An error is an ordinary exception: it can be raised by hand, copied and sent to another process."""

from __future__ import annotations

import copy
import pickle

import grpc
import pytest

import modelmeter
from modelmeter import Certainty, Disposition, ErrorKind, ModelmeterError, RateLimitedError, Usage
from modelmeter._lost import CallRecord
from modelmeter._status import error_from_rpc
from modelmeter.v1 import error_pb2
from tests.client.test_status import Failed
from tests.support.scripted_service import DETAILS_KEY, model_error, status_of

CLASSES = [
    value
    for value in vars(modelmeter).values()
    if isinstance(value, type) and issubclass(value, ModelmeterError)
]


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_an_error_made_by_hand_knows_nothing_it_was_not_told(error):
    made = error("a sentence")
    assert (str(made), repr(made)) == ("a sentence", f"{error.__name__}('a sentence')")
    assert (made.certainty, made.disposition) == (Certainty.UNKNOWN, Disposition.UNSPECIFIED)
    assert (made.usage, made.cost, made.retry_after) == (Usage(), None, None)
    assert (made.retryable, made.may_have_generated) == (False, True)


def test_an_error_made_by_hand_takes_every_field_by_name():
    made = RateLimitedError("slow down", kind=ErrorKind.RATE_LIMITED, retry_after=1.5, retryable=True)
    assert (made.kind, made.retry_after, made.retryable) == ("RATE_LIMITED", 1.5, True)
    with pytest.raises(TypeError):
        RateLimitedError("slow down", ErrorKind.RATE_LIMITED)  # type: ignore[call-arg]


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_survives_a_copy_and_a_pickle_with_its_bill(again):
    raw = status_of(model_error(error_pb2.ERROR_KIND_INTERRUPTED)).SerializeToString()
    failed = Failed(grpc.StatusCode.ABORTED, ((DETAILS_KEY, raw),))
    error = error_from_rpc(failed, CallRecord(call_id="c"))
    twin = again(error)
    assert type(twin) is type(error)
    assert vars(twin) == vars(error)


def test_every_class_stands_directly_below_the_root():
    assert {each.__base__ for each in CLASSES} == {Exception, ModelmeterError}
    assert not [each.__name__ for each in CLASSES if hasattr(__builtins__, each.__name__)]
