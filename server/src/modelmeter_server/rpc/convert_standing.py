"""Where a subject stands against a ceiling, and points in time, as protos. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.core.counters import INT64_MAX
from modelmeter_server.core.text import cut_utf8
from modelmeter_server.core.windows import LAST_SECOND, SECOND

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from modelmeter.v1 import error_pb2
    from modelmeter_server.core.ceilings import Standing

LATEST = LAST_SECOND * SECOND


def fill_standing(message: error_pb2.CeilingStanding, standing: Standing, text_bytes: int) -> None:
    """Write a standing; names are cut to `text_bytes`."""
    message.scope = standing.subject.scope
    message.name = cut_utf8(standing.subject.name, text_bytes)
    message.currency = standing.currency
    message.ceiling_id = standing.ceiling_id
    message.allowed = bounded(standing.allowed)
    message.settled = bounded(standing.settled)
    message.held = bounded(standing.held)
    message.unsettled = bounded(standing.unsettled)
    message.asked = bounded(standing.asked)
    if standing.room_at is not None:
        fill_time(message.room_time, standing.room_at)


def fill_time(message: Timestamp, micros: int) -> None:
    """Write microseconds since the epoch."""
    seconds, rest = divmod(min(max(micros, 0), LATEST), SECOND)
    message.seconds = seconds
    message.nanos = rest * 1000
    message.SetInParent()


def bounded(value: int) -> int:
    """Return a sum as int64; above that it saturates."""
    return min(max(value, 0), INT64_MAX)
