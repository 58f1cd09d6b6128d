"""Bearer tokens: their form, and the record that is kept of one. Pure; a token itself is never kept.

A token is `mm_`, the id of its record, `_` and 43 random letters and digits: 256 bits, so that one round of SHA-256
keeps it as safe as any slower hash would, and a lookup costs microseconds.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from enum import Enum, unique
from typing import Final

import msgspec

PREFIX: Final = "mm_"
"""Tells a token of ours from a JWT, and lets scanners of leaked secrets know one when they see it."""

ID_CHARACTERS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
ID_LENGTH: Final = 12
RANDOM_CHARACTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
RANDOM_LENGTH: Final = 43

_FORM = re.compile(rf"mm_([0-9a-z]{{{ID_LENGTH}}})_([0-9A-Za-z]{{{RANDOM_LENGTH}}})")
_NOBODY = "0" * 64


@unique
class TokenState(Enum):
    """Whether a token opens anything."""

    ACTIVE = "ACTIVE"
    EXPIRED = "EXPIRED"
    REVOKED = "REVOKED"


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of a token. Times are whole seconds since 1970."""

    token_id: str
    tenant: str
    sha256: str
    """Of the whole token, in lower-case hexadecimal digits."""
    created_at: int
    name: str = ""
    """What it is for, in the words of whoever made it."""
    expires_at: int | None = None
    """From then on it opens nothing; `None` for no end."""
    revoked_at: int | None = None
    """Since when it opens nothing, for good."""

    def state(self, now: float) -> TokenState:
        """Return whether it opens anything at this time."""
        if self.revoked_at is not None:
            return TokenState.REVOKED
        over = self.expires_at is not None and now >= self.expires_at
        return TokenState.EXPIRED if over else TokenState.ACTIVE


def token_text(token_id: str, random: str) -> str:
    """Return the token that its holder sends."""
    return f"{PREFIX}{token_id}_{random}"


def token_id_of(token: str) -> str | None:
    """Return the id of the record that a token names; `None` for a text that is no token of ours."""
    match = _FORM.fullmatch(token)
    return match[1] if match else None


def digest_of(token: str) -> str:
    """Return the hash by which a token is kept."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def is_token_of(record: TokenRecord | None, token: str) -> bool:
    """Say whether a token is the one of this record; takes as long when there is no record, or a wrong one."""
    kept = record.sha256 if record is not None else _NOBODY
    return hmac.compare_digest(digest_of(token), kept) and record is not None
