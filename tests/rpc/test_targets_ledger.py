"""A model with targets and the ledger: one identity, room for the dearest, a row for each attempt, one bill."""

from __future__ import annotations

import uuid

import pytest

import modelmeter
from modelmeter.enums import Certainty
from modelmeter_server.core.models import Strategy, Task
from modelmeter_server.core.requests import CompletionRequest
from modelmeter_server.engine.plan import completion_hold
from tests.support import routed_service as routed
from tests.support.fault_server import FaultServer, Reply
from tests.support.ledgers import put_ceiling, rows_of, until_settled
from tests.support.routed_service import ANSWER, FAILING, price, routed_service

CHEAP, DEAR = price(2_000_000_000), price(9_000_000_000)
PRICES = {"a": {"price": CHEAP}, "b": {"price": DEAR}}
USED = 12, 20
"""Tokens that `ANSWER` tells."""


def cost_at(rate: int) -> int:
    """Return nano units of the answer at a price of 1 for the input and this for the output."""
    return USED[0] * 1_000 + USED[1] * rate // 1_000_000


@pytest.fixture
async def pair():
    """Return two providers, both of which answer."""
    async with FaultServer(ANSWER) as a, FaultServer(ANSWER) as b:
        yield a, b


def urls(pair):
    return {"a": pair[0].url, "b": pair[1].url}


async def test_the_bill_is_that_of_the_target_that_served_and_each_attempt_has_its_row(ledger, pair):
    pair[0].default = FAILING
    async with routed_service(urls(pair), changes=PRICES, ledger=ledger) as service:
        answer = await service.ask()
        (row,) = await until_settled(ledger)
        call = await service.client.ledger.get_call(answer.call_id, full=True)
    assert answer.cost is not None
    assert answer.cost.nano_units == cost_at(9_000_000_000) == row.figures.nano_units
    assert (row.target, row.identity) == ("b/m", "anthropic/m")
    assert [(each.target, each.usage.input_tokens) for each in call.attempts] == [("a/m", None), ("b/m", 12)]
    assert call.target == "b/m"


async def test_room_is_held_for_the_dearest_target_and_given_back(ledger, pair):
    request = CompletionRequest(model=routed.ROUTED, call_id="c", text="Hi", max_output_tokens=100)
    async with routed_service(urls(pair), changes=PRICES, ledger=ledger) as service:
        assert service.model.route is not None
        cheap, dear = (
            completion_hold(request, each.model).nano_units for each in service.model.route.targets
        )
        assert cheap < dear
        await put_ceiling(ledger, nano_units=dear - 1, currency="USD")
        with pytest.raises(modelmeter.CeilingError):
            await service.ask(max_output_tokens=100)
        await put_ceiling(ledger, nano_units=dear, currency="USD")
        answer = await service.ask(max_output_tokens=100)
        assert answer.cost is not None
        assert answer.cost.nano_units == cost_at(2_000_000_000)
        await until_settled(ledger)
        (spend,) = await service.client.ledger.spend()
    assert (spend.held.nano_units, spend.settled.nano_units) == (0, cost_at(2_000_000_000))


@pytest.mark.parametrize("identity", ["", "acme/smart"])
async def test_a_repeated_call_is_replayed_whichever_target_it_would_go_to_now(ledger, pair, identity):
    call_id = str(uuid.uuid4())
    async with routed_service(urls(pair), ledger=ledger, identity=identity) as service:
        first = await service.ask(call_id=call_id)
    other_way = {"b": pair[1].url, "a": pair[0].url}
    async with routed_service(other_way, ledger=ledger, identity=identity) as service:
        again = await service.ask(call_id=call_id)
    assert (again.replayed, again.text, again.target) == (True, first.text, "a/m")
    assert (len(pair[0].requests), len(pair[1].requests)) == (1, 0)


async def test_an_answer_of_one_target_is_not_a_divergence_for_an_effect_that_comes_back(ledger, pair):
    effect = modelmeter.Effect("run", "key")
    options = {"strategy": Strategy.WEIGHTED, "ledger": ledger}
    async with routed_service(urls(pair), **options) as service:
        answers = [await service.ask(effect=effect) for _ in range(8)]
    assert len({each.call_id for each in answers}) == 1
    assert [each.replayed for each in answers] == [False, *[True] * 7]


async def test_output_that_the_ceiling_leaves_is_cut_for_the_fallback_too(ledger, pair):
    pair[0].default = FAILING
    changes = {name: {"clamp_output": 1} for name in "ab"}
    async with routed_service(urls(pair), changes=changes, ledger=ledger) as service:
        request = CompletionRequest(model=routed.ROUTED, call_id="c", text="Hi", max_output_tokens=50)
        await put_ceiling(ledger, tokens=completion_hold(request, service.model).tokens)
        await service.ask()
    assert [b'"max_tokens":50' in each.body for server in pair for each in server.requests] == [True, True]


async def test_vectors_come_from_the_next_target_of_the_same_model(ledger):
    vectors = Reply(
        chunks=[
            b'{"object":"list","model":"m","data":[{"object":"embedding","index":0,"embedding":[0.5,0.25]}],'
            b'"usage":{"prompt_tokens":3,"total_tokens":3}}'
        ]
    )
    kinds = dict.fromkeys("ab", "openai_responses")
    changes = {"a": {"task": Task.EMBEDDING, "price": CHEAP}, "b": {"task": Task.EMBEDDING, "price": DEAR}}
    async with FaultServer(FAILING) as a, FaultServer(vectors) as b:
        places = {"a": a.url, "b": b.url}
        async with routed_service(places, kinds=kinds, changes=changes, ledger=ledger) as service:
            answer = await service.client.embed(routed.ROUTED, ["x"], timeout=20)
            (row,) = await until_settled(ledger)
    assert (list(answer.vectors[0]), answer.target, row.target) == ([0.5, 0.25], "b/m", "b/m")
    assert [each.target for each in answer.attempts] == ["a/m", "b/m"]


async def test_an_operators_figure_is_priced_as_at_the_target_that_served(ledger, pair):
    cut = routed.CUT
    pair[0].default, pair[1].default = FAILING, cut
    async with routed_service(urls(pair), changes=PRICES, ledger=ledger) as service:
        with pytest.raises(modelmeter.CallInterruptedError) as caught:
            await service.ask()
        await until_settled(ledger)
        figure = modelmeter.Figure(
            usage=modelmeter.Usage(input_tokens=12, output_tokens=1_000), certainty="EXACT", reason="invoice"
        )
        await service.client.ledger.reconcile(caught.value.call_id, figure)
        (row,) = await rows_of(ledger)
    assert row.figures.certainty == Certainty.EXACT.value
    assert row.figures.nano_units == 12 * 1_000 + 1_000 * 9_000


async def test_a_provider_is_asked_for_a_truer_figure_by_its_instance(ledger, pair):
    pair[0].default, pair[1].default = FAILING, routed.CUT
    async with routed_service(urls(pair), changes=PRICES, ledger=ledger) as service:
        with pytest.raises(modelmeter.CallInterruptedError) as caught:
            await service.ask()
        await until_settled(ledger)
        with pytest.raises(modelmeter.RefusedError) as refused:
            await service.client.ledger.reconcile(caught.value.call_id)
    assert refused.value.reason == "NOT_RECONCILABLE"
    assert "no longer configured" not in refused.value.message
