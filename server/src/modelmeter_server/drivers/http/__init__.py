"""A stage-exact HTTP/1.1 client: it can always say how far a request got before it failed.

Two faces over the same connections: `Pool.exchange` pushes an answer's bytes into a `Sink` from within the
read callback, for generation; `HttpxTransport` serves ordinary httpx calls, for everything else. No
redirects, nothing from the environment, no proxy but an explicit one, no retry but the one re-send over a
stale kept connection.
"""

from .delivery import Permit, Sink
from .egress import OPEN_GATE, EgressGate, egress_refusal
from .endpoint import Endpoint, Proxy, TrustFile, system_trust
from .exchange import Exchange
from .faults import ConnectError, ExchangeEnd, Fault, cause_of
from .httpx_transport import HttpxTransport, exception_for, exchange_end
from .limits import Limits, Timeouts
from .message import Headers, HttpRequest, ResponseHead
from .pool import Pool

__all__ = [
    "OPEN_GATE",
    "ConnectError",
    "EgressGate",
    "Endpoint",
    "Exchange",
    "ExchangeEnd",
    "Fault",
    "Headers",
    "HttpRequest",
    "HttpxTransport",
    "Limits",
    "Permit",
    "Pool",
    "Proxy",
    "ResponseHead",
    "Sink",
    "Timeouts",
    "TrustFile",
    "cause_of",
    "egress_refusal",
    "exception_for",
    "exchange_end",
    "system_trust",
]
