"""Which of several keys a request goes with, and what a refusal does to a key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.config import Secret
from modelmeter_server.core.answers import FREE_TEXT
from modelmeter_server.core.errors import failure
from modelmeter_server.core.outcomes import Cause, Code, Kind
from modelmeter_server.drivers.authentication import key_header
from modelmeter_server.drivers.http import Endpoint
from modelmeter_server.drivers.http_driver import HttpDriver
from modelmeter_server.drivers.keys import FixedKey, KeyCommand, KeyFile, KeyRing
from modelmeter_server.drivers.keys.ring import LONGEST_REST, REST_SECONDS, is_refusal_of_key
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS
from tests.support import anthropic_events as wire
from tests.support.completion_requests import ANTHROPIC, ask, model_of
from tests.support.fault_server import FaultServer, Reply

MODEL = model_of(ANTHROPIC)


def refusal(status=401, **changed):
    return failure(
        Kind.REFUSED,
        "no",
        **{"cause": Cause.PROVIDER, "code": Code.FAILED_PRECONDITION, "http_status": status, **changed},
    )


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def ring(count=3, clock=None, complain=None):
    sources = [FixedKey(Secret(f"k{number}")) for number in range(1, count + 1)]
    return KeyRing(sources, key_header("x-api-key"), clock or Clock(), complain)


def used(keys: KeyRing, result: Any = None) -> str:
    """Let one request come and go; return the key that it went with."""
    lease = keys.lease()
    assert lease is not None
    lease.begin()
    ((_, key),) = lease.header()
    lease.end(result)
    return key


def test_keys_take_turns_while_they_are_equally_busy():
    keys = ring()
    assert [used(keys) for _ in range(6)] == ["k1", "k2", "k3", "k1", "k2", "k3"]


def test_the_least_busy_key_goes_first():
    keys = ring(2)
    long = [keys.lease() for _ in range(2)]
    for lease in long:
        lease.begin()
    long[1].end(None)
    assert [used(keys) for _ in range(3)] == ["k2"] * 3


@given(st.integers(1, 5), st.integers(0, 30))
def test_requests_that_do_not_end_are_shared_evenly(count, requests):
    keys = ring(count)
    for _ in range(requests):
        lease = keys.lease()
        assert lease is not None
        lease.begin()
    busy = [place.under_way for place in keys._places]
    assert (sum(busy), max(busy) - min(busy) <= 1) == (requests, True)


def test_a_refused_key_rests_and_the_others_go_in_its_place():
    clock = Clock()
    told: list[str] = []
    keys = ring(2, clock, told.append)
    assert used(keys, refusal()) == "k1"
    assert (keys.usable, told) == (1, ["key 1 is refused (HTTP 401) and rests for 60 s"])
    assert [used(keys) for _ in range(3)] == ["k2"] * 3
    clock.now = REST_SECONDS + 1
    assert used(keys, refusal()) == "k1"
    clock.now += REST_SECONDS + 1
    assert used(keys) == "k2"
    clock.now += REST_SECONDS
    assert used(keys, object()) == "k1"
    assert keys.usable == 2


def test_a_rest_doubles_up_to_its_bound_and_calls_refused_together_count_once():
    clock = Clock()
    keys = ring(1, clock)
    rests = []
    for _ in range(9):
        pair = [keys.lease() for _ in range(2)]
        for lease in pair:
            lease.begin()
            lease.header()
        for lease in pair:
            lease.end(refusal())
        rests.append(keys._places[0].rest_left(clock.now))
        clock.now += rests[-1]
    assert rests == [60, 120, 240, 480, 960, 1920, LONGEST_REST, LONGEST_REST, LONGEST_REST]


def test_when_all_keys_rest_the_one_that_rests_shortest_is_tried():
    clock = Clock()
    keys = ring(2, clock)
    used(keys, refusal())
    clock.now = 10
    used(keys, refusal())
    assert keys.usable == 0
    assert [used(keys) for _ in range(2)] == ["k1", "k1"]


def test_a_throttled_key_rests_as_long_as_the_provider_says_within_a_minute():
    clock = Clock()
    for told, seconds in ((None, 1), (5.0, 5), (3600.0, 60), (0.0, 0)):
        keys = ring(2, clock)
        used(keys, failure(Kind.RATE_LIMITED, "slow", cause=Cause.PROVIDER, retry_after=told))
        assert keys._places[0].rest_left(clock.now) == seconds


def test_a_key_that_was_replaced_rests_no_more(tmp_path):
    path = tmp_path / "key"
    path.write_text("old")
    keys = KeyRing([KeyFile(path, "old"), FixedKey(Secret("other"))], key_header("x-api-key"), Clock())
    assert used(keys, refusal()) == "old"
    assert used(keys) == "other"
    path.write_text("new")
    assert used(keys) == "new"


@pytest.mark.parametrize(
    ("failed", "is_of_key"),
    [
        (refusal(401), True),
        (refusal(402), True),
        (refusal(403), True),
        (refusal(429), True),
        (refusal(400), True),
        (refusal(200), True),
        (refusal(400, code=Code.INVALID_ARGUMENT), False),
        (refusal(404, code=Code.NOT_FOUND), False),
        (refusal(403, code=Code.PERMISSION_DENIED), False),
        (refusal(401, cause=Cause.LIMIT), False),
        (refusal(302), False),
        (refusal(407), False),
        (refusal(409), False),
        (refusal(451), False),
        (failure(Kind.UNAVAILABLE, "x", http_status=500), False),
        (failure(Kind.UNACCOUNTED, "x"), False),
    ],
)
def test_what_refuses_the_key_is_told_from_what_refuses_the_request(failed, is_of_key):
    assert is_refusal_of_key(failed) is is_of_key
    keys = ring(2)
    used(keys, failed)
    assert (keys.usable == 1) is is_of_key


def test_without_keys_none_is_sent():
    keys = ring(0)
    assert (keys.lease(), len(keys), keys.known) == (None, 0, ())


# Through the driver


class Ears:
    def dispatching(self, number, target): ...

    def written(self): ...

    def progressed(self): ...


DENIED = Reply(
    status=401, chunks=[b'{"type":"error","error":{"type":"authentication_error","message":"k1"}}']
)
GOOD = Reply(headers={"content-type": "text/event-stream"}, chunks=[wire.stream(wire.text_block(0, "Hello"))])


async def asked(driver: HttpDriver):
    prepared = driver.prepare(ask("Hi"), MODEL)
    return await driver.start(prepared, MODEL, FREE_TEXT, Ears(), deltas=False).run()


async def test_a_refused_key_costs_one_call_and_is_sent_no_more():
    async with FaultServer(GOOD) as server:
        server.script([DENIED])
        driver = HttpDriver("p", WIRE_FORMATS[ANTHROPIC], Endpoint.parse(server.url), ring(2))
        first = await asked(driver)
        for _ in range(3):
            await asked(driver)
        await driver.aclose()
    assert (first.kind, first.code) == (Kind.REFUSED, Code.FAILED_PRECONDITION)
    assert "k1" not in first.message
    assert [each.headers["x-api-key"] for each in server.requests] == ["k1", "k2", "k2", "k2"]


async def test_a_call_waits_for_the_key_of_a_command_and_goes_with_it(tmp_path):
    program = tmp_path / "key"
    program.write_text("#!/bin/sh\necho sk-printed\n")
    program.chmod(0o700)
    async with FaultServer(GOOD) as server:
        keys = KeyRing([KeyCommand((str(program),))], key_header("x-api-key"))
        driver = HttpDriver("p", WIRE_FORMATS[ANTHROPIC], Endpoint.parse(server.url), keys)
        for _ in range(2):
            await asked(driver)
        await driver.aclose()
    assert [each.headers["x-api-key"] for each in server.requests] == ["sk-printed"] * 2
    assert driver.secrets == ("sk-printed",)


async def test_without_a_key_from_its_command_a_call_is_not_sent(tmp_path):
    async with FaultServer(GOOD) as server:
        keys = KeyRing([KeyCommand((str(tmp_path / "none"),))], key_header("x-api-key"))
        driver = HttpDriver("p", WIRE_FORMATS[ANTHROPIC], Endpoint.parse(server.url), keys)
        failed = await asked(driver)
        await driver.aclose()
    assert (failed.kind, server.requests) == (Kind.UNREACHABLE, [])
    assert "key command" in failed.message
    assert keys._places[0].under_way == 0
