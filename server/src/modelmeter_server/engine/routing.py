"""Which target a call asks, one after another: the seam between the call, which asks, and whoever chooses.

first() ──► Target ──► it is planned ──► began ──► the call asks it ──► ended ──► after(failure) ──► Next ──► ...
       │                     └─► refused(target): another one, or None                    └─► None: that was all
       └─► Failure: nobody can be asked
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from modelmeter_server.core.models import ModelSpec
from modelmeter_server.core.pricing import PriceTable
from modelmeter_server.drivers.driver import Driver

if TYPE_CHECKING:
    from modelmeter_server.core.answers import Answer
    from modelmeter_server.core.errors import Failure
    from modelmeter_server.core.routing import PassedOver

    from .retrying import Retries


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Who can be asked: a model at a provider instance, with what its answers cost."""

    name: str
    """As callers, events and the ledger's rows are told."""
    model: ModelSpec
    driver: Driver
    tables: dict[str, PriceTable] = {}
    """Prices at the same instance, for work that it bills under other models' names."""


class Next(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asked next: the same target again, which is a retry, or another one, which is a fallback."""

    target: Target
    wait: float = 0.0
    """Seconds to wait before."""


class Route(Protocol):
    """Hand out the targets of one call. Used on the event loop, by one call."""

    def first(self) -> Target | Failure:
        """Return who is asked first, or why nobody can be."""

    def refused(self, target: Target, failure: Failure) -> Target | None:
        """Return who may take a request that this target cannot take; `None`: nobody else."""

    def began(self, target: Target) -> None:
        """Take note that an attempt begins."""

    def ended(self, target: Target, result: Answer | Failure | None) -> None:
        """Take note of how an attempt ended, `None` for a fault of ours; once for each that began, before `after`."""

    def after(self, failure: Failure) -> Next | None:
        """Return who is asked after an attempt failed so; `None` ends the call with what it has."""

    @property
    def passed_over(self) -> tuple[PassedOver, ...]:
        """Return who was not asked so far although it came before who was, and why."""


class OneTarget:
    """The route of a model that has one target: asked again as its retry policy says."""

    def __init__(self, target: Target, retries: Retries) -> None:
        """Ask `target` alone."""
        self._target = target
        self._retries = retries

    def first(self) -> Target | Failure:
        """See `Route.first`."""
        return self._target

    def after(self, failure: Failure) -> Next | None:
        """See `Route.after`."""
        wait = self._retries.wait_after(failure)
        return None if wait is None else Next(target=self._target, wait=wait)

    def refused(self, target: Target, failure: Failure) -> Target | None:
        """See `Route.refused`."""

    def began(self, target: Target) -> None:
        """See `Route.began`."""

    def ended(self, target: Target, result: Answer | Failure | None) -> None:
        """See `Route.ended`."""

    @property
    def passed_over(self) -> tuple[PassedOver, ...]:
        """See `Route.passed_over`."""
        return ()
