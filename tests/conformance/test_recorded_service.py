"""Every recorded stream over a real socket, through the service and the client, on both paths."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import modelmeter
from modelmeter import ModelmeterError, Tool
from tests.conformance.asking import Face, ask
from tests.support.fault_server import FaultServer, Reply
from tests.support.material import MISSING, SHARED, has_material
from tests.support.provider_service import provider_service

_FAMILIES = {
    "anthropic": "anthropic",
    "bedrock": "bedrock",
    "gemini": "gemini",
    "openai-chat": "chat_completions",
    "openai-responses": "openai_responses",
}
_TYPES = {".json": "application/json", ".eventstream": "application/vnd.amazon.eventstream"}

_COUNTERS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
)


@dataclass
class Recording:
    """One recorded body with what it says and what the rules make of it."""

    provider: str
    file: str
    says: dict[str, Any]
    outcome: dict[str, Any]

    def reply(self) -> Reply:
        """Serve the body as its provider did; the cut ones without their last chunk."""
        body = (SHARED / "streams" / self.file).read_bytes()
        if self.file.endswith(".jsonl"):
            body = b"".join(b"data: %b\n\n" % line for line in body.splitlines() if line.strip())
        kind = _TYPES.get(Path(self.file).suffix, "text/event-stream")
        return Reply(
            status=self.says["http_status"] or 200,
            headers={"content-type": kind, **self.says.get("http_headers", {})},
            chunks=[body[start : start + 1400] for start in range(0, len(body), 1400)],
            end="truncate" if self.outcome["ends"] == "reset" else "clean",
        )

    def tools(self) -> list[Tool]:
        """Offer the tools that the file calls."""
        names = dict.fromkeys(call["name"] for call in self.says["tool_calls"])
        return [Tool(name, parameters={"type": "object"}) for name in names]


def _load() -> list[Recording]:
    if not has_material():
        return []
    says = {
        each["file"]: each for each in json.loads((SHARED / "streams/expected.json").read_text())["files"]
    }
    outcomes = json.loads((SHARED / "streams/outcomes.json").read_text())["files"]
    return [
        Recording(_provider(says[outcome["file"]], outcome), outcome["file"], says[outcome["file"]], outcome)
        for outcome in outcomes
        if says[outcome["file"]]["family"] in _FAMILIES
        and outcome["kind"] != "COUNT"
        and not outcome["file"].endswith(".ws.jsonl")
    ]


def _provider(says: dict[str, Any], outcome: dict[str, Any]) -> str:
    return "-".join([_FAMILIES[says["family"]], *outcome.get("dialect", [])])


def _models(recording: Recording) -> list[str]:
    """A body that answers an unstreamed request is read the same by whoever had asked for a stream (R-H4)."""
    streamed = recording.outcome.get("stream", True)
    return [recording.provider] if streamed else [recording.provider, f"{recording.provider}-buffered"]


RECORDINGS = _load()
RUNS = [
    pytest.param(recording, face, model, id=f"{recording.file}-{face}-{model}")
    for recording in RECORDINGS
    for face in ("unary", "stream")
    for model in _models(recording)
]


@pytest.mark.skipif(not RECORDINGS, reason=MISSING)
@pytest.mark.parametrize(("recording", "face", "model"), RUNS)
async def test_a_recorded_answer_arrives_as_it_was_recorded(
    recording: Recording, face: Face, model: str
) -> None:
    async with FaultServer(recording.reply()) as provider, provider_service(provider) as service:
        heard = await ask(service.client, face, model, "Hi", tools=recording.tools())
    outcome = recording.outcome
    assert (heard.kind, heard.code) == (outcome["kind"], outcome["grpc_code"])
    assert heard.result.certainty.name == outcome["certainty"]
    if heard.result.certainty.name in ("EXACT", "AT_LEAST"):
        for counter in _COUNTERS:
            assert getattr(heard.result.usage, counter) == recording.says[counter], counter
    else:
        assert not heard.result.usage.told
    if not isinstance(heard.result, ModelmeterError):
        _check_answer(heard.result, recording.says)
        if face == "stream":
            assert heard.text == heard.result.text
            assert heard.arguments == tuple(
                call.arguments_json if call.arguments_json != "{}" else heard.arguments[index]
                for index, call in enumerate(heard.result.tool_calls)
            )


def _check_answer(completion: modelmeter.Completion, says: dict[str, Any]) -> None:
    assert completion.stop_reason == (says["stop_reason"] or "")
    assert hashlib.sha256(completion.text.encode()).hexdigest() == says["text_sha256"]
    assert [call.name for call in completion.tool_calls] == [call["name"] for call in says["tool_calls"]]
    for call, each in zip(completion.tool_calls, says["tool_calls"], strict=True):
        # Where the provider gave no id, there is none, or one was made of the name.
        assert call.id == (each["id"] or "") or (
            each["id"] is None and call.id.startswith(f"{each['name']}-")
        )
        if each["args_canonical_sha256"] is not None:
            canonical = json.dumps(
                json.loads(call.arguments_json), sort_keys=True, separators=(",", ":"), ensure_ascii=False
            )
            assert hashlib.sha256(canonical.encode()).hexdigest() == each["args_canonical_sha256"]
