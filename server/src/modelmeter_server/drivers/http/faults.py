"""What can go wrong between us and a provider, and how an exchange reports its end.

A fault says what was seen on the wire, a stage how far the request got. Neither says what it means for the
bill: that is the ladder's business (R-H5), and it needs both to be exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, unique

from modelmeter_server.core.outcomes import Cause, Stage

from .message import ResponseHead


@unique
class Fault(Enum):
    """What ended an exchange."""

    NONE = "NONE"
    """Nothing: the answer came to its end, or the sink had enough."""

    POOL_TIMEOUT = "POOL_TIMEOUT"
    """No place in the pool became free in time."""
    REQUEST_LIMIT = "REQUEST_LIMIT"
    """The request is larger than we send."""

    EXHAUSTED = "EXHAUSTED"
    """This process has no file descriptor, or this machine no memory, for one more connection."""
    EGRESS = "EGRESS"
    """The deployment does not allow connections to this host."""
    DNS = "DNS"
    """The host's name did not resolve."""
    REFUSED = "REFUSED"
    """Nobody listens there."""
    CONNECT_FAILED = "CONNECT_FAILED"
    """No route, or any other failure of the TCP connect."""
    CONNECT_TIMEOUT = "CONNECT_TIMEOUT"
    """Resolving, connecting, tunnelling and the handshake together took too long."""
    TLS = "TLS"
    """The TLS handshake or a TLS record failed."""
    CERTIFICATE = "CERTIFICATE"
    """The peer's certificate did not verify."""
    PROXY = "PROXY"
    """The proxy could not be reached or did not open the tunnel."""
    PROXY_CREDENTIALS = "PROXY_CREDENTIALS"
    """The proxy answered 407."""

    WRITE_LOST = "WRITE_LOST"
    """The connection ended while a piece of the request still waited to be written."""
    WRITE_TIMEOUT = "WRITE_TIMEOUT"
    """The peer stopped reading the request."""

    FIRST_BYTE_TIMEOUT = "FIRST_BYTE_TIMEOUT"
    """The request was written and no answer began in time."""
    IDLE_TIMEOUT = "IDLE_TIMEOUT"
    """The answer began and then fell silent."""
    TOTAL_TIMEOUT = "TOTAL_TIMEOUT"
    """The exchange as a whole took too long."""
    RESET = "RESET"
    """The connection broke; or the peer closed it before the first byte of an answer."""
    TRUNCATED = "TRUNCATED"
    """The peer closed in good order before the answer's announced end."""
    MALFORMED = "MALFORMED"
    """The answer is not HTTP/1.x."""
    ENCODING = "ENCODING"
    """The body is coded in a way we did not ask for, or does not decode."""
    HEADER_LIMIT = "HEADER_LIMIT"
    """More header, trailer or chunk-extension bytes than we accept."""
    ANSWER_LIMIT = "ANSWER_LIMIT"
    """More body bytes than we accept, announced or received."""

    NOT_ALLOWED = "NOT_ALLOWED"
    """Whoever had to allow the request to leave did not; not one byte of it has left."""

    CUT = "CUT"
    """Ended from outside: `Exchange.cut`, a cancelled task, a closing pool."""
    BUG = "BUG"
    """Our own code raised, here or in the sink."""


_CAUSES = {
    Fault.NONE: None,
    Fault.POOL_TIMEOUT: Cause.LIMIT,
    Fault.EXHAUSTED: Cause.LIMIT,
    Fault.REQUEST_LIMIT: Cause.LIMIT,
    Fault.NOT_ALLOWED: Cause.LIMIT,
    Fault.EGRESS: Cause.LIMIT,
    Fault.HEADER_LIMIT: Cause.LIMIT,
    Fault.ANSWER_LIMIT: Cause.LIMIT,
    Fault.FIRST_BYTE_TIMEOUT: Cause.IDLE_TIMEOUT,
    Fault.IDLE_TIMEOUT: Cause.IDLE_TIMEOUT,
    Fault.TOTAL_TIMEOUT: Cause.TOTAL_TIMEOUT,
    Fault.CUT: Cause.CALLER,
    Fault.BUG: Cause.BUG,
}


def cause_of(fault: Fault) -> Cause | None:
    """Say who ended an exchange with this fault; `None` when nothing failed.

    `CUT` is told its cause by whoever cuts; CALLER is what it means when nobody said.
    """
    return _CAUSES.get(fault, Cause.NETWORK)


class ConnectError(Exception):
    """A connection could not be opened."""

    def __init__(self, fault: Fault, detail: str, error: BaseException | None = None) -> None:
        super().__init__(detail)
        self.fault = fault
        self.detail = detail
        self.error = error


@dataclass(frozen=True, slots=True)
class ExchangeEnd:
    """How one exchange ended. Holds no URL, no header value and no byte of a body, so it may be logged."""

    stage: Stage
    """The furthest point reached over all attempts, NOT_WRITTEN to BODY."""
    fault: Fault
    cause: Cause | None
    """`None` exactly when `fault` is NONE."""
    detail: str
    """One clause for people; names the host at most."""
    head: ResponseHead | None
    """The final answer's head, as soon as it arrived whole. An early answer may stand beside an unwritten request."""
    attempts: int
    """2 when the request was sent again because a reused connection had gone stale, otherwise 1."""
    reused: bool
    """The last attempt went over a connection that had served an earlier exchange."""
    request_written: bool
    """The request was handed to the network whole, in any attempt."""
    error: BaseException | None = field(default=None, repr=False, compare=False)
    """What the operating system, `ssl` or a failing sink raised, where there was something."""
    lost_written: bool = False
    """The first of two attempts had been handed to the network whole."""
    lost_seconds: float = 0.0
    """From the first of two attempts being on its way to the loss of its connection."""
