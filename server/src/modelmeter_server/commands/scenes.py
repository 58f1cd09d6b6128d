"""The scenes of `modelmeter demo`: a server, five calls, and what its ledger has of them."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.table import Table

from modelmeter import (
    Amount,
    AsyncClient,
    CallState,
    Certainty,
    Completion,
    Effect,
    LedgerCall,
    ModelmeterError,
    Spend,
)
from modelmeter.cli import bill, render
from modelmeter.cli.ledger_calls import outcome as outcome_of
from modelmeter_server import app
from modelmeter_server.config import load
from modelmeter_server.telemetry.log import configure_logging

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelmeter_server.config import Settings

Outcome = Completion | ModelmeterError

_PIPE_WIDTH = 110
_RUN = "demo"


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """A call, how it has to end, and how the ledger has to have it."""

    title: str
    story: str
    script: str
    kind: str | None
    """Kind of the error; `None` for an answer."""
    certainty: Certainty
    tells_usage: bool
    state: CallState
    replayed: bool = False
    """Whether the ledger answers and nothing is bought."""

    def is_kept_by(self, outcome: Outcome) -> bool:
        """Say whether a call ended as this scene promises."""
        kind = outcome.kind.value if isinstance(outcome, ModelmeterError) else None
        replayed = isinstance(outcome, Completion) and outcome.replayed
        promised = (self.kind, self.certainty, self.tells_usage, self.replayed)
        return (kind, outcome.certainty, outcome.usage.told, replayed) == promised

    def is_booked_as(self, call: LedgerCall | None) -> bool:
        """Say whether the ledger has a call as this scene promises."""
        return call is not None and (call.state, call.certainty) == (self.state, self.certainty)


SCENES = (
    Scene(
        title="A good answer",
        story="The provider streams an answer and tells its usage at the end: the bill is exact.",
        script="drip",
        kind=None,
        certainty=Certainty.EXACT,
        tells_usage=True,
        state=CallState.SETTLED,
    ),
    Scene(
        title="The same once more",
        story="A program that starts again asks for an effect that it had: it gets its answer, bought once.",
        script="drip",
        kind=None,
        certainty=Certainty.EXACT,
        tells_usage=True,
        state=CallState.SETTLED,
        replayed=True,
    ),
    Scene(
        title="An interrupted one",
        story="The connection breaks in mid-answer. It is billed, and what was told of the bill is a lower bound.",
        script="cut",
        kind="INTERRUPTED",
        certainty=Certainty.AT_LEAST,
        tells_usage=True,
        state=CallState.UNSETTLED,
    ),
    Scene(
        title="An unaccounted one",
        story="The connection breaks before any usage was told: billed all the same, and never written as zero.",
        script="cut_before_usage",
        kind="UNACCOUNTED",
        certainty=Certainty.UNKNOWN,
        tells_usage=False,
        state=CallState.UNSETTLED,
    ),
    Scene(
        title="A refused one",
        story="The provider judges the request wrong before it generates: nothing happened, nothing is billed.",
        script="refused",
        kind="REFUSED",
        certainty=Certainty.NONE,
        tells_usage=False,
        state=CallState.SETTLED,
    ),
)


async def show() -> bool:
    """Play every scene and show the ledger; return whether all calls ended and were booked as promised."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    # The line that a server leaves for every call would stand between the scenes.
    configure_logging("error")
    with TemporaryDirectory(prefix="modelmeter-demo-") as folder:
        url = f"sqlite:///{folder}/modelmeter.db"
        settings = load(None, {"MODELMETER_LEDGER_URL": url}, listen=["127.0.0.1:0"])
        broken = await _play_all(settings, console)
    for scene in broken:
        console.print(f"{scene.title} did not end as promised.", style="bold red")
    return not broken


async def _play_all(settings: Settings, console: Console) -> list[Scene]:
    """Return the scenes that did not end as promised."""
    async with app.running(settings) as addresses, AsyncClient(addresses[0]) as client:
        console.print(
            f"A modelmeter server with the embedded provider and ledger listens on {addresses[0]}.\n"
        )
        outcomes = [await _play(scene, client, console) for scene in SCENES]
        calls = {call.call_id: call async for call in client.ledger.list_calls(run_id=_RUN)}
        sums = await client.ledger.spend(by="run", values=[_RUN])
    _show_ledger(list(reversed(calls.values())), sums, console)
    return [
        scene
        for scene, outcome in zip(SCENES, outcomes, strict=True)
        if not (scene.is_kept_by(outcome) and scene.is_booked_as(calls.get(outcome.call_id)))
    ]


async def _play(scene: Scene, client: AsyncClient, console: Console) -> Outcome:
    console.print(f"{scene.title}: replay/{scene.script}", style="bold")
    console.print(scene.story, style="dim")
    outcome: Outcome
    try:
        async with client.stream(
            f"replay/{scene.script}",
            "Why is the sky blue?",
            max_output_tokens=100,
            effect=Effect(_RUN, scene.script),
            timeout=10,
        ) as stream:
            async for text in stream.text:
                console.print(text, end="", markup=False)
        outcome = stream.completion
    except ModelmeterError as error:
        outcome = error
    console.print()
    _show(outcome, console)
    return outcome


def _show(outcome: Outcome, console: Console) -> None:
    if isinstance(outcome, ModelmeterError):
        render.print_rows(
            console, f"{bill.title(outcome)}: {outcome.message}", bill.of_error(outcome), error=True
        )
    else:
        render.print_rows(console, "answered", bill.of_completion(outcome))
    console.print()


def _show_ledger(calls: Sequence[LedgerCall], sums: Sequence[Spend], console: Console) -> None:
    table = Table("effect", "outcome", "state", "certainty", "settled", "unsettled", box=None, pad_edge=False)
    for call in calls:
        booking = call.booking
        table.add_row(
            call.effect_key,
            outcome_of(call),
            call.state.value,
            call.certainty.value,
            _money(booking.settled, booking.currency),
            _money(booking.unsettled, booking.currency),
        )
    console.print("What the ledger has of them", style="bold")
    console.print(table)
    for each in sums:
        console.print(
            f"\nThe run asked for {len(SCENES)} calls and bought {each.calls}: "
            f"settled {bill.booked(each.settled, each.currency)},\n"
            f"and unsettled at most {bill.booked(each.unsettled, each.currency)}."
        )


def _money(amount: Amount, currency: str) -> str:
    return f"{bill.units(amount.nano_units)} {currency}" if amount.nano_units else "none"
