"""A call as the ledger holds it: what is asked of the ledger, and what its refusals become."""

from __future__ import annotations

import msgspec
import pytest

from modelmeter_server.core.digest import digest
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Kind
from modelmeter_server.core.requests import CompletionRequest
from modelmeter_server.engine.booking import reservation
from modelmeter_server.engine.holding import Desk, Holding
from modelmeter_server.engine.plan import completion_hold
from modelmeter_server.ledger.commands import Dispatch, Reserve
from modelmeter_server.ledger.ledger import LedgerUnavailable
from modelmeter_server.ledger.replies import Admitted
from tests.support.running_server import MODEL

REQUEST = CompletionRequest(model="claude", call_id="c", text="Hi")


class Scripted:
    """A ledger that admits everything, under the name and after the dispatches that the test says."""

    owner = 7
    is_up = True

    def __init__(self, *, allows: bool = True, is_away: bool = False, **admitted: object) -> None:
        self.heard: list[object] = []
        self._allows = allows
        self._is_away = is_away
        self._admitted = {"generation": 1, "dispatch": 1, "output_tokens": 9, **admitted}

    async def reserve(self, order: Reserve) -> Admitted:
        self.heard.append(order)
        if self._is_away:
            message = "disk full"
            raise LedgerUnavailable(message)
        return msgspec.convert(self._admitted, Admitted)

    async def dispatch(self, order: Dispatch) -> bool:
        self.heard.append(order)
        return self._allows


def order() -> Reserve:
    terms = digest(REQUEST, MODEL.identity)
    return reservation(REQUEST, MODEL, terms, completion_hold(REQUEST, MODEL), tenant="t", owner=0, at=0)


async def held(ledger: Scripted) -> Holding:
    found = await Desk(ledger).reserve(order())  # type: ignore[arg-type]  # as much of a ledger as is asked for
    assert isinstance(found, Holding)
    return found


async def test_an_effect_that_stands_under_another_call_is_dispatched_under_that_one():
    ledger = Scripted(call_id="first", attempts=2)
    holding = await held(ledger)
    assert await holding.dispatch(1, "p")
    (_, sent) = ledger.heard
    assert isinstance(sent, Dispatch)
    assert (sent.ref.call.call_id, sent.number, sent.ref.owner) == ("first", 3, 7)


async def test_a_server_that_lost_its_lease_sends_nothing():
    holding = await held(Scripted(allows=False))
    assert await holding.dispatch(1, "p") is False


async def test_a_ledger_that_is_away_refuses_and_tells_no_cause_to_callers():
    refused = await Desk(Scripted(is_away=True)).reserve(order())  # type: ignore[arg-type]  # as above
    assert isinstance(refused, Failure)
    assert refused.kind is Kind.LEDGER_DOWN
    assert "disk" not in refused.message


def test_drains_are_counted():
    desk = Desk(Scripted(), max_draining_calls=1)  # type: ignore[arg-type]  # as above
    assert [desk.take_drain(), desk.take_drain()] == [True, False]
    desk.give_drain_back()
    assert desk.take_drain()


@pytest.mark.parametrize(("least", "asked", "told"), [(10, 100, 10), (200, 100, 100)])
def test_nothing_is_clamped_below_what_was_asked(least: int, asked: int, told: int):
    request = msgspec.structs.replace(REQUEST, max_output_tokens=asked)
    model = msgspec.structs.replace(MODEL, clamp_output=least)
    hold = completion_hold(request, model)
    made = reservation(request, model, digest(request, "m"), hold, tenant="t", owner=0, at=0)
    assert made.least_output == told
