"""From what the ledger answers to what a caller is told."""

from __future__ import annotations

import msgspec
import pytest

from modelmeter_server.core.ceilings import Standing, Subject, Window, WindowKind
from modelmeter_server.core.errors import Failure, failure
from modelmeter_server.core.journal import CallState
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Disposition, Kind, Stage
from modelmeter_server.core.reservation import Hold
from modelmeter_server.core.usage import Usage
from modelmeter_server.engine.booking import figures
from modelmeter_server.engine.recorded import denial, recorded_outcome, repeated
from modelmeter_server.ledger.contents import ContentUnreadable
from modelmeter_server.ledger.replies import Denied, Recorded
from modelmeter_server.ledger.rows import CallRow

LEFT = failure(
    Kind.INTERRUPTED,
    "the caller left",
    cause=Cause.CALLER,
    stage=Stage.OUTPUT,
    certainty=Certainty.AT_LEAST,
    usage=Usage(input_tokens=3),
)
STANDING = Standing(
    subject=Subject(tenant="t", scope="RUN", name="r"),
    window=Window(kind=WindowKind.DAY),
    allowed=1000,
    settled=600,
    held=300,
    unsettled=50,
    asked=400,
    room_at=86_400_000_000,
)


def row(**fields: object) -> CallRow:
    known = {"tenant": "t", "call_id": "c", "model": "m", "reserved_at": 0, "state": CallState.SETTLED}
    hold = Hold(input_tokens=1, output_tokens=1, tokens_per_second=1)
    return msgspec.structs.replace(
        CallRow(tenant="t", call_id="c", model="m", reserved_at=0, hold=hold), **{**known, **fields}
    )


def test_a_repetition_is_not_told_that_another_caller_left():
    assert LEFT.code is Code.CANCELLED
    again = repeated(LEFT)
    assert isinstance(again, Failure)
    assert (again.code, again.cause) == (Code.ABORTED, Cause.CALLER)


def test_a_failure_of_which_only_the_row_is_left_has_its_bill():
    found = row(
        kind="INTERRUPTED",
        cause="NETWORK",
        stage="OUTPUT",
        disposition="IN_DOUBT",
        code=10,
        message="the server died",
        figures=figures(LEFT),
    )
    outcome = recorded_outcome(Recorded(row=found), None)
    assert isinstance(outcome.result, Failure)
    assert outcome.replayed
    assert outcome.result.usage == LEFT.usage
    assert outcome.result.certainty is Certainty.AT_LEAST
    assert outcome.result.disposition is Disposition.IN_DOUBT
    assert not outcome.result.retryable


def test_an_answer_without_content_cannot_be_told():
    with pytest.raises(ContentUnreadable):
        recorded_outcome(Recorded(row=row()), None)


def test_a_ceiling_tells_everything_and_when_to_come_back():
    refused = denial(Denied(kind=Kind.CEILING, message="no room", standings=(STANDING,)), 86_390_000_000)
    assert refused.message == (
        "the day ceiling of run r allows 1,000 tokens: settled 600, held 300, unsettled 50, asked 400; "
        "room returns at 1970-01-02T00:00:00Z"
    )
    assert refused.retry_after == 10
    assert refused.standings == (STANDING,)


def test_a_call_that_no_ceiling_of_that_size_lets_through_is_told_what_to_change():
    large = msgspec.structs.replace(STANDING, settled=0, held=0, unsettled=0, asked=16_417)
    assert large.room_at is not None
    refused = denial(Denied(kind=Kind.CEILING, message="", standings=(large,)), 0)
    assert refused.retry_after is None
    assert refused.message.endswith(
        "asked 16,417; a call of that size never fits: lower its max_output_tokens or raise the ceiling"
    )


def test_a_ceiling_beside_one_that_no_time_empties_names_no_time():
    lasting = msgspec.structs.replace(STANDING, room_at=None, currency="USD")
    refused = denial(Denied(kind=Kind.CEILING, message="", standings=(lasting, STANDING)), 0)
    assert refused.retry_after is None
    assert "nano USD" in refused.message
    assert "and 1 more without room" in refused.message


def test_an_outcome_that_is_gone_tells_its_bill():
    refused = denial(Denied(kind=Kind.OUTCOME_GONE, message="erased", row=row(figures=figures(LEFT))), 0)
    assert refused.message == "erased; it took 3 tokens (AT_LEAST)"
    assert refused.certainty is Certainty.NONE


def test_a_ceiling_in_money_that_a_model_cannot_be_held_to_is_the_deployments_mistake():
    refused = denial(Denied(kind=Kind.REFUSED, message="the model has no price"), 0)
    assert refused.code is Code.FAILED_PRECONDITION
