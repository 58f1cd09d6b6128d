"""What a deployment offers, as one configuration has it, and what becomes of it when another takes its place.

A call, a session and a lookup belong to the offer that was current when they began. A driver that no offer in use
has any more is closed then, and not before.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from modelmeter_server.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelmeter_server.drivers.driver import Driver

    from .catalog import Catalog

_log = get_logger(__name__)


class Offer:
    """The models and the drivers behind them. Never changes."""

    def __init__(self, catalog: Catalog, drivers: Mapping[str, Driver]) -> None:
        """`drivers` are keyed by the provider instance's name."""
        self.catalog = catalog
        self.drivers = drivers


class Offers:
    """The offer that is current, and those before it that are still in use. Belongs to one event loop."""

    def __init__(self, current: Offer) -> None:
        """Begin with one."""
        self.current = current
        self._users: dict[Offer, int] = {current: 0}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def drivers(self) -> list[Driver]:
        """Return the drivers of every offer in use, each once."""
        return list({id(each): each for offer in self._users for each in offer.drivers.values()}.values())

    def take(self, offer: Offer | None = None) -> Offer:
        """Keep an offer, the current one unless told, until it is given back as often as it was taken."""
        taken = offer or self.current
        self._users[taken] += 1
        return taken

    def give_back(self, offer: Offer) -> None:
        """Let an offer go that was taken."""
        self._users[offer] -= 1
        self._sweep(offer)

    def replace(self, offer: Offer) -> None:
        """Make another offer the current one; what is in use goes on with its own."""
        before, self.current = self.current, offer
        self._users[offer] = 0
        self._sweep(before)

    async def aclose(self) -> None:
        """Close the drivers of every offer, in use or not."""
        for offer in list(self._users):
            self._forget(offer, kept=())
        while self._closing:
            await asyncio.wait(set(self._closing))

    def _sweep(self, offer: Offer) -> None:
        if offer is not self.current and not self._users[offer]:
            self._forget(offer, kept=[each for each in self._users if each is not offer])

    def _forget(self, offer: Offer, kept: list[Offer] | tuple[()]) -> None:
        del self._users[offer]
        needed = {id(driver) for each in kept for driver in each.drivers.values()}
        for driver in offer.drivers.values():
            if id(driver) not in needed:
                task = asyncio.get_running_loop().create_task(_close(driver))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)


async def _close(driver: Driver) -> None:
    try:
        await driver.aclose()
    except Exception:  # noqa: BLE001 - nobody waits for it, and the others must be closed as well
        _log.exception("the connections of a provider could not be closed", provider=driver.name)
