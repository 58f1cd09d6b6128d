"""What the Messages API can do."""

from __future__ import annotations

from modelmeter_server.core.models import Capabilities
from modelmeter_server.core.requests import ReasoningEffort
from modelmeter_server.drivers.cache_marks import EPHEMERAL

CAPABILITIES = Capabilities(
    media=("image", "document"),
    # Adaptive thinking cannot be switched off, and it has no name for minimal.
    reasoning_efforts=(
        ReasoningEffort.LOW,
        ReasoningEffort.MEDIUM,
        ReasoningEffort.HIGH,
        ReasoningEffort.XHIGH,
        ReasoningEffort.MAX,
    ),
    sampling=("temperature", "top_p", "top_k", "stop_sequences"),
    cache_marks=EPHEMERAL,
    end_user_id=128,
)
