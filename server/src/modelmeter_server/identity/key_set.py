"""The keys of an issuer: read once for all who wait, kept for a while, read again when a token names another one."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.exceptions import PyJWTError

from modelmeter_server.telemetry.log import get_logger

from .principal import NoKeys

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

ALGORITHMS: Final = ("RS256", "ES256", "EdDSA")
"""Signatures by a private key that only the issuer has. Never `none`, and no HMAC: its key would be the public one."""

KEEP_SECONDS: Final = 300.0
"""How long keys are used before they are read again, beside the calls."""

BETWEEN_READS: Final = 30.0
"""Unknown keys, which anybody can name, make the issuer be asked no more often than this."""

LEAST_RSA_BITS: Final = 2048
MOST_KEYS: Final = 100

_KEY_TYPES: Final = {"RS256": ("RSA", None), "ES256": ("EC", "P-256"), "EdDSA": ("OKP", "Ed25519")}

_PUBLIC: Final = ("kty", "crv", "n", "e", "x", "y", "kid")

_log = get_logger(__name__)


class KeySetError(Exception):
    """A document is no JWK Set, or none could be had; the message quotes nothing of it."""


class KeySet:
    """Find keys by their id. Belongs to one event loop."""

    def __init__(
        self, fetch: Callable[[], Awaitable[bytes]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read nothing yet; `fetch` returns a JWK Set, and raises KeySetError or OSError."""
        self._fetch = fetch
        self._clock = clock
        self._keys: Mapping[str | None, jwt.PyJWK] = {}
        self._read_at: float | None = None
        self._tried_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None) -> jwt.PyJWK | None:
        """Return the key of this id, or the only one if no id is given; `None` for an unknown one.

        Raises NoKeys while no key set could be read yet.
        """
        if self._read_at is None:
            await self._wait()
        elif self._clock() - self._read_at > KEEP_SECONDS:
            self._begin()
        key = self._lookup(key_id)
        if key is None and self._begin() is not None:
            await self._wait()
            key = self._lookup(key_id)
        return key

    def _lookup(self, key_id: str | None) -> jwt.PyJWK | None:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    async def _wait(self) -> None:
        reading = self._begin()
        if reading is not None:
            await asyncio.shield(reading)
        if self._read_at is None:
            message = "the issuer's keys cannot be had at the moment"
            raise NoKeys(message)

    def _begin(self) -> asyncio.Task[None] | None:
        """Return the reading under way, or begin one unless one was begun just now."""
        if self._reading is not None and not self._reading.done():
            return self._reading
        if self._clock() - self._tried_at < BETWEEN_READS:
            return None
        self._tried_at = self._clock()
        self._reading = asyncio.get_running_loop().create_task(self._read())
        return self._reading

    async def _read(self) -> None:
        try:
            self._keys = parse_keys(await self._fetch())
        except (KeySetError, OSError) as error:
            _log.error("the issuer's keys cannot be read; those known before still hold", reason=str(error))
            return
        self._read_at = self._clock()


def parse_keys(document: bytes) -> dict[str | None, jwt.PyJWK]:
    """Return the usable keys of a JWK Set by their ids; others, for encryption or of other sorts, are left out.

    Raises KeySetError.
    """
    try:
        listed = json.loads(document)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        listed = None
    if not isinstance(listed, list):
        message = "the issuer's document is no JWK Set"
        raise KeySetError(message)
    found = [key for each in listed[:MOST_KEYS] if (key := _usable(each)) is not None]
    return {key.key_id: key for key in found}


def _usable(entry: Any) -> jwt.PyJWK | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    if not isinstance(entry.get("kid"), str | None):
        return None
    named = entry.get("alg")
    for algorithm, (kind, curve) in _KEY_TYPES.items():
        if (entry.get("kty"), named or algorithm) == (kind, algorithm) and curve in (None, entry.get("crv")):
            return _key(entry, algorithm)
    return None


def _key(entry: dict[str, Any], algorithm: str) -> jwt.PyJWK | None:
    # Only the public members: a set that holds private ones by mistake is used as the public one that it should be.
    public = {name: value for name, value in entry.items() if name in _PUBLIC}
    try:
        key = jwt.PyJWK(public, algorithm)
    except (PyJWTError, ValueError, TypeError):
        return None
    weak = isinstance(key.key, RSAPublicKey) and key.key.key_size < LEAST_RSA_BITS
    return None if weak else key
