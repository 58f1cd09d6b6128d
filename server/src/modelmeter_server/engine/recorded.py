"""From what the ledger answers to what a caller is told: recorded outcomes and denials. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.answers import Answer
from modelmeter_server.core.calls import CallOutcome, Timings
from modelmeter_server.core.ceilings import Scope
from modelmeter_server.core.errors import TABLE, Failure, failure
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Disposition, Kind, Stage
from modelmeter_server.core.settlement import told_cost
from modelmeter_server.core.usage import AdditionalUsage, Usage
from modelmeter_server.core.windows import SECOND
from modelmeter_server.ledger import contents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelmeter_server.core.ceilings import Standing
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.ledger.replies import Denied, Recorded
    from modelmeter_server.ledger.rows import CallRow

_usage = msgspec.json.Decoder(Usage)
_additional = msgspec.json.Decoder(tuple[AdditionalUsage, ...])


def recorded_outcome(found: Recorded, model: ModelSpec | None) -> CallOutcome:
    """Return the outcome as it was told first, marked as replayed. Raises ContentUnreadable."""
    row, content = found.row, None
    if found.content is not None and found.content.outcome_json:
        content = contents.decode(found.content.outcome_json)
    elif not row.kind:
        message = "the answer's content is not kept"
        raise contents.ContentUnreadable(message)
    result = content.result if content is not None else failure_of(row)
    return CallOutcome(
        call_id=row.call_id,
        model_asked=row.model,
        result=repeated(result),
        model=None if model is None else _as_served(model, row.target),
        attempts=content.attempts if content is not None else (),
        attempts_total=row.attempts_total,
        timings=Timings(
            queue=row.queue_seconds, first_token=row.first_token_seconds, total=row.total_seconds
        ),
        labels=row.labels,
        sensitivity=content.sensitivity if content is not None else None,
        settled=True,
        replayed=True,
    )


def _as_served(model: ModelSpec, target: str) -> ModelSpec:
    """Return the model at the target that served a recorded call, which need not be who would be asked now."""
    instance, slash, _ = target.partition("/")
    return msgspec.structs.replace(model, provider=instance, target=target if slash else "")


def repeated(result: Answer | Failure) -> Answer | Failure:
    """Return a result as another caller hears it: that the first one left or was late is not this one's code."""
    if isinstance(result, Answer) or result.cause not in (Cause.CALLER, Cause.DEADLINE):
        return result
    return msgspec.structs.replace(result, code=TABLE[result.kind].code)


def failure_of(row: CallRow) -> Failure:
    """Return the failure of a call of which only its row is left: all but its partial text is there."""
    figures = row.told
    stage = Stage[row.stage] if row.stage else Stage.WRITTEN
    kind = Kind(row.kind)
    return Failure(
        kind=kind,
        cause=Cause(row.cause) if row.cause else Cause.NETWORK,
        stage=stage,
        message=row.message or TABLE[kind].meaning,
        code=Code(row.code) if row.code else TABLE[kind].code,
        disposition=Disposition(row.disposition),
        certainty=Certainty(figures.certainty),
        retryable=False,
        usage=_usage.decode(figures.usage_json) if figures.usage_json else None,
        additional_usage=_additional.decode(figures.additional_json) if figures.additional_json else (),
        estimated_output_tokens=figures.estimated_output_tokens,
        cost=told_cost(figures),
        model_served=row.model_served or None,
        http_status=row.http_status,
        provider_code=row.provider_code or None,
        provider_request_id=row.provider_request_id or None,
        provider_response_id=row.provider_response_id or None,
        may_have_generated=True,
    )


# Denials


def denial(denied: Denied, at: int) -> Failure:
    """Return the failure of a call that the ledger did not let through; `at` is now, in microseconds."""
    # A call that is larger than a whole ceiling would wait in vain.
    rooms = [None if each.asked > each.allowed else each.room_at for each in denied.standings]
    certain = [room for room in rooms if room is not None]
    return failure(
        denied.kind,
        _sentence(denied),
        cause=Cause.LIMIT,
        code=Code.FAILED_PRECONDITION if denied.kind is Kind.REFUSED else None,
        # Only when every ceiling says when: a wait for some of them would be in vain.
        retry_after=max(0.0, (max(certain) - at) / SECOND) if rooms and len(certain) == len(rooms) else None,
        standings=denied.standings,
        differing_field=denied.field,
    )


def _sentence(denied: Denied) -> str:
    if denied.kind is Kind.CEILING and denied.standings:
        return _no_room(denied.standings)
    if denied.kind is Kind.OUTCOME_GONE and denied.row is not None:
        return f"{denied.message or 'the outcome is no longer kept'}; {_bill(denied.row)}"
    if denied.field and denied.field not in denied.message:
        return f"{denied.message or TABLE[denied.kind].meaning} (it differs in `{denied.field}`)"
    return denied.message or TABLE[denied.kind].meaning


def _no_room(standings: Sequence[Standing]) -> str:
    more = f" (and {len(standings) - 1} more without room)" if len(standings) > 1 else ""
    return describe(standings[0]) + more


def describe(standing: Standing) -> str:
    """Return one clause about a ceiling without room: whose, how much, what counts, and when room returns."""
    unnamed = (Scope.TENANT.value, Scope.CALL.value)
    scope, name = standing.subject.scope, standing.subject.name
    whose = f"{scope.lower()} {name}" if name and scope not in unnamed else f"the {scope.lower()}"
    unit = f"nano {standing.currency}" if standing.currency else "tokens"
    window = "" if scope == Scope.CALL.value else f"{standing.window.kind.value.lower()} "
    returns = "room returns with settlements or a higher ceiling only"
    if standing.asked > standing.allowed:
        returns = "a call of that size never fits: lower its max_output_tokens or raise the ceiling"
    elif standing.room_at is not None:
        moment = datetime.fromtimestamp(standing.room_at / SECOND, UTC)
        returns = f"room returns at {moment.isoformat(timespec='seconds').replace('+00:00', 'Z')}"
    return (
        f"the {window}ceiling of {whose} allows {standing.allowed:,} {unit}: settled {standing.settled:,}, "
        f"held {standing.held:,}, unsettled {standing.unsettled:,}, asked {standing.asked:,}; {returns}"
    )


def _bill(row: CallRow) -> str:
    figures = row.told
    told = f"it took {figures.tokens:,} tokens" if figures.usage_json else "nobody told its tokens"
    price = (
        f" and cost {figures.nano_units:,} nano {figures.currency}" if figures.nano_units is not None else ""
    )
    return f"{told}{price} ({figures.certainty})"
