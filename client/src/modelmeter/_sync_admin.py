"""Tokens and tenants, for threads. A thin twin of `_async_admin`; comes from `Client.admin`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _admin_values as values
from ._lost import CallRecord
from ._wire import set_time
from .v1 import admin_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta

    from ._channel import Metadata
    from ._senders import UnaryOf
    from .administration import NewToken, Tenant, Token
    from .v1.admin_service_pb2_grpc import AdminServiceStub


class Admin:
    """What admins do: make and end bearer tokens, and see who shares the deployment.

    Methods take `timeout` and `metadata` and raise as those of `Client` do: `RefusedError` with code
    PERMISSION_DENIED for whoever is no admin, NOT_FOUND for what is not there, FAILED_PRECONDITION for a deployment
    without a file of tokens.
    """

    def __init__(self, stub: Callable[[], AdminServiceStub], unary: UnaryOf) -> None:
        self._stub = stub
        self._unary = unary

    def create_token(
        self,
        tenant: str,
        *,
        name: str = "",
        lifetime: timedelta | None = None,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> NewToken:
        """Make a token for a tenant. The token itself is in this answer and nowhere else; None: it has no end."""
        request = pb.CreateTokenRequest(tenant=tenant, name=name)
        values.set_span(request, "lifetime", lifetime)
        response = self._unary(self._stub().CreateToken, request, CallRecord(), timeout, metadata)
        return values.new_token_from(response)

    def rotate_token(
        self,
        token_id: str,
        *,
        overlap: timedelta | None = None,
        lifetime: timedelta | None = None,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> NewToken:
        """Make a successor of a token; the old one ends now, or after `overlap`.

        `lifetime` is the successor's, from now on; None: as long as that of the old one, from its making to its end as
        it stands now. So it has no end only if the old one has none.
        """
        request = pb.RotateTokenRequest(token_id=token_id)
        values.set_span(request, "overlap", overlap)
        values.set_span(request, "lifetime", lifetime)
        response = self._unary(self._stub().RotateToken, request, CallRecord(), timeout, metadata)
        return values.new_token_from(response)

    def expire_token(
        self, token_id: str, at: datetime, *, timeout: float | None = None, metadata: Metadata | None = None
    ) -> Token:
        """Set when a token ends; ValueError for a time without a time zone."""
        request = pb.ExpireTokenRequest(token_id=token_id)
        set_time(request.expires_at, at)
        response = self._unary(self._stub().ExpireToken, request, CallRecord(), timeout, metadata)
        return values.token_from(response.token)

    def revoke_token(
        self, token_id: str, *, timeout: float | None = None, metadata: Metadata | None = None
    ) -> Token:
        """End a token now and for good."""
        request = pb.RevokeTokenRequest(token_id=token_id)
        response = self._unary(self._stub().RevokeToken, request, CallRecord(), timeout, metadata)
        return values.token_from(response.token)

    def tokens(
        self, *, tenant: str = "", timeout: float | None = None, metadata: Metadata | None = None
    ) -> list[Token]:
        """Return what is known of all tokens, the oldest first; `timeout` holds for each page."""
        request = pb.ListTokensRequest(tenant=tenant)
        found: list[Token] = []
        while True:
            page = self._unary(self._stub().ListTokens, request, CallRecord(), timeout, metadata)
            found += map(values.token_from, page.tokens)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def tenants(self, *, timeout: float | None = None, metadata: Metadata | None = None) -> list[Tenant]:
        """Return all tenants, by name; `timeout` holds for each page."""
        request = pb.ListTenantsRequest()
        found: list[Tenant] = []
        while True:
            page = self._unary(self._stub().ListTenants, request, CallRecord(), timeout, metadata)
            found += map(values.tenant_from, page.tenants)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def tenant(self, name: str, *, timeout: float | None = None, metadata: Metadata | None = None) -> Tenant:
        """Return one tenant."""
        request = pb.GetTenantRequest(name=name)
        response = self._unary(self._stub().GetTenant, request, CallRecord(), timeout, metadata)
        return values.tenant_from(response.tenant)
