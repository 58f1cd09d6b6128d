"""Requests with access tokens of Google that expire: waits are shared, failures told apart, nothing secret shows."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from modelmeter_server.core.answers import FREE_TEXT, Answer
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Kind, Stage
from modelmeter_server.drivers import renewal
from modelmeter_server.drivers.google_credentials import SCOPE, GoogleCredentials
from modelmeter_server.drivers.http import Endpoint, Timeouts
from modelmeter_server.drivers.http_driver import HttpCall, HttpDriver
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS
from tests.support import gemini_chunks as wire
from tests.support.completion_requests import GEMINI, ask, model_of
from tests.support.fault_server import FaultServer, Reply
from tests.support.google_account import PROJECT, TOKEN, account_file, answer, endpoint_of, private_key, token
from tests.support.wire_bytes import sse

MODEL = model_of(GEMINI)
ANSWER = Reply(
    headers={"content-type": "text/event-stream"},
    chunks=[sse(wire.chunk(wire.text("Hello"), finish="STOP", told=wire.USAGE))],
)


class Ears:
    """An observer that hears nothing and lets everything leave."""

    def dispatching(self, number: int, target: str) -> None:
        pass

    def written(self) -> None:
        pass

    def progressed(self) -> None:
        pass


@asynccontextmanager
async def driver_of(url: str, file: Path | None, **options) -> AsyncIterator[HttpDriver]:
    driver = HttpDriver(
        "vertex", WIRE_FORMATS[GEMINI], Endpoint.parse(url), authenticator=GoogleCredentials(file), **options
    )
    try:
        yield driver
    finally:
        await driver.aclose()


def call_of(driver: HttpDriver) -> HttpCall:
    prepared = driver.prepare(ask("Hi"), MODEL)
    call = driver.start(prepared, MODEL, FREE_TEXT, Ears(), deltas=False)
    assert isinstance(call, HttpCall)
    return call


async def result_with(folder: Path, *replies: Reply) -> tuple[Answer | Failure, int]:
    """Return the end of one call behind an endpoint with these replies, and how often the provider was asked."""
    async with (
        endpoint_of(*replies) as endpoint,
        FaultServer(ANSWER) as provider,
        driver_of(provider.url, account_file(folder, endpoint.url)) as driver,
    ):
        return await call_of(driver).run(), len(provider.requests)


async def test_a_call_goes_out_with_a_token_that_the_account_was_given(tmp_path):
    async with (
        FaultServer(token()) as endpoint,
        FaultServer(ANSWER) as provider,
        driver_of(provider.url, account_file(tmp_path, endpoint.url)) as driver,
    ):
        assert isinstance(await call_of(driver).run(), Answer)
    (asked,), (request,) = endpoint.requests, provider.requests
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert "x-goog-api-key" not in request.headers
    form = parse_qs(asked.body.decode())
    assert (asked.target, form["grant_type"]) == ("/token", ["urn:ietf:params:oauth:grant-type:jwt-bearer"])
    assert SCOPE.encode() in _claims(form["assertion"][0])


def _claims(assertion: str) -> bytes:
    middle = assertion.split(".")[1]
    return base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4))


async def test_calls_that_wait_share_one_token_and_later_ones_keep_it(tmp_path):
    gate = asyncio.Event()
    async with (
        FaultServer(token(gate=gate)) as endpoint,
        FaultServer(ANSWER) as provider,
        driver_of(provider.url, account_file(tmp_path, endpoint.url)) as driver,
    ):
        calls = [asyncio.ensure_future(call_of(driver).run()) for _ in range(8)]
        await endpoint.received(1)
        gate.set()
        results = [*await asyncio.gather(*calls), await call_of(driver).run()]
    assert all(isinstance(result, Answer) for result in results)
    assert (len(endpoint.requests), len(provider.requests)) == (1, 9)


async def test_a_token_near_its_end_is_waited_for_anew(tmp_path):
    async with (
        endpoint_of(token(life=20), token("ya29.second")) as endpoint,
        FaultServer(ANSWER) as provider,
        driver_of(provider.url, account_file(tmp_path, endpoint.url)) as driver,
    ):
        for _ in range(3):
            assert isinstance(await call_of(driver).run(), Answer)
    sent = [request.headers["authorization"] for request in provider.requests]
    assert sent == [f"Bearer {TOKEN}", "Bearer ya29.second", "Bearer ya29.second"]


async def test_a_renewal_in_good_time_keeps_no_call_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr(renewal, "BETWEEN_RENEWALS", -1.0)
    gate = asyncio.Event()
    async with (
        endpoint_of(token(life=200), token("ya29.second", gate=gate)) as endpoint,
        FaultServer(ANSWER) as provider,
        driver_of(provider.url, account_file(tmp_path, endpoint.url)) as driver,
    ):
        for _ in range(3):
            assert isinstance(await call_of(driver).run(), Answer)
        await endpoint.received(2)
        gate.set()
    assert {request.headers["authorization"] for request in provider.requests} == {f"Bearer {TOKEN}"}
    assert len(endpoint.requests) == 2


async def test_a_renewal_that_fails_beside_the_calls_costs_none_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(renewal, "BETWEEN_RENEWALS", -1.0)
    async with (
        endpoint_of(token(life=200), answer({"error": "invalid_grant"}, 400)) as endpoint,
        FaultServer(ANSWER) as provider,
        driver_of(provider.url, account_file(tmp_path, endpoint.url)) as driver,
    ):
        assert isinstance(await call_of(driver).run(), Answer)
        await endpoint.received(2)
        assert isinstance(await call_of(driver).run(), Answer)


@pytest.mark.parametrize(
    "reply",
    [
        answer({"error": "invalid_grant", "error_description": "Invalid JWT Signature."}, 400),
        answer({"error": "unauthorized_client"}, 401),
        answer(b"<html>denied</html>", 403),
        answer({"token_type": "Bearer"}),
        answer([]),
        answer(b"null"),
        answer(b"\xff"),
        token(5),
        token("not ascii: ü"),
        Reply(status=302, headers={"location": "http://127.0.0.1:9/"}),
    ],
)  # fmt: skip
async def test_what_only_the_deployment_can_mend_is_refused_and_nothing_was_sent(tmp_path, reply):
    result, asked = await result_with(tmp_path, reply)
    assert isinstance(result, Failure)
    assert (result.kind, result.code, result.certainty) == (
        Kind.REFUSED,
        Code.FAILED_PRECONDITION,
        Certainty.NONE,
    )
    assert (result.retryable, asked) == (False, 0)
    assert "Google credentials" in result.message


@pytest.mark.parametrize("fault", ["refused", "reset", "503"])
async def test_an_endpoint_that_cannot_be_asked_is_unreachable_and_may_be_there_later(
    tmp_path, monkeypatch, fault
):
    monkeypatch.setattr("google.auth._exponential_backoff.time.sleep", lambda seconds: None)
    busy = answer({"error": "internal_failure"}, 503)
    replies = {"refused": [], "reset": [Reply(silent=True, end="reset")], "503": [busy] * 3}[fault]
    async with (
        endpoint_of(*replies, token()) as endpoint,
        FaultServer(ANSWER) as provider,
        driver_of(provider.url, account_file(tmp_path, endpoint.url)) as driver,
    ):
        if fault == "refused":
            authenticator = GoogleCredentials(account_file(tmp_path, "http://127.0.0.1:1"))
            driver._authenticator = authenticator
        result = await call_of(driver).run()
        if fault != "refused":
            assert isinstance(await call_of(driver).run(), Answer)
    assert isinstance(result, Failure)
    assert (result.kind, result.cause, result.retryable) == (Kind.UNREACHABLE, Cause.NETWORK, True)


async def test_the_wait_for_a_token_is_bounded_like_that_for_a_connection(tmp_path):
    gate = asyncio.Event()
    async with (
        FaultServer(token(gate=gate)) as endpoint,
        FaultServer(ANSWER) as provider,
        driver_of(
            provider.url, account_file(tmp_path, endpoint.url), timeouts=Timeouts(connect=0.5)
        ) as driver,
    ):
        result = await call_of(driver).run()
        gate.set()
        assert isinstance(await call_of(driver).run(), Answer)
    assert isinstance(result, Failure)
    assert (result.kind, result.stage, result.certainty) == (
        Kind.UNREACHABLE,
        Stage.NOT_WRITTEN,
        Certainty.NONE,
    )
    assert len(endpoint.requests) == 1, "who waited left, and the request went on"


async def test_a_call_that_is_cut_while_it_waits_ends_at_once(tmp_path):
    gate = asyncio.Event()
    async with (
        FaultServer(token(gate=gate)) as endpoint,
        FaultServer() as provider,
        driver_of(provider.url, account_file(tmp_path, endpoint.url)) as driver,
    ):
        call = call_of(driver)
        running = asyncio.ensure_future(call.run())
        await endpoint.received(1)
        call.cut(Cause.DEADLINE)
        result = await running
        gate.set()
    assert isinstance(result, Failure)
    assert (result.kind, result.code) == (Kind.UNREACHABLE, Code.DEADLINE_EXCEEDED)


async def test_a_replaced_key_file_is_read_anew(tmp_path):
    async with (
        FaultServer(answer({"error": "invalid_grant"}, 400)) as old,
        FaultServer(token()) as new,
        FaultServer(ANSWER) as provider,
        driver_of(provider.url, account_file(tmp_path, old.url)) as driver,
    ):
        assert isinstance(await call_of(driver).run(), Failure)
        account_file(tmp_path, new.url)
        assert isinstance(await call_of(driver).run(), Answer)


async def test_no_token_shows_in_an_error_a_log_or_a_representation(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    echo = Reply(status=400, chunks=[json.dumps({"error": {"message": f"bad {TOKEN}"}}).encode()])
    async with (
        FaultServer(token()) as endpoint,
        FaultServer(echo) as provider,
        driver_of(provider.url, account_file(tmp_path, endpoint.url)) as driver,
    ):
        result = await call_of(driver).run()
        authenticator = driver._authenticator
    assert isinstance(result, Failure)
    assert isinstance(authenticator, GoogleCredentials)
    objects = (authenticator, vars(authenticator), authenticator._renewal.value)
    shown = " ".join([result.message, str(result.provider_code), caplog.text, *map(repr, objects)])
    assert TOKEN not in shown
    assert private_key()[40:80] not in shown


@pytest.fixture
def bare(monkeypatch, tmp_path) -> None:
    """Make an environment without any credentials of Google, on no machine of Google's."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


async def test_without_a_file_the_environment_names_the_account(tmp_path, monkeypatch, bare):
    async with FaultServer(token()) as endpoint, FaultServer(ANSWER) as provider:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(account_file(tmp_path, endpoint.url)))
        monkeypatch.setenv("GOOGLE_CLOUD_QUOTA_PROJECT", PROJECT)
        async with driver_of(provider.url, None) as driver:
            assert isinstance(await call_of(driver).run(), Answer)
    (request,) = provider.requests
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert request.headers["x-goog-user-project"] == PROJECT


async def test_the_environments_proxies_are_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    result, asked = await result_with(tmp_path, token())
    assert isinstance(result, Answer)
    assert asked == 1


async def test_a_deployment_without_any_credentials_says_so(tmp_path, bare):
    async with FaultServer() as provider, driver_of(provider.url, None) as driver:
        result = await call_of(driver).run()
        assert not provider.requests
    assert isinstance(result, Failure)
    assert (result.kind, result.code) == (Kind.REFUSED, Code.FAILED_PRECONDITION)
    assert "DefaultCredentialsError" in result.message


async def test_a_good_key_file_that_is_replaced_counts_from_the_next_token_on(tmp_path):
    async with (
        endpoint_of(token(), token("second"), token("third")) as first,
        endpoint_of(token("moved")) as second,
    ):
        credentials = GoogleCredentials(account_file(tmp_path, first.url))
        await credentials.prepare()
        (tmp_path / "account.json").write_text("{}")
        await credentials.prepare()
        account_file(tmp_path, second.url)
        await credentials.prepare()
    assert (len(first.requests), len(second.requests)) == (2, 1)
    assert credentials.secrets == ("moved", "second")
