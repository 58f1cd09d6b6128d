"""The service in front of a provider that fails by name, with a model that tries again: for the tests of retries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from modelmeter_server.core.models import ModelSpec
from modelmeter_server.core.pricing import PriceTable, Tier
from modelmeter_server.core.retry_policy import RetryPolicy
from tests.support.fault_server import FaultServer
from tests.support.provider_service import WIRES, ProviderService, provider_service
from tests.support.retry_faults import reply

WIRE_KINDS = ("anthropic", "openai_responses", "chat_completions", "gemini")

MODEL = "tried"

PRICE = PriceTable(
    currency="USD", tiers=(Tier(input=1_000_000, output=2_000_000, cache_read=0, cache_write=0),)
)
"""A nano for each input token and two for each output token, so that costs can be told by heart."""


def policy(**terms: Any) -> RetryPolicy:
    """Return a policy that waits for nothing."""
    return RetryPolicy(**{"initial_wait": 0.0, "max_wait": 0.0, **terms})


def model(wire: str, **terms: Any) -> ModelSpec:
    """Return the model that tries again as these terms say."""
    spec = {name: terms.pop(name) for name in ("on_cancel", "max_output_tokens") if name in terms}
    return ModelSpec(
        name=MODEL,
        provider=wire,
        provider_kind=wire,
        provider_model="m-test",
        capabilities=WIRES[wire].capabilities,
        price=PRICE,
        retry=policy(**terms),
        **spec,
    )


@asynccontextmanager
async def tried(
    wire: str,
    faults: Sequence[str],
    *,
    ledger: Any = None,
    service: dict[str, Any] | None = None,
    **terms: Any,
) -> AsyncIterator[ProviderService]:
    """Serve a model whose provider does these things first, and then answers."""
    async with (
        FaultServer(reply(wire, "answer")) as provider,
        provider_service(
            provider, models=[model(wire, **terms)], ledger=ledger, **(service or {})
        ) as running,
    ):
        provider.script([reply(wire, fault) for fault in faults])
        yield running


def requests_of(service: ProviderService) -> int:
    """Return what the provider itself has counted."""
    return len(service.provider.requests)
