"""Ceilings and halts set, told and cleared over a real channel."""

from __future__ import annotations

import grpc

from modelmeter.v1 import ledger_service_pb2 as pb
from tests.rpc.test_ledger_service import refused, stub_of
from tests.support.running_server import Details, serving
from tests.support.scripted_driver import ScriptedDriver, answering

TENANT = pb.Subject(scope=pb.Subject.SCOPE_TENANT)


async def test_a_ceiling_is_kept_told_with_its_standing_and_obeyed(ledger):
    async with serving(ScriptedDriver(answering()), ledger=ledger) as running:
        stub = stub_of(running)
        used = (await running.ask()).completion.usage
        asked = pb.Ceiling(subject=TENANT, tokens=100, window=pb.Window(kind=pb.Window.KIND_DAY))
        kept = (await stub.SetCeiling(pb.SetCeilingRequest(ceiling=asked))).ceiling
        error = await running.error()
        got = (await stub.GetCeiling(pb.GetCeilingRequest(ceiling_id=kept.ceiling_id))).ceiling
        listed = (await stub.ListCeilings(pb.ListCeilingsRequest())).ceilings
    (standing,) = got.standings
    assert (standing.allowed, standing.settled) == (100, used.input_tokens + used.output_tokens)
    assert (kept.subject, kept.tokens, kept.window.time_zone) == (TENANT, 100, "UTC")
    assert list(listed) == [got]
    assert Details(error).model_error.standings[0].ceiling_id == kept.ceiling_id


async def test_a_ceiling_set_again_keeps_its_id(ledger):
    async with serving(ScriptedDriver(), ledger=ledger) as running:
        stub = stub_of(running)
        ids = [
            (
                await stub.SetCeiling(pb.SetCeilingRequest(ceiling=pb.Ceiling(subject=TENANT, tokens=tokens)))
            ).ceiling.ceiling_id
            for tokens in (1, 2)
        ]
        (only,) = (await stub.ListCeilings(pb.ListCeilingsRequest())).ceilings
    assert ids[0] == ids[1] == only.ceiling_id
    assert only.tokens == 2


async def test_a_deleted_ceiling_bounds_nothing_and_is_not_found(ledger):
    async with serving(ScriptedDriver(answering()), ledger=ledger) as running:
        stub = stub_of(running)
        request = pb.SetCeilingRequest(ceiling=pb.Ceiling(subject=TENANT, tokens=0))
        gone = (await stub.SetCeiling(request)).ceiling.ceiling_id
        await stub.DeleteCeiling(pb.DeleteCeilingRequest(ceiling_id=gone))
        await running.ask()
        code, details = await refused(stub.DeleteCeiling(pb.DeleteCeilingRequest(ceiling_id=gone)))
        got, _ = await refused(stub.GetCeiling(pb.GetCeilingRequest(ceiling_id=gone)))
    assert code is got is grpc.StatusCode.NOT_FOUND
    assert (details.resource.resource_type, details.resource.resource_name) == ("modelmeter.v1.Ceiling", gone)


async def test_every_mistake_of_a_ceiling_is_told_at_once(ledger):
    wrong = pb.Ceiling(
        subject=pb.Subject(scope=pb.Subject.SCOPE_TENANT, name="x"),
        window=pb.Window(kind=pb.Window.KIND_ROLLING, time_zone="Mars/Olympus"),
        tokens=-1,
        nano_units=1,
        currency="usd",
    )
    async with serving(ScriptedDriver(), ledger=ledger) as running:
        code, details = await refused(stub_of(running).SetCeiling(pb.SetCeilingRequest(ceiling=wrong)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert {violation.field for violation in details.bad_request.field_violations} == {
        "ceiling.subject.name",
        "ceiling.window.time_zone",
        "ceiling.window.length",
        "ceiling.tokens",
        "ceiling.currency",
    }


async def test_a_ceiling_without_a_bound_or_a_subject_is_refused(ledger):
    async with serving(ScriptedDriver(), ledger=ledger) as running:
        _, details = await refused(stub_of(running).SetCeiling(pb.SetCeilingRequest()))
    fields = {violation.field for violation in details.bad_request.field_violations}
    assert fields == {"ceiling", "ceiling.subject.scope"}


async def test_a_halt_stops_new_calls_until_it_is_cleared(ledger):
    subject = pb.Subject(scope=pb.Subject.SCOPE_MODEL, name="claude")
    async with serving(ScriptedDriver(answering()), ledger=ledger) as running:
        stub = stub_of(running)
        halt = pb.Halt(subject=subject, reason="budget review")
        kept = (await stub.SetHalt(pb.SetHaltRequest(halt=halt))).halt
        error = await running.error()
        listed = (await stub.ListHalts(pb.ListHaltsRequest())).halts
        await stub.ClearHalt(pb.ClearHaltRequest(subject=subject))
        await running.ask()
        code, _ = await refused(stub.ClearHalt(pb.ClearHaltRequest(subject=subject)))
    assert Details(error).info.reason == "HALTED"
    assert (kept.mode, kept.reason) == (pb.HALT_MODE_ADMISSION, "budget review")
    assert list(listed) == [kept]
    assert code is grpc.StatusCode.NOT_FOUND


async def test_halts_are_paged(ledger):
    async with serving(ScriptedDriver(), ledger=ledger) as running:
        stub = stub_of(running)
        for name in ("a", "b", "c"):
            subject = pb.Subject(scope=pb.Subject.SCOPE_RUN, name=name)
            await stub.SetHalt(pb.SetHaltRequest(halt=pb.Halt(subject=subject)))
        first = await stub.ListHalts(pb.ListHaltsRequest(page_size=2))
        rest = await stub.ListHalts(pb.ListHaltsRequest(page_token=first.next_page_token))
    assert [halt.subject.name for halt in (*first.halts, *rest.halts)] == ["a", "b", "c"]
    assert rest.next_page_token == ""
