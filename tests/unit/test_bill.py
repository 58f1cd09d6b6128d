"""The price of an outcome: whose figure wins, by which table, and how far it can be trusted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from modelmeter_server.core.accumulators import AnthropicAccumulator
from modelmeter_server.core.answers import Answer
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.ladder import Evidence, severed
from modelmeter_server.core.outcomes import Cause, Certainty, End, Ending, Stage
from modelmeter_server.core.pricing import Cost, CostSource, PriceTable, Tier
from modelmeter_server.core.usage import AdditionalUsage, Usage
from modelmeter_server.engine.bill import broken, priced, spoiled
from tests.support import anthropic_events as wire
from tests.support.running_server import MODEL
from tests.support.wire_bytes import sse

NANO = 1_000_000
"""A rate of one nano unit a token."""

BASE = Tier(input=NANO, output=NANO)
PRIORITY = Tier(input=2 * NANO, output=2 * NANO, service_tier="priority")
USAGE = Usage(input_tokens=600, output_tokens=400)


def sold(*tiers: Tier) -> Any:
    return msgspec.structs.replace(MODEL, price=PriceTable(currency="USD", tiers=tiers or (BASE,)))


def whole(**fields: Any) -> Answer:
    return Answer(text="Hi", usage=USAGE, certainty=Certainty.EXACT, **fields)


def interrupted(**fields: Any) -> Failure:
    evidence = Evidence(generated=True, usage=USAGE, usage_is_final=True, **fields)
    return severed(evidence, Ending(end=End.RESET, stage=Stage.BODY), "gone")


def cost(result: Answer | Failure, model: Any, tables: dict[str, PriceTable] | None = None) -> Cost:
    bill = priced(result, model, tables or {}).cost
    assert bill is not None
    return bill


def reported(nanos: int, certainty: Certainty, currency: str = "USD") -> Cost:
    return Cost(nano_units=nanos, currency=currency, source=CostSource.PROVIDER, certainty=certainty)


@pytest.mark.parametrize("make", [whole, interrupted])
def test_a_failure_costs_what_an_answer_of_its_tier_costs(make: Any):
    bill = cost(make(service_tier="priority"), sold(BASE, PRIORITY))
    assert (bill.nano_units, bill.certainty) == (2_000, Certainty.EXACT)
    assert cost(make(service_tier="priority"), sold()).certainty is Certainty.AT_LEAST
    assert cost(make(price_factor="inference_geo=us"), sold()).certainty is Certainty.AT_LEAST


def test_an_answer_that_a_fault_of_ours_kept_back_costs_what_its_tier_costs():
    assert cost(spoiled(whole(service_tier="priority")), sold(BASE, PRIORITY)).nano_units == 2_000


def test_a_call_that_a_fault_of_ours_ended_keeps_its_tier_and_its_reported_cost():
    accumulator = AnthropicAccumulator()
    usage = {"input_tokens": 600, "service_tier": "priority", "cost": 0.5}
    accumulator.feed(sse(wire.start(usage)))
    outcome = broken(accumulator, Cause.BUG, written=True, message="ours")
    assert outcome.service_tier == "priority"
    assert outcome.cost is not None
    assert outcome.cost.nano_units == 500_000_000


@pytest.mark.parametrize(
    ("told", "nanos", "source"),
    [
        (reported(7, Certainty.AT_LEAST), 1_000, CostSource.PRICE_TABLE),
        (reported(7_000, Certainty.AT_LEAST), 7_000, CostSource.PROVIDER),
        (reported(7, Certainty.AT_LEAST, "EUR"), 7, CostSource.PROVIDER),
    ],
)
def test_a_cost_told_before_the_end_gives_way_to_a_larger_one_by_the_table(
    told: Cost, nanos: int, source: CostSource
):
    bill = cost(whole(cost=told), sold())
    assert (bill.nano_units, bill.source, bill.certainty) == (nanos, source, Certainty.AT_LEAST)


def test_a_cost_told_at_the_end_stands():
    assert cost(whole(cost=reported(7, Certainty.EXACT)), sold()) == reported(7, Certainty.EXACT)


def test_work_under_the_calls_own_model_costs_what_its_own_alias_costs():
    own = AdditionalUsage(kind="compaction", model=MODEL.provider_model, usage=USAGE)
    cheap = PriceTable(currency="USD", tiers=(Tier(input=0, output=0),))
    tables = {MODEL.provider_model: cheap, "other": cheap}
    bill = cost(whole(additional_usage=(own,)), sold(), tables)
    assert (bill.nano_units, bill.certainty) == (2_000, Certainty.EXACT)
    assert tables == {MODEL.provider_model: cheap, "other": cheap}
