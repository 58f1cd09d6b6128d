"""Tokens and tenants between Python and the proto."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _wire
from .administration import NewToken, Tenant, Token

if TYPE_CHECKING:
    from datetime import timedelta

    from .v1 import admin_service_pb2 as pb


def token_from(proto: pb.Token) -> Token:
    """Return what is known of a token."""
    return Token(
        token_id=proto.token_id,
        tenant=proto.tenant,
        name=proto.name,
        state=_wire.TOKEN_STATE.member(proto.state),
        created_at=_wire.time(proto.created_at),
        expires_at=_wire.time(proto.expires_at) if proto.HasField("expires_at") else None,
        revoked_at=_wire.time(proto.revoked_at) if proto.HasField("revoked_at") else None,
    )


def new_token_from(proto: pb.CreateTokenResponse | pb.RotateTokenResponse) -> NewToken:
    """Return a token with its secret."""
    previous = getattr(proto, "previous", None)
    return NewToken(token_from(proto.token), proto.secret, None if previous is None else token_from(previous))


def tenant_from(proto: pb.Tenant) -> Tenant:
    """Return a tenant."""
    return Tenant(
        name=proto.name,
        models=tuple(proto.models),
        max_sensitivity=_wire.SENSITIVITY.member(proto.max_sensitivity),
        default_sensitivity=_wire.SENSITIVITY.member(proto.default_sensitivity),
        admin=proto.admin,
    )


def set_span(
    request: pb.CreateTokenRequest | pb.RotateTokenRequest, field: str, span: timedelta | None
) -> None:
    """Write a span of time into a field, if there is one."""
    if span is not None:
        getattr(request, field).FromTimedelta(span)
