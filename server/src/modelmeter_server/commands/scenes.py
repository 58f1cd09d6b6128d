"""The scenes of `modelmeter demo`: a server, five calls, and what is known of each."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.table import Table

from modelmeter import AsyncClient, Certainty, Completion, ModelmeterError
from modelmeter.cli import bill, render
from modelmeter_server import app
from modelmeter_server.config import load
from modelmeter_server.telemetry.log import configure_logging

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelmeter_server.config import Settings

Outcome = Completion | ModelmeterError

_PIPE_WIDTH = 110


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """A call, and how it has to end."""

    title: str
    story: str
    script: str
    kind: str | None
    """Kind of the error; `None` for an answer."""
    certainty: Certainty
    tells_usage: bool

    def is_kept_by(self, outcome: Outcome) -> bool:
        """Say whether a call ended as this scene promises."""
        kind = outcome.kind.value if isinstance(outcome, ModelmeterError) else None
        promised = (self.kind, self.certainty, self.tells_usage)
        return (kind, outcome.certainty, outcome.usage.told) == promised


SCENES = (
    Scene(
        title="A good answer",
        story="The provider streams an answer and tells its usage at the end: the bill is exact.",
        script="drip",
        kind=None,
        certainty=Certainty.EXACT,
        tells_usage=True,
    ),
    Scene(
        title="An interrupted one",
        story="The connection breaks in mid-answer. It is billed, and what was told of the bill is a lower bound.",
        script="cut",
        kind="INTERRUPTED",
        certainty=Certainty.AT_LEAST,
        tells_usage=True,
    ),
    Scene(
        title="An unaccounted one",
        story="The connection breaks before any usage was told: billed all the same, and never written as zero.",
        script="cut_before_usage",
        kind="UNACCOUNTED",
        certainty=Certainty.UNKNOWN,
        tells_usage=False,
    ),
    Scene(
        title="A refused one",
        story="The provider judges the request wrong before it generates: nothing happened, nothing is billed.",
        script="refused",
        kind="REFUSED",
        certainty=Certainty.NONE,
        tells_usage=False,
    ),
    Scene(
        title="A throttled one",
        story="The provider asks to wait: nothing happened, and the error says after how long to come back.",
        script="rate_limited",
        kind="RATE_LIMITED",
        certainty=Certainty.NONE,
        tells_usage=False,
    ),
)


async def show() -> bool:
    """Play every scene; return whether all calls ended as promised."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    # The line that a server leaves for every call would stand between the scenes.
    configure_logging("error")
    with TemporaryDirectory(prefix="modelmeter-demo-") as folder:
        url = f"sqlite:///{folder}/modelmeter.db"
        outcomes = await _play_all(
            load(None, {"MODELMETER_LEDGER_URL": url}, listen=["127.0.0.1:0"]), console
        )
    _summarize(outcomes, console)
    broken = [scene for scene, outcome in zip(SCENES, outcomes, strict=True) if not scene.is_kept_by(outcome)]
    for scene in broken:
        console.print(f"{scene.title} did not end as promised.", style="bold red")
    return not broken


async def _play_all(settings: Settings, console: Console) -> list[Outcome]:
    async with app.running(settings) as addresses, AsyncClient(addresses[0]) as client:
        console.print(f"A modelmeter server with the embedded provider listens on {addresses[0]}.\n")
        return [await _play(scene, client, console) for scene in SCENES]


async def _play(scene: Scene, client: AsyncClient, console: Console) -> Outcome:
    console.print(f"{scene.title}: replay/{scene.script}", style="bold")
    console.print(scene.story, style="dim")
    outcome: Outcome
    try:
        async with client.stream(f"replay/{scene.script}", "Why is the sky blue?", timeout=10) as stream:
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


def _summarize(outcomes: Sequence[Outcome], console: Console) -> None:
    table = Table("script", "outcome", "tokens", "certainty", "cost", box=None, pad_edge=False)
    for scene, outcome in zip(SCENES, outcomes, strict=True):
        table.add_row(scene.script, *_cells(outcome))
    console.print("What is known of these calls", style="bold")
    console.print(table)
    known = sum(outcome.cost.nano_units for outcome in outcomes if outcome.cost is not None)
    unknown = sum(outcome.certainty is Certainty.UNKNOWN for outcome in outcomes)
    console.print(
        f"\nAltogether at least {bill.units(known)} USD, and {unknown} call whose cost nobody told."
    )


def _cells(outcome: Outcome) -> tuple[str, str, str, str]:
    word = outcome.kind.value if isinstance(outcome, ModelmeterError) else "answered"
    if outcome.certainty is Certainty.NONE:
        return word, "none", outcome.certainty.value, "none"
    cost = "not known" if outcome.cost is None else bill.amount(outcome.cost)
    bound = "at least " if outcome.cost is not None and outcome.cost.certainty is Certainty.AT_LEAST else ""
    usage = outcome.usage
    tokens = f"{usage.input_tokens} in, {usage.output_tokens} out" if usage.told else "not told"
    return word, tokens, outcome.certainty.value, bound + cost
