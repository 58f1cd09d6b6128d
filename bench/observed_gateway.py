"""This service with its telemetry on or off, and with other calls' events in it where asked for.

Run as `python -m bench.observed_gateway PROVIDER_URL off|on|busy`: prints the port, serves until its standard input
ends. `busy` tells 10,000 events a second beside those of the calls.
"""

from __future__ import annotations

import asyncio
import sys
import time

from bench.answers import KINDS
from modelmeter_server.config import ProviderSettings
from modelmeter_server.core.answers import Finish
from modelmeter_server.core.events import AttemptEnded, PromptCompleted, PromptStarted
from modelmeter_server.core.outcomes import Certainty, Stage
from modelmeter_server.core.usage import Usage
from modelmeter_server.engine.catalog import Catalog
from modelmeter_server.engine.engine import Engine
from modelmeter_server.parts import make_driver
from modelmeter_server.rpc.server import RpcServer
from modelmeter_server.telemetry.bus import EventBus
from modelmeter_server.telemetry.calls import call_recorder
from modelmeter_server.telemetry.happenings import Belonging
from modelmeter_server.telemetry.observation import Telemetry

EVENTS_PER_SECOND = 10_000
TICK = 0.005


async def _be_busy(telemetry: Telemetry) -> None:
    """Tell the events of other calls.

    Paced by the processor time of this process: that is a second of the clock for a busy server with a core of its own,
    and the same share of work on a machine that does other things.
    """
    told, begun = 0, time.process_time()
    while True:
        await asyncio.sleep(TICK)
        due = int((time.process_time() - begun) * EVENTS_PER_SECOND)
        while told < due:
            _tell_call(telemetry, told)
            told += 3


def _tell_call(telemetry: Telemetry, number: int) -> None:
    """Tell the events of a call; its ids, tokens and times are its own, as those of real calls are."""
    to, tell = Belonging("default", f"3f2504e0-4f89-41d3-9a0c-{number:012x}"), telemetry.happenings.tell
    used = Usage(input_tokens=25 + number % 9_973, output_tokens=400)
    elapsed = 0.01 + number % 1_009 / 1e5
    tell(PromptStarted, to, model_asked="bench-1", messages=1)
    tell(
        AttemptEnded,
        to,
        number=1,
        target="anthropic",
        stage=Stage.OUTPUT,
        certainty=Certainty.EXACT,
        elapsed=elapsed,
        usage=used,
    )
    tell(
        PromptCompleted,
        to,
        model_asked="bench-1",
        model_served="bench-1",
        target="anthropic",
        usage=used,
        certainty=Certainty.EXACT,
        finish=Finish.STOP,
        stop_reason="end_turn",
        provider_response_id=f"msg_{number:024x}",
        attempts_total=1,
        queue_time=0.001,
        first_token_time=0.002,
        total_time=elapsed + 0.001,
    )


async def _serve(url: str, mode: str) -> None:
    settings = ProviderSettings(name=KINDS[0], kind=KINDS[0], base_url=url, allow_direct_models=True)
    driver = make_driver(settings)
    catalog = Catalog([], {driver.name: (driver.kind, driver.capabilities)})
    telemetry = None if mode == "off" else Telemetry(bus=EventBus())
    server = RpcServer(Engine(catalog, {driver.name: driver}, call_recorder(), telemetry=telemetry))
    (address,) = await server.start(["127.0.0.1:0"])
    print(address.rpartition(":")[2], flush=True)
    busy = asyncio.create_task(_be_busy(telemetry)) if telemetry is not None and mode == "busy" else None
    await asyncio.to_thread(sys.stdin.read)
    if busy is not None:
        busy.cancel()
    await server.stop(0)
    await driver.aclose()


def main(url: str, mode: str) -> None:
    """Serve until the standard input ends."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(url, mode))


if __name__ == "__main__":
    main(*sys.argv[1:3])
