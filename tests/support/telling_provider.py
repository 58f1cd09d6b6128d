"""A provider that keeps books of its own: which call it was asked for, how often, and every figure that it told.

A call is known by the word `call-<id>` in its prompt. What is served and how slowly is drawn from the id, so that it is
the same however often a test runs. An answer is told in steps, each with a figure for the output so far; what was told
is in the books before its bytes leave, so the books are never behind what the other end knows.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

from . import anthropic_events
from .fault_server import End, RecordedRequest, Reply
from .wire_bytes import Json, frame

Told = tuple[int | None, int | None]
"""Input and output tokens."""

_CALL = re.compile(rb"call-([0-9a-f-]{36})")


def prompt(call_id: str) -> str:
    """Return the prompt of a call."""
    return f"call-{call_id}"


@dataclass(frozen=True)
class Plan:
    """What the provider does about one call."""

    input: int
    outputs: tuple[int, ...]
    """The figure told with each step, rising."""
    pause: float = 0.0
    """Seconds before each step."""
    steps: int | None = None
    """How many steps are served before `end`; `None` for all of them, and then a clean end."""
    end: End = "clean"

    @property
    def total(self) -> Told:
        """Return the whole bill."""
        return self.input, self.outputs[-1]


def drawn(call_id: str, *, slowest: float = 0.0) -> Plan:
    """Return the plan that an id stands for: 2 to 8 steps, at most `slowest` seconds apart."""
    random = Random(call_id)
    outputs, so_far = [], 1
    for _ in range(random.randint(2, 8)):
        so_far += random.randint(1, 40)
        outputs.append(so_far)
    return Plan(random.randint(100, 9_999), tuple(outputs), pause=random.uniform(0, slowest))


@dataclass
class Served:
    """The provider's books of one call."""

    requests: int = 0
    told: list[Told] = field(default_factory=list)
    """Every figure, in order."""
    stopped: bool = False
    """Whether it told why it stopped: its bill is whole."""

    @property
    def generated(self) -> bool:
        """Say whether it told anything."""
        return bool(self.told)


class TellingProvider:
    """The books of a provider, and the function that makes a `FaultServer` one: `FaultServer(provider)`."""

    def __init__(self, planned: Callable[[str], Plan]) -> None:
        """`planned` says what is done about a call, by its id."""
        self.planned = planned
        self.hurried = False
        """Whether answers come whole and without pauses from now on."""
        self.books: dict[str, Served] = {}
        self.steps = 0
        """How many steps were told, all calls together."""

    def __call__(self, request: RecordedRequest) -> Reply:
        """Answer a request."""
        found = _CALL.search(request.body)
        assert found is not None, request.body
        call_id = found[1].decode()
        served = self.books.setdefault(call_id, Served())
        served.requests += 1
        plan = self.planned(call_id)
        if self.hurried:
            plan = replace(plan, pause=0.0, steps=None)
        end: End = "clean" if plan.steps is None else plan.end
        return Reply(chunks=self._chunks(plan, served), end=end)

    @property
    def requests(self) -> int:
        """Return how many requests came."""
        return sum(served.requests for served in self.books.values())

    def _chunks(self, plan: Plan, served: Served) -> Iterator[bytes | asyncio.Event]:
        for number, (event, told) in enumerate(_events(plan)):
            if plan.steps is not None and number >= plan.steps:
                return
            if plan.pause:
                yield _after(plan.pause)
            self.steps += 1
            if told is not None:
                served.told.append(told)
            served.stopped = served.stopped or event[-1] == anthropic_events.STOP
            yield b"".join(map(frame, event))


def _events(plan: Plan) -> Iterator[tuple[list[Json], Told | None]]:
    usage = {"input_tokens": plan.input, "output_tokens": 1}
    yield [anthropic_events.start(usage), anthropic_events.opened(0)], (plan.input, 1)
    for number, output in enumerate(plan.outputs):
        step = [
            anthropic_events.text(0, f"{number} "),
            anthropic_events.ended(None, {"output_tokens": output}),
        ]
        yield step, (plan.input, output)
    last = anthropic_events.ended("end_turn", {"output_tokens": plan.outputs[-1]})
    yield [anthropic_events.closed(0), last, anthropic_events.STOP], None


def _after(seconds: float) -> asyncio.Event:
    """Return an event that comes by itself: how slow a model is, not something that a test waits for."""
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, event.set)
    return event
