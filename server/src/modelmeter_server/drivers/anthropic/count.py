"""`POST {base}/v1/messages/count_tokens`: the body of the call without what bears on its output alone. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from modelmeter_server.drivers.count_body import counting, reader_of, without

from .encode import TARGET

if TYPE_CHECKING:
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.drivers.driver import PreparedRequest

# What the endpoint does not know of `messages`; it answers 400 to a member that it does not know.
_OUTPUT_ONLY: Final = frozenset(
    (
        "container",
        "inference_geo",
        "max_tokens",
        "metadata",
        "service_tier",
        "stop_sequences",
        "stream",
        "temperature",
        "top_k",
        "top_p",
    )
)


def count(prepared: PreparedRequest, _model: ModelSpec, _base_path: str) -> PreparedRequest:
    """Turn a prepared completion into the request that counts its input."""
    body = without(prepared.body, _OUTPUT_ONLY)
    return counting(prepared, f"{TARGET}/count_tokens", body, reader_of("input_tokens"))
