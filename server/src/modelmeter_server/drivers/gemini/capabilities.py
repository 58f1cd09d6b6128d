"""What the Gemini API can do."""

from __future__ import annotations

from modelmeter_server.core.models import Capabilities
from modelmeter_server.core.requests import ReasoningEffort

CAPABILITIES = Capabilities(
    media=("image", "audio", "document"),
    # The names of `thinkingLevel`; "off" and "as much as you can" are numbers of `thinkingBudget`, not names.
    reasoning_efforts=(
        ReasoningEffort.MINIMAL,
        ReasoningEffort.LOW,
        ReasoningEffort.MEDIUM,
        ReasoningEffort.HIGH,
        ReasoningEffort.XHIGH,
    ),
    sampling=("temperature", "top_p", "top_k", "seed", "stop_sequences"),
)
