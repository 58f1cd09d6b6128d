"""What a key comes from."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from modelmeter_server.drivers.known_secrets import SECRET_CHANGES

# What an HTTP header may carry.
_KEY: Final = re.compile(r"[!-~]+")

Complain = Callable[[str], None]
"""Tells an operator what is wrong with a source; the text holds no key."""

_REMEMBERED: Final = 8
"""Keys of before that are still cut out of texts: calls under way, and providers that answer late, may name them."""


def is_key(text: str) -> bool:
    """Say whether a text can be a key: one word of printable ASCII."""
    return _KEY.fullmatch(text) is not None


class Key(Protocol):
    """A provider key that does not show itself."""

    def reveal(self) -> str:
        """Return the key."""


class KeySource(Protocol):
    """One key of a provider instance, as it is now."""

    @property
    def is_ready(self) -> bool:
        """Say whether `current` has a key."""

    async def prepare(self) -> None:
        """Wait for a key. May be cancelled. Raises CredentialsError."""

    def current(self) -> str:
        """Return the key; only when it is ready."""

    def refused(self, key: str) -> None:
        """Hear that the provider does not take this key."""

    @property
    def known(self) -> Sequence[str]:
        """Return the key and those that it was before: what must be cut out of any text."""


class FixedKey:
    """A key that stays as it is."""

    is_ready = True

    def __init__(self, key: Key) -> None:
        self._key = key

    async def prepare(self) -> None:
        """Do nothing: it is there."""

    def current(self) -> str:
        """Return the key."""
        return self._key.reveal()

    def refused(self, key: str) -> None:
        """Do nothing: there is no other."""

    @property
    def known(self) -> Sequence[str]:
        """Return the key."""
        return (self._key.reveal(),)


class Remembered:
    """A key that changes, and those that it was before. Shows none of them. May change in another thread."""

    __slots__ = ("_keys",)

    def __init__(self, key: str = "") -> None:
        self._keys: tuple[str, ...] = (key,) if key else ()

    @property
    def now(self) -> str:
        """Return the key; empty before there is one."""
        return self._keys[0] if self._keys else ""

    def become(self, key: str) -> bool:
        """Take another key; say whether it is another."""
        if key == self.now:
            return False
        # One that is back counts once: two keys that take turns must not push out those before them.
        before = tuple(each for each in self._keys if each != key)
        self._keys = (key, *before[:_REMEMBERED])
        SECRET_CHANGES.note()
        return True

    @property
    def all(self) -> tuple[str, ...]:
        """Return the key and those before it, the newest first."""
        return self._keys
