"""What no ledger can look up is the caller's mistake, with its field, on whichever database."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from modelmeter.v1 import ledger_service_pb2 as pb
from modelmeter_server.rpc.paging import page_token
from tests.rpc.test_ledger_service import CALL_ID, refused, stub_of
from tests.support.running_server import serving
from tests.support.scripted_driver import ScriptedDriver

NUL = "a\0b"

WITH_NUL = [
    ("ListCalls", pb.ListCallsRequest(filter=pb.CallFilter(run_id=NUL)), "filter.run_id"),
    ("ListCalls", pb.ListCallsRequest(filter=pb.CallFilter(labels={NUL: "x"})), "filter.labels"),
    ("ListCalls", pb.ListCallsRequest(filter=pb.CallFilter(labels={"x": NUL})), "filter.labels"),
    (
        "GetSpend",
        pb.GetSpendRequest(values=["a", NUL], group_by=pb.GetSpendRequest.GROUP_BY_RUN),
        "values[1]",
    ),
    ("GetCeiling", pb.GetCeilingRequest(ceiling_id=NUL), "ceiling_id"),
    ("DeleteCeiling", pb.DeleteCeilingRequest(ceiling_id=NUL), "ceiling_id"),
    (
        "SetCeiling",
        pb.SetCeilingRequest(
            ceiling=pb.Ceiling(subject=pb.Subject(scope=pb.Subject.SCOPE_RUN, name=NUL), tokens=1)
        ),
        "ceiling.subject.name",
    ),
    (
        "SetHalt",
        pb.SetHaltRequest(halt=pb.Halt(subject=pb.Subject(scope=pb.Subject.SCOPE_TENANT), reason=NUL)),
        "halt.reason",
    ),
    (
        "ClearHalt",
        pb.ClearHaltRequest(subject=pb.Subject(scope=pb.Subject.SCOPE_MODEL, name=NUL)),
        "subject.name",
    ),
    ("EraseContent", pb.EraseContentRequest(run_id=NUL), "run_id"),
    (
        "ReconcileCall",
        pb.ReconcileCallRequest(call_id=CALL_ID, figure=pb.OperatorFigure(reason=NUL)),
        "figure.reason",
    ),
]


async def mistakes(ledger: Any, method: str, request: Any) -> list[str]:
    """Return the fields that an RPC names in its refusal."""
    async with serving(ScriptedDriver(), ledger=ledger) as running:
        code, details = await refused(getattr(stub_of(running), method)(request))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    return [each.field for each in details.bad_request.field_violations]


@pytest.mark.parametrize(("method", "request_", "field"), WITH_NUL)
async def test_a_text_that_postgresql_cannot_keep_is_refused_by_its_field(
    ledger, method: str, request_: Any, field: str
):
    assert await mistakes(ledger, method, request_) == [field]


@pytest.mark.parametrize(
    "place",
    [
        f'[{10**29},"a",1]',
        '[-1,"a",1]',
        f'[1,"a",{2**31}]',
        '[1,"a\\u0000",1]',
        "[1]",
    ],
)
async def test_a_made_up_place_in_the_calls_is_no_page_token(ledger, place: str):
    request = pb.ListCallsRequest(page_token=page_token(place))
    assert await mistakes(ledger, "ListCalls", request) == ["page_token"]


@pytest.mark.parametrize("place", [f'[{10**29},"a","USD"]', '[1,"a\\u0000","USD"]'])
async def test_a_made_up_place_in_the_sums_is_no_page_token(ledger, place: str):
    request = pb.GetSpendRequest(page_token=page_token(place))
    assert await mistakes(ledger, "GetSpend", request) == ["page_token"]


async def test_a_made_up_place_in_the_ceilings_is_no_page_token(ledger):
    request = pb.ListCeilingsRequest(page_token=page_token(NUL))
    assert await mistakes(ledger, "ListCeilings", request) == ["page_token"]


async def test_more_labels_than_a_call_has_are_not_looked_for(ledger):
    labels = {str(number): "x" for number in range(1_500)}
    request = pb.ListCallsRequest(filter=pb.CallFilter(labels=labels))
    assert await mistakes(ledger, "ListCalls", request) == ["filter.labels"]
