"""What becomes of a provider request when nobody waits for it any more: it is cut, or read on within bounds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from modelmeter_server.core.models import OnCancel

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelmeter_server.core.models import ModelSpec

    from .holding import Desk

ABORTED = "aborted"
"""The connection was closed when the last caller had left."""

DRAINED = "drained"
"""The provider finished within the bounds, so that its bill is whole."""

DRAIN_CUT = "drain_cut"
"""A bound, a halt, a broken connection or this server's end came first."""


class Landing:
    """Bound the reading of one request that nobody waits for, and remember how that ended."""

    def __init__(self) -> None:
        self.word = ""
        """One of the above; empty for a call whose caller stayed."""
        self._desk: Desk | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._most_received = 0

    @property
    def is_draining(self) -> bool:
        """Say whether the request is read on for its bill alone."""
        return self._timer is not None

    def drain(self, desk: Desk, model: ModelSpec, received: int, cut: Callable[[], None]) -> bool:
        """Begin to read on, until `cut` is called at a bound; False where this model or server does not."""
        if model.on_cancel is not OnCancel.DRAIN or not desk.take_drain():
            return False
        self._desk = desk
        self._most_received = received + model.drain_bytes
        self._timer = asyncio.get_running_loop().call_later(model.drain_seconds, cut)
        self.word = DRAINED
        return True

    def exceeds(self, received: int) -> bool:
        """Say whether a drain has read as much as it may; `received` are the answer's bytes so far."""
        return self._timer is not None and received > self._most_received

    def abort(self) -> None:
        """Note that the request is cut."""
        self.word = DRAIN_CUT if self.is_draining else ABORTED

    def word_at_end(self, *, is_finished: bool) -> str:
        """Return the word for the record; `is_finished` when the provider had ended its answer by itself."""
        return DRAIN_CUT if self.word == DRAINED and not is_finished else self.word

    def revoke(self) -> None:
        """Let the bounds go: somebody waits again."""
        if self.is_draining:
            self.word = ""
            self.close()

    def close(self) -> None:
        """Give back what a drain holds; harmless without one."""
        if self._timer is not None and self._desk is not None:
            self._timer.cancel()
            self._timer = None
            self._desk.give_drain_back()
