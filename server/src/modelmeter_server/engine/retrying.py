"""Whether a failed attempt is followed by another one, and after which wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelmeter_server.core.errors import Failure


class Retries:
    """The retries of one call."""

    def wait_after(self, failure: Failure) -> float | None:
        """Return how many seconds to wait before the same target is asked again; `None`: it is not."""
        del failure
        return None
