"""What each fault of the wire means for a call: the landing table, with the kind on top of stage and cause."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from modelmeter_server.config.secret import Secret
from modelmeter_server.core.answers import FREE_TEXT
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.models import ModelSpec
from modelmeter_server.core.outcomes import Cause, Certainty, Disposition, Kind, Stage
from modelmeter_server.drivers.driver import PreparedRequest
from modelmeter_server.drivers.http import Endpoint, Fault, Limits
from modelmeter_server.drivers.http_driver import HttpCall, HttpDriver
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS
from tests.drivers.http.landing_table import LANDINGS, START, Landing
from tests.drivers.http.test_landing import Scene, arrange
from tests.support.fault_server import Authority, FaultServer
from tests.support.wire_faults import event_stream

MODEL = ModelSpec(name="m", provider="p", provider_kind="anthropic", provider_model="m")


class Ears:
    """An observer that counts."""

    def __init__(self) -> None:
        self.writes = 0

    def dispatching(self, number: int, target: str) -> None: ...

    def written(self) -> None:
        self.writes += 1

    def progressed(self) -> None:
        pass


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def _endpoint(scene: Scene, landing: Landing, authority: Authority) -> Endpoint:
    if landing.setting == "unresolvable":
        # Endpoint.parse would refuse this name before anything is resolved.
        return Endpoint("http", scene.url.removeprefix("http://"), 80)
    return Endpoint.parse(scene.url, proxy=scene.proxy, tls=authority.client)


def _driver(scene: Scene, landing: Landing, authority: Authority) -> HttpDriver:
    return HttpDriver(
        "p",
        WIRE_FORMATS["anthropic"],
        _endpoint(scene, landing, authority),
        Secret("sk-secret"),
        timeouts=landing.timeouts,
        limits=landing.limits,
        resend_on_stale_connection=landing.resend,
    )


def _call(driver: HttpDriver, ears: Ears, size: int = 2) -> HttpCall:
    prepared = PreparedRequest(target="/v1/messages", body=b"x" * size)
    call = driver.start(prepared, MODEL, FREE_TEXT, ears, deltas=False)
    assert isinstance(call, HttpCall)
    return call


@pytest.mark.parametrize("landing", LANDINGS, ids=[landing.name for landing in LANDINGS])
async def test_each_fault_has_its_stage_cause_and_kind(landing: Landing, authority: Authority) -> None:
    ears = Ears()
    async with arrange(landing, authority) as scene, AsyncExitStack() as stack:
        driver = _driver(scene, landing, authority)
        stack.push_async_callback(driver.aclose)
        if "keep" in scene.before:
            await _call(driver, Ears()).run()
        if "fill" in scene.before:
            assert scene.server is not None
            other = asyncio.ensure_future(_call(driver, Ears()).run())
            stack.callback(other.cancel)
            await scene.server.received(1)
        call = _call(driver, ears, landing.request_size)
        result = await call.run()
    assert ears.writes == landing.written
    assert len(call.attempts) == landing.attempts
    if landing.kind is None:
        return
    assert isinstance(result, Failure), result
    assert result.kind.name == landing.kind, result.message
    assert "sk-secret" not in result.message
    _check_bill(result, landing)


def _check_bill(result: Failure, landing: Landing) -> None:
    """Hold the failure to what its kind promises."""
    if landing.cause is not None and landing.status in (None, 200):
        assert result.cause is landing.cause
    if result.kind is Kind.INTERRUPTED:
        assert (result.stage, result.disposition) == (Stage.OUTPUT, Disposition.LANDED)
        assert result.usage is not None
        assert result.usage.input_tokens == 65
        assert result.certainty is Certainty.AT_LEAST
        return
    assert result.usage is None
    if result.kind is Kind.UNACCOUNTED:
        assert (result.disposition, result.certainty) == (Disposition.LANDED, Certainty.UNKNOWN)
        return
    assert result.disposition is Disposition.DID_NOT_HAPPEN
    if result.kind is Kind.UNREACHABLE:
        assert (result.stage, result.certainty) == (landing.stage, Certainty.NONE)
    if result.kind is Kind.UNAVAILABLE:
        assert result.certainty is Certainty.UNKNOWN


async def test_a_certificate_fault_is_not_worth_repeating(authority: Authority) -> None:
    """No repetition mends a certificate; somebody has to."""
    landing = next(each for each in LANDINGS if each.setting == "untrusted")
    async with arrange(landing, authority) as scene, AsyncExitStack() as stack:
        driver = _driver(scene, landing, authority)
        stack.push_async_callback(driver.aclose)
        result = await _call(driver, Ears()).run()
    assert isinstance(result, Failure)
    assert (result.kind, result.retryable) == (Kind.UNREACHABLE, False)


async def test_a_refused_connection_is_worth_repeating(authority: Authority) -> None:
    """Nothing was sent, and the provider may be back in a moment."""
    landing = next(each for each in LANDINGS if each.setting == "refused")
    async with arrange(landing, authority) as scene, AsyncExitStack() as stack:
        driver = _driver(scene, landing, authority)
        stack.push_async_callback(driver.aclose)
        result = await _call(driver, Ears()).run()
    assert isinstance(result, Failure)
    assert (result.kind, result.retryable) == (Kind.UNREACHABLE, True)


async def test_an_event_over_the_configured_limit_is_a_dead_connection(authority: Authority) -> None:
    """What had been told before the large event still counts."""
    landing = Landing("large event", Stage.BODY, Fault.NONE, None, None, None, limits=Limits(event_bytes=300))
    large = b'event: content_block_delta\ndata: {"pad":"' + b"x" * 400 + b'"}\n\n'
    async with FaultServer(event_stream([START, large])) as server, AsyncExitStack() as stack:
        driver = _driver(Scene(server.url), landing, authority)
        stack.push_async_callback(driver.aclose)
        result = await _call(driver, Ears()).run()
    assert isinstance(result, Failure)
    assert (result.kind, result.cause, result.certainty) == (
        Kind.INTERRUPTED,
        Cause.LIMIT,
        Certainty.AT_LEAST,
    )


async def test_a_fault_of_our_own_is_told_without_its_text(authority: Authority) -> None:
    """The exception goes to the log, the bill of what had arrived to the caller."""

    class Broken(Ears):
        def progressed(self) -> None:
            message = "sk-secret"
            raise AttributeError(message)

    landing = Landing("own fault", Stage.BODY, Fault.BUG, Cause.BUG, "BUG", None)
    async with FaultServer(event_stream([START, START])) as server, AsyncExitStack() as stack:
        driver = _driver(Scene(server.url), landing, authority)
        stack.push_async_callback(driver.aclose)
        call = _call(driver, Broken())
        result = await call.run()
    assert isinstance(result, Failure)
    assert (result.kind, result.certainty) == (Kind.BUG, Certainty.AT_LEAST)
    assert "AttributeError" not in result.message
    assert isinstance(call.fault, AttributeError)
