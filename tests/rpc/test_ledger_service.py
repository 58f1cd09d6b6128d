"""The record of calls, sums and content over a real channel, with a real ledger behind it."""

from __future__ import annotations

from typing import Any

import grpc
import msgspec
import pytest

from modelmeter.v1 import completion_pb2, error_pb2, ledger_service_pb2_grpc, model_service_pb2, usage_pb2
from modelmeter.v1 import ledger_service_pb2 as pb
from modelmeter_server.core.errors import failure
from modelmeter_server.core.outcomes import Cause, Kind
from modelmeter_server.ledger.ledger import LedgerUnavailable
from modelmeter_server.rpc import call_records
from tests.support.ledgers import Interruptible
from tests.support.running_server import MODEL, Details, asking, serving
from tests.support.scripted_driver import (
    Hold,
    ScriptedDriver,
    Step,
    Verdict,
    Written,
    answering,
    closing,
    opening,
    text,
)

CALL_ID = "6f2c1c9b-5b0c-4f7e-8a86-6b1c9f0e2d11"


def stub_of(running) -> ledger_service_pb2_grpc.LedgerServiceAsyncStub:
    return ledger_service_pb2_grpc.LedgerServiceStub(running.channel)


async def refused(call) -> tuple[grpc.StatusCode, Details]:
    """Return how an RPC was refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), Details(caught.value)


async def test_a_call_can_be_looked_up_after_its_end(ledger):
    async with serving(ScriptedDriver(answering()), ledger=ledger) as running:
        told = (await running.ask(call_id=CALL_ID, labels={"team": "blue"})).completion
        call = (await stub_of(running).GetCall(pb.GetCallRequest(call_id=CALL_ID.upper()))).call
    assert (call.call_id, call.generation, call.model_asked, call.target) == (
        CALL_ID,
        1,
        "claude",
        "scripted",
    )
    assert (call.state, call.finish) == (pb.CALL_STATE_SETTLED, completion_pb2.FINISH_STOP)
    assert call.disposition == error_pb2.DISPOSITION_LANDED
    assert (call.usage, call.certainty) == (told.usage, usage_pb2.CERTAINTY_EXACT)
    assert call.booking.settled.tokens == told.usage.input_tokens + told.usage.output_tokens
    assert dict(call.labels) == {"team": "blue"}
    assert call.reserve_time.seconds <= call.end_time.seconds
    assert call.content == pb.CONTENT_STATE_KEPT
    assert not call.HasField("completion")


async def test_the_full_view_has_the_attempts_and_the_answer(ledger):
    request = pb.GetCallRequest(call_id=CALL_ID, view=pb.CALL_VIEW_FULL)
    async with serving(ScriptedDriver(answering()), ledger=ledger) as running:
        told = (await running.ask(call_id=CALL_ID)).completion
        call = (await stub_of(running).GetCall(request)).call
    assert call.completion.text == told.text
    assert call.completion.replayed
    assert call.completion.settled
    assert [attempt.number for attempt in call.attempts] == [1]


async def test_a_failure_is_recorded_with_its_verdict(ledger):
    verdict = failure(Kind.RATE_LIMITED, "too much", cause=Cause.PROVIDER, http_status=429)
    async with serving(ScriptedDriver([Verdict(verdict)]), ledger=ledger) as running:
        await running.error(call_id=CALL_ID)
        call = (await stub_of(running).GetCall(pb.GetCallRequest(call_id=CALL_ID))).call
    assert (call.kind, call.http_status) == (error_pb2.ERROR_KIND_RATE_LIMITED, 429)
    assert call.certainty == usage_pb2.CERTAINTY_NONE
    assert call.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    assert call.finish == completion_pb2.FINISH_UNSPECIFIED


async def test_an_unknown_call_is_not_found(ledger):
    async with serving(ScriptedDriver(), ledger=ledger) as running:
        code, details = await refused(stub_of(running).GetCall(pb.GetCallRequest(call_id=CALL_ID)))
    assert code is grpc.StatusCode.NOT_FOUND
    assert details.resource.resource_type == "modelmeter.v1.CallRecord"


async def test_every_mistake_of_a_question_is_told_at_once(ledger):
    request = pb.ListCallsRequest(
        page_size=-1,
        page_token="x",
        view=99,  # type: ignore[arg-type]
        filter=pb.CallFilter(effect_key="k", states=[99], kinds=[99]),  # type: ignore[list-item]
    )
    request.filter.start_time.seconds = -1
    async with serving(ScriptedDriver(answering()), ledger=ledger) as running:
        code, details = await refused(stub_of(running).ListCalls(request))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert {violation.field for violation in details.bad_request.field_violations} == {
        "view",
        "page_size",
        "page_token",
        "filter.effect_key",
        "filter.states",
        "filter.kinds",
        "filter.start_time",
    }


async def test_calls_are_listed_newest_first_page_by_page(ledger):
    async with serving(ScriptedDriver(*[answering()] * 5), ledger=ledger) as running:
        ids = [(await running.ask()).completion.call_id for _ in range(5)]
        request, found = pb.ListCallsRequest(page_size=2), []
        while True:
            page = await stub_of(running).ListCalls(request)
            found.append([call.call_id for call in page.calls])
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
    ids.reverse()
    assert found == [ids[:2], ids[2:4], ids[4:]]


async def test_a_filter_narrows_by_label_kind_and_outcome(ledger):
    refusal = Verdict(failure(Kind.RATE_LIMITED, "too much"))
    async with serving(ScriptedDriver(answering(), [refusal]), ledger=ledger) as running:
        await running.ask(labels={"team": "blue"})
        await running.error(labels={"team": "red"})
        listed = stub_of(running).ListCalls
        blue = await listed(pb.ListCallsRequest(filter=pb.CallFilter(labels={"team": "blue"})))
        limited = await listed(
            pb.ListCallsRequest(filter=pb.CallFilter(kinds=[error_pb2.ERROR_KIND_RATE_LIMITED]))
        )
        answered = await listed(pb.ListCallsRequest(filter=pb.CallFilter(answered=True)))
    assert [dict(call.labels) for call in blue.calls] == [{"team": "blue"}]
    assert [dict(call.labels) for call in limited.calls] == [{"team": "red"}]
    assert [call.call_id for call in answered.calls] == [blue.calls[0].call_id]


async def test_an_answer_is_read_in_parts_that_make_the_whole(ledger):
    request = pb.ReadAnswerRequest(call_id=CALL_ID)
    async with serving(ScriptedDriver(answering("x" * 3_000_000)), ledger=ledger) as running:
        await running.ask(call_id=CALL_ID)
        received = [part async for part in stub_of(running).ReadAnswer(request)]
        full = pb.GetCallRequest(call_id=CALL_ID, view=pb.CALL_VIEW_FULL)
        assert not (await stub_of(running).GetCall(full)).call.HasField("completion")
    data = b"".join(part.part for part in received)
    assert {part.total_bytes for part in received} == {len(data)}
    assert max(len(part.part) for part in received) == 1024 * 1024
    assert completion_pb2.Completion.FromString(data).text == "x" * 3_000_000


async def test_erased_content_is_gone_and_figures_stay(ledger):
    async with serving(ScriptedDriver(answering()), ledger=ledger) as running:
        stub = stub_of(running)
        await running.ask(call_id=CALL_ID)
        before = (await stub.GetCall(pb.GetCallRequest(call_id=CALL_ID))).call
        assert (await stub.EraseContent(pb.EraseContentRequest(call_id=CALL_ID))).calls == 1
        assert (await stub.EraseContent(pb.EraseContentRequest(everything=True))).calls == 0
        after = (await stub.GetCall(pb.GetCallRequest(call_id=CALL_ID))).call
        code, details = await refused(read_one(stub, CALL_ID))
    assert after.content == pb.CONTENT_STATE_ERASED
    assert (after.usage, after.booking) == (before.usage, before.booking)
    assert (code, details.info.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "OUTCOME_GONE")


async def read_one(stub, call_id: str):
    return [part async for part in stub.ReadAnswer(pb.ReadAnswerRequest(call_id=call_id))]


async def test_a_call_without_an_answer_has_none_to_read(ledger):
    refusal = Verdict(failure(Kind.RATE_LIMITED, "too much"))
    async with serving(ScriptedDriver([refusal]), ledger=ledger) as running:
        await running.error(call_id=CALL_ID)
        code, details = await refused(read_one(stub_of(running), CALL_ID))
    assert (code, details.info.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NO_ANSWER")


async def test_spend_is_told_by_model_label_and_kind(ledger):
    refusal = Verdict(failure(Kind.RATE_LIMITED, "too much"))
    async with serving(ScriptedDriver(answering(), answering(), [refusal]), ledger=ledger) as running:
        first = (await running.ask(labels={"team": "blue"})).completion.usage
        await running.ask(labels={"team": "red"})
        await running.error()
        stub = stub_of(running)
        whole = (await stub.GetSpend(pb.GetSpendRequest())).spend
        by_model = (await stub.GetSpend(pb.GetSpendRequest(group_by=spend_by("MODEL")))).spend
        by_kind = (await stub.GetSpend(pb.GetSpendRequest(group_by=spend_by("KIND")))).spend
        blue = pb.GetSpendRequest(group_by=spend_by("LABEL"), label="team", values=["blue"])
        by_label = (await stub.GetSpend(blue)).spend
    assert [each.calls for each in whole] == [3]
    assert [(each.value, each.settled) for each in by_model] == [("claude", whole[0].settled)]
    assert {each.value: each.calls for each in by_kind} == {"ANSWERED": 2, "RATE_LIMITED": 1}
    assert [(each.value, each.input_tokens) for each in by_label] == [("blue", first.input_tokens)]


def spend_by(word: str) -> Any:
    return pb.GetSpendRequest.GroupBy.Value(f"GROUP_BY_{word}")


async def test_spend_is_cut_by_day_and_paged(ledger):
    models = ("a", "b", "c")
    specs = [msgspec.structs.replace(MODEL, name=name) for name in models]
    async with serving(ScriptedDriver(*[answering()] * 3), ledger=ledger, models=specs) as running:
        for name in models:
            await running.ask(model=name)
        request = pb.GetSpendRequest(
            group_by=spend_by("MODEL"),
            period=pb.GetSpendRequest.PERIOD_DAY,
            page_size=2,
            time_zone="Europe/Berlin",
        )
        first = await stub_of(running).GetSpend(request)
        request.page_token = first.next_page_token
        second = await stub_of(running).GetSpend(request)
    assert [each.value for each in (*first.spend, *second.spend)] == list(models)
    assert all(each.HasField("period_start") for each in first.spend)
    assert second.next_page_token == ""


async def test_a_server_without_a_ledger_says_so():
    async with serving(ScriptedDriver(answering())) as running:
        code, details = await refused(stub_of(running).GetCall(pb.GetCallRequest(call_id=CALL_ID)))
    assert (code, details.info.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NO_LEDGER")


async def test_a_database_that_is_away_is_ledger_down(ledger):
    class Away(Interruptible):
        async def order(self, command):
            raise LedgerUnavailable("the disk is full")

        async def read(self, query):
            raise LedgerUnavailable("the disk is full")

    away = Away(ledger, is_up=False)
    async with serving(ScriptedDriver(answering()), ledger=away) as running:
        code, details = await refused(stub_of(running).DeleteCeiling(pb.DeleteCeilingRequest()))
        read, _ = await refused(stub_of(running).GetSpend(pb.GetSpendRequest()))
    assert read is grpc.StatusCode.UNAVAILABLE
    assert (code, details.info.reason) == (grpc.StatusCode.UNAVAILABLE, "LEDGER_DOWN")


async def test_a_call_that_runs_can_be_looked_up(ledger):
    hold = Hold()
    steps: list[Step] = [Written(), opening(), text("Hel"), hold, text("lo"), closing()]
    async with serving(ScriptedDriver(steps), ledger=ledger) as running:
        call = running.stub.Complete(asking(call_id=CALL_ID), timeout=10)
        await hold.reached.wait()
        found = (await stub_of(running).GetCall(pb.GetCallRequest(call_id=CALL_ID))).call
        code, details = await refused(read_one(stub_of(running), CALL_ID))
        hold.go.set()
        await call
    assert found.state == pb.CALL_STATE_DISPATCHED
    assert found.booking.held.tokens > 0
    assert not found.HasField("end_time")
    assert (code, details.info.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "STILL_RUNNING")
    assert isinstance(await call, model_service_pb2.CompleteResponse)


def refusing(body: bytes) -> list[Step]:
    """The provider says no, with this body."""
    verdict = failure(Kind.REFUSED, "no", cause=Cause.PROVIDER, http_status=400, provider_body=body)
    return [Written(), Verdict(verdict)]


async def test_the_body_of_a_refusal_is_kept_for_the_operator_until_the_call_is_sent_again(ledger):
    request = pb.GetCallRequest(call_id=CALL_ID, view=pb.CALL_VIEW_FULL)
    hold = Hold()
    driver = ScriptedDriver(refusing(b"why not"), [Written(), hold, *answering()[1:]])
    async with serving(driver, ledger=ledger) as running:
        await running.error(call_id=CALL_ID)
        refused_call = (await stub_of(running).GetCall(request)).call
        running.stub.Complete(asking(call_id=CALL_ID))
        await hold.reached.wait()
        sent_again = (await stub_of(running).GetCall(request)).call
    assert refused_call.provider_body == b"why not"
    assert refused_call.content == pb.CONTENT_STATE_KEPT
    assert (sent_again.provider_body, sent_again.HasField("completion")) == (b"", False)


async def test_the_body_of_a_refusal_can_be_erased_and_the_call_be_sent_again(ledger):
    request = pb.GetCallRequest(call_id=CALL_ID, view=pb.CALL_VIEW_FULL)
    async with serving(ScriptedDriver(refusing(b"why not"), answering()), ledger=ledger) as running:
        await running.error(call_id=CALL_ID)
        erased = await stub_of(running).EraseContent(pb.EraseContentRequest(call_id=CALL_ID))
        refused_call = (await stub_of(running).GetCall(request)).call
        answer = (await running.ask(call_id=CALL_ID)).completion
        call = (await stub_of(running).GetCall(request)).call
    assert (erased.calls, refused_call.provider_body) == (1, b"")
    assert (answer.text, call.completion.text, call.content) == ("Hello.", "Hello.", pb.CONTENT_STATE_KEPT)


async def test_a_page_of_large_records_ends_before_it_is_too_large_to_receive(ledger, monkeypatch):
    monkeypatch.setattr(call_records, "MESSAGE_BYTES", 2_000)
    labels = {"k": "x" * 256}
    async with serving(ScriptedDriver(answering()), ledger=ledger) as running:
        told = {(await running.ask(labels=labels)).completion.call_id for _ in range(9)}
        listed: list[str] = []
        sizes: list[int] = []
        token = ""
        while token or not listed:
            page = await stub_of(running).ListCalls(pb.ListCallsRequest(page_token=token))
            listed += [call.call_id for call in page.calls]
            sizes.append(len(page.calls))
            token = page.next_page_token
    assert (len(listed), set(listed)) == (9, told)
    assert 1 <= max(sizes) < 9
