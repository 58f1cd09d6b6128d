"""Token counts as protos. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.core.text import well_formed

if TYPE_CHECKING:
    from modelmeter.v1 import token_count_pb2
    from modelmeter_server.core.calls import CallOutcome
    from modelmeter_server.core.token_count import TokenCount


def fill_count(message: token_count_pb2.TokenCount, outcome: CallOutcome, count: TokenCount) -> None:
    """Write a count; `count` is the outcome's result."""
    message.input_tokens = count.input_tokens
    message.is_estimate = count.is_estimate
    if count.upper_bound is not None:
        message.upper_bound = count.upper_bound
    message.uncounted_media.extend(count.uncounted_media)
    message.model_asked = well_formed(outcome.model_asked)
    message.call_id = outcome.call_id
    message.provider_request_id = well_formed(count.provider_request_id or "")
    if outcome.model is not None:
        message.target = well_formed(outcome.model.target_name)
