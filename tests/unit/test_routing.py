"""The order in which a call would have its targets: by shares, by load, by conversation; the same everywhere."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.models import ModelSpec, RouteSpec, Strategy, TargetSpec
from modelmeter_server.core.routing import preferred, ranked, score

WEIGHTS = st.dictionaries(st.text(min_size=1, max_size=8), st.integers(1, 1_000_000), min_size=1, max_size=8)


def route(strategy=Strategy.ORDERED, **weights):
    targets = tuple(
        TargetSpec(
            model=ModelSpec(
                name="m", provider=name, provider_kind="replay", provider_model="x", target=f"{name}/x"
            ),
            weight=weight,
        )
        for name, weight in weights.items()
    )
    return RouteSpec(strategy=strategy, targets=targets)


def names(targets):
    return [each.model.provider for each in targets]


def order(of, call_id="c", affinity="", load=lambda name: 0):
    return names(preferred(of, call_id, affinity, load))


def test_ordered_targets_stay_in_their_order_whatever_the_call_and_the_load():
    of = route(c=1, a=1, b=1)
    busy = {"c/x": 99, "a/x": 0, "b/x": 0}
    assert {tuple(order(of, f"call-{n}", "k", busy.__getitem__)) for n in range(50)} == {("c", "a", "b")}


def test_the_choice_of_a_key_is_fixed_for_ever():
    """Another hash would move every conversation at once, and servers of two versions would disagree meanwhile."""
    assert ranked("conversation-7", {"a/x": 1, "b/x": 1, "c/x": 1}) == ["b/x", "c/x", "a/x"]
    assert score("conversation-7", "a/x", 3) == pytest.approx(3 * score("conversation-7", "a/x", 1))


def test_weights_are_shares_of_the_calls():
    of = route(Strategy.WEIGHTED, a=3, b=1)
    chosen = Counter(order(of, f"call-{n}")[0] for n in range(4_000))
    assert 2_900 < chosen["a"] < 3_100


def test_the_second_choice_is_shared_by_weight_too():
    of = route(Strategy.WEIGHTED, a=2, b=2, c=1)
    second = Counter(order(of, f"call-{n}")[1] for n in range(6_000) if order(of, f"call-{n}")[0] == "a")
    assert 1.7 < second["b"] / second["c"] < 2.4


@pytest.mark.parametrize("strategy", [Strategy.WEIGHTED, Strategy.LEAST_LOADED])
def test_an_affinity_holds_a_conversation_where_it_is(strategy):
    of = route(strategy, a=1, b=1, c=1)
    busy = {"a/x": 7, "b/x": 3, "c/x": 0}
    assert len({tuple(order(of, f"call-{n}", "thread-1", busy.__getitem__)) for n in range(50)}) == 1


def test_conversations_are_spread_by_weight():
    of = route(Strategy.LEAST_LOADED, a=3, b=1)
    chosen = Counter(order(of, "c", f"thread-{n}")[0] for n in range(4_000))
    assert 2_900 < chosen["a"] < 3_100


def test_the_least_loaded_comes_first_by_its_weight():
    of = route(Strategy.LEAST_LOADED, a=1, b=1, big=4)
    load = {"a/x": 2, "b/x": 0, "big/x": 5}
    assert order(of, load=load.__getitem__) == ["b", "big", "a"]  # 1, 6 / 4, 3


def test_equally_loaded_targets_take_turns_by_the_call():
    of = route(Strategy.LEAST_LOADED, a=1, b=1)
    chosen = Counter(order(of, f"call-{n}")[0] for n in range(1_000))
    assert 400 < chosen["a"] < 600


def test_a_lost_target_moves_only_its_own_conversations():
    whole = {"a": 1, "b": 2, "c": 3}
    for n in range(500):
        before = ranked(f"thread-{n}", whole)
        assert ranked(f"thread-{n}", {"a": 1, "c": 3}) == [name for name in before if name != "b"]


@given(key=st.text(), weights=WEIGHTS, data=st.data())
def test_without_a_target_the_order_of_the_others_is_the_same(key, weights, data):
    lost = data.draw(st.sampled_from(sorted(weights)))
    rest = {name: weight for name, weight in weights.items() if name != lost}
    assert ranked(key, rest) == [name for name in ranked(key, weights) if name != lost]


@given(key=st.text(), weights=WEIGHTS, data=st.data())
def test_more_weight_never_makes_a_target_a_later_choice(key, weights, data):
    name = data.draw(st.sampled_from(sorted(weights)))
    more = {**weights, name: weights[name] + data.draw(st.integers(0, 1_000_000))}
    assert ranked(key, more).index(name) <= ranked(key, weights).index(name)


@given(key=st.text(), weights=WEIGHTS)
def test_the_order_has_every_target_once_and_does_not_depend_on_theirs(key, weights):
    found = ranked(key, weights)
    assert sorted(found) == sorted(weights)
    assert ranked(key, dict(reversed(weights.items()))) == found


@given(
    strategy=st.sampled_from(Strategy),
    call_id=st.text(),
    affinity=st.text(),
    loads=st.lists(st.integers(0, 99)),
)
def test_whatever_is_asked_every_target_is_there_once(strategy, call_id, affinity, loads):
    of = route(strategy, a=1, b=2, c=3)
    load = dict(zip(("a/x", "b/x", "c/x"), loads, strict=False))
    assert sorted(order(of, call_id, affinity, lambda name: load.get(name, 0))) == ["a", "b", "c"]
