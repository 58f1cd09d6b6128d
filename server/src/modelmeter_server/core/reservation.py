"""What is held for a call before it is sent: a bound on its tokens, and what those cost at the dearest."""

from __future__ import annotations

import msgspec


class Hold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is held for a call before it is sent, and what bounds it when it ends in the dark."""

    input_tokens: int
    """The bound on its input."""
    output_tokens: int
    """The most it may generate, after a clamp."""
    nano_units: int = 0
    """Price of both, at the dearest rates that can apply."""
    input_nano_units: int = 0
    """The input's share of `nano_units`."""
    output_rate: int = 0
    """Nano units per million output tokens, the dearest that can apply."""
    currency: str = ""
    """Empty when the model has no price. Once such a call has ended, the currency of the cost that its provider told."""
    tokens_per_second: int
    """How fast the model generates at most."""
    abort_stops_billing: bool = True
    """Whether the provider bills no more once its connection is closed."""

    @property
    def tokens(self) -> int:
        """Return input and output together."""
        return self.input_tokens + self.output_tokens
