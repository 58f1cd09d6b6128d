"""What the command line says of a purchase: its effect, its ceiling, how often it may be tried, or that there is to be
none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import click

from modelmeter.records import CallCeiling, Effect
from modelmeter.results import RetryPolicy

from .ledger_face import Money

if TYPE_CHECKING:
    from collections.abc import Callable


class Purchase(TypedDict):
    """The options of a call that say what may be bought."""

    effect: Effect | None
    ceiling: CallCeiling | None
    retry_policy: RetryPolicy | None
    replay_only: bool


def purchase_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `read_purchase` reads."""
    for option in reversed(
        (
            click.option("--run", metavar="RUN", help="The run that the call belongs to; with --effect."),
            click.option(
                "--effect",
                metavar="KEY",
                help="The call's key in its run: the same key is never bought twice.",
            ),
            click.option(
                "--retry-landed",
                is_flag=True,
                help="Buy again what the journal has as an error; with --effect.",
            ),
            click.option("--ceiling-tokens", type=int, help="Most tokens of this call, input and output."),
            click.option("--ceiling-money", type=Money(), help="Most money of this call, such as 0.05USD."),
            click.option(
                "--max-attempts",
                type=click.IntRange(min=1),
                help="Most provider requests, within the model's maximum.  [default: that maximum]",
            ),
            click.option(
                "--repeat-ambiguous",
                is_flag=True,
                help="Also repeat after silence, which may buy the answer twice.",
            ),
            click.option(
                "--repeat-landed", is_flag=True, help="Also repeat what landed and failed; each is billed."
            ),
            click.option("--replay-only", is_flag=True, help="Answer from the journal or not at all."),
        )
    ):
        function = option(function)
    return function


def read_purchase(
    *,
    run: str | None,
    effect: str | None,
    retry_landed: bool,
    ceiling_tokens: int | None,
    ceiling_money: tuple[int, str] | None,
    max_attempts: int | None,
    repeat_ambiguous: bool,
    repeat_landed: bool,
    replay_only: bool,
) -> Purchase:
    """Return the options as the client takes them. Raises click.UsageError for half an effect."""
    if (run is None) != (effect is None) or (retry_landed and effect is None):
        message = "--run and --effect go together, and --retry-landed with them"
        raise click.UsageError(message)
    ceiling = None
    if ceiling_tokens is not None or ceiling_money is not None:
        nano_units, currency = ceiling_money or (None, "")
        ceiling = CallCeiling(tokens=ceiling_tokens, nano_units=nano_units, currency=currency)
    return Purchase(
        effect=None
        if run is None or effect is None
        else Effect(run, effect, "retry" if retry_landed else "replay"),
        ceiling=ceiling,
        retry_policy=RetryPolicy(max_attempts or 0, ambiguous=repeat_ambiguous, landed=repeat_landed)
        if max_attempts is not None or repeat_ambiguous or repeat_landed
        else None,
        replay_only=replay_only,
    )
