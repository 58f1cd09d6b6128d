"""Clients that balance by themselves, as the pages tell them to."""

from __future__ import annotations

import modelmeter
from tests.support.running_server import serving
from tests.support.scripted_driver import ScriptedDriver, answering


async def test_round_robin_spreads_the_calls_of_one_client_over_all_servers():
    options = {"grpc.lb_policy_name": "round_robin"}
    async with serving(ScriptedDriver(answering())) as one, serving(ScriptedDriver(answering())) as two:
        target = f"ipv4:{one.address},{two.address}"
        async with modelmeter.AsyncClient(target, options=options) as client:
            while not (one.driver.calls and two.driver.calls):  # until both connections stand
                await client.complete("claude", "Hi")
            before = [len(each.driver.calls) for each in (one, two)]
            for _ in range(10):
                await client.complete("claude", "Hi")
    assert [len(each.driver.calls) - made for each, made in zip((one, two), before, strict=True)] == [5, 5]
