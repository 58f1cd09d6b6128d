"""`modelmeter watch`: what happens to calls, as it happens."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

import click

from modelmeter.enums import ErrorKind, EventSeverity
from modelmeter.errors import ModelmeterError

from . import bill
from .connection import add_tenant_option, connect, connection_options, named_tenant
from .documents import plain
from .exits import exit_of
from .render import show_rows

if TYPE_CHECKING:
    from pathlib import Path

    from modelmeter.watched import Event

_SEVERITIES = [each.value.lower() for each in EventSeverity if each is not EventSeverity.UNSPECIFIED]
_ERROR_KINDS = [each.value.lower() for each in ErrorKind if each is not ErrorKind.UNSPECIFIED]
_LONGEST = 200
"""Characters of one value on a line; `--json` has the whole."""


@click.command()
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only this kind; may be repeated.")
@click.option("--call-id", default="", help="Only events of this call.")
@click.option("--conversation", "conversation_id", default="", help="Only events of this conversation.")
@click.option("--run", "run_id", default="", help="Only events of this run.")
@click.option("--session", "session_id", default="", help="Only events of this session.")
@click.option("--model", default="", help="Only events that name this model.")
@click.option(
    "--error-kind",
    "error_kinds",
    multiple=True,
    type=click.Choice(_ERROR_KINDS, case_sensitive=False),
    help="Only events that name this kind of failure; may be repeated.",
)
@click.option("--tool", default="", help="Only events about this tool of the provider's.")
@click.option("--target", default="", help="Only events that name this target.")
@click.option("--min-severity", type=click.Choice(_SEVERITIES), help="Only this severity and higher ones.")
@click.option("--count", type=click.IntRange(min=1), help="End after this many events.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@connection_options
def watch(
    count: int | None,
    as_json: bool,
    address: str,
    tls: bool,
    ca_file: Path | None,
    timeout: float | None,
    **wanted: Any,
) -> None:
    """Watch the calls of a server live, until Ctrl-C."""
    left = math.inf if count is None else count
    try:
        with (
            connect(address, tls=tls, ca_file=ca_file) as client,
            client.events.of(named_tenant()).watch(timeout=timeout or math.inf, **wanted) as batches,
        ):
            for batch in batches:
                if batch.lost:
                    click.echo(f"{batch.lost} events lost: this watcher was slow", err=True)
                for event in batch.events:
                    click.echo(_json(event) if as_json else line(event))
                    left -= 1
                    if not left:
                        return
    except KeyboardInterrupt:
        return  # as it is meant to end
    except ModelmeterError as error:
        show_rows(f"{bill.title(error)}: {error.message}", [], error=True)
        sys.exit(exit_of(error))


def _json(event: Event) -> str:
    return json.dumps(plain(event), ensure_ascii=False)


def line(event: Event) -> str:
    """Return an event on one line: when, what, which call, and what the kind tells."""
    moment = event.occurred_at.strftime("%H:%M:%S.%f")[:-3]
    told = [f"{name}={_text(value)}" for name, value in event.fact.items() if _says(value)]
    return " ".join((moment, f"{event.kind:<24}", event.call_id[:8] or "-" * 8, *told))


def _says(value: object) -> bool:
    return value not in (None, "", 0, False, {}) and str(value) != "UNSPECIFIED"


def _text(value: object) -> str:
    told = plain(value)
    if isinstance(told, dict) and "nano_units" in told:
        return _cost(told)
    if isinstance(told, dict):
        # A zero of a bill is a figure; what nobody told is None.
        return ",".join(f"{name}:{_text(inner)}" for name, inner in told.items() if inner not in (None, {}))
    if isinstance(told, float):
        return f"{told:.3f}"
    # Control characters of a provider's word must not move the cursor of whoever watches.
    text = "".join(character if character.isprintable() else "?" for character in str(told))
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _cost(told: dict[str, Any]) -> str:
    """Return a cost as on a bill, without a blank so that it stays one word; a figure that is not exact says so."""
    certainty = told.get("certainty", "")
    figure = f"{bill.units(told['nano_units'] or 0)}{told.get('currency') or ''}"
    return figure if certainty in ("", "EXACT") else f"{figure},certainty:{certainty}"


add_tenant_option(watch)
