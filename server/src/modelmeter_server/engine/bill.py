"""What a call cost, and the bill of a call that our own fault ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.errors import OWN_FAULT, Failure, failure
from modelmeter_server.core.ladder import Evidence, severed
from modelmeter_server.core.outcomes import Cause, Certainty, Disposition, End, Ending, Kind, Stage
from modelmeter_server.core.pricing import price
from modelmeter_server.core.usage import Usage

if TYPE_CHECKING:
    from modelmeter_server.core.accumulators import Accumulator
    from modelmeter_server.core.answers import Answer
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.pricing import Cost, PriceTable

_NOTHING = Usage()


def priced(
    result: Answer | Failure, model: ModelSpec | None, tables: dict[str, PriceTable]
) -> Answer | Failure:
    """Fill in what the told usage costs. The provider's own figure wins; no price or no usage leaves it absent.

    A figure that the provider told before the end is only what the call costs at least, and so is a larger one by
    the table. `tables` are the prices at the same provider instance, for work that it billed under other models'
    names; work under the call's own model costs what the call's own alias costs.
    """
    told = result.usage is not None or bool(result.additional_usage)
    is_final = result.cost is not None and result.cost.certainty is Certainty.EXACT
    if is_final or not told or model is None or model.price is None:
        return result
    if result.additional_usage:
        tables = {**tables, model.provider_model: model.price}
    cost = price(
        model.price,
        result.usage or _NOTHING,
        result.certainty if result.usage is not None else Certainty.AT_LEAST,
        service_tier=result.service_tier,
        price_factor=result.price_factor,
        additional=result.additional_usage,
        tables=tables,
    )
    if result.cost is not None:
        cost = _higher(result.cost, cost)
    return msgspec.structs.replace(result, cost=cost)


def _higher(reported: Cost, by_table: Cost) -> Cost:
    if reported.currency != by_table.currency or reported.nano_units >= by_table.nano_units:
        return reported
    return msgspec.structs.replace(by_table, certainty=Certainty.AT_LEAST)


def broken(accumulator: Accumulator | None, cause: Cause, *, written: bool, message: str) -> Failure:
    """Return the failure of a call whose own code failed: the bill by the ladder, from what had arrived."""
    stage = Stage.WRITTEN if written else Stage.NOT_WRITTEN
    ending = Ending(end=End.CUT, cause=cause, stage=stage)
    return severed(_evidence(accumulator), ending, message)


def lost(cause: Cause, *, written: bool, message: str) -> Failure:
    """Return the failure of a call of which not even the accumulator can be asked."""
    return failure(
        Kind.BUG,
        message,
        cause=cause,
        stage=Stage.WRITTEN if written else Stage.NOT_WRITTEN,
        certainty=Certainty.UNKNOWN if written else Certainty.NONE,
    )


def unread(answer: Answer, message: str) -> Failure:
    """Return the failure of a call whose whole answer its caller did not take: it is paid for."""
    kind, certainty = Kind.INTERRUPTED, answer.certainty
    if answer.usage is None or certainty not in (Certainty.EXACT, Certainty.AT_LEAST):
        kind, certainty = Kind.UNACCOUNTED, Certainty.UNKNOWN
    is_told = kind is Kind.INTERRUPTED
    return failure(
        kind,
        message,
        cause=Cause.LIMIT,
        stage=Stage.OUTPUT,
        certainty=certainty,
        usage=answer.usage if is_told else None,
        additional_usage=answer.additional_usage if is_told else (),
        estimated_output_tokens=answer.estimated_output_tokens,
        cost=answer.cost,
        model_served=answer.model_served,
        service_tier=answer.service_tier,
        provider_request_id=answer.provider_request_id,
        provider_response_id=answer.provider_response_id,
    )


def spoiled(answer: Answer) -> Failure:
    """Return the failure of a call whose whole answer our own fault kept from its caller: it is paid for."""
    return failure(
        Kind.BUG,
        OWN_FAULT,
        cause=Cause.BUG,
        stage=Stage.OUTPUT,
        disposition=Disposition.LANDED,
        certainty=answer.certainty,
        usage=answer.usage,
        additional_usage=answer.additional_usage,
        estimated_output_tokens=answer.estimated_output_tokens,
        cost=answer.cost,
        model_served=answer.model_served,
        service_tier=answer.service_tier,
        price_factor=answer.price_factor,
        provider_request_id=answer.provider_request_id,
        provider_response_id=answer.provider_response_id,
        partial_text=answer.text,
        hosted_tools=answer.hosted_tools,
    )


def _evidence(accumulator: Accumulator | None) -> Evidence:
    if accumulator is None:
        return Evidence()
    return accumulator.evidence()
