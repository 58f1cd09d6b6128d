"""A call of the replay provider can be ended from outside at any moment, and then says what is known."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from modelmeter_server.core.answers import Answer
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Kind, Stage
from modelmeter_server.drivers.http import Timeouts
from modelmeter_server.drivers.replay import ReplayDriver, Wire
from tests.support.replay import Witness, driver_of, started

NEVER = Timeouts(first_byte=math.inf, idle=math.inf, total=math.inf)
STALLS: dict[str, dict[str, Any]] = {
    "before": {"stops_at": "written", "end": "stall"},
    "head": {"cut_after": 0, "end": "stall"},
    "within": {"cut_after": -4, "end": "stall"},
    "delayed": {"delay": 3600},
    "paused": {"pause": 3600},
}


class Cutter(Witness):
    """Cut the call in the midst of a read."""

    def __init__(self, read: int, cause: Cause = Cause.CALLER) -> None:
        super().__init__()
        self._read = read
        self._cause = cause

    def progressed(self) -> None:
        super().progressed()
        if self.heard.count("progressed") == self._read and self.call is not None:
            self.call.cut(self._cause, "enough")


async def test_a_call_that_is_cut_before_it_runs_sends_nothing():
    driver, witness = driver_of(own={"calls": [{"status": 503}]}), Witness()
    call = started(driver, "own", observer=witness)
    call.cut(Cause.CALLER)
    result = await call.run()
    assert isinstance(result, Failure)
    assert (result.kind, result.certainty, result.stage) == (
        Kind.UNREACHABLE,
        Certainty.NONE,
        Stage.NOT_WRITTEN,
    )
    assert result.code is Code.CANCELLED
    assert witness.heard == []
    assert not driver.requests


async def test_a_call_that_was_cut_before_it_ran_uses_up_no_entry_of_its_script():
    driver = driver_of(own={"calls": [{"text": "first"}]})
    started(driver, "own").cut(Cause.CALLER)
    result = await started(driver, "own").run()
    assert isinstance(result, Answer)
    assert result.text == "first"


@pytest.mark.parametrize("wire", [wire.value for wire in Wire])
async def test_a_cut_in_any_read_ends_the_call_there_and_tells_what_is_known(wire):
    driver = driver_of(NEVER, own={"wire": wire, "text": "one two three four", "pause": 1e-4})
    whole = Witness()
    assert isinstance(await started(driver, "own", observer=whole).run(), Answer)
    # The usage and `[DONE]` follow an answer that is whole.
    tail = 2 if wire == Wire.CHAT_COMPLETIONS.value else 0
    for read in range(1, whole.heard.count("progressed") - tail):
        cutter = Cutter(read)
        call = started(driver, "own", observer=cutter)
        result = await call.run()
        assert isinstance(result, Failure)
        assert (result.cause, result.code) == (Cause.CALLER, Code.CANCELLED)
        assert result.certainty is not Certainty.NONE
        assert (result.stage is Stage.OUTPUT) == call.accumulator.generated
        assert cutter.heard.count("progressed") == read


async def test_a_cut_in_the_read_that_brings_the_end_changes_nothing():
    driver = driver_of(NEVER, own={})
    result = await started(driver, "own", observer=Cutter(1)).run()
    assert isinstance(result, Answer)


@pytest.mark.parametrize("cause", [Cause.CALLER, Cause.DEADLINE, Cause.DRAIN])
@pytest.mark.parametrize("script", STALLS)
async def test_a_cut_ends_any_silence_at_once(script, cause):
    driver = driver_of(NEVER, **STALLS)
    call = started(driver, script)
    asyncio.get_running_loop().call_soon(call.cut, cause, "enough")
    result = await call.run()
    assert isinstance(result, Failure)
    assert result.cause is cause
    assert result.message == "enough"


@pytest.mark.parametrize("script", STALLS)
async def test_a_cancelled_task_is_cancelled_at_once(script):
    task = asyncio.create_task(started(driver_of(NEVER, **STALLS), script).run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_nothing_is_played_to_a_call_whose_task_was_cancelled():
    driver = driver_of(NEVER, own={"pause": 1e-4}, longer={"pause": 1e-4, "text": "word " * 50})
    witness = Witness()
    task = asyncio.create_task(started(driver, "own", observer=witness).run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    heard = list(witness.heard)
    assert isinstance(await started(driver, "longer").run(), Answer)
    assert witness.heard == heard == ["written", "progressed"]


async def test_a_cut_after_the_end_is_harmless():
    call = started(ReplayDriver(), "answer")
    result = await call.run()
    call.cut(Cause.CALLER)
    assert isinstance(result, Answer)
    assert call.attempts[0].cause is None


async def test_closing_the_driver_cuts_what_runs_and_lets_nothing_begin():
    driver = driver_of(NEVER, **STALLS)
    running, late = started(driver, "within"), started(driver, "within")
    task = asyncio.create_task(running.run())
    await asyncio.sleep(0)
    await driver.aclose()
    cut, never = await task, await late.run()
    assert isinstance(cut, Failure)
    assert isinstance(never, Failure)
    assert (cut.kind, cut.cause) == (Kind.INTERRUPTED, Cause.DRAIN)
    assert (never.kind, never.cause) == (Kind.UNREACHABLE, Cause.DRAIN)


async def test_a_call_runs_once():
    call = started(ReplayDriver(), "answer")
    await call.run()
    with pytest.raises(RuntimeError, match="once"):
        await call.run()


class Faulty(Witness):
    """Fail in the midst of a read, as a bug of ours would."""

    def progressed(self) -> None:
        message = "secret"
        raise ZeroDivisionError(message)


async def test_a_fault_of_our_own_is_a_bug_with_the_bill_and_without_its_text():
    result = await started(ReplayDriver(), "cut", observer=Faulty()).run()
    assert isinstance(result, Failure)
    assert (result.kind, result.cause, result.code) == (Kind.BUG, Cause.BUG, Code.INTERNAL)
    assert result.usage is not None
    assert "secret" not in result.message
