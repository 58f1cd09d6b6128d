"""A provider instance as the sockets of a session need it."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import msgspec

from modelmeter_server.core.accumulators import Accumulator

from .driver import Driver
from .http import Endpoint, Limits, Timeouts
from .keys import KeyLease

CONNECTION_AGE = 3_300.0
"""Seconds after which a socket gets no other turn: OpenAI ends one after 60 minutes, also within a turn."""


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint with its credentials, limits and wire format."""

    base: Driver
    """The instance's driver, which encodes."""
    endpoint: Endpoint
    context: ssl.SSLContext | None
    target: Callable[[str], str]
    """From a path to path and query below the base URL."""
    lease: Callable[[], KeyLease | None]
    """Chooses the key that a socket is opened with."""
    accumulator: Callable[..., Accumulator]
    """Takes what `Accumulator` takes."""
    scrub: Callable[[str], str]
    timeouts: Timeouts
    limits: Limits
    age: float = CONNECTION_AGE
    """Seconds after which a socket gets no other turn."""
