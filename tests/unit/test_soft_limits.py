"""Soft limits are told without holding anything up, whatever their receiver does."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from modelmeter_server.core.ceilings import Standing, Subject, Window
from modelmeter_server.drivers.webhook import NotDelivered, Webhook
from modelmeter_server.engine import soft_limits
from modelmeter_server.engine.soft_limits import ATTEMPTS, SoftLimits, event_of
from modelmeter_server.ledger.replies import SoftLimit

SUBJECT = Subject("default", "RUN", "r1")


def limit(percent: int = 80, name: str = "c1") -> SoftLimit:
    standing = Standing(
        subject=SUBJECT, window=Window(), allowed=100, settled=70, held=5, unsettled=5, currency=""
    )
    return SoftLimit(ceiling_id=name, subject=SUBJECT, window=Window(), percent=percent, standing=standing)


class Receiver:
    """Takes what it is told, after as many refusals as told."""

    def __init__(self, refusals: int = 0) -> None:
        self.refusals = refusals
        self.tries = 0
        self.taken: list[dict[str, object]] = []
        self.closed = False

    async def post(self, event: dict[str, object]) -> None:
        self.tries += 1
        if self.tries <= self.refusals:
            raise NotDelivered("HTTP 500")
        self.taken.append(event)

    async def aclose(self) -> None:
        self.closed = True


async def no_pause(_seconds: float) -> None:
    """Pauses take no time here."""


@pytest.mark.parametrize(("refusals", "taken"), [(0, 1), (ATTEMPTS - 1, 1), (ATTEMPTS, 0)])
async def test_an_event_is_tried_a_few_times_and_then_forgotten(refusals, taken):
    receiver = Receiver(refusals)
    limits = SoftLimits(receiver, sleep=no_pause)
    limits.start()
    limits.passed(limit())
    await limits.stop()
    assert len(receiver.taken) == taken
    assert receiver.tries == min(refusals + 1, ATTEMPTS)
    assert receiver.closed


async def test_one_event_that_cannot_be_delivered_keeps_no_other_back():
    receiver = Receiver(ATTEMPTS)
    limits = SoftLimits(receiver, sleep=no_pause)
    limits.start()
    limits.passed(limit(name="first"))
    limits.passed(limit(name="second"))
    await limits.stop()
    assert [event["ceiling_id"] for event in receiver.taken] == ["second"]


async def test_a_receiver_that_hangs_holds_nobody_up(monkeypatch):
    monkeypatch.setattr(soft_limits, "WAITING_EVENTS", 2)
    monkeypatch.setattr(soft_limits, "FLUSH_SECONDS", 0.01)

    class Hanging(Receiver):
        async def post(self, event: dict[str, object]) -> None:
            await asyncio.Event().wait()

    receiver = Hanging()
    limits = SoftLimits(receiver)
    limits.start()
    for _ in range(10):
        limits.passed(limit())
    await limits.stop()
    assert receiver.closed


async def test_without_a_receiver_only_the_log_hears_of_it(capsys):
    limits = SoftLimits()
    limits.start()
    limits.passed(limit())
    await limits.stop()
    assert "soft limit passed" in capsys.readouterr().out


def test_the_event_tells_the_account():
    assert event_of(limit(50)) == {
        "event": "soft_limit",
        "ceiling_id": "c1",
        "tenant": "default",
        "scope": "RUN",
        "name": "r1",
        "window": "TOTAL",
        "percent": 50,
        "currency": "",
        "allowed": 100,
        "settled": 70,
        "held": 5,
        "unsettled": 5,
    }


async def test_a_webhook_posts_json_and_takes_any_success():
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(204)

    webhook = Webhook("https://hooks.example.test/secret-path", httpx.MockTransport(answer))
    await webhook.post({"event": "soft_limit"})
    await webhook.aclose()
    (request,) = seen
    assert (request.method, request.headers["content-type"]) == ("POST", "application/json")
    assert request.content == b'{"event":"soft_limit"}'


@pytest.mark.parametrize("answer", [httpx.Response(500), httpx.Response(302), httpx.ConnectError("no")])
async def test_a_webhook_that_is_not_taken_names_no_address(answer):
    def respond(_request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    webhook = Webhook("https://hooks.example.test/secret-path", httpx.MockTransport(respond))
    with pytest.raises(NotDelivered) as caught:
        await webhook.post({})
    assert "secret-path" not in str(caught.value)
    await webhook.aclose()
