"""Aggregates as protos. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from modelmeter_server.core.insights import Distribution, Insights, Spent
from modelmeter_server.core.text import well_formed

from .convert_standing import fill_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelmeter.v1 import event_service_pb2

_COUNTS: Final = ("calls", "answered", "failed", "replayed", "untold", "at_least")
_SUMS: Final = ("total", "by_model", "by_conversation", "by_run")


def fill_insights(message: event_service_pb2.Insights, found: Insights) -> None:
    """Write the aggregates."""
    for name in _COUNTS:
        setattr(message, name, getattr(found, name))
    _fill_distribution(message.latency, found.latency)
    _fill_distribution(message.first_token, found.first_token)
    message.errors.update(found.errors)
    for name in _SUMS:
        _add_spent(getattr(message, name), getattr(found, name))
    if found.since:
        fill_time(message.since, found.since)


def _fill_distribution(message: event_service_pb2.Distribution, found: Distribution) -> None:
    message.SetInParent()
    for name in Distribution.__struct_fields__:
        setattr(message, name, getattr(found, name))


def _add_spent(messages: Any, sums: Iterable[Spent]) -> None:
    for each in sums:
        messages.add(
            name=well_formed(each.name),
            currency=well_formed(each.currency),
            calls=each.calls,
            input_tokens=each.input_tokens,
            output_tokens=each.output_tokens,
            nano_units=each.nano_units,
            at_least=each.at_least,
            untold=each.untold,
        )
