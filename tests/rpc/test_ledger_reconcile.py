"""Truer figures for ended calls, from the provider and from operators."""

from __future__ import annotations

import grpc
import pytest

from modelmeter.v1 import ledger_service_pb2 as pb
from modelmeter.v1 import usage_pb2
from modelmeter_server.core.errors import failure
from modelmeter_server.core.outcomes import Certainty, Kind, Stage
from modelmeter_server.core.usage import Usage
from modelmeter_server.drivers.lookup import EndedCall, LookupFailed, NotReconcilable, Told
from tests.rpc.test_ledger_service import CALL_ID, refused, stub_of
from tests.support.running_server import Details, serving
from tests.support.scripted_driver import (
    Broken,
    ScriptedDriver,
    Step,
    Written,
    answering,
    opening,
    text,
)

CUT: list[Step] = [Written(), opening(), text("Hel"), Broken()]
"""A call that ends in the dark: its input is told, its output is not."""

EXACT = pb.OperatorFigure(
    usage=usage_pb2.Usage(input_tokens=25, output_tokens=7),
    certainty=usage_pb2.CERTAINTY_EXACT,
    reason="invoice of May",
)


class TellingDriver(ScriptedDriver):
    """A provider that can be asked."""

    def __init__(self, *scripts, tells) -> None:
        super().__init__(*scripts)
        self.tells = tells
        self.asked: list[EndedCall] = []

    async def reconcile(self, call):
        self.asked.append(call)
        if isinstance(self.tells, Exception):
            raise self.tells
        return self.tells


async def cut_call(running) -> pb.CallRecord:
    await running.error(call_id=CALL_ID)
    return (await stub_of(running).GetCall(pb.GetCallRequest(call_id=CALL_ID))).call


async def test_an_operators_figure_replaces_the_bound(ledger):
    request = pb.ReconcileCallRequest(call_id=CALL_ID, figure=EXACT)
    async with serving(ScriptedDriver(CUT), ledger=ledger) as running:
        before = await cut_call(running)
        done = await stub_of(running).ReconcileCall(request)
        again = await stub_of(running).ReconcileCall(request)
    assert before.state == pb.CALL_STATE_UNSETTLED
    assert before.booking.unsettled.tokens > 0
    assert (done.raised, again.raised) == (True, False)
    assert (done.call.state, done.call.reconciled_by) == (
        pb.CALL_STATE_RECONCILED,
        pb.RECONCILER_OPERATOR,
    )
    assert (done.call.booking.settled.tokens, done.call.booking.unsettled.tokens) == (32, 0)
    assert done.call.reconcile_reason == "invoice of May"


async def test_the_provider_is_asked_with_the_id_of_its_answer(ledger):
    told = Told(usage=Usage(input_tokens=25, output_tokens=3), certainty=Certainty.EXACT)
    driver = TellingDriver(CUT, tells=told)
    async with serving(driver, ledger=ledger) as running:
        before = await cut_call(running)
        done = await stub_of(running).ReconcileCall(pb.ReconcileCallRequest(call_id=CALL_ID))
    assert [call.response_id for call in driver.asked] == [before.provider_response_id]
    assert done.call.reconciled_by == pb.RECONCILER_PROVIDER
    assert done.call.usage.output_tokens == 3
    assert done.call.certainty == usage_pb2.CERTAINTY_EXACT


@pytest.mark.parametrize(
    ("tells", "code", "reason"),
    [
        (NotReconcilable("no"), "FAILED_PRECONDITION", "NOT_RECONCILABLE"),
        (LookupFailed(failure(Kind.UNREACHABLE, "lost")), "UNAVAILABLE", "UNREACHABLE"),
        (LookupFailed(failure(Kind.RATE_LIMITED, "slow")), "RESOURCE_EXHAUSTED", "RATE_LIMITED"),
    ],
)
async def test_a_provider_that_does_not_tell_changes_nothing(ledger, tells, code, reason):
    async with serving(TellingDriver(CUT, tells=tells), ledger=ledger) as running:
        before = await cut_call(running)
        found, details = await refused(
            stub_of(running).ReconcileCall(pb.ReconcileCallRequest(call_id=CALL_ID))
        )
        after = (await stub_of(running).GetCall(pb.GetCallRequest(call_id=CALL_ID))).call
    assert (found.name, details.info.reason) == (code, reason)
    assert after == before


async def test_a_driver_that_cannot_be_asked_names_the_way_out(ledger):
    async with serving(ScriptedDriver(CUT), ledger=ledger) as running:
        await cut_call(running)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub_of(running).ReconcileCall(pb.ReconcileCallRequest(call_id=CALL_ID))
    assert Details(caught.value).info.reason == "NOT_RECONCILABLE"
    assert "book a figure with a reason" in (caught.value.details() or "")


async def test_every_mistake_of_a_figure_is_told_at_once(ledger):
    wrong = pb.OperatorFigure(usage=usage_pb2.Usage(reasoning_tokens=-1), nano_units=-1, reason=" ")
    request = pb.ReconcileCallRequest(call_id="x", generation=-1, figure=wrong)
    async with serving(ScriptedDriver(), ledger=ledger) as running:
        code, details = await refused(stub_of(running).ReconcileCall(request))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert {violation.field for violation in details.bad_request.field_violations} == {
        "call_id",
        "generation",
        "figure.certainty",
        "figure.reason",
        "figure.nano_units",
        "figure.currency",
        "figure.usage.reasoning_tokens",
        "figure.usage",
    }


async def test_a_call_that_was_never_sent_was_asked_of_no_provider_that_can_tell(ledger):
    verdict = failure(Kind.UNREACHABLE, "no route", stage=Stage.NOT_WRITTEN)
    from tests.support.scripted_driver import Verdict

    async with serving(ScriptedDriver([Verdict(verdict)]), ledger=ledger) as running:
        await running.error(call_id=CALL_ID)
        code, _ = await refused(stub_of(running).ReconcileCall(pb.ReconcileCallRequest(call_id=CALL_ID)))
    assert code is grpc.StatusCode.FAILED_PRECONDITION


async def test_an_operators_exact_figure_settles_what_an_earlier_dispatch_left_in_doubt(ledger):
    request = pb.ReconcileCallRequest(call_id=CALL_ID, figure=EXACT)
    async with serving(ScriptedDriver([Written(), Broken()], answering()), ledger=ledger) as running:
        await running.error(call_id=CALL_ID)
        await running.ask(call_id=CALL_ID)
        before = (await stub_of(running).GetCall(pb.GetCallRequest(call_id=CALL_ID))).call
        done = await stub_of(running).ReconcileCall(request)
        again = await stub_of(running).ReconcileCall(request)
    assert (before.state, before.booking.settled.tokens) == (pb.CALL_STATE_UNSETTLED, 34)
    assert before.booking.unsettled.tokens > 0
    assert (done.raised, again.raised) == (True, False)
    assert (done.call.state, done.call.booking.settled.tokens) == (pb.CALL_STATE_RECONCILED, 32)
    assert done.call.booking.unsettled.tokens == 0
