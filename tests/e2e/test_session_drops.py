"""A long session with a provider that drops its sockets at any moment: no turn is lost, none ends twice, none lies."""

from __future__ import annotations

import random
from typing import Any

import pytest

from modelmeter import Completion, ModelmeterError, SessionEndReason
from modelmeter.enums import Certainty, ErrorKind
from modelmeter_server.core.session_events import SessionEnded, TurnCompleted, TurnStarted
from tests.support.ledgers import ledger_in, rows_of
from tests.support.session_service import sessions, take
from tests.support.socket_server import Asked, Reply, answered, wrapped

TURNS = 50

WHOLE, NOTHING, CREATED, GENERATING, AWAY, LIMIT = range(6)
MOMENTS = (WHOLE,) * 4 + (NOTHING, CREATED, GENERATING, AWAY, LIMIT)


class Provider:
    """Remembers what went over a socket, for as long as that lives, and drops it when the dice say so."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.memory: dict[tuple[int, str], list[str]] = {}
        self.heard: dict[str, list[str]] = {}
        """The whole conversation as it was known in the turn that was answered whole, by response."""
        self.sent: dict[str, list[int]] = {}
        """What became of each sending of a turn, by what was said in it."""

    def answer(self, asked: Asked) -> Reply:
        said = [_text(item) for item in asked.document["input"]]
        previous = asked.document.get("previous_response_id")
        if previous is not None:
            if (asked.connection, previous) not in self.memory:
                return Reply([wrapped(400, "previous_response_not_found")])
            said = self.memory[asked.connection, previous] + said
        moment = self.dice.choice(MOMENTS)
        self.sent.setdefault(said[-1], []).append(moment)
        return self._reply(moment, asked.connection, said)

    def _reply(self, moment: int, connection: int, said: list[str]) -> Reply:
        id = f"resp_{len(self.memory)}_{len(self.sent)}_{self.dice.randrange(10**9)}"
        whole = answered(id, f"re: {said[-1]}")
        if moment == LIMIT:
            return Reply([wrapped(400, "websocket_connection_limit_reached")])
        if moment == NOTHING:
            return Reply(reset=True)
        if moment == CREATED:
            return Reply(whole[:1], reset=True)
        if moment == GENERATING:
            return Reply(whole[:3], reset=True)
        self.memory[connection, id] = [*said, f"re: {said[-1]}"]
        self.heard[id] = said
        return Reply(whole, close=1001 if moment == AWAY else None)


def _text(item: dict[str, Any]) -> str:
    content = item["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def judge(provider: Provider, prompt: str, result: Completion | ModelmeterError) -> None:
    """Hold one turn's end against what the provider did with it."""
    *before, last = provider.sent[prompt]
    if last in (WHOLE, AWAY):
        assert isinstance(result, Completion)
        # Nobody knows what a sending cost that came to nothing.
        certainty = Certainty.AT_LEAST if before else Certainty.EXACT
        assert (result.text, result.certainty) == (f"re: {prompt}", certainty)
        assert (result.usage.input_tokens, result.usage.output_tokens) == (30, 8)
        return
    assert isinstance(result, ModelmeterError)
    assert result.certainty is Certainty.UNKNOWN
    assert result.kind is (ErrorKind.UNACCOUNTED if last == GENERATING else ErrorKind.UNAVAILABLE)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_each_of_fifty_turns_ends_once_with_a_truthful_status_and_bill(seed, tmp_path):
    provider = Provider(seed)
    known: list[str] = []
    ended = []
    async with ledger_in(tmp_path) as ledger, sessions(answer=provider.answer, ledger=ledger) as served:
        async with served.open(keep_transcript=True) as session:
            for number in range(TURNS):
                prompt = f"turn {number}"
                result, end = await take(session, prompt)
                judge(provider, prompt, result)
                ended.append(end)
                if isinstance(result, Completion):
                    assert provider.heard[result.provider_response_id] == [*known, prompt]
                    known += [prompt, result.text]
        rows = await rows_of(ledger)
    assert [end.turn for end in ended] == list(range(1, TURNS + 1))
    answers = len(known) // 2
    totals = session.ended.totals
    assert (totals.turns, totals.turns_completed) == (TURNS, answers)
    assert (totals.usage.input_tokens, totals.usage.output_tokens) == (30 * answers, 8 * answers)
    assert totals.certainty is Certainty.AT_LEAST
    assert session.ended.reason is SessionEndReason.CLIENT_CLOSE
    check_events(served.events)
    assert len(rows) == TURNS
    assert sum(row.attempts_total for row in rows) == len(served.provider.asked)
    assert sum(row.figures.output_tokens or 0 for row in rows) == 8 * answers
    # No turn that generated was ever sent again.
    assert all(
        GENERATING not in moments[:-1] and WHOLE not in moments[:-1] for moments in provider.sent.values()
    )


def check_events(events: list[Any]) -> None:
    started = [each.turn for each in events if isinstance(each, TurnStarted)]
    ended = [each.turn for each in events if isinstance(each, TurnCompleted)]
    assert started == ended == list(range(1, TURNS + 1))
    assert [each for each in events if isinstance(each, SessionEnded)] == events[-1:]
    assert all(each.status in ("completed", "error") for each in events if isinstance(each, TurnCompleted))
