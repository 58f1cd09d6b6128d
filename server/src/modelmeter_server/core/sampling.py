"""Which events are shown: a share of the calls, chosen by a stable keyed hash. Never which are counted or billed.

The same call has the same verdict in every process and after every restart, because Python's own `hash` is different in
each. All kinds of one family share one rate and one correlator, so that both ends of a thing are kept or dropped.
Failures are always kept; the start of a failed call may then be missing, as nobody knew yet.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import Final

import msgspec

from .events import UNSAMPLED, Event, Family, correlator_of, family_of, is_failure

_RANGE: Final = 1 << 64


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """What share of the calls is shown."""

    rate: float = 1.0
    """From 0 to 1; what lies outside is cut to that, and NaN means 1."""
    rates: dict[Family, float] = {}
    """Rates of single families, in the place of `rate`."""
    key: bytes = b"modelmeter"
    """Deployments with the same key keep the same calls."""

    @property
    def keeps_all(self) -> bool:
        """Say whether everything is shown."""
        return not self.rates and bounded(self.rate) >= 1

    def keeps(self, event: Event) -> bool:
        """Say whether the event is shown."""
        family = family_of(type(event))
        if family in UNSAMPLED:
            return True
        rate = bounded(self.rates.get(family, self.rate))
        if rate >= 1 or is_failure(event):
            return True
        return rate > 0 and fraction(correlator_of(event), self.key) < rate


def bounded(rate: float) -> float:
    """Return the rate within 0 and 1."""
    return 1.0 if math.isnan(rate) else min(max(rate, 0.0), 1.0)


def fraction(correlator: str, key: bytes) -> float:
    """Return where a correlator lies between 0 and 1: the same for the same key, anywhere and at any time."""
    data = correlator.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8, key=key[:64]).digest()) / _RANGE
