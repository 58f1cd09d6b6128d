"""Requests signed with credentials that expire: the signature verifies, waits are shared, nothing secret shows."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import hmac
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest
from botocore.credentials import Credentials, RefreshableCredentials
from botocore.exceptions import CredentialRetrievalError

import modelmeter
from modelmeter_server.core.answers import FREE_TEXT, Answer
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Disposition, Kind, Stage
from modelmeter_server.drivers import renewal
from modelmeter_server.drivers.bedrock import MissingExtra, SigV4, signing
from modelmeter_server.drivers.http import Endpoint, Timeouts
from modelmeter_server.drivers.http_driver import HttpCall, HttpDriver
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS
from modelmeter_server.engine.catalog import Catalog
from modelmeter_server.engine.engine import Engine
from modelmeter_server.rpc.server import RpcServer
from tests.conformance.asking import ask as conversed
from tests.support import bedrock_events as wire
from tests.support.completion_requests import BEDROCK, ask, model_of
from tests.support.fault_server import FaultServer, RecordedRequest, Reply
from tests.support.running_server import Memory
from tests.support.wire_bytes import body

REGION = "eu-central-1"
MODEL = model_of(BEDROCK, provider_model="us.amazon.nova-micro-v1:0")
ANSWER = Reply(chunks=[wire.stream(wire.text_block(0, "Hello"))])


class Ears:
    """An observer that counts."""

    def __init__(self) -> None:
        self.writes = 0

    def dispatching(self, number: int, target: str) -> None: ...

    def written(self) -> None:
        self.writes += 1

    def progressed(self) -> None:
        pass


class Chain:
    """Stands for botocore's chain of credentials: counts how often it was asked, and may be held up."""

    def __init__(self, *found: Any) -> None:
        self.found = list(found)
        self.asked = 0
        self.held: threading.Event | None = None

    def __call__(self) -> Any:
        self.asked += 1
        if self.held is not None:
            assert self.held.wait(10)
        found = self.found.pop(0) if len(self.found) > 1 else self.found[0]
        if isinstance(found, Exception):
            raise found
        return found


def lasting() -> Credentials:
    return Credentials("AKIDEXAMPLE", "the-secret-key", "the/session+token=")


NOW = datetime.datetime.now(datetime.UTC)


def expiring(seconds: float, refresh: Callable[[], Any], now: Callable[[], Any] = lambda: NOW) -> Any:
    at = NOW + datetime.timedelta(seconds=seconds)
    return RefreshableCredentials("AKIDOLD", "old-secret", "old-token", at, refresh, "test", time_fetcher=now)


@asynccontextmanager
async def driver_of(url: str, chain: Chain, **options: Any) -> AsyncIterator[HttpDriver]:
    driver = HttpDriver(
        "b", WIRE_FORMATS[BEDROCK], Endpoint.parse(url), authenticator=SigV4(REGION, chain), **options
    )
    try:
        yield driver
    finally:
        await driver.aclose()


def call_of(driver: HttpDriver, text: str = "Hi", ears: Ears | None = None) -> HttpCall:
    prepared = driver.prepare(ask(text), MODEL)
    call = driver.start(prepared, MODEL, FREE_TEXT, ears or Ears(), deltas=False)
    assert isinstance(call, HttpCall)
    return call


def signature_of(request: RecordedRequest, secret: str) -> str:
    """Return the signature that a service expects, worked out after the specification of Signature Version 4."""
    words = dict(word.strip(",").split("=", 1) for word in request.headers["authorization"].split()[1:])
    names = words["SignedHeaders"].split(";")
    canonical = "\n".join(
        [
            request.method,
            quote(request.target, safe="/~-._"),
            "",
            *(f"{name}:{' '.join(request.headers[name].split())}" for name in names),
            "",
            words["SignedHeaders"],
            hashlib.sha256(request.body).hexdigest(),
        ]
    )
    scope = words["Credential"].split("/", 1)[1]
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", request.headers["x-amz-date"], scope, hashed])
    key = b"AWS4" + secret.encode()
    for word in scope.split("/"):
        key = hmac.digest(key, word.encode(), "sha256")
    return hmac.new(key, text.encode(), "sha256").hexdigest()


def signed_as(request: RecordedRequest) -> str:
    return request.headers["authorization"].rpartition("Signature=")[2]


async def test_a_request_is_signed_so_that_the_service_agrees():
    async with FaultServer(ANSWER) as server, driver_of(server.url, Chain(lasting())) as driver:
        result = await call_of(driver, "Grüße, " * 1000).run()
    assert isinstance(result, Answer), result
    (request,) = server.requests
    assert request.target == "/model/us.amazon.nova-micro-v1%3A0/converse-stream"
    authorization = request.headers["authorization"]
    assert authorization.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert f"/{REGION}/bedrock/aws4_request, " in authorization
    assert {"content-type", "host", "x-amz-date", "x-amz-security-token"} <= set(
        authorization.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    )
    assert request.headers["x-amz-security-token"] == "the/session+token="
    assert signed_as(request) == signature_of(request, "the-secret-key")


async def test_credentials_are_looked_for_once_for_all_calls_that_wait():
    chain = Chain(lasting())
    chain.held = threading.Event()
    async with FaultServer(ANSWER) as server, driver_of(server.url, chain) as driver:
        calls = [asyncio.ensure_future(call_of(driver).run()) for _ in range(5)]
        await asyncio.sleep(0)
        chain.held.set()
        results = await asyncio.gather(*calls)
    assert all(isinstance(result, Answer) for result in results)
    assert chain.asked == 1


async def test_credentials_that_expire_are_renewed_before_they_do():
    def refresh() -> dict[str, str]:
        later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
        return {
            "access_key": "AKIDNEW",
            "secret_key": "new-secret",
            "token": "new-token",
            "expiry_time": later.isoformat(),
        }

    async with FaultServer(ANSWER) as server, driver_of(server.url, Chain(expiring(30, refresh))) as driver:
        await call_of(driver).run()
    assert server.requests[0].headers["x-amz-security-token"] == "new-token"
    assert signed_as(server.requests[0]) == signature_of(server.requests[0], "new-secret")


async def test_a_renewal_in_good_time_keeps_no_call_waiting(monkeypatch):
    monkeypatch.setattr(renewal, "BETWEEN_RENEWALS", -1.0)
    now = [NOW]
    renewing, may_renew = threading.Event(), threading.Event()

    def refresh() -> dict[str, str]:
        renewing.set()
        assert may_renew.wait(10)
        raise CredentialRetrievalError(provider="test", error_msg="late")

    signer = SigV4(REGION, Chain(expiring(16 * 60, refresh, lambda: now[0])))
    await signer.prepare()
    now[0] += datetime.timedelta(seconds=120)
    async with FaultServer(ANSWER) as server:
        driver = HttpDriver("b", WIRE_FORMATS[BEDROCK], Endpoint.parse(server.url), authenticator=signer)
        assert isinstance(await call_of(driver).run(), Answer)
        await asyncio.to_thread(renewing.wait, 10)
        may_renew.set()
        await signer.prepare()
        await driver.aclose()
    assert server.requests[0].headers["x-amz-security-token"] == "old-token"
    assert renewing.is_set()


async def test_without_credentials_the_call_is_refused_and_nothing_was_sent():
    async with FaultServer() as server, driver_of(server.url, Chain(None)) as driver:
        ears = Ears()
        call = call_of(driver, ears=ears)
        result = await call.run()
    assert isinstance(result, Failure)
    assert (result.kind, result.code, result.certainty) == (
        Kind.REFUSED,
        Code.FAILED_PRECONDITION,
        Certainty.NONE,
    )
    assert "no AWS credentials" in result.message
    assert (result.retryable, ears.writes, server.requests, call.attempts) == (False, 0, [], ())


@pytest.mark.parametrize("face", ["unary", "stream"])
async def test_a_caller_hears_that_the_deployment_has_no_credentials(face: Any):
    async with FaultServer() as provider, driver_of(provider.url, Chain(None)) as driver:
        server = RpcServer(Engine(Catalog([MODEL]), {BEDROCK: driver}, Memory()))
        (address,) = await server.start(["127.0.0.1:0"])
        try:
            async with modelmeter.AsyncClient(address) as client:
                heard = await conversed(client, face, MODEL.name, "Hi")
        finally:
            await server.stop(0)
    assert (heard.kind, heard.code) == ("REFUSED", "FAILED_PRECONDITION")
    assert (heard.result.certainty.name, provider.requests) == ("NONE", [])


async def test_credentials_that_cannot_be_fetched_now_may_be_there_later():
    broken = CredentialRetrievalError(provider="x", error_msg="a secret was printed")
    chain = Chain(broken, lasting())
    async with FaultServer(ANSWER) as server, driver_of(server.url, chain) as driver:
        result = await call_of(driver).run()
        assert isinstance(await call_of(driver).run(), Answer)
    assert isinstance(result, Failure)
    assert (result.kind, result.disposition, result.retryable) == (
        Kind.UNREACHABLE,
        Disposition.DID_NOT_HAPPEN,
        True,
    )
    assert "secret" not in result.message
    assert chain.asked == 2


async def test_the_wait_for_credentials_is_bounded_like_that_for_a_connection():
    chain = Chain(lasting())
    chain.held = threading.Event()
    timeouts = Timeouts(connect=0.3)
    async with FaultServer(ANSWER) as server, driver_of(server.url, chain, timeouts=timeouts) as driver:
        result = await call_of(driver).run()
        assert isinstance(result, Failure)
        assert (result.kind, result.stage, result.certainty) == (
            Kind.UNREACHABLE,
            Stage.NOT_WRITTEN,
            Certainty.NONE,
        )
        chain.held.set()
        assert isinstance(await call_of(driver).run(), Answer)
    assert chain.asked == 1, "who waited left, and the search went on"


@pytest.mark.parametrize("way", ["cut", "cut before", "cancel"])
async def test_a_call_that_is_ended_while_it_waits_for_credentials_ends_at_once(way: str):
    chain = Chain(lasting())
    chain.held = threading.Event()
    async with FaultServer() as server, driver_of(server.url, chain) as driver:
        call = call_of(driver)
        if way == "cut before":
            call.cut(Cause.CALLER)
        running = asyncio.ensure_future(call.run())
        await asyncio.sleep(0)
        if way == "cancel":
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        else:
            call.cut(Cause.CALLER)
            result = await running
            assert isinstance(result, Failure)
            assert (result.kind, result.cause, result.code) == (
                Kind.UNREACHABLE,
                Cause.CALLER,
                Code.CANCELLED,
            )
        chain.held.set()
        assert not server.requests


async def test_a_call_can_be_cut_once_it_runs():
    async with (
        FaultServer(Reply(chunks=[], end="stall")) as server,
        driver_of(server.url, Chain(lasting())) as driver,
    ):
        call = call_of(driver)
        running = asyncio.ensure_future(call.run())
        await server.received(1)
        call.cut(Cause.DEADLINE)
        result = await running
    assert isinstance(result, Failure)
    assert result.code is Code.DEADLINE_EXCEEDED


async def test_no_part_of_the_credentials_comes_back_in_an_error():
    echoed = {"message": "bad AKIDEXAMPLE, the-secret-key, the/session+token="}
    reply = Reply(status=400, headers={"x-amzn-errortype": "IncompleteSignature"}, chunks=[body(echoed)])
    async with FaultServer(reply) as server, driver_of(server.url, Chain(lasting())) as driver:
        result = await call_of(driver).run()
    assert isinstance(result, Failure)
    assert result.provider_code == "IncompleteSignature"
    assert not [secret for secret in ("AKID", "the-secret-key", "session") if secret in result.message]


async def test_the_request_id_of_the_service_is_told():
    reply = Reply(headers={"x-amzn-requestid": "r-1"}, chunks=ANSWER.chunks)
    async with FaultServer(reply) as server, driver_of(server.url, Chain(lasting())) as driver:
        result = await call_of(driver).run()
    assert result.provider_request_id == "r-1"


async def test_a_key_goes_into_its_header_and_needs_no_signature():
    name, value = WIRE_FORMATS[BEDROCK].authenticate("k")
    assert (name, value) == ("authorization", "Bearer k")


async def test_the_chain_of_botocore_is_asked_for_the_configured_region(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "env-secret")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_REGION", "us-east-9")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    signer = SigV4(REGION)
    async with FaultServer(ANSWER) as server:
        driver = HttpDriver("b", WIRE_FORMATS[BEDROCK], Endpoint.parse(server.url), authenticator=signer)
        assert isinstance(await call_of(driver).run(), Answer)
        await driver.aclose()
    assert f"/{REGION}/" in server.requests[0].headers["authorization"]
    assert signed_as(server.requests[0]) == signature_of(server.requests[0], "env-secret")


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setattr(signing, "can_sign", lambda: False)
    with pytest.raises(MissingExtra, match=r"modelmeter-server\[bedrock\]"):
        SigV4(REGION)


async def test_credentials_that_never_expire_are_looked_for_again_and_a_failure_keeps_them(monkeypatch):
    """Somebody may have replaced them in a shared file."""
    monkeypatch.setattr(renewal, "BETWEEN_RENEWALS", -1.0)
    monkeypatch.setattr(signing, "_LOOK_SECONDS", -1.0)
    chain = Chain(lasting(), OSError("gone"), Credentials("AKIDNEW", "the-new-secret"))
    async with FaultServer(ANSWER) as server, driver_of(server.url, chain) as driver:
        signer: Any = driver._authenticator
        for _ in range(3):
            await call_of(driver).run()
            await asyncio.gather(signer._renewal._loading, return_exceptions=True)
    keys = [each.headers["authorization"].split("Credential=")[1].split("/")[0] for each in server.requests]
    assert keys == ["AKIDEXAMPLE", "AKIDEXAMPLE", "AKIDNEW"]
    assert {"the-secret-key", "the-new-secret"} <= set(driver.secrets)
