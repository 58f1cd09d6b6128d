"""Models and their prices as protos. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from modelmeter_server.core.models import Task
from modelmeter_server.core.pricing import NANOS_PER_UNIT
from modelmeter_server.core.text import well_formed

from .words import REASONING_EFFORTS, SCHEMA_MODES, SENSITIVITIES, STRATEGIES, TASKS

if TYPE_CHECKING:
    from modelmeter.v1 import model_service_pb2
    from modelmeter_server.core.models import Capabilities, ModelSpec, TargetSpec
    from modelmeter_server.core.pricing import PriceTable, Tier


def fill_model(message: model_service_pb2.Model, model: ModelSpec) -> None:
    """Write what callers may know of a model."""
    message.name = model.name
    message.provider = model.provider
    message.provider_kind = model.provider_kind
    message.provider_model = model.provider_model
    message.max_sensitivity = SENSITIVITIES[model.max_sensitivity]
    if model.task is not None:
        message.task = TASKS[model.task]
    if model.task is not Task.EMBEDDING:
        message.max_output_tokens = model.max_output_tokens
        message.default_schema_mode = SCHEMA_MODES[model.schema_mode]
        _fill_capabilities(message.capabilities, model.capabilities)
    if model.price is not None:
        _fill_price(message.price, model.price)
    message.retry_policy.max_attempts = model.retry.max_attempts
    message.retry_policy.ambiguous = model.retry.ambiguous
    message.retry_policy.landed = model.retry.landed
    if model.route is not None:
        message.strategy = STRATEGIES[model.route.strategy]
        for target in model.route.targets:
            _fill_target(message.targets.add(), target)


def _fill_target(message: model_service_pb2.ModelTarget, target: TargetSpec) -> None:
    model = target.model
    message.name = target.name
    message.provider = model.provider
    message.provider_kind = model.provider_kind
    message.provider_model = model.provider_model
    message.weight = target.weight
    message.max_sensitivity = SENSITIVITIES[model.max_sensitivity]
    if model.price is not None:
        _fill_price(message.price, model.price)


def _fill_capabilities(message: model_service_pb2.ModelCapabilities, able: Capabilities) -> None:
    message.schema_modes.extend(SCHEMA_MODES[mode] for mode in able.schema_modes)
    message.tools = able.tools
    message.tools_with_schema = able.tools_with_schema
    message.media.extend(able.media)
    message.reasoning_efforts.extend(REASONING_EFFORTS[effort] for effort in able.reasoning_efforts)
    message.sampling.extend(able.sampling)


def _fill_price(message: model_service_pb2.Price, price: PriceTable) -> None:
    message.currency = price.currency
    for tier in price.tiers:
        _fill_tier(message.tiers.add(), tier)
    for tool, nanos in price.hosted_tool_requests.items():
        message.hosted_tool_requests[tool] = decimal_text(nanos)
    message.source = price.source
    message.source_version = price.source_version
    message.source_entry = well_formed(price.source_entry)
    message.partial = bool(price.apart)


def _fill_tier(message: model_service_pb2.PriceTier, tier: Tier) -> None:
    message.input = decimal_text(tier.input)
    message.output = decimal_text(tier.output)
    message.cache_read = _optional_text(tier.cache_read)
    message.cache_write = _optional_text(tier.cache_write)
    message.cache_write_1h = _optional_text(tier.cache_write_1h)
    message.above_input_tokens = tier.above_input_tokens
    message.service_tier = tier.service_tier or ""
    message.input_audio = _optional_text(tier.input_audio)
    message.output_audio = _optional_text(tier.output_audio)


def _optional_text(nanos: int | None) -> str:
    return "" if nanos is None else decimal_text(nanos)


def decimal_text(nanos: int) -> str:
    """Return nano units as a decimal string in currency units, without exponent or needless zeros."""
    text = f"{Decimal(nanos) / NANOS_PER_UNIT:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
