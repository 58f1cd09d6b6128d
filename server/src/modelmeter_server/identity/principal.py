"""Who a caller turned out to be, or why nobody can say."""

from __future__ import annotations

import msgspec

from modelmeter_server.core.tenants import OPEN, Tenant


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """A caller who was let in."""

    tenant: Tenant
    subject: str
    """What proved it, for the log: the id of a token, the subject of a JWT, a name of a certificate. No secret."""
    token_id: str = ""
    """The token that proved it, which may be revoked; empty for another proof."""
    certificate: str = ""
    """The name in a client certificate that proved it, which may be taken from the tenant."""
    expires_at: float | None = None
    """Seconds since the epoch when the proof ends by itself: that of a JWT, leeway included."""

    def __hash__(self) -> int:
        return hash((self.subject, self.tenant.name, self.expires_at))


ANYBODY = Principal(tenant=OPEN, subject="anybody")
"""Every caller of a deployment without `[identity]`."""


class NotAuthenticated(Exception):
    """Nobody vouches for the caller. The message is for the caller; it tells no more than its own credential does."""

    def __init__(self, message: str, *, subject: str = "", tenant: str = "") -> None:
        """For the log: `subject` is whom a credential names that did not prove it, `tenant` one that is missing."""
        super().__init__(message)
        self.subject = subject
        self.tenant = tenant


class NoKeys(Exception):
    """Whether a JWT is good cannot be judged now, because no keys could be had; a later try may be."""
