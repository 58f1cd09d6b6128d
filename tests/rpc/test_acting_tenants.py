"""Who may bound, loosen and stop what: a tenant its own runs, an admin everything of any tenant."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

import modelmeter
from modelmeter.v1 import (
    event_pb2,
    event_service_pb2,
    event_service_pb2_grpc,
    ledger_service_pb2_grpc,
    usage_pb2,
)
from modelmeter.v1 import ledger_service_pb2 as pb
from tests.support.identities import bearer, gated
from tests.support.running_server import asking
from tests.support.scripted_driver import ScriptedDriver, answering

DENIED, NOT_FOUND, OK = (
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.OK,
)
TENANT, RUN, MODEL = pb.Subject.SCOPE_TENANT, pb.Subject.SCOPE_RUN, pb.Subject.SCOPE_MODEL
CALL = "6f2c1c9b-5b0c-4f7e-8a86-6b1c9f0e2d11"


class Desk:
    """A server with a ledger, asked as one of its tenants."""

    def __init__(self, gate) -> None:
        self.gate = gate
        self.stub = ledger_service_pb2_grpc.LedgerServiceStub(gate.running.channel)

    async def code(self, who: str, method: str, request) -> grpc.StatusCode:
        token = bearer(getattr(self.gate, who))
        return await getattr(self.stub, method)(request, metadata=token, timeout=5).code()

    async def ask(self, who: str, method: str, request):
        return await getattr(self.stub, method)(request, metadata=bearer(getattr(self.gate, who)), timeout=5)

    async def bound(self, who: str, scope: int, tokens: int = 1000, name: str = "", tenant: str = ""):
        return await self.ask(who, "SetCeiling", setting(scope, tokens, name, tenant))


def setting(scope: Any, tokens: int = 1000, name: str = "", tenant: str = "") -> pb.SetCeilingRequest:
    subject = pb.Subject(scope=scope, name=name)
    return pb.SetCeilingRequest(ceiling=pb.Ceiling(subject=subject, tokens=tokens), tenant=tenant)


@asynccontextmanager
async def desk(tmp_path, ledger, **options):
    async with gated(tmp_path, ledger=ledger, **options) as gate:
        yield Desk(gate)


async def test_a_tenant_bounds_its_own_runs_and_neither_itself_nor_its_models(tmp_path, ledger):
    async with desk(tmp_path, ledger) as at:
        codes = {
            scope: await at.code("acme", "SetCeiling", setting(scope, name=name))
            for scope, name in ((TENANT, ""), (MODEL, "claude"), (RUN, "r1"))
        }
        kept = await at.ask("acme", "ListCeilings", pb.ListCeilingsRequest())
    assert codes == {TENANT: DENIED, MODEL: DENIED, RUN: OK}
    assert [(each.subject.name, each.by_admin) for each in kept.ceilings] == [("r1", False)]


@pytest.mark.parametrize(("scope", "name"), [(TENANT, ""), (MODEL, "claude"), (RUN, ""), (RUN, "r1")])
async def test_what_an_admin_bounded_a_tenant_neither_raises_nor_deletes(tmp_path, ledger, scope, name):
    async with desk(tmp_path, ledger) as at:
        made = (await at.bound("ops", scope, 10, name, tenant="acme")).ceiling
        raised = await at.code("acme", "SetCeiling", setting(scope, 10**9, name))
        deleted = await at.code("acme", "DeleteCeiling", pb.DeleteCeilingRequest(ceiling_id=made.ceiling_id))
        after = (await at.ask("acme", "GetCeiling", pb.GetCeilingRequest(ceiling_id=made.ceiling_id))).ceiling
    assert (raised, deleted) == (DENIED, DENIED)
    assert (after.tokens, after.by_admin) == (10, True)


async def test_a_tenant_changes_and_deletes_what_it_set_itself_and_an_admin_may_too(tmp_path, ledger):
    async with desk(tmp_path, ledger) as at:
        for who, tenant in (("acme", ""), ("ops", "acme")):
            made = (await at.bound("acme", RUN, 10, "r")).ceiling
            assert (await at.bound("acme", RUN, 20, "r")).ceiling.ceiling_id == made.ceiling_id
            request = pb.DeleteCeilingRequest(ceiling_id=made.ceiling_id, tenant=tenant)
            assert await at.code(who, "DeleteCeiling", request) is OK


async def test_a_run_ceiling_above_the_tenants_own_gives_no_room(tmp_path, ledger):
    async with desk(tmp_path, ledger) as at:
        await at.bound("ops", TENANT, 1, tenant="acme")
        await at.bound("acme", RUN, 10**9, "r")
        request = asking(effect={"run_id": "r", "key": "k"})
        call = at.gate.running.stub.Complete(request, metadata=bearer(at.gate.acme), timeout=5)
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert at.gate.running.driver.calls == []


@pytest.mark.parametrize("mode", [pb.HALT_MODE_ADMISSION, pb.HALT_MODE_CUT])
async def test_a_halt_of_an_admin_is_neither_cleared_nor_replaced_by_its_tenant(tmp_path, ledger, mode):
    halt = pb.Halt(subject=pb.Subject(scope=TENANT), mode=mode, reason="overdue")
    async with desk(tmp_path, ledger) as at:
        await at.ask("ops", "SetHalt", pb.SetHaltRequest(halt=halt, tenant="acme"))
        clear = pb.ClearHaltRequest(subject=halt.subject)
        replace = pb.SetHaltRequest(halt=pb.Halt(subject=halt.subject, reason="mine"))
        assert await at.code("acme", "ClearHalt", clear) is DENIED
        assert await at.code("acme", "SetHalt", replace) is DENIED
        (kept,) = (await at.ask("acme", "ListHalts", pb.ListHaltsRequest())).halts
        assert (kept.reason, kept.by_admin, kept.mode) == ("overdue", True, mode)
        clear.tenant = "acme"
        assert await at.code("ops", "ClearHalt", clear) is OK


async def test_a_tenant_stops_itself_and_goes_on_again(tmp_path, ledger):
    halt = pb.Halt(subject=pb.Subject(scope=TENANT))
    async with desk(tmp_path, ledger) as at:
        assert await at.code("acme", "SetHalt", pb.SetHaltRequest(halt=halt)) is OK
        assert await at.code("acme", "ClearHalt", pb.ClearHaltRequest(subject=halt.subject)) is OK
        assert await at.code("acme", "ClearHalt", pb.ClearHaltRequest(subject=halt.subject)) is NOT_FOUND


def requests(tenant: str) -> dict:
    """Return a request of every method of the ledger about a tenant."""
    subject, figure = pb.Subject(scope=RUN, name="r"), None
    return {
        "GetCall": pb.GetCallRequest(call_id=CALL, tenant=tenant),
        "ListCalls": pb.ListCallsRequest(tenant=tenant),
        "ReadAnswer": pb.ReadAnswerRequest(call_id=CALL, tenant=tenant),
        "GetSpend": pb.GetSpendRequest(tenant=tenant),
        "SetCeiling": setting(RUN, name="r", tenant=tenant),
        "GetCeiling": pb.GetCeilingRequest(ceiling_id=CALL, tenant=tenant),
        "ListCeilings": pb.ListCeilingsRequest(tenant=tenant),
        "DeleteCeiling": pb.DeleteCeilingRequest(ceiling_id=CALL, tenant=tenant),
        "ReconcileCall": pb.ReconcileCallRequest(call_id=CALL, figure=figure, tenant=tenant),
        "SetHalt": pb.SetHaltRequest(halt=pb.Halt(subject=subject), tenant=tenant),
        "ClearHalt": pb.ClearHaltRequest(subject=subject, tenant=tenant),
        "ListHalts": pb.ListHaltsRequest(tenant=tenant),
        "EraseContent": pb.EraseContentRequest(run_id="r", tenant=tenant),
    }


def test_every_method_of_the_ledger_has_a_request_here():
    service = pb.DESCRIPTOR.services_by_name["LedgerService"]
    assert set(requests("x")) == {method.name for method in service.methods}


@pytest.mark.parametrize("method", sorted(requests("")))
async def test_nobody_but_an_admin_names_another_tenant_whether_or_not_there_is_one(tmp_path, ledger, method):
    async with desk(tmp_path, ledger) as at:
        for tenant in ("other", "nobody", "*"):
            assert await at.code("acme", method, requests(tenant)[method]) is DENIED
        assert await at.code("acme", method, requests("acme")[method]) is not DENIED
        assert await at.code("ops", method, requests("acme")[method]) is not DENIED
        for bad in ("*", "a/b", "\n", "x" * 65):
            assert await at.code("ops", method, requests(bad)[method]) is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_admin_reads_and_bounds_another_tenants_calls_and_its_own_stay_apart(tmp_path, ledger):
    async with desk(tmp_path, ledger, driver=ScriptedDriver(answering())) as at:
        await at.gate.running.stub.Complete(asking(call_id=CALL), metadata=bearer(at.gate.acme), timeout=5)
        found = await at.ask("ops", "ListCalls", pb.ListCallsRequest(tenant="acme"))
        own = await at.ask("ops", "ListCalls", pb.ListCallsRequest())
        codes = {
            who: await at.code(who, "GetCall", pb.GetCallRequest(call_id=CALL))
            for who in ("acme", "other", "ops")
        }
        parts = [
            part
            async for part in at.stub.ReadAnswer(
                pb.ReadAnswerRequest(call_id=CALL, tenant="acme"), metadata=bearer(at.gate.ops)
            )
        ]
    assert ([each.call_id for each in found.calls], list(own.calls)) == ([CALL], [])
    assert codes == {"acme": OK, "other": NOT_FOUND, "ops": NOT_FOUND}
    assert len(parts) == 1


async def test_a_figure_of_ones_own_is_for_admins(tmp_path, ledger):
    figure = pb.OperatorFigure(
        usage=usage_pb2.Usage(input_tokens=1), certainty=usage_pb2.CERTAINTY_EXACT, reason="bill"
    )
    async with desk(tmp_path, ledger) as at:
        asked = asking(call_id=CALL)
        await at.gate.running.stub.Complete(asked, metadata=bearer(at.gate.acme), timeout=5)
        request = pb.ReconcileCallRequest(call_id=CALL, figure=figure)
        assert await at.code("acme", "ReconcileCall", request) is DENIED
        request.tenant = "acme"
        assert await at.code("ops", "ReconcileCall", request) is OK


async def test_an_admin_watches_all_tenants_and_another_one_only_itself(tmp_path, ledger):
    async with desk(tmp_path, ledger, driver=ScriptedDriver(answering(), answering())) as at:
        gate = at.gate
        for token in (gate.acme, gate.ops):
            await gate.running.stub.Complete(asking(), metadata=bearer(token), timeout=5)
        events = event_service_pb2_grpc.EventServiceStub(gate.running.channel)

        async def seen(token: str, tenant: str):
            wanted = event_service_pb2.EventFilter(kinds=["prompt.completed"], tenant=tenant)
            request = event_service_pb2.QueryEventsRequest(filter=wanted)
            page = await events.QueryEvents(request, metadata=bearer(token), timeout=5)
            insights = await events.GetInsights(
                event_service_pb2.GetInsightsRequest(tenant=tenant), metadata=bearer(token), timeout=5
            )
            return [event.tenant for event in page.events], insights.insights.calls

        assert await seen(gate.ops, "*") == (["ops", "acme"], 2)
        assert await seen(gate.ops, "acme") == (["acme"], 1)
        assert await seen(gate.ops, "") == (["ops"], 1)
        assert await seen(gate.acme, "acme") == (["acme"], 1)
        for tenant in ("*", "ops"):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await seen(gate.acme, tenant)
            assert caught.value.code() is DENIED
            watch = event_service_pb2.WatchEventsRequest(filter=event_service_pb2.EventFilter(tenant=tenant))
            assert await events.WatchEvents(watch, metadata=bearer(gate.acme), timeout=5).code() is DENIED


async def test_the_client_acts_for_another_tenant(tmp_path, ledger):
    async with desk(tmp_path, ledger) as at:
        async with modelmeter.AsyncClient(at.gate.address, token=at.gate.ops) as client:
            kept = await client.ledger.of("acme").set_ceiling("RUN", "r", tokens=5)
            found = await client.ledger.of("acme").ceilings()
            assert ([each.ceiling_id for each in found], kept.by_admin) == ([kept.ceiling_id], True)
            assert await client.ledger.ceilings() == []
            insights = await client.events.of("*").insights()
            assert insights.calls == 0
        async with modelmeter.AsyncClient(at.gate.address, token=at.gate.acme) as client:
            with pytest.raises(modelmeter.RefusedError) as caught:
                await client.ledger.of("other").ceilings()
            assert caught.value.code is DENIED


async def test_an_admin_who_watches_every_tenant_sees_whose_each_event_is(tmp_path):
    async with gated(tmp_path) as gate:
        events = event_service_pb2_grpc.EventServiceStub(gate.running.channel)
        wanted = event_service_pb2.WatchEventsRequest(filter=event_service_pb2.EventFilter(tenant="*"))
        watch = events.WatchEvents(wanted, metadata=bearer(gate.ops), timeout=20)
        await watch.read()
        for token in (gate.acme, gate.ops):
            await gate.running.stub.Complete(asking(), metadata=bearer(token), timeout=5)
        seen: list[event_pb2.Event] = []
        while len(seen) < 6:
            batch: Any = await watch.read()
            seen += batch.events
        watch.cancel()
    assert [(each.tenant, each.kind) for each in seen] == [
        (tenant, kind)
        for tenant in ("acme", "ops")
        for kind in ("prompt.started", "attempt", "prompt.completed")
    ]
