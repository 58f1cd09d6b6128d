"""Recorded streams cut over a real socket: at every event's end and one byte either side of it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from modelmeter import Completion, ModelmeterError
from tests.conformance.asking import ask
from tests.support.fault_server import FaultServer, Reply
from tests.support.material import MISSING, SHARED, has_material
from tests.support.provider_service import provider_service

FILES = {
    "anthropic": (
        "cache-read.sse",
        "cache-write-5m.sse",
        "empty-output-stop-sequence.sse",
        "parallel-tools.sse",
        "redacted-thinking.sse",
        "refusal-mid-answer.sse",
    ),
    "bedrock": (
        "claude-redacted-thinking.eventstream",
        "guardrail-intervened.eventstream",
        "nova-tool-call.eventstream",
    ),
    "gemini": (
        "code-execution-two-finishes.sse",
        "max-tokens.sse",
        "parallel-tools-3-1-pro.sse",
        "structured-output.sse",
    ),
    "openai-chat": (
        "parallel-tools-gpt-4o.sse",
        "plain-text-usage-gpt-4o.sse",
        "structured-output-sdk.sse",
    ),
    "openai-responses": (
        "azure-gpt-5-nano.sse",
        "codex-backend-empty-final-output.sse",
        "incomplete-budget-spent-on-reasoning.sse",
        "plain-text-gpt-5-5.sse",
        "refusal.sse",
        "tool-call.sse",
    ),
}

RUNS = [(family, name) for family, names in FILES.items() for name in names]

_EVENT_END = re.compile(rb"\r?\n\r?\n")
_FINISH = re.compile(rb'"finish_reason": ?"')
_EVIDENCE = {
    "anthropic": re.compile(rb"message_start"),
    "bedrock": re.compile(rb"contentBlock"),
    "gemini": re.compile(rb'"candidates"'),
    "openai-chat": re.compile(rb'"(?:content|arguments|refusal)": ?"[^"]|"tool_calls": ?\[\{'),
    "openai-responses": re.compile(rb'"response\.(?:[a-z_.]+\.delta|output_item\.(?:added|done))"'),
}


class Recording:
    """A recorded stream, and what it has told by any byte of it."""

    def __init__(self, family: str, name: str) -> None:
        self.family = family
        self.body = (SHARED / "streams" / family / name).read_bytes()
        says = json.loads((SHARED / "streams/expected.json").read_text())["files"]
        self.says = next(each for each in says if each["file"] == f"{family}/{name}")
        self.ends = _frame_ends(self.body) if family == "bedrock" else _event_ends(self.body)

    def cuts(self) -> list[int]:
        """Return the places to cut at: each event's end and its neighbours, before the last event is whole."""
        around = {end + offset for end in self.ends for offset in (-1, 0, 1)}
        return sorted(cut for cut in around if 0 < cut < self.ends[-1])

    def usage_at(self, cut: int) -> list[Any] | None:
        """Return the last row of the timeline whose event was whole before the cut."""
        whole = sum(end <= cut for end in self.ends)
        rows = [row for row in self.says["usage_timeline"] if row[0] < whole and (row[1] or row[2])]
        return rows[-1] if rows else None

    def whole(self, cut: int) -> bytes:
        """Return the events that are whole before the cut."""
        return self.body[: max((end for end in self.ends if end <= cut), default=0)]

    def is_answer(self, cut: int) -> bool:
        """Say whether the answer is whole although its tail is lost (R-C3)."""
        return self.family == "openai-chat" and bool(_FINISH.search(self.whole(cut)))

    def has_generated(self, cut: int) -> bool:
        """Say whether an event that was whole before the cut proves generation."""
        return bool(_EVIDENCE[self.family].search(self.whole(cut)))


def _event_ends(body: bytes) -> list[int]:
    # A CR ends its line by itself, so that the LF after the last one says nothing more.
    return [match.end() - match[0].endswith(b"\r\n") for match in _EVENT_END.finditer(body)]


def _frame_ends(body: bytes) -> list[int]:
    ends: list[int] = []
    while (start := ends[-1] if ends else 0) < len(body):
        ends.append(start + int.from_bytes(body[start : start + 4], "big"))
    return ends


@pytest.mark.skipif(not has_material(), reason=MISSING)
@pytest.mark.parametrize(("family", "name"), RUNS, ids=[f"{family}/{name}" for family, name in RUNS])
async def test_a_cut_stream_says_what_it_had_told_and_is_no_answer_before_it_is_whole(
    family: str, name: str
) -> None:
    recording = Recording(family, name)
    model = {"openai-chat": "chat_completions"}.get(family, family.replace("-", "_"))
    async with FaultServer() as provider, provider_service(provider) as service:
        cuts = recording.cuts()
        assert len(cuts) > 5
        for cut in cuts:
            provider.script([Reply(chunks=[recording.body[:cut]], end="truncate")])
            heard = await ask(service.client, "unary", model, "Hi")
            _check(recording, cut, heard.result)


def _check(recording: Recording, cut: int, error: object) -> None:
    if recording.is_answer(cut):
        assert isinstance(error, Completion), cut
        assert error.certainty.name == ("EXACT" if recording.usage_at(cut) else "UNKNOWN"), cut
        return
    assert isinstance(error, ModelmeterError), f"an answer at byte {cut}, before the end marker"
    row = recording.usage_at(cut)
    if recording.has_generated(cut):
        assert error.disposition.name == "LANDED", cut
        assert error.kind.name == ("UNACCOUNTED" if row is None else "INTERRUPTED"), cut
    else:
        assert (error.kind.name, error.certainty.name) == ("UNAVAILABLE", "UNKNOWN"), cut
    if row is None:
        assert not error.usage.told, cut
        assert error.certainty.name == "UNKNOWN", cut
    else:
        told = (error.usage.input_tokens, error.usage.output_tokens, error.usage.cache_read_tokens)
        assert told == (row[1], row[2], row[3]), cut
        assert error.certainty.name in ("AT_LEAST", "EXACT"), cut
