"""Recorded streams cut at every byte, at a clean end and at a reset: what is said is what had been told."""

from __future__ import annotations

import pytest

from modelmeter_server.core.outcomes import End
from tests.conformance.recordings import Recording, load_recordings
from tests.support.accumulator_laws import check_cut

# Small ones, so that every byte costs little, and each with something of its own: figures that shrink, zeros at the
# start, work billed beside, parallel calls, hidden thinking, refusals, an output that only the stream held.
CHOSEN = {
    "azure/grok-4-1-fast-odd-cache.sse",
    "groq/usage-twice.sse",
    "mistral/hybrid-reasoning-typed-chunks.sse",
    "mistral/tool-call.sse",
    "openai-chat/parallel-tools-gpt-4o.sse",
    "openai-chat/plain-text-usage-gpt-4o.sse",
    "openai-chat/refusal.sse",
    "openrouter/cache-read-openai.sse",
    "together/llama-3-3-70b.sse",
    "anthropic/advisor-tool.sse",
    "anthropic/compaction-usage-shrinks.sse",
    "anthropic/gateway-zero-usage-at-start.sse",
    "anthropic/parallel-tools.sse",
    "anthropic/redacted-thinking.sse",
    "anthropic/refusal-mid-answer.sse",
    "bedrock/claude-redacted-thinking.eventstream",
    "bedrock/nova-tool-call.eventstream",
    "bedrock/nova-web-grounding.eventstream",
    "derived/anthropic-overloaded-mid-stream.sse",
    "derived/gemini-cut-mid-stream.sse",
    "gemini/code-execution-two-finishes.sse",
    "gemini/max-tokens.sse",
    "gemini/parallel-tools-3-1-pro.sse",
    "gemini/structured-output.sse",
    "openai-responses/codex-backend-empty-final-output.sse",
    "openai-responses/incomplete-budget-spent-on-reasoning.sse",
    "openai-responses/incomplete-mid-tool-call.sse",
    "openai-responses/parallel-tools.sse",
    "openai-responses/plain-text-gpt-5-5.sse",
    "openai-responses/refusal.sse",
}
RECORDINGS = [recording for recording in load_recordings() if recording.file in CHOSEN]


def test_the_chosen_streams_are_there(shared: object):
    assert {recording.file for recording in RECORDINGS} == CHOSEN


@pytest.mark.parametrize("end", [End.CLEAN, End.RESET], ids=lambda end: end.name.lower())
@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.file)
def test_a_stream_cut_at_any_byte_says_what_had_been_told(recording: Recording, end: End):
    stream = recording.facts()
    for cut in range(len(stream.data) + 1):
        check_cut(recording.make, stream, cut, end)
