"""From an outcome to its message: when an answer cannot be written, its bill still goes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from modelmeter_server.core.answers import Answer
from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.engine.bill import spoiled
from modelmeter_server.telemetry.log import get_logger

Fill = Callable[[CallOutcome, Any], None]

_log = get_logger(__name__)


def delivered(fill: Fill, outcome: CallOutcome) -> CallOutcome:
    """Write an answer into its message; if that fails, which is our fault, the outcome keeps its bill."""
    if not isinstance(outcome.result, Answer):
        return outcome
    try:
        fill(outcome, outcome.result)
    except Exception:  # noqa: BLE001 - the answer is lost, its bill must not be
        _log.exception("an answer cannot be written", call_id=outcome.call_id)
        return msgspec.structs.replace(outcome, result=spoiled(outcome.result))
    return outcome
