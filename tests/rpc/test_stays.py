"""What was let in ends soon after the credential that let it in, and tells its bill."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import pytest

import modelmeter
from modelmeter.v1 import event_service_pb2, event_service_pb2_grpc, model_service_pb2, session_pb2
from modelmeter_server.core.tenants import Tenant
from modelmeter_server.identity import token_file
from modelmeter_server.identity.authenticator import CallerAuthenticator
from modelmeter_server.identity.principal import Principal
from modelmeter_server.rpc import stays as staying
from modelmeter_server.rpc.stays import Stay, Stays
from tests.support.identities import TENANTS, Issuer, bearer, gated
from tests.support.running_server import Details, asking, read_all, streaming
from tests.support.scripted_driver import Hold, ScriptedDriver, Written, opening, text

UNAUTHENTICATED, ABORTED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.ABORTED


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(staying, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(token_file, "LOOK_SECONDS", 0.0)


def stuck(hold: Hold | None = None) -> ScriptedDriver:
    """Return a provider that begins an answer and then says nothing more."""
    return ScriptedDriver([Written(), opening(), text("Hel"), hold or Hold()])


def revoke(gate, token: str) -> None:
    gate.tokens.revoke(token.split("_")[1])


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_stream_of_a_revoked_token_is_cut_with_its_bill(tmp_path, ledger, elsewhere):
    async with gated(tmp_path, driver=stuck(), ledger=ledger) as gate:
        call = gate.running.stub.StreamComplete(streaming(), metadata=bearer(gate.acme), timeout=20)
        first: list[Any] = [await call.read() for _ in range(2)]
        tokens = token_file.TokenFile(tmp_path / "tokens.json") if elsewhere else gate.tokens
        tokens.revoke(gate.acme.split("_")[1])
        events, error = await read_all(call)
    assert first[0].WhichOneof("event") == "started"
    assert error is not None
    assert error.code() is ABORTED
    told = Details(error).model_error
    assert events[-1].failed == told
    assert "the token is revoked" in told.message
    assert (told.usage.input_tokens, told.may_have_generated) == (25, True)
    assert modelmeter.ErrorKind.INTERRUPTED.name in Details(error).info.reason


async def test_a_call_of_a_revoked_token_is_cut_too(tmp_path):
    hold = Hold()
    async with gated(tmp_path, driver=stuck(hold)) as gate:
        call = gate.running.stub.Complete(asking(), metadata=bearer(gate.acme), timeout=20)
        await hold.reached.wait()
        revoke(gate, gate.acme)
        assert await call.code() is ABORTED


async def test_a_watcher_and_a_health_watch_of_a_revoked_token_end(tmp_path):
    async with gated(tmp_path) as gate:
        events = event_service_pb2_grpc.EventServiceStub(gate.running.channel)
        watch = events.WatchEvents(
            event_service_pb2.WatchEventsRequest(), metadata=bearer(gate.acme), timeout=20
        )
        await watch.read()
        method: Any = gate.running.channel.unary_stream("/grpc.health.v1.Health/Watch")
        health = method(b"", metadata=bearer(gate.acme), timeout=20)
        await health.read()
        revoke(gate, gate.acme)
        codes = [await each.code() for each in (watch, health)]
        assert "is revoked" in (await watch.details() or "")
    assert codes == [UNAUTHENTICATED] * 2


async def test_a_watcher_of_others_ends_when_its_tenant_is_no_admin_any_more(tmp_path):
    async with gated(tmp_path) as gate:
        events = event_service_pb2_grpc.EventServiceStub(gate.running.channel)
        watches = []
        for tenant in ("*", "acme", ""):
            request = event_service_pb2.WatchEventsRequest(
                filter=event_service_pb2.EventFilter(tenant=tenant)
            )
            watches.append(events.WatchEvents(request, metadata=bearer(gate.ops), timeout=20))
            await watches[-1].read()
        keeper: Any = gate.running.server.gate.keeper
        authenticator = keeper.stays._why_ended.__self__
        authenticator.tenants = {**authenticator.tenants, "ops": Tenant(name="ops")}
        codes = [await each.code() for each in watches[:2]]
        assert "is no admin any more" in (await watches[0].details() or "")
        assert not watches[2].done()
        await gate.running.stub.Complete(asking(), metadata=bearer(gate.ops), timeout=5)
        told: Any = await watches[2].read()
        assert len(told.events) > 0
    assert codes == [UNAUTHENTICATED] * 2


async def test_other_callers_stay(tmp_path):
    mine, yours = Hold(), Hold()
    scripts: list[list[Any]] = [[Written(), opening(), hold] for hold in (yours, mine)]
    driver = ScriptedDriver(*scripts)
    async with gated(tmp_path, driver=driver) as gate:
        theirs = gate.running.stub.StreamComplete(streaming(), metadata=bearer(gate.ops), timeout=20)
        await yours.reached.wait()
        ours = gate.running.stub.StreamComplete(streaming(), metadata=bearer(gate.acme), timeout=20)
        await mine.reached.wait()
        revoke(gate, gate.acme)
        _, error = await read_all(ours)
        assert error is not None
        assert error.code() is ABORTED
        assert not theirs.done()


async def test_a_stream_ends_when_its_jwt_does(tmp_path):
    async with gated(tmp_path, driver=stuck()) as gate:
        token = gate.issuer.token(exp=int(time.time()) + 2)
        call = gate.running.stub.StreamComplete(streaming(), metadata=bearer(token), timeout=20)
        _, error = await read_all(call)
    assert error is not None
    assert "the token has expired" in (error.details() or "")


async def test_a_session_of_a_revoked_token_ends_and_says_why(tmp_path):
    async with gated(tmp_path) as gate:
        call = gate.running.stub.Session(metadata=bearer(gate.acme), timeout=20)
        await call.write(model_service_pb2.SessionRequest(open=session_pb2.SessionOpen(model="claude")))
        opened: Any = await call.read()
        revoke(gate, gate.acme)
        ended: Any = await call.read()
        code = await call.code()
    assert opened.WhichOneof("event") == "opened"
    assert ended.ended.reason == session_pb2.SESSION_END_REASON_CREDENTIAL_ENDED
    assert "is revoked" in ended.ended.detail
    assert code is UNAUTHENTICATED


def principal(**proof) -> Principal:
    return Principal(tenant=TENANTS[1], subject="s", **proof)


@pytest.mark.parametrize(
    ("proof", "words"),
    [
        ({}, ""),
        ({"expires_at": 101.0}, ""),
        ({"expires_at": 100.0}, "has expired"),
        ({"certificate": "dns:a"}, ""),
        ({"certificate": "dns:b"}, "stands for this tenant no longer"),
        ({"certificate": "dns:c"}, "stands for this tenant no longer"),
        ({"token_id": "unknown"}, "no token of this deployment any more"),
    ],
)
def test_why_somebody_may_stay_no_longer(tmp_path, proof, words):
    gate = CallerAuthenticator(
        TENANTS,
        tokens=token_file.TokenFile(tmp_path / "t.json"),
        certificates={"dns:a": "acme", "dns:b": "other"},
        now=lambda: 100.0,
    )
    why = gate.why_ended(principal(**proof))
    assert (words in why, bool(words)) == (True, bool(why))


def test_a_tenant_that_is_taken_out_of_the_configuration_may_stay_no_longer(tmp_path):
    gate = CallerAuthenticator(TENANTS, tokens=token_file.TokenFile(tmp_path / "t.json"))
    assert gate.why_ended(principal()) == ""
    gate.reconfigure(CallerAuthenticator([Tenant(name="new")], jwt=Issuer().verifier()))
    assert "not configured here any more" in gate.why_ended(principal())
    assert (set(gate.tenants), gate.tokens) == ({"new"}, None)


async def test_what_does_not_end_when_it_is_cut_is_cancelled(monkeypatch):
    monkeypatch.setattr(staying, "GRACE_SECONDS", 0.01)
    told: list[str] = []

    async def deaf() -> None:
        task = asyncio.current_task()
        assert task is not None
        stay = Stay(principal(), task)
        stay.on_end(told.append)
        stay.end("over")
        stay.end("again")
        await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(deaf())
    assert told == ["over"]


async def test_nobody_is_looked_at_once_all_have_left():
    looked = asyncio.Event()

    def why(_each: Principal, _as_admin: bool) -> str:
        looked.set()
        return ""

    stays: Any = Stays(why, 0.001)
    pair = [stays.enter(principal()) for _ in range(2)]
    assert len(stays) == 2
    await looked.wait()
    for stay in pair:
        stays.leave(stay)
    assert stays._looking is not None
    stays._looking.cancel()
    stays._look_on(asyncio.get_running_loop())
    assert (len(stays), stays._looking) == (0, None)
