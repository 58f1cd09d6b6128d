"""`modelmeter session`: a conversation, turn by turn, with the bill after each."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from modelmeter.errors import ModelmeterError
from modelmeter.events import TextDelta

from . import bill
from .call import answer_text
from .connection import connect_async, connection_options
from .exits import Exit, exit_of
from .failures import show_error
from .inputs import sensitivity_option
from .render import Answer, show_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from modelmeter import AsyncClient, AsyncSession
    from modelmeter.results import Completion

PROMPT = "> "
NEW = "/new"
QUIT = "/quit"


@click.command()
@click.argument("model")
@click.option("--system", help="Instructions for the model, sent with every turn.")
@click.option(
    "--max-output-tokens", type=int, help="Most tokens that one turn generates, reasoning included."
)
@sensitivity_option
@click.option("--conversation", metavar="ID", default="", help="Your name for the conversation.")
@click.option(
    "--keep-transcript",
    is_flag=True,
    help="Let the server keep what is said, to go on when the provider has forgotten it.",
)
@connection_options
def session(
    model: str,
    system: str | None,
    max_output_tokens: int | None,
    sensitivity: str | None,
    conversation: str,
    keep_transcript: bool,
    address: str,
    tls: bool,
    ca_file: Path | None,
    timeout: float | None,
) -> None:
    """Talk with MODEL: each line of standard input is a turn.

    Answers go to standard output, the bill of each turn and errors to standard error. A line "/new" begins a new
    conversation, "/quit" or the end of input ends the session. `--timeout` is for each turn. The exit code is that of
    `modelmeter call` for the first turn that failed, or 0.
    """
    options = {
        "system": system,
        "max_output_tokens": max_output_tokens,
        "sensitivity": sensitivity,
        "timeout": timeout,
    }
    # The loop runs within turns only, so that reading a line can be interrupted.
    with asyncio.Runner() as runner:
        talk = _Talk(runner, connect_async(address, tls=tls, ca_file=ca_file), options)
        try:
            talk.open(model, conversation_id=conversation, keep_transcript=keep_transcript)
            for line in _lines():
                talk.take(line)
        except ModelmeterError as error:
            talk.fail(error)
        except KeyboardInterrupt:
            talk.exit = talk.exit or Exit.NO_OUTCOME
        finally:
            talk.close()
    sys.exit(talk.exit)


class _Talk:
    """The session and what is shown of it."""

    def __init__(self, runner: asyncio.Runner, client: AsyncClient, options: dict[str, Any]) -> None:
        self.exit: Exit | int = Exit.COMPLETION
        self._run = runner.run
        self._client = client
        self._options = options
        self._session: AsyncSession | None = None
        self._begins_anew = False

    def open(self, model: str, **options: Any) -> None:
        self._session = self._run(self._client.open_session(model, **options))
        rows = [("session", self._session.session_id), ("transport", self._session.transport.value)]
        show_rows(self._session.model, rows)

    def take(self, line: str) -> None:
        if line == NEW:
            self._begins_anew = True
            return
        answer = Answer()
        try:
            completion = self._run(self._turn(line, answer))
        except ModelmeterError as error:
            answer.end_line()
            self.fail(error, partial=answer.is_begun)
            return
        answer.finish(answer_text(completion))
        show_rows("answered", bill.of_completion(completion))

    async def _turn(self, line: str, answer: Answer) -> Completion:
        assert self._session is not None
        previous, self._begins_anew = "" if self._begins_anew else None, False
        turn = await self._session.turn(line, previous_response_id=previous, **self._options)
        async for event in turn:
            if answer.is_terminal and isinstance(event, TextDelta):
                answer.write(event.text)
        return turn.completion

    def fail(self, error: ModelmeterError, *, partial: bool = False) -> None:
        show_error(error, partial=partial)
        self.exit = self.exit or exit_of(error)

    def close(self) -> None:
        if self._session is not None:
            ended = self._run(self._session.close(cut=True))
            if ended is not None:
                show_rows(f"ended ({ended.reason.value})", bill.of_totals(ended.totals))
        self._run(self._client.close())


def _lines() -> Iterator[str]:
    """Yield the lines of standard input that are not blank, until one says to quit."""
    is_terminal = sys.stdin.isatty()
    while True:
        if is_terminal:
            click.echo(PROMPT, nl=False, err=True)
        line = sys.stdin.buffer.readline()
        if not line:
            return
        text = line.decode("utf-8", "replace").strip()
        if text == QUIT:
            return
        if text:
            yield text
