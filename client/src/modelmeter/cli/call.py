"""`modelmeter call`: ask a model, show the answer, then the bill."""

from __future__ import annotations

import json
import os
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelmeter.enums import Cause, ReasoningEffort, SchemaMode
from modelmeter.errors import LostContactError, ModelmeterError
from modelmeter.events import TextDelta
from modelmeter.messages import CacheBreakpoint
from modelmeter.results import Completion

from . import bill
from .connection import connect, connection_options
from .documents import document, plain
from .exits import Exit, exit_of
from .failures import show_error
from .inputs import read_json, read_labels, read_prompt, read_tools, sensitivity_option
from .purchase import purchase_options, read_purchase
from .render import Answer, show_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelmeter import Client, CompletionStream

MODES = [mode.value.lower() for mode in SchemaMode if mode is not SchemaMode.UNSPECIFIED]
_EFFORTS = [effort.value.lower() for effort in ReasoningEffort if effort is not ReasoningEffort.UNSPECIFIED]


@click.command()
@click.argument("model")
@click.argument("prompt", required=False)
@click.option("--system", help="Instructions for the model.")
@click.option("--schema", metavar="FILE|JSON", help="JSON Schema that the answer must satisfy.")
@click.option(
    "--schema-mode",
    type=click.Choice(MODES, case_sensitive=False),
    help="How the answer is held to the schema.  [default: as configured for the model]",
)
@click.option(
    "--tool",
    "tools",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="JSON file with a tool to offer: name, description, parameters, strict. May be repeated.",
)
@click.option("--max-output-tokens", type=int, help="Most tokens to generate, reasoning included.")
@click.option("--temperature", type=float, help="Sampling temperature.")
@click.option(
    "--effort", type=click.Choice(_EFFORTS, case_sensitive=False), help="How hard the model should think."
)
@click.option(
    "--cache-system", is_flag=True, help="Let the provider keep tools and instructions in its prompt cache."
)
@click.option(
    "--affinity", metavar="KEY", help="What calls that should meet the same prompt cache have in common."
)
@click.option("--end-user", metavar="ID", help="The person asked for, as an id that names nobody.")
@click.option(
    "--provider-options",
    metavar="FILE|JSON",
    help="Options in the provider's own format, such as its own tools.",
)
@sensitivity_option
@click.option("--call-id", type=click.UUID, help="The id of the call.  [default: a new one]")
@click.option(
    "--label", "labels", metavar="KEY=VALUE", multiple=True, help="Label the call. May be repeated."
)
@purchase_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document: the completion or the error.")
@click.option(
    "--stream/--no-stream",
    "stream",
    default=None,
    help="Show the answer as it comes, or at the end.  [default: as it comes on a terminal]",
)
@connection_options
def call(
    model: str,
    prompt: str | None,
    system: str | None,
    schema: str | None,
    schema_mode: str | None,
    tools: Sequence[Path],
    max_output_tokens: int | None,
    temperature: float | None,
    effort: str | None,
    cache_system: bool,
    affinity: str | None,
    end_user: str | None,
    provider_options: str | None,
    sensitivity: str | None,
    call_id: uuid.UUID | None,
    labels: Sequence[str],
    as_json: bool,
    stream: bool | None,
    address: str,
    tls: bool,
    ca_file: Path | None,
    timeout: float | None,
    **purchase: Any,
) -> None:
    """Ask MODEL for an answer to PROMPT and show what it cost.

    The answer goes to standard output, the bill and errors to standard error. PROMPT is read from standard input
    when it is - or left out. The exit code tells the outcome: 0 an answer; 2 a wrong command line; 3 refused;
    4 too much at the moment; 5 not reached; 6 generated and failed, billed; 7 stopped by a ceiling, an operator or
    the journal; 8 cancelled, out of time, or no outcome told; 70 a fault of the server.
    """
    call_id = call_id or uuid.uuid4()
    answer = Answer()
    live = not as_json and (answer.is_terminal if stream is None else stream)
    options: dict[str, Any] = {
        "prompt": read_prompt(prompt),
        "system": system,
        "schema": read_json(schema, "--schema"),
        "schema_mode": schema_mode,
        "tools": read_tools(tools),
        "max_output_tokens": max_output_tokens,
        "temperature": temperature,
        "reasoning_effort": effort,
        "system_cache_breakpoint": CacheBreakpoint() if cache_system else None,
        "affinity_key": affinity,
        "end_user_id": end_user,
        "provider_options": read_json(provider_options, "--provider-options"),
        "sensitivity": sensitivity,
        "call_id": call_id,
        "labels": read_labels(labels),
        "timeout": timeout,
        **read_purchase(**purchase),
    }
    with connect(address, tls=tls, ca_file=ca_file) as client:
        try:
            if stream is False:
                outcome = _complete(client, model, options)
            else:
                outcome = _stream(client, model, options, answer if live else None)
        except (ValueError, TypeError) as error:
            raise click.UsageError(str(error)) from None
    _show(outcome, answer, as_json=as_json)
    sys.exit(Exit.COMPLETION if isinstance(outcome, Completion) else exit_of(outcome))


def _complete(client: Client, model: str, options: dict[str, Any]) -> Completion | ModelmeterError:
    try:
        return client.complete(model, **options)
    except ModelmeterError as error:
        return error
    except KeyboardInterrupt:
        return LostContactError(
            "cancelled before an outcome was told; the call may have generated and been billed",
            cause=Cause.CALLER,
            model_asked=model,
            call_id=str(options["call_id"]),
        )


def _stream(
    client: Client, model: str, options: dict[str, Any], answer: Answer | None
) -> Completion | ModelmeterError:
    with client.stream(model, **options) as stream:
        try:
            for event in stream:
                if answer is not None and isinstance(event, TextDelta):
                    answer.write(event.text)
            return stream.completion
        except ModelmeterError as error:
            return error
        except (KeyboardInterrupt, BrokenPipeError):
            return _abandon(stream)


def _abandon(stream: CompletionStream) -> Completion | ModelmeterError:
    """Cancel a call and return what is known of it; a completion that has arrived stays one."""
    stream.cancel()
    try:
        for _ in stream:
            pass
        return stream.completion
    except ModelmeterError as error:
        return error


def _show(outcome: Completion | ModelmeterError, answer: Answer, *, as_json: bool) -> None:
    try:
        if as_json:
            named = "completion" if isinstance(outcome, Completion) else "error"
            answer.finish(document(**{named: outcome}))
        elif isinstance(outcome, Completion):
            answer.finish(answer_text(outcome))
        else:
            answer.end_line()
    except BrokenPipeError:
        # Nobody reads the answer any more; the bill is still worth telling. Python would complain at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not as_json:
        _show_bill(outcome, partial=answer.is_begun)


def answer_text(completion: Completion) -> str:
    """Return what the model said: its text, then each tool call as one line of JSON."""
    calls = [json.dumps(plain(call), ensure_ascii=False) for call in completion.tool_calls]
    return "\n".join([*([completion.text] if completion.text else []), *calls])


def _show_bill(outcome: Completion | ModelmeterError, *, partial: bool) -> None:
    if isinstance(outcome, Completion):
        show_rows("answered", bill.of_completion(outcome))
        return
    show_error(outcome, partial=partial)
