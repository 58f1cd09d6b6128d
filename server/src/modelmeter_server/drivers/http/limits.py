"""How long and how much: the bounds of one exchange and of the pool behind it."""

from __future__ import annotations

from dataclasses import dataclass, fields

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Bound every phase of an exchange separately. All values are seconds above 0; `math.inf` switches one off.

    Raises:
        ValueError: a value is not above 0.
    """

    pool: float = 10.0
    """Waiting for a free place in the pool. Running out is our own overload, not the provider's."""
    connect: float = 5.0
    """Name resolution, TCP, the proxy's tunnel and the TLS handshake together."""
    write: float = 60.0
    """The longest that one piece of the request may wait for the peer to read."""
    first_byte: float = 60.0
    """From the whole request written to the first byte of the answer."""
    idle: float = 60.0
    """The longest gap between two reads once the answer has begun."""
    tail: float = 5.0
    """What drivers pass to `Exchange.set_idle_timeout` once the answer is whole and only figures are awaited."""
    total: float = 600.0
    """The whole exchange, pool wait included."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                msg = f"timeout {field.name} must be a number of seconds above 0"
                raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bound what a peer, or our own caller, can make this process hold. All values are above 0.

    Raises:
        ValueError: a value is below 1.
    """

    header_bytes: int = 64 * KIB
    """Status line and headers of an answer; also any run of bytes that brings no body (trailers, chunk extensions)."""
    answer_bytes: int = 64 * MIB
    """Body of a 2xx answer, counted both as received and as decompressed."""
    event_bytes: int = 16 * MIB
    """One event of an event stream; a larger one is a dead connection. For whoever splits the stream, not for us."""
    error_body_bytes: int = MIB
    """Body of any other answer, counted the same way. The status decides such an answer, its body only explains."""
    request_bytes: int = 32 * MIB
    """Body of a request."""
    connections: int = 1000
    """Open connections of one pool, idle ones included."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                msg = f"limit {field.name} must be at least 1"
                raise ValueError(msg)
