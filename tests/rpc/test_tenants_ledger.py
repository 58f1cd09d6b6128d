"""Two tenants of one server and one ledger: neither sees, replays, erases or spends what is the other's."""

from __future__ import annotations

import uuid
from typing import Any

import grpc
import msgspec
import pytest

from modelmeter.v1 import ledger_service_pb2 as pb
from modelmeter.v1 import ledger_service_pb2_grpc, message_pb2
from modelmeter_server.core.requests import Sensitivity
from modelmeter_server.core.tenants import Tenant
from modelmeter_server.identity.authenticator import CallerAuthenticator
from modelmeter_server.identity.token_file import TokenFile
from modelmeter_server.rpc.identity import current_tenant
from tests.support.identities import bearer
from tests.support.running_server import MODEL, asking, serving
from tests.support.scripted_driver import ScriptedDriver, answering

ID = str(uuid.uuid4())
NAMES = ("acme", "other")


@pytest.fixture
def held(tmp_path):
    """Return the gate to two tenants, and what the callers of each send."""
    tokens = TokenFile(tmp_path / "tokens.json")
    sent = {name: bearer(tokens.create(name)[1]) for name in NAMES}
    return CallerAuthenticator([Tenant(name=name) for name in NAMES], tokens=tokens), sent


async def test_the_same_call_id_of_two_tenants_is_two_calls(ledger, held):
    gate, sent = held
    driver = ScriptedDriver(answering("one"))
    async with serving(driver, ledger=ledger, rpc={"authenticator": gate}) as running:
        for _ in range(2):
            for name in NAMES:
                await running.stub.Complete(asking(name, call_id=ID), timeout=10, metadata=sent[name])
    assert len(driver.calls) == 2


async def test_no_question_to_the_ledger_tells_of_another_tenant(ledger, held):
    gate, sent = held
    async with serving(ScriptedDriver(answering()), ledger=ledger, rpc={"authenticator": gate}) as running:
        await running.stub.Complete(asking(call_id=ID), timeout=10, metadata=sent["acme"])
        stub: Any = ledger_service_pb2_grpc.LedgerServiceStub(running.channel)
        ceiling = pb.Ceiling(subject=pb.Subject(scope=pb.Subject.SCOPE_RUN, name="r"), tokens=10**9)
        made = await stub.SetCeiling(pb.SetCeilingRequest(ceiling=ceiling), timeout=10, metadata=sent["acme"])
        halt = pb.Halt(subject=pb.Subject(scope=pb.Subject.SCOPE_RUN, name="r"), reason="stop")
        await stub.SetHalt(pb.SetHaltRequest(halt=halt), timeout=10, metadata=sent["acme"])
        seen = {name: await _counts(stub, sent[name], made.ceiling.ceiling_id) for name in NAMES}
        erased = await stub.EraseContent(
            pb.EraseContentRequest(call_id=ID), timeout=10, metadata=sent["other"]
        )
        still = await stub.GetCall(pb.GetCallRequest(call_id=ID), timeout=10, metadata=sent["acme"])
    assert seen["acme"] == (grpc.StatusCode.OK, grpc.StatusCode.OK, grpc.StatusCode.OK, 1, 1, 1, 1)
    missing = grpc.StatusCode.NOT_FOUND
    assert seen["other"] == (missing, missing, missing, 0, 0, 0, 0)
    assert erased.calls == 0
    assert still.call.call_id == ID


async def _counts(stub: Any, metadata: Any, ceiling_id: str) -> tuple[Any, ...]:
    """Return how questions by name end, and how much the lists hold."""
    answer = stub.ReadAnswer(pb.ReadAnswerRequest(call_id=ID), timeout=10, metadata=metadata)
    try:
        await answer.read()
        read = grpc.StatusCode.OK
    except grpc.aio.AioRpcError as error:
        read = error.code()
    asked = {"timeout": 10, "metadata": metadata}
    return (
        await stub.GetCall(pb.GetCallRequest(call_id=ID), **asked).code(),
        read,
        await stub.GetCeiling(pb.GetCeilingRequest(ceiling_id=ceiling_id), **asked).code(),
        len((await stub.ListCalls(pb.ListCallsRequest(), **asked)).calls),
        len((await stub.ListCeilings(pb.ListCeilingsRequest(), **asked)).ceilings),
        len((await stub.ListHalts(pb.ListHaltsRequest(), **asked)).halts),
        len((await stub.GetSpend(pb.GetSpendRequest(), **asked)).spend),
    )


async def test_an_answer_keeps_its_label_and_is_never_below_the_prompt_that_repeats_it(ledger):
    model = msgspec.structs.replace(
        MODEL, max_sensitivity=Sensitivity.SECRET, output_sensitivity=Sensitivity.PUBLIC
    )
    levels = [
        message_pb2.SENSITIVITY_CONFIDENTIAL,
        message_pb2.SENSITIVITY_PUBLIC,
        message_pb2.SENSITIVITY_SECRET,
    ]
    async with serving(ScriptedDriver(answering()), models=[model], ledger=ledger) as running:
        labels = [
            (await running.ask(call_id=ID, sensitivity=level)).completion.sensitivity for level in levels
        ]
        stub: Any = ledger_service_pb2_grpc.LedgerServiceStub(running.channel)
        full = pb.GetCallRequest(call_id=ID, view=pb.CALL_VIEW_FULL)
        kept = (await stub.GetCall(full, timeout=10)).call.completion.sensitivity
    assert labels == [levels[0], levels[0], levels[2]]
    assert kept == levels[0]


def test_outside_of_an_rpc_nobody_is_taken_for_somebody():
    with pytest.raises(LookupError):
        current_tenant()
