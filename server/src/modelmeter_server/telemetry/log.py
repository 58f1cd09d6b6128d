"""Structured logs: one JSON object a line on stderr.

What is logged about a call carries its `call_id`, and its `trace_id` where the caller or an exporter gave it one.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import msgspec
import structlog

from .places import current_place

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger, Processor

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
"""Level names of the configuration."""

_FIRST = ("timestamp", "level", "event")
"""What a line begins with, as the line of a call does: whoever reads along reads from the left."""

_encode = msgspec.json.Encoder(enc_hook=str).encode


def _render(_logger: object, _method: str, event: Any) -> bytes:
    try:
        return _encode({name: event[name] for name in _FIRST if name in event} | event)
    except (
        msgspec.MsgspecError,
        ValueError,
        TypeError,
        RecursionError,
    ):  # a lone surrogate, an endless structure
        return _encode({"event": "a log line could not be written", "level": "error"})


def _add_worker(_logger: object, _method: str, event: Any) -> Any:
    if _worker:
        event.setdefault("worker", _worker[0])
    return event


def _add_place(_logger: object, _method: str, event: Any) -> Any:
    place = current_place.get()
    if place.trace_id:
        event.setdefault("trace_id", place.trace_id)
        event.setdefault("span_id", place.span_id)
    return event


_PROCESSORS: tuple[Processor, ...] = (
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.add_log_level,
    _add_worker,
    _add_place,
    structlog.processors.format_exc_info,
    cast("Processor", _render),
)

_outputs: dict[str, BinaryIO] = {}
_worker: list[int] = []


def configure_logging(
    level: str = "info", stream: BinaryIO | None = None, *, worker: int | None = None
) -> None:
    """Send JSON lines of `level` (a key of `LEVELS`) and above to `stream`, stderr unless given.

    With a `worker` each line says which of several processes wrote it.
    Libraries that use the standard library's logging are heard from `warning` on.
    """
    target = stream or sys.stderr.buffer
    _worker[:] = [] if worker is None else [worker]
    _outputs.clear()
    _outputs.update({name: target for name, number in LEVELS.items() if number >= LEVELS[level]})
    structlog.configure(
        processors=list(_PROCESSORS),
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.BytesLoggerFactory(file=target),
    )
    logging.basicConfig(handlers=[_ToStructlog()], level=logging.WARNING, force=True)


def output(level: str) -> BinaryIO | None:
    """Return where lines of this level go; `None` when they go nowhere, as before `configure_logging`."""
    return _outputs.get(level)


def worker() -> int | None:
    """Return which of several processes this is; `None` for the only one."""
    return _worker[0] if _worker else None


class _ToStructlog(logging.Handler):
    """Give a record of the standard library the shape of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        get_logger(record.name).log(record.levelno, record.getMessage(), exc_info=record.exc_info)


def get_logger(name: str) -> FilteringBoundLogger:
    """Return a logger whose lines name their module."""
    return cast("FilteringBoundLogger", structlog.get_logger(module=name))
