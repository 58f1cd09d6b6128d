"""`POST {base}/v1/responses/input_tokens`: the body of the call without what bears on its output alone. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from modelmeter_server.drivers.count_body import counting, reader_of, without

from .encode import TARGET

if TYPE_CHECKING:
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.drivers.driver import PreparedRequest

_OUTPUT_ONLY: Final = frozenset(
    (
        "include",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "temperature",
        "top_logprobs",
        "top_p",
        "user",
    )
)


def count(prepared: PreparedRequest, _model: ModelSpec, _base_path: str) -> PreparedRequest:
    """Turn a prepared completion into the request that counts its input."""
    body = without(prepared.body, _OUTPUT_ONLY)
    return counting(prepared, f"{TARGET}/input_tokens", body, reader_of("input_tokens"))
