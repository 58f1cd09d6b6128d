"""Deadlines and cancelling of the sync client, on a channel and a clock that the test holds in its hands."""

from __future__ import annotations

import math
import queue
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import grpc
import grpc_testing
import pytest

from modelmeter import Cause, Client, LostContactError, TextDelta
from modelmeter.v1 import completion_pb2, model_service_pb2
from modelmeter.v1.model_service_pb2 import CompleteResponse, StreamCompleteResponse
from tests.support.scripted_service import completion

SERVICE = model_service_pb2.DESCRIPTOR.services_by_name["ModelService"]
COMPLETE = SERVICE.methods_by_name["Complete"]
STREAM = SERVICE.methods_by_name["StreamComplete"]
TEXT = StreamCompleteResponse(text=completion_pb2.TextDelta(text="a"))
DONE = StreamCompleteResponse(completion=completion(text="a"))
OK = (grpc.StatusCode.OK, "")
LATE = (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")


class DeadlineChannel(grpc.Channel):
    """Keeps the timeouts of the calls that pass to the testing channel: that one ignores them."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.timeouts: list[float | None] = []
        self.wrap_future: Any = lambda future: future

    def _multi_callable(self, callable_: Any) -> Any:
        outer = self

        class Recording:
            def __call__(self, request: Any, timeout: float | None = None, metadata: Any = None) -> Any:
                outer.timeouts.append(timeout)
                return callable_(request, timeout, metadata)

            def future(self, request: Any, timeout: float | None = None, metadata: Any = None) -> Any:
                outer.timeouts.append(timeout)
                return outer.wrap_future(callable_.future(request, timeout, metadata))

        return Recording()

    def unary_unary(self, method: str, *_: Any, **__: Any) -> Any:
        return self._multi_callable(self._inner.unary_unary(method))

    def unary_stream(self, method: str, *_: Any, **__: Any) -> Any:
        return self._multi_callable(self._inner.unary_stream(method))

    def stream_unary(self, method: str, *_: Any, **__: Any) -> Any:
        raise AssertionError(method)

    def stream_stream(self, method: str, *_: Any, **__: Any) -> Any:
        """Return nothing: the synchronous client has no sessions."""

    def subscribe(self, callback: Any, try_to_connect: bool | None = False) -> None:
        raise AssertionError

    def unsubscribe(self, callback: Any) -> None:
        raise AssertionError

    def close(self) -> None:
        raise AssertionError("the client does not own this channel")

    def __enter__(self) -> DeadlineChannel:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class InterruptedFuture:
    """A call during whose wait the user presses Ctrl-C."""

    def __init__(self, inner: Any) -> None:
        self.cancel = inner.cancel

    def result(self) -> None:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("no KeyboardInterrupt came")


class Bench:
    """A client whose calls run in a thread, and both ends of its channel."""

    def __init__(self) -> None:
        self.clock = grpc_testing.strict_fake_time(1_000.0)
        self.wire = grpc_testing.channel([SERVICE], self.clock)
        self.channel = DeadlineChannel(self.wire)
        self.client = Client(self.channel, ask_ledger=0)  # nobody plays the ledger here
        self.threads = ThreadPoolExecutor(1)

    def complete(self, **options: Any) -> tuple[Future[Any], Any]:
        """Start a call; return its result to come and the server's end, with the deadline on the clock."""
        result = self.threads.submit(self.client.complete, "m", "hi", **options)
        _, _, rpc = self.wire.take_unary_unary(COMPLETE)
        self._at_deadline(lambda: rpc.terminate(None, (), *LATE))
        return result, rpc

    def read(self, **options: Any) -> tuple[Future[Any], Any, queue.SimpleQueue[Any]]:
        """Start reading a stream; return what `complete` returns, and the events as they come."""
        events: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def reading() -> str:
            with self.client.stream("m", "hi", **options) as stream:
                for event in stream:
                    events.put(event)
                return stream.completion.text

        result = self.threads.submit(reading)
        _, _, rpc = self.wire.take_unary_stream(STREAM)
        self._at_deadline(lambda: rpc.terminate((), *LATE))
        return result, rpc, events

    def _at_deadline(self, terminate: Any) -> None:
        timeout = self.channel.timeouts[-1]
        if timeout is not None:
            self.clock.call_in(terminate, timeout)


@pytest.fixture
def bench():
    """Return a bench; its thread has ended when the test has."""
    found = Bench()
    yield found
    found.threads.shutdown(wait=True)


def _lost(result: Future[Any]) -> LostContactError:
    with pytest.raises(LostContactError) as caught:
        result.result(timeout=10)
    return caught.value


@pytest.mark.parametrize(("options", "seconds"), [({}, 600), ({"timeout": 5}, 5), ({"timeout": 0.25}, 0.25)])
def test_a_call_waits_until_its_deadline_and_not_longer(bench, options, seconds):
    result, _ = bench.complete(**options)
    bench.clock.sleep_for(seconds * 0.99)
    assert not result.done()
    bench.clock.sleep_for(seconds * 0.02)
    error = _lost(result)
    assert (error.code, error.cause) == (grpc.StatusCode.DEADLINE_EXCEEDED, Cause.DEADLINE)
    assert (error.certainty, error.may_have_generated, error.retryable) == ("UNKNOWN", True, False)


def test_a_call_without_a_deadline_outlives_any_clock(bench):
    result, rpc = bench.complete(timeout=math.inf)
    bench.clock.sleep_for(10**9)
    assert not result.done()
    rpc.terminate(CompleteResponse(completion=completion(text="late")), (), *OK)
    assert result.result(timeout=10).text == "late"


def test_a_stream_keeps_what_came_before_its_deadline(bench):
    result, rpc, events = bench.read(timeout=30)
    rpc.send_response(TEXT)
    assert events.get(timeout=10) == TextDelta("a")
    bench.clock.sleep_for(31)
    error = _lost(result)
    assert (error.code, error.effect_outcome) == (grpc.StatusCode.DEADLINE_EXCEEDED, "performed")


def test_a_deadline_after_the_completion_changes_nothing(bench):
    result, rpc, events = bench.read(timeout=30)
    rpc.send_response(DONE)
    assert events.get(timeout=10).text == "a"
    bench.clock.sleep_for(31)
    assert result.result(timeout=10) == "a"


def test_leaving_a_stream_cancels_its_call(bench):
    def leave() -> Any:
        with bench.client.stream("m", "hi") as stream:
            return next(stream)

    result = bench.threads.submit(leave)
    _, _, rpc = bench.wire.take_unary_stream(STREAM)
    rpc.send_response(TEXT)
    rpc.cancelled()
    assert result.result(timeout=10) == TextDelta("a")


def test_leaving_a_stream_by_an_exception_cancels_its_call(bench):
    def leave() -> None:
        with bench.client.stream("m", "hi"):
            raise KeyError("mine")

    result = bench.threads.submit(leave)
    _, _, rpc = bench.wire.take_unary_stream(STREAM)
    rpc.cancelled()
    with pytest.raises(KeyError, match="mine"):
        result.result(timeout=10)


def test_a_fence_before_the_deadline_says_that_the_request_was_written(bench):
    result, rpc = bench.complete(timeout=30)
    rpc.send_initial_metadata((("modelmeter-call-id", "c"),))
    bench.clock.sleep_for(31)
    assert _lost(result).stage.name == "WRITTEN"


def test_ctrl_c_cancels_the_call_it_interrupts(bench):
    bench.channel.wrap_future = InterruptedFuture
    with pytest.raises(KeyboardInterrupt):
        bench.client.complete("m", "hi")
    _, _, rpc = bench.wire.take_unary_unary(COMPLETE)
    rpc.cancelled()
