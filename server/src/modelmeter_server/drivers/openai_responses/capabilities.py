"""What the Responses API can do."""

from __future__ import annotations

from modelmeter_server.core.models import Capabilities
from modelmeter_server.core.requests import ReasoningEffort
from modelmeter_server.drivers.cache_marks import EXPLICIT

CAPABILITIES = Capabilities(
    media=("image", "document"),
    reasoning_efforts=tuple(ReasoningEffort),
    sampling=("temperature", "top_p"),
    cache_marks=EXPLICIT,
    end_user_id=128,
)
