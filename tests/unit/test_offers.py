"""What was offered before is closed when the last that uses it has ended, and what is offered still is not."""

from __future__ import annotations

import asyncio

import pytest

from modelmeter_server.engine.catalog import Catalog
from modelmeter_server.engine.offers import Offer, Offers
from tests.support.scripted_driver import ScriptedDriver, answering


def driver(name: str = "p") -> ScriptedDriver:
    return ScriptedDriver(answering(), name=name)


def offer(*drivers: ScriptedDriver) -> Offer:
    return Offer(Catalog([]), {each.name: each for each in drivers})


async def closed(*drivers: ScriptedDriver) -> list[bool]:
    """Return which are closed, once everything that was begun has been done."""
    await asyncio.sleep(0)
    return [each.closed for each in drivers]


async def test_an_offer_that_nobody_uses_is_closed_when_it_is_replaced():
    old, new = driver(), driver()
    offers = Offers(offer(old))
    offers.replace(offer(new))
    assert await closed(old, new) == [True, False]


async def test_an_offer_in_use_is_closed_when_the_last_user_gives_it_back():
    old, new = driver(), driver()
    offers = Offers(offer(old))
    first, second = offers.take(), offers.take()
    offers.replace(offer(new))
    offers.give_back(first)
    assert await closed(old) == [False]
    offers.give_back(second)
    assert await closed(old, new) == [True, False]


async def test_giving_back_the_current_offer_closes_nothing():
    only = driver()
    offers = Offers(offer(only))
    offers.give_back(offers.take())
    assert await closed(only) == [False]


async def test_a_driver_that_stays_is_not_closed_with_the_offer_that_it_was_in():
    stays, goes = driver("a"), driver("b")
    offers = Offers(offer(stays, goes))
    offers.replace(offer(stays))
    assert await closed(stays, goes) == [False, True]


async def test_a_driver_is_open_as_long_as_any_offer_in_use_has_it():
    shared, new = driver("a"), driver("a")
    offers = Offers(offer(shared))
    oldest = offers.take()
    offers.replace(offer(shared, driver("b")))
    middle = offers.take()
    offers.replace(offer(new))
    offers.give_back(oldest)
    assert await closed(shared) == [False]
    offers.give_back(middle)
    assert await closed(shared, new) == [True, False]


async def test_a_session_takes_the_offer_that_it_began_with_for_its_turns():
    old, new = driver(), driver()
    offers = Offers(offer(old))
    began = offers.take()
    offers.replace(offer(new))
    assert offers.take(began) is began
    assert offers.take() is offers.current


async def test_the_end_closes_what_is_in_use_too():
    old, new = driver(), driver()
    offers = Offers(offer(old))
    offers.take()
    offers.replace(offer(new))
    await offers.aclose()
    assert (old.closed, new.closed) == (True, True)


async def test_a_driver_that_cannot_be_closed_leaves_the_others_to_be_closed():
    broken, other = driver("a"), driver("b")

    async def fail() -> None:
        raise OSError

    broken.aclose = fail  # type: ignore[method-assign]
    await Offers(offer(broken, other)).aclose()
    assert other.closed


@pytest.mark.parametrize("times", [1, 3])
async def test_an_offer_may_come_back(times):
    one, other = driver("a"), driver("b")
    offers = Offers(offer(one))
    for _ in range(times):
        offers.replace(offer(one, other))
        offers.replace(offer(one))
    assert await closed(one) == [False]
