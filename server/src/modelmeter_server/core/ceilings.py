"""Ceilings: whose spend is bounded, over which window, by how much; and where an account stands against one.

Times are microseconds since the epoch, UTC.
"""

from __future__ import annotations

from enum import Enum, unique

import msgspec

SOFT_LIMITS = (50, 80, 100)
"""Percent of a ceiling whose crossing is told, once a window each."""


@unique
class Scope(Enum):
    """What a ceiling or a halt is about."""

    CALL = "CALL"
    """One call; stands in its request only."""
    RUN = "RUN"
    TENANT = "TENANT"
    MODEL = "MODEL"


class Subject(msgspec.Struct, frozen=True, order=True):
    """What is bounded or halted: a run, a tenant or a model of a tenant."""

    tenant: str
    scope: str
    """The value of a `Scope`."""
    name: str
    """The run id, or the model's name as callers ask for it; empty for TENANT. An empty run id in a ceiling means
    every run of the tenant, each by itself."""


@unique
class WindowKind(Enum):
    """Over which time a ceiling counts."""

    TOTAL = "TOTAL"
    DAY = "DAY"
    """From midnight to midnight of its time zone."""
    MONTH = "MONTH"
    """From the first of a month to the next, in its time zone."""
    ROLLING = "ROLLING"
    """The last `seconds`, in steps (see `core.windows`)."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Over which time a ceiling counts."""

    kind: WindowKind = WindowKind.TOTAL
    time_zone: str = "UTC"
    """An IANA name; for DAY and MONTH."""
    seconds: int = 0
    """Length of a ROLLING window; 3,600 (an hour) to 31,622,400 (366 days)."""


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """A bound on what a subject may consume in a window: tokens, money, or both."""

    ceiling_id: str
    """A UUID; made by the ledger."""
    subject: Subject
    window: Window = Window()
    tokens: int | None = None
    """Input and output together; `None` for no bound."""
    nano_units: int | None = None
    currency: str = ""
    """ISO 4217; required with `nano_units`, empty otherwise."""
    created_at: int = 0
    by_admin: bool = True
    """Whether an admin or the configuration set it; nobody else may replace or delete it then."""


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and money of one currency; empty when there is no price."""

    tokens: int = 0
    nano_units: int = 0
    currency: str = ""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a subject stands against a ceiling. Numbers are tokens, or nano units when `currency` is set."""

    subject: Subject
    window: Window
    currency: str = ""
    allowed: int
    settled: int
    held: int
    unsettled: int
    asked: int = 0
    """What the refused call would have needed."""
    ceiling_id: str = ""
    """Empty for the call's own ceiling."""
    room_at: int | None = None
    """When more room comes for certain: the window's end, or for ROLLING the end of the oldest step that counts.
    `None` when only settlements or a higher ceiling can bring it."""

    @property
    def room(self) -> int:
        """Return what is left, at least 0."""
        return max(0, self.allowed - self.settled - self.held - self.unsettled)


@unique
class HaltMode(Enum):
    """How a halt treats calls under way."""

    ADMISSION = "ADMISSION"
    """New calls are refused, those under way may end."""
    CUT = "CUT"
    """Those under way are cut as well."""


class Halt(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's stop."""

    subject: Subject
    mode: HaltMode = HaltMode.ADMISSION
    reason: str = ""
    since: int = 0
    by_admin: bool = True
    """Whether an admin set it; nobody else may replace or clear it then."""
