"""How long a caller may stay: an RPC that was let in ends soon after the credential that let it in.

Whatever runs for a caller can say how it is to be cut, so that its bill is told. What says nothing, and what has not
ended a while after it was cut, is cancelled.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from modelmeter_server.core.errors import Failure, failure
from modelmeter_server.core.outcomes import Cause, Code, Kind
from modelmeter_server.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelmeter_server.identity.principal import Principal

LOOK_SECONDS: Final = 1.0
"""How often it is asked whether the credentials of those who stay are good."""

GRACE_SECONDS: Final = 3.0
"""What an RPC that was cut gets to tell its bill."""

_current: ContextVar[Stay] = ContextVar("current_stay")

_log = get_logger(__name__)


class Stay:
    """One RPC of a caller that was let in."""

    __slots__ = ("_cuts", "as_admin", "ended", "principal", "task")

    def __init__(self, principal: Principal, task: asyncio.Task[object]) -> None:
        self.principal = principal
        self.task = task
        self.ended = ""
        """Why its credential is good no longer; empty as long as it is."""
        self.as_admin = False
        """Whether it is about what only an admin may see."""
        self._cuts: list[Callable[[str], None]] = []

    def on_end(self, cut: Callable[[str], None]) -> None:
        """Let this be called, with the reason, instead of cancelling the RPC."""
        self._cuts.append(cut)

    def end(self, reason: str) -> None:
        """Cut what runs; harmless the second time."""
        if self.ended:
            return
        self.ended = reason
        for cut in self._cuts:
            cut(reason)
        if self._cuts:
            self.task.get_loop().call_later(GRACE_SECONDS, self.task.cancel)
        else:
            self.task.cancel()


def on_end_of_credential(cut: Callable[[str], None]) -> None:
    """Say how what runs for the caller of this RPC is cut when its credential ends; nothing where nobody is asked."""
    stay = _current.get(None)
    if stay is not None:
        stay.on_end(cut)


def stays_as_admin() -> None:
    """Say that this RPC is one of an admin: it ends, too, when its tenant is none any more."""
    stay = _current.get(None)
    if stay is not None:
        stay.as_admin = True


def unauthenticated(reason: str) -> Failure:
    """Return the failure of a caller whom nobody vouches for, or no longer."""
    return failure(Kind.REFUSED, f"unauthenticated: {reason}", cause=Cause.LIMIT, code=Code.UNAUTHENTICATED)


class Stays:
    """Those who stay, by what let them in. Belongs to one event loop."""

    def __init__(self, why_ended: Callable[[Principal, bool], str], interval: float | None = None) -> None:
        """`why_ended` says why a credential is good no longer, or is empty; it is asked for each once a look.

        Once more where its tenant has to be an admin, which is the second argument.
        """
        self._why_ended = why_ended
        self._interval = LOOK_SECONDS if interval is None else interval
        self._stays: dict[Principal, set[Stay]] = {}
        self._looking: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._stays.values()))

    def enter(self, principal: Principal) -> Stay:
        """Note that the RPC of this task begins."""
        task = asyncio.current_task()
        assert task is not None
        stay = Stay(principal, task)
        self._stays.setdefault(principal, set()).add(stay)
        _current.set(stay)
        if self._looking is None:
            self._look_later(task.get_loop())
        return stay

    def leave(self, stay: Stay) -> None:
        """Note that it ended."""
        stays = self._stays[stay.principal]
        stays.discard(stay)
        if not stays:
            del self._stays[stay.principal]

    def look(self) -> None:
        """End every RPC whose credential is good no longer."""
        for principal, stays in list(self._stays.items()):
            for as_admin in {stay.as_admin for stay in stays}:
                reason = self._why_ended(principal, as_admin)
                ending = [each for each in stays if each.as_admin is as_admin and not each.ended and reason]
                if ending:
                    _log.warning("cut", subject=principal.subject, reason=reason, rpcs=len(ending))
                for stay in ending:
                    stay.end(reason)

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looking = loop.call_later(self._interval, self._look_on, loop)

    def _look_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looking = None
        try:
            self.look()
        finally:
            if self._stays:
                self._look_later(loop)
