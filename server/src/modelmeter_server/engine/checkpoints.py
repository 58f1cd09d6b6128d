"""What a running call has told, written down often enough that a crash costs no figure and seldom enough to be free."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from modelmeter_server.core.ladder import severed
from modelmeter_server.core.outcomes import End, Ending, Stage

from .bill import priced
from .booking import figures

if TYPE_CHECKING:
    from modelmeter_server.core.accumulators import Accumulator
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.pricing import PriceTable

    from .holding import Holding

INTERVAL = 0.2
"""Seconds between two checkpoints of one call."""

_CUT = Ending(end=End.CUT, stage=Stage.BODY)


class Checkpoints:
    """Checkpoint one call: at once when it first generates and when usage is first seen, then each `INTERVAL`."""

    def __init__(
        self, holding: Holding, model: ModelSpec, tables: dict[str, PriceTable], interval: float = INTERVAL
    ) -> None:
        self._holding = holding
        self._model = model
        self._tables = tables
        self._interval = interval
        self._timer: asyncio.TimerHandle | None = None
        self._generated = False
        self._usage_seen = False
        self._told: object = None

    def progressed(self, accumulator: Accumulator) -> None:
        """Take note of one read. It costs two comparisons as long as nothing is due."""
        is_first = accumulator.generated and not self._generated
        if not self._usage_seen and accumulator.usage_changed:
            usage, _, _ = accumulator.told_usage()
            is_first = is_first or (usage is not None and usage.is_seen)
        if is_first:
            self._write(accumulator)
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._due, accumulator)

    def stop(self) -> None:
        """Write no more: the call is about to be settled."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self, accumulator: Accumulator) -> None:
        self._timer = None
        if (accumulator.generated, accumulator.told_usage()) != self._told:
            self._write(accumulator)

    def _write(self, accumulator: Accumulator) -> None:
        usage, _, _ = told = accumulator.told_usage()
        self._told = (accumulator.generated, told)
        self._generated = accumulator.generated
        self._usage_seen = usage is not None and usage.is_seen
        result = priced(severed(accumulator.evidence(), _CUT, ""), self._model, self._tables)
        self._holding.checkpoint(
            figures(result),
            generated=accumulator.generated,
            model_served=result.model_served,
            provider_response_id=result.provider_response_id,
        )
