"""What OpenRouter tells of an ended call: `GET /api/v1/generation?id={id}`. No other compatible server has the like.

Its record counts in the provider's own tokens (`native_...`), which are what it bills; `tokens_...` are an estimate by
one tokenizer for all models, and count only where the others are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from modelmeter_server.core.counters import counter
from modelmeter_server.core.outcomes import Certainty
from modelmeter_server.core.usage import Usage
from modelmeter_server.core.usage_meter import reported_nanos
from modelmeter_server.drivers.lookup import EndedCall, NotReconcilable, Reconciler, Told, record

if TYPE_CHECKING:
    from modelmeter_server.core.dialects import Dialect

OPENROUTER: Final = "openrouter"
"""Name of the dialect whose server keeps records."""

_PATH: Final = "/v1/generation"


def target(call: EndedCall) -> str:
    """Return where the record of a call is. Raises NotReconcilable."""
    if not call.response_id:
        message = "the call ended before the provider told the id of its answer: book a figure with a reason"
        raise NotReconcilable(message)
    return f"{_PATH}?id={quote(call.response_id, safe='')}"


def read(body: bytes) -> Told:
    """Return what a record tells. Raises NotReconcilable for one that tells no tokens."""
    document = record(body)
    data = document.get("data") if isinstance(document, Mapping) else None
    told: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
    input_tokens = _count(told, "native_tokens_prompt", "tokens_prompt")
    output_tokens = _count(told, "native_tokens_completion", "tokens_completion")
    if input_tokens is None and output_tokens is None:
        message = "the provider's record of the call tells no tokens: book a figure with a reason"
        raise NotReconcilable(message)
    whole = input_tokens is not None and output_tokens is not None
    return Told(
        usage=Usage(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cache_read_tokens=counter(told.get("native_tokens_cached")),
            reasoning_tokens=counter(told.get("native_tokens_reasoning")),
        ),
        certainty=Certainty.EXACT if whole else Certainty.AT_LEAST,
        nano_units=reported_nanos({**told, "cost": told.get("total_cost")}),
    )


def _count(told: Mapping[str, Any], *names: str) -> int | None:
    counts = (counter(told.get(name)) for name in names)
    return next((count for count in counts if count is not None), None)


def reconciler(dialect: Dialect) -> Reconciler | None:
    """Return how a server of this dialect tells; `None` for all but OpenRouter."""
    return Reconciler(target, read) if dialect.name == OPENROUTER else None
