"""Clients that balance by themselves, as the pages tell them to."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import modelmeter
from tests.support.running_server import Running, serving
from tests.support.scripted_driver import Hold, ScriptedDriver, Written, answering, closing, opening, text
from tests.support.unreliable_way import UnreliableWay


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


async def test_a_client_that_asks_for_readiness_calls_no_server_that_has_turned_it_off():
    balancing = {
        "loadBalancingConfig": [{"round_robin": {}}],
        "healthCheckConfig": {"serviceName": "readiness"},
    }
    async with serving(ScriptedDriver(answering())) as one, serving(ScriptedDriver(answering())) as two:
        target = f"ipv4:{one.address},{two.address}"
        options = {"grpc.service_config": json.dumps(balancing)}
        async with modelmeter.AsyncClient(target, options=options) as client:
            while not (one.driver.calls and two.driver.calls):
                await client.complete("claude", "Hi")
            one.server.stop_serving()
            for _ in range(1000):  # it hears of it beside its calls; `one` still takes those that come
                before = len(one.driver.calls)
                for _ in range(4):
                    await client.complete("claude", "Hi")
                if len(one.driver.calls) == before:
                    return
    pytest.fail("calls still go to the server that is not ready")


def port_of(running: Running) -> int:
    return int(running.address.rpartition(":")[2])


async def test_calls_leave_an_old_connection_for_a_server_that_was_added_and_none_on_it_is_cut():
    hold = Hold()
    slow = ScriptedDriver([Written(), opening(), text("Hel"), hold, text("lo."), closing()], answering())
    rpc: dict[str, Any] = {"max_connection_age": 0.2}
    async with (
        serving(slow, rpc=rpc) as one,
        serving(ScriptedDriver(answering())) as two,
        UnreliableWay(port_of(one)) as balancer,
        modelmeter.AsyncClient(balancer.url.removeprefix("http://")) as client,
    ):
        streaming = asyncio.create_task(client.complete("claude", "Hi"))
        await hold.reached.wait()
        balancer.lead_to(port_of(two))
        async with asyncio.timeout(10):
            while not two.driver.calls:
                await client.complete("claude", "Hi")
        hold.go.set()
        assert (await streaming).text == "Hello."
    assert not [each for each in one.memory.outcomes if each.result.certainty.name != "EXACT"]


@pytest.mark.parametrize(("options", "connections"), [({}, 1), ({"grpc.use_local_subchannel_pool": 1}, 3)])
async def test_several_clients_of_a_process_have_a_connection_each_only_where_they_ask_for_it(
    options, connections
):
    async with serving(ScriptedDriver(answering())) as running, UnreliableWay(port_of(running)) as way:
        clients = [modelmeter.AsyncClient(way.url.removeprefix("http://"), options=options) for _ in range(3)]
        for client in clients:
            await client.complete("claude", "Hi")
        assert way.accepted == connections
        for client in clients:
            await client.close()
