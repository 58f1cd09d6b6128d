"""R-X4: every stop reason of our tables, and what becomes of one that is in none."""

from __future__ import annotations

import pytest

from modelmeter_server.core.answers import FREE_TEXT, Answer, Finish
from modelmeter_server.core.ladder import Evidence
from modelmeter_server.core.outcomes import Kind
from modelmeter_server.core.stop_reasons import (
    ANTHROPIC,
    BEDROCK,
    CHAT_COMPLETIONS,
    FINISHES,
    GEMINI,
    GEMINI_BLOCKS,
    OPENAI_RESPONSES,
    Stop,
)
from modelmeter_server.core.usage import Usage
from modelmeter_server.core.verdict import Draft, judge

EVIDENCE = Evidence(generated=True, usage=Usage(input_tokens=3, output_tokens=2), usage_is_final=True)

# What a text with this stop reason is to the caller: a finish and whether it is truncated, or the kind of failure.
MEANING: dict[Stop, tuple[Finish, bool] | Kind] = {
    Stop.FINISHED: (Finish.STOP, False),
    Stop.SEQUENCE: (Finish.STOP, False),
    Stop.TOOLS: (Finish.TOOL_CALLS, False),
    Stop.LENGTH: (Finish.LENGTH, True),
    Stop.CONTINUE: (Finish.CONTINUE, True),
    Stop.UNRECOGNIZED: (Finish.UNRECOGNIZED, False),
    Stop.WITHDRAWN: Kind.UNUSABLE,
    Stop.OUTSIDE: Kind.INTERRUPTED,
}

ANTHROPIC_REASONS = {
    "end_turn": Stop.FINISHED,
    "stop_sequence": Stop.SEQUENCE,
    "tool_use": Stop.TOOLS,
    "max_tokens": Stop.LENGTH,
    "model_context_window_exceeded": Stop.LENGTH,
    "pause_turn": Stop.CONTINUE,
    "compaction": Stop.CONTINUE,
    "refusal": Stop.WITHDRAWN,
}
CHAT_REASONS = {
    "stop": Stop.FINISHED,
    "tool_calls": Stop.TOOLS,
    "function_call": Stop.TOOLS,
    "length": Stop.LENGTH,
    "model_length": Stop.LENGTH,
    "content_filter": Stop.WITHDRAWN,
    "insufficient_system_resource": Stop.OUTSIDE,
    "abort": Stop.OUTSIDE,
    "error": Stop.OUTSIDE,
    "cancelled": Stop.OUTSIDE,
}
RESPONSES_REASONS = {
    "completed": Stop.FINISHED,
    "incomplete:max_output_tokens": Stop.LENGTH,
    "incomplete:max_messages": Stop.CONTINUE,
    "incomplete:steered": Stop.CONTINUE,
    "incomplete:content_filter": Stop.WITHDRAWN,
    "cancelled": Stop.OUTSIDE,
}

BEDROCK_REASONS = {
    "end_turn": Stop.FINISHED,
    "stop_sequence": Stop.SEQUENCE,
    "tool_use": Stop.TOOLS,
    "max_tokens": Stop.LENGTH,
    "model_context_window_exceeded": Stop.LENGTH,
    "guardrail_intervened": Stop.WITHDRAWN,
    "content_filtered": Stop.WITHDRAWN,
    "malformed_model_output": Stop.WITHDRAWN,
    "malformed_tool_use": Stop.WITHDRAWN,
}

# The enum of google-genai 3.6.1.
GEMINI_REASONS = {
    "FINISH_REASON_UNSPECIFIED": Stop.UNRECOGNIZED,
    "STOP": Stop.FINISHED,
    "MAX_TOKENS": Stop.LENGTH,
    "SAFETY": Stop.WITHDRAWN,
    "RECITATION": Stop.WITHDRAWN,
    "LANGUAGE": Stop.WITHDRAWN,
    "OTHER": Stop.WITHDRAWN,
    "BLOCKLIST": Stop.WITHDRAWN,
    "PROHIBITED_CONTENT": Stop.WITHDRAWN,
    "SPII": Stop.WITHDRAWN,
    "MALFORMED_FUNCTION_CALL": Stop.WITHDRAWN,
    "IMAGE_SAFETY": Stop.WITHDRAWN,
    "IMAGE_PROHIBITED_CONTENT": Stop.WITHDRAWN,
    "IMAGE_OTHER": Stop.WITHDRAWN,
    "NO_IMAGE": Stop.WITHDRAWN,
    "IMAGE_RECITATION": Stop.WITHDRAWN,
    "UNEXPECTED_TOOL_CALL": Stop.WITHDRAWN,
    "TOO_MANY_TOOL_CALLS": Stop.WITHDRAWN,
    "MISSING_THOUGHT_SIGNATURE": Stop.WITHDRAWN,
    "MALFORMED_RESPONSE": Stop.WITHDRAWN,
    "ESCALATION": Stop.WITHDRAWN,
    "PUP_LIMITED_DISABLED": Stop.WITHDRAWN,
    "CONTINUATION": Stop.CONTINUE,
    "MODEL_ARMOR": Stop.WITHDRAWN,
}

GEMINI_BLOCK_REASONS = {
    "BLOCKED_REASON_UNSPECIFIED": Stop.UNRECOGNIZED,
    "SAFETY": Stop.WITHDRAWN,
    "OTHER": Stop.WITHDRAWN,
    "BLOCKLIST": Stop.WITHDRAWN,
    "PROHIBITED_CONTENT": Stop.WITHDRAWN,
    "IMAGE_SAFETY": Stop.WITHDRAWN,
    "MODEL_ARMOR": Stop.WITHDRAWN,
    "JAILBREAK": Stop.WITHDRAWN,
}


def test_the_tables_hold_one_row_for_every_reason():
    assert ANTHROPIC == ANTHROPIC_REASONS
    assert BEDROCK == BEDROCK_REASONS
    assert GEMINI == GEMINI_REASONS
    assert GEMINI_BLOCKS == GEMINI_BLOCK_REASONS
    assert CHAT_COMPLETIONS == CHAT_REASONS
    assert OPENAI_RESPONSES == RESPONSES_REASONS


@pytest.mark.parametrize("stop", list(Stop))
def test_every_class_has_one_meaning(stop: Stop):
    outcome = judge(Draft(text="so far", stop=stop, stop_reason="its word", evidence=EVIDENCE), FREE_TEXT)
    meaning = MEANING[stop]
    if isinstance(meaning, Kind):
        assert not isinstance(outcome, Answer)
        assert outcome.kind is meaning
    else:
        assert isinstance(outcome, Answer)
        assert (outcome.finish, outcome.truncated, outcome.stop_reason) == (*meaning, "its word")


def test_only_answers_have_a_finish():
    assert set(FINISHES) == set(Stop) - {Stop.WITHDRAWN, Stop.OUTSIDE}
    assert set(FINISHES.values()) == set(Finish)
