"""The recorded material as values: streams with what they say, what the rules make of them, and the HTTP cases."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Any

import msgspec

from modelmeter_server.core.accumulators import (
    Accumulator,
    AnthropicAccumulator,
    BedrockAccumulator,
    ChatCompletionsAccumulator,
    GeminiAccumulator,
    OpenAIResponsesAccumulator,
)
from modelmeter_server.core.dialects import OPENAI
from modelmeter_server.core.requests import FORCED_TOOL
from tests.support.accumulator_laws import Facts, Figures, facts, frame_facts
from tests.support.material import SHARED, has_material

ACCUMULATORS: dict[str, type[Accumulator]] = {
    "anthropic": AnthropicAccumulator,
    "bedrock": BedrockAccumulator,
    "gemini": GeminiAccumulator,
    "openai-responses": OpenAIResponsesAccumulator,
    "openai_responses": OpenAIResponsesAccumulator,
    "openai-chat": ChatCompletionsAccumulator,
    "chat_completions": ChatCompletionsAccumulator,
}
"""By the spelling of the recordings and by that of the cases."""

KEY = "sk-configured-key-0123456789"
"""The provider key that stands where a case leaves room for one."""


def make(family: str, flags: str | list[str] | None, *args: Any, **options: Any) -> Accumulator:
    """Return a fresh accumulator, of a dialect with these flags where the format has dialects."""
    named = [flags] if isinstance(flags, str) else flags or []
    if ACCUMULATORS[family] is ChatCompletionsAccumulator:
        options["dialect"] = msgspec.structs.replace(OPENAI, **dict.fromkeys(named, True))
    return ACCUMULATORS[family](*args, **options)


@dataclass(frozen=True)
class Recording:
    """One recorded body."""

    file: str
    says: dict[str, Any]
    """What the bytes say."""
    outcome: dict[str, Any]
    """What the rules make of it."""

    @property
    def data(self) -> bytes:
        """The body; where only the JSON payloads were kept, framed as events again."""
        data = (SHARED / "streams" / self.file).read_bytes()
        if self.file.endswith(".jsonl"):
            return b"".join(b"data: %b\n\n" % line for line in data.splitlines() if line.strip())
        return data

    @property
    def is_stream(self) -> bool:
        """Whether it is an event stream and not one document."""
        return not self.file.endswith(".json")

    @property
    def timeline(self) -> list[tuple[int, Figures]]:
        """The recorded timeline."""
        return [(index, tuple(figures)) for index, *figures in self.says["usage_timeline"]]

    def make(self) -> Accumulator:
        """Return a fresh accumulator of its format."""
        return make(self.says["family"], self.outcome.get("dialect"), deltas=True)

    def facts(self) -> Facts:
        """Return the stream, event by event."""
        read = frame_facts if self.file.endswith(".eventstream") else facts
        return read(self.data, self.timeline)


def load_recordings() -> list[Recording]:
    """Return every recorded HTTP body of the providers that are served; none without the material."""
    if not has_material():
        return []
    said = {each["file"]: each for each in _read("streams/expected.json")["files"]}
    outcomes = {each["file"]: each for each in _read("streams/outcomes.json")["files"]}
    return [
        Recording(file, says, outcomes[file])
        for file, says in said.items()
        if says["family"] in ACCUMULATORS and outcomes[file]["kind"] != "COUNT" and ".ws." not in file
    ]


def load_cases() -> list[dict[str, Any]]:
    """Return the HTTP cases of the providers that are served; none without the material."""
    if not has_material():
        return []
    cases = [json.loads(path.read_text()) for path in sorted((SHARED / "cases").glob("*.json"))]
    return [case for case in cases if case["provider"] in ACCUMULATORS and case["transport"] == "http"]


def chunks_of(case: dict[str, Any]) -> list[bytes]:
    """Return the reads of a case, with the service's own names put where it leaves room for them."""
    if case.get("body_chunks_b64"):
        chunks = [base64.b64decode(chunk) for chunk in case["body_chunks_b64"]]
    else:
        chunks = [chunk.encode() for chunk in case["body_chunks"]]
    return [
        chunk.replace(b"@@RESPOND_TOOL@@", FORCED_TOOL.encode()).replace(b"@@API_KEY@@", KEY.encode())
        for chunk in chunks
    ]


def sha256(text: str) -> str:
    """Return the digest that the recordings use for texts."""
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: str) -> Any:
    return json.loads((SHARED / path).read_text())
