"""What each provider's stop reason means: one row for every value that the official SDKs know (R-X4).

A value in no row passes through untouched as `Stop.UNRECOGNIZED`: a word from next year is no exception.
"""

from __future__ import annotations

from enum import Enum, unique

from .answers import Finish


@unique
class Stop(Enum):
    """Classes of stop reasons."""

    FINISHED = "finished"
    SEQUENCE = "sequence"
    """Finished at a stop sequence, which may stand before any text (R-X3)."""
    TOOLS = "tools"
    LENGTH = "length"
    CONTINUE = "continue"
    WITHDRAWN = "withdrawn"
    """Refused, filtered or malformed: billed, and no answer (R-X2)."""
    OUTSIDE = "outside"
    """Stopped from outside the model: the ladder decides."""
    UNRECOGNIZED = "unrecognized"

    @property
    def is_truncated(self) -> bool:
        """Say whether the answer is cut by length or to be continued."""
        return self in (Stop.LENGTH, Stop.CONTINUE)


FINISHES = {
    Stop.FINISHED: Finish.STOP,
    Stop.SEQUENCE: Finish.STOP,
    Stop.TOOLS: Finish.TOOL_CALLS,
    Stop.LENGTH: Finish.LENGTH,
    Stop.CONTINUE: Finish.CONTINUE,
    Stop.UNRECOGNIZED: Finish.UNRECOGNIZED,
}

ANTHROPIC = {
    "end_turn": Stop.FINISHED,
    "stop_sequence": Stop.SEQUENCE,
    "tool_use": Stop.TOOLS,
    "max_tokens": Stop.LENGTH,
    "model_context_window_exceeded": Stop.LENGTH,
    "pause_turn": Stop.CONTINUE,
    "compaction": Stop.CONTINUE,
    "refusal": Stop.WITHDRAWN,
}

# A response's status, or `incomplete:` with its reason. `queued` and `in_progress` have no row: a body with one of
# them was accepted and will run, which R-O1 decides.
OPENAI_RESPONSES = {
    "completed": Stop.FINISHED,
    "incomplete:max_output_tokens": Stop.LENGTH,
    "incomplete:max_messages": Stop.CONTINUE,
    "incomplete:steered": Stop.CONTINUE,
    "incomplete:content_filter": Stop.WITHDRAWN,
    "cancelled": Stop.OUTSIDE,
}

BEDROCK = {
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

GEMINI = {
    "STOP": Stop.FINISHED,
    "MAX_TOKENS": Stop.LENGTH,
    "CONTINUATION": Stop.CONTINUE,
    **dict.fromkeys(
        (
            "SAFETY",
            "RECITATION",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "MODEL_ARMOR",
            "ESCALATION",
            "PUP_LIMITED_DISABLED",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
            "IMAGE_OTHER",
            "NO_IMAGE",
            "LANGUAGE",
            "OTHER",
            "MALFORMED_FUNCTION_CALL",
            "MALFORMED_RESPONSE",
            "UNEXPECTED_TOOL_CALL",
            "TOO_MANY_TOOL_CALLS",
            "MISSING_THOUGHT_SIGNATURE",
        ),
        Stop.WITHDRAWN,
    ),
    # The name of "no reason"; it has a row because the SDK's enum has it.
    "FINISH_REASON_UNSPECIFIED": Stop.UNRECOGNIZED,
}

# `promptFeedback.blockReason`: why a prompt got no answer at all (R-E4). A word in no row blocks too.
GEMINI_BLOCKS = {
    **dict.fromkeys(
        (
            "SAFETY",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "IMAGE_SAFETY",
            "MODEL_ARMOR",
            "JAILBREAK",
            "OTHER",
        ),
        Stop.WITHDRAWN,
    ),
    # The name of "no reason", which is no evidence that nothing was generated.
    "BLOCKED_REASON_UNSPECIFIED": Stop.UNRECOGNIZED,
}

# One finish_reason for each choice. `stop` with tool calls beside it, as some servers say, is TOOLS all the same.
CHAT_COMPLETIONS = {
    "stop": Stop.FINISHED,
    "tool_calls": Stop.TOOLS,
    "function_call": Stop.TOOLS,
    "length": Stop.LENGTH,
    "model_length": Stop.LENGTH,  # Mistral
    "content_filter": Stop.WITHDRAWN,
    "insufficient_system_resource": Stop.OUTSIDE,  # DeepSeek
    "abort": Stop.OUTSIDE,  # vLLM
    "error": Stop.OUTSIDE,  # Mistral, OpenRouter: no end at all (R-E2)
    "cancelled": Stop.OUTSIDE,
}
