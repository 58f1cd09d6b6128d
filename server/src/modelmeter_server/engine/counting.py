"""Counting the input of a call: checked like the call itself, and booked by nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.core.errors import Failure, FieldViolation
from modelmeter_server.core.text import cut_utf8
from modelmeter_server.core.token_count import TokenCount
from modelmeter_server.drivers.driver import CountingDriver
from modelmeter_server.telemetry.log import get_logger

from .plan import Plan, Refused, mistaken, plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelmeter_server.core.calls import CallOutcome
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.requests import CompletionRequest
    from modelmeter_server.drivers.driver import Driver

_log = get_logger(__name__)
_NAME_BYTES = 256


class CountLog:
    """Stands where outcomes are recorded. A count has no bill, so that a line in the log is all it leaves."""

    async def record(self, outcome: CallOutcome) -> bool:
        """Log the outcome; it is not booked."""
        result = outcome.result
        told: dict[str, object] = {}
        if isinstance(result, TokenCount):
            told = {"input_tokens": result.input_tokens, "is_estimate": result.is_estimate}
        elif isinstance(result, Failure):
            told = {"kind": result.kind.value, "cause": result.cause.value, "http_status": result.http_status}
        _log.info(
            "count",
            call_id=outcome.call_id,
            model=cut_utf8(outcome.model_asked, _NAME_BYTES),
            elapsed=round(outcome.timings.total, 6),
            **told,
        )
        return False


def plan_count(
    request: CompletionRequest,
    model: ModelSpec,
    driver: Driver,
    found: Sequence[FieldViolation],
    prefix: str,
) -> Plan:
    """Check a request as `plan` does and turn it into one that counts it. Raises Refused."""
    if not isinstance(driver, CountingDriver):
        fix = "is a model of a provider whose driver cannot count"
        raise Refused(mistaken([*found, FieldViolation(f"{prefix}model", fix)]))
    return plan(request, model, driver, found, prefix, driver.prepare_count)
