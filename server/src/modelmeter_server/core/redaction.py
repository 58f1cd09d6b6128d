"""What is taken out of a text before anybody outside of the call may see it, and how much of the rest is shown.

Keys and bearer tokens always go. A deployment adds rules: what a tool is asked and gives (dropped or hashed whole), and
patterns (replaced, or hashed so that equal values stay recognisable). Redact first and cut afterwards: half a key at
the end of a cut text is not recognised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import Enum, unique
from hashlib import blake2b
from typing import Final

import msgspec

from .events import Payload
from .text import REDACTED, cut_utf8, scrub, well_formed

PAYLOAD_BYTES: Final = 4_096
"""UTF-8 bytes of one payload in an event; the full text of an answer is the ledger's to keep."""

_HASH_BYTES: Final = 8

# Prefixes that providers and clouds give their keys, and the places where keys stand whatever they look like. The
# lengths keep words such as "sk-learn" out.
_KEYS: Final = re.compile(
    r"""
    \b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}               # OpenAI, Anthropic, OpenRouter and their kin
    | \bgsk_[A-Za-z0-9]{20,} | \bxai-[A-Za-z0-9]{20,} | \bhf_[A-Za-z0-9]{20,}
    | \bAIza[A-Za-z0-9_-]{30,} | \bya29\.[A-Za-z0-9_.-]{16,}      # Google
    | \b(?:AKIA|ASIA|ABIA)[A-Z0-9]{16,} | \bABSK[A-Za-z0-9+/=]{20,} # AWS
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_[A-Za-z0-9_]{20,}
    | \bxox[abeprs]-[A-Za-z0-9-]{10,}
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+   # JSON web tokens
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    """,
    re.VERBOSE | re.DOTALL,
)
# A word of prose such as "basic research" has neither capitals nor digits.
_BEARER: Final = re.compile(
    r"\b((?i:Bearer))\s+[A-Za-z0-9._~+/=-]{6,}|\b((?i:Basic))\s+(?=[a-z]*[A-Z0-9+/=])[A-Za-z0-9+/=]{6,}"
)
_NAMED: Final = re.compile(
    r"""\b((?:x[-_])?(?:api|goog[-_]api|access|auth|secret)[-_]?(?:key|token)|authorization|password|passwd
    |client[-_]secret)(\\?["']?\s*[:=]\s*\\?["']?)(?!\[redacted\])[^\s"'\\,;&}\]]{4,}""",
    re.IGNORECASE | re.VERBOSE,
)


_SHORTEST: Final = 11
"""Characters of `apikey=1234`, the shortest text that holds a secret by these rules."""


@unique
class ToolRule(Enum):
    """What becomes of the payloads of one tool."""

    DROP = "drop"
    """Nothing of them is shown, only how long they were."""
    HASH = "hash"
    """A keyed hash stands for them: equal payloads stay recognisable."""


class Redaction(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment's rules. The default ones take out keys and bearer tokens."""

    tools: dict[str, ToolRule] = {}
    """By the provider's word for the tool."""
    patterns: tuple[re.Pattern[str], ...] = ()
    """What they match is replaced by `[redacted]`."""
    hashed: tuple[re.Pattern[str], ...] = ()
    """What they match is replaced by `[hash:...]`."""
    hash_key: bytes = b""
    """Keeps short values from being guessed out of their hashes."""
    secrets: tuple[str, ...] = ()
    """The deployment's own secrets, taken out wherever they stand."""
    living: Callable[[], Iterable[str]] = tuple
    """Tells those that change: the providers' keys of now and of before."""
    changes: Callable[[], int] = int
    """Tells how often those have changed: a text that was cleaned before may hold one that was none then."""
    payload_bytes: int = PAYLOAD_BYTES

    def __repr__(self) -> str:
        """Name no secret."""
        return f"Redaction(tools={len(self.tools)}, patterns={len(self.patterns) + len(self.hashed)})"

    def clean(self, text: str) -> str:
        """Return the text, made well-formed, with nothing in it that a rule takes out."""
        text = scrub(without_keys(well_formed(text)), (*self.secrets, *self.living()))
        for pattern in self.patterns:
            text = pattern.sub(REDACTED, text)
        for pattern in self.hashed:
            text = pattern.sub(lambda found: self._hash(found[0]), text)
        return text

    def message(self, text: str, limit: int) -> str:
        """Return a message that may be shown: cleaned, then at most `limit` bytes of UTF-8."""
        return cut_utf8(self.clean(text), limit)

    def payload(self, text: str, tool: str) -> Payload:
        """Return what may be shown of what a tool was asked or gave."""
        rule = self.tools.get(tool)
        if rule is ToolRule.DROP:
            return Payload(text="", truncated=True, original_bytes=len(well_formed(text).encode()))
        if rule is ToolRule.HASH:
            return truncated(self._hash(text), self.payload_bytes)
        return truncated(self.clean(text), self.payload_bytes)

    def _hash(self, text: str) -> str:
        key = self.hash_key[:64]
        digest = blake2b(well_formed(text).encode(), digest_size=_HASH_BYTES, key=key)
        return f"[hash:{digest.hexdigest()}]"


def without_keys(text: str) -> str:
    """Return the text without anything that looks like a provider's key, a bearer token or a named secret."""
    if len(text) < _SHORTEST:
        return text
    text = _BEARER.sub(lambda found: f"{found[1] or found[2]} {REDACTED}", text)
    text = _NAMED.sub(rf"\1\2{REDACTED}", text)
    return _KEYS.sub(REDACTED, text)


def truncated(text: str, limit: int) -> Payload:
    """Return the longest start of the text that takes at most `limit` bytes and ends on a whole character."""
    whole = well_formed(text)
    size = len(whole) if whole.isascii() else len(whole.encode())
    if size <= limit:
        return Payload(text=whole, original_bytes=size)
    return Payload(text=cut_utf8(whole, limit), truncated=True, original_bytes=size)


def compiled(patterns: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """Return the patterns compiled. Raises re.error."""
    return tuple(re.compile(pattern) for pattern in patterns)
