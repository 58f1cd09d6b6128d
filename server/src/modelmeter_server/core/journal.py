"""The words of the journal: which call, which effect, how far a call has come, and what a repetition wants."""

from __future__ import annotations

from enum import Enum, IntEnum, unique

import msgspec

DEFAULT_TENANT = "default"
"""The tenant of callers that nobody told apart."""


@unique
class CallState(IntEnum):
    """How far a call has come in the ledger.

        RESERVED -> DISPATCHED -> SETTLED
                               -> UNSETTLED -> RECONCILED | WRITTEN_OFF

    RESERVED -> SETTLED is a call that ended before anything was sent.
    """

    RESERVED = 1
    """Room is held for it; not one byte has left."""
    DISPATCHED = 2
    """Its provider request leaves now or has left."""
    SETTLED = 3
    """Its bill is known."""
    UNSETTLED = 4
    """It has ended, and what it cost is not wholly known; a bound is held until it expires."""
    RECONCILED = 5
    """A truer figure came later, from the provider or an operator."""
    WRITTEN_OFF = 6
    """Nobody ever told; its bound left the ceilings and remains a column of the sums."""

    @property
    def is_open(self) -> bool:
        """Say whether the call is still under way."""
        return self <= CallState.DISPATCHED


@unique
class Operation(Enum):
    """What was asked of the model."""

    COMPLETE = "COMPLETE"
    EMBED = "EMBED"


@unique
class OnLandedError(Enum):
    """What a repetition does about a recorded error that landed."""

    REPLAY = "REPLAY"
    """Return the error; nothing is bought again."""
    RETRY = "RETRY"
    """Buy the answer once more, as the next generation; both are billed."""


class CallKey(msgspec.Struct, frozen=True, order=True):
    """The name of a call: unique in its tenant."""

    tenant: str
    call_id: str


class EffectKey(msgspec.Struct, frozen=True, order=True):
    """The name of an effect: unique in the tenant's run."""

    tenant: str
    run_id: str
    key: str


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """How a call stands in a run of an effect runtime."""

    run_id: str
    key: str
    on_landed_error: OnLandedError = OnLandedError.REPLAY
