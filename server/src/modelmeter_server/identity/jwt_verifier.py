"""JWTs of one issuer: signature, times, audience, and the claim that names the tenant."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import jwt
import msgspec
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidAudienceError,
    InvalidIssuerError,
    PyJWTError,
)

from .key_set import ALGORITHMS
from .principal import NotAuthenticated

if TYPE_CHECKING:
    from .key_set import KeySet

_SUBJECT_LENGTH: Final = 128

_REASONS: Final = (
    (ExpiredSignatureError, "the token has expired"),
    (ImmatureSignatureError, "the token is not valid yet"),
    (InvalidAudienceError, "the token is for another audience"),
    (InvalidIssuerError, "the token is of another issuer"),
)
_BAD: Final = "the token is not valid"


class JwtRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a JWT must say."""

    issuer: str
    audience: str
    tenant_claim: str = "tenant"
    leeway: float = 30.0
    """Seconds by which the issuer's clock may differ from this one's."""


class Vouched(msgspec.Struct, frozen=True):
    """What a JWT says that is good."""

    tenant: str
    subject: str
    expires_at: float
    """Seconds since the epoch, leeway included."""


class JwtVerifier:
    """Judge JWTs by the keys of their issuer."""

    def __init__(self, rules: JwtRules, keys: KeySet) -> None:
        self._rules = rules
        self._keys = keys

    async def vouch(self, token: str) -> Vouched:
        """Return whom a JWT names, and until when. Raises NotAuthenticated and NoKeys."""
        header = _header(token)
        key = await self._keys.find(header.get("kid"))
        if key is None:
            message = "the token is signed with a key that its issuer does not publish"
            raise NotAuthenticated(message)
        claims = self._claims(token, key)
        subject = str(claims.get("sub", ""))[:_SUBJECT_LENGTH]
        tenant = claims.get(self._rules.tenant_claim)
        if not isinstance(tenant, str) or not tenant:
            message = f'the token names no tenant: the claim "{self._rules.tenant_claim}" is missing'
            raise NotAuthenticated(message, subject=subject)
        return Vouched(tenant, subject, _seconds(claims["exp"]) + self._rules.leeway)

    def _claims(self, token: str, key: jwt.PyJWK) -> dict[str, Any]:
        try:
            return jwt.decode(
                token,
                key,
                # The key's own alone: a key that is published for one algorithm vouches for no other.
                algorithms=[key.algorithm_name],
                audience=self._rules.audience,
                issuer=self._rules.issuer,
                leeway=self._rules.leeway,
                options={"require": ["exp", "iss", "aud"]},
            )
        except PyJWTError as error:
            # Never the library's text, which may quote the token.
            reason = next((text for kind, text in _REASONS if isinstance(error, kind)), _BAD)
            raise NotAuthenticated(reason) from None
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise NotAuthenticated(_BAD) from None


def _seconds(expiry: Any) -> float:
    """Return when a token ends that is not over; one whose end no float can hold ends never."""
    try:
        return float(expiry)
    except OverflowError:
        return math.inf


def _header(token: str) -> dict[str, Any]:
    """Return the header, which nobody vouches for yet. Raises NotAuthenticated for one that no key could mend."""
    try:
        header: dict[str, Any] = jwt.get_unverified_header(token)
    except (PyJWTError, ValueError, TypeError, RecursionError):
        raise NotAuthenticated(_BAD) from None
    if header.get("alg") not in ALGORITHMS:
        message = f"the token is not signed with {', '.join(ALGORITHMS[:-1])} or {ALGORITHMS[-1]}"
        raise NotAuthenticated(message)
    if "crit" in header or "b64" in header or not isinstance(header.get("kid"), str | None):
        raise NotAuthenticated(_BAD)
    return header
