"""From what a caller shows to the tenant that it stands for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from modelmeter_server.core.tokens import PREFIX, TokenState, is_token_of, token_id_of

from .principal import NotAuthenticated, Principal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from modelmeter_server.core.tenants import Tenant

    from .jwt_verifier import JwtVerifier
    from .token_file import TokenFile

MOST_TOKEN_CHARACTERS: Final = 8 * 1024
"""Of a bearer token; nothing longer is looked at."""

_SCHEME: Final = "bearer "


class CallerAuthenticator:
    """Know the tenants, and the ways to prove that one speaks for them."""

    def __init__(
        self,
        tenants: Iterable[Tenant],
        *,
        tokens: TokenFile | None = None,
        jwt: JwtVerifier | None = None,
        certificates: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`certificates` are names of client certificates, such as `dns:agent.internal`, and their tenants."""
        self.tenants = {tenant.name: tenant for tenant in tenants}
        self.tokens = tokens
        self._jwt = jwt
        self._certificates = dict(certificates or {})
        self._now = now

    @property
    def knows_certificates(self) -> bool:
        """Say whether a client certificate can stand for anybody."""
        return bool(self._certificates)

    async def by_header(self, values: Sequence[str]) -> Principal:
        """Return who sends these `authorization` headers, of which there may be one.

        Raises NotAuthenticated, and NoKeys where that cannot be judged.
        """
        if len(values) != 1:
            message = "there is more than one authorization header: send one"
            raise NotAuthenticated(message)
        header = values[0]
        token = header[len(_SCHEME) :].strip(" ")
        if not header.lower().startswith(_SCHEME) or not token:
            message = "the authorization header is no bearer token: send `authorization: Bearer TOKEN`"
            raise NotAuthenticated(message)
        if len(token) > MOST_TOKEN_CHARACTERS:
            message = f"the token is longer than {MOST_TOKEN_CHARACTERS:,} characters"
            raise NotAuthenticated(message)
        if token.startswith(PREFIX) or self._jwt is None:
            return self._by_token(token)
        vouched = await self._jwt.vouch(token)
        return self._principal(vouched.tenant, f"jwt:{vouched.subject}", expires_at=vouched.expires_at)

    def _by_token(self, token: str) -> Principal:
        token_id = token_id_of(token)
        if token_id is None or self.tokens is None:
            message = "the token is no token of this deployment"
            raise NotAuthenticated(message)
        subject = f"token:{token_id}"
        record = self.tokens.find(token_id)
        if not is_token_of(record, token) or record is None:
            message = "the token is no token of this deployment"
            raise NotAuthenticated(message, subject=subject)
        state = record.state(self._now())
        if state is not TokenState.ACTIVE:
            message = f"the token {'has expired' if state is TokenState.EXPIRED else 'is revoked'}"
            raise NotAuthenticated(message, subject=subject)
        return self._principal(record.tenant, subject, token_id=token_id)

    def by_certificate(self, names: Iterable[str]) -> Principal:
        """Return whom a client certificate with these names stands for; the first that is known counts.

        Raises NotAuthenticated.
        """
        for name in names:
            tenant = self._certificates.get(name)
            if tenant is not None:
                return self._principal(tenant, name, certificate=name)
        message = "nobody is named: send `authorization: Bearer TOKEN`"
        if self._certificates:
            message += ", or a client certificate with a name that a tenant has"
        raise NotAuthenticated(message)

    def why_ended(self, principal: Principal, as_admin: bool = False) -> str:
        """Say why somebody who was let in, `as_admin` or not, would not be let in again, or return nothing."""
        tenant = self.tenants.get(principal.tenant.name)
        if tenant is None:
            return "the tenant of this credential is not configured here any more"
        if as_admin and not tenant.is_admin:
            return "the tenant of this credential is no admin any more"
        if principal.certificate and self._certificates.get(principal.certificate) != principal.tenant.name:
            return "the name of the certificate stands for this tenant no longer"
        if principal.expires_at is not None and self._now() >= principal.expires_at:
            return "the token has expired"
        return self._why_token_ended(principal.token_id) if principal.token_id else ""

    def _why_token_ended(self, token_id: str) -> str:
        record = self.tokens.find(token_id) if self.tokens is not None else None
        if record is None:
            return "the token is no token of this deployment any more"
        state = record.state(self._now())
        if state is TokenState.ACTIVE:
            return ""
        return f"the token {'has expired' if state is TokenState.EXPIRED else 'is revoked'}"

    def reconfigure(self, other: CallerAuthenticator) -> None:
        """Know from now on what another one knows. Those who were let in stay as long as that would let them in."""
        self.tenants = other.tenants
        self.tokens = other.tokens
        self._jwt = other._jwt
        self._certificates = other._certificates

    def _principal(self, name: str, subject: str, **proof: Any) -> Principal:
        tenant = self.tenants.get(name)
        if tenant is None:
            message = "the tenant of this credential is not configured here"
            raise NotAuthenticated(message, subject=subject, tenant=name)
        return Principal(tenant=tenant, subject=subject, **proof)
