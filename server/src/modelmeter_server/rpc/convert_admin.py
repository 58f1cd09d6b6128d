"""Tokens and tenants as protos, and the times of their requests. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from modelmeter_server.core.text import well_formed
from modelmeter_server.core.windows import LAST_SECOND

from .words import SENSITIVITIES, TOKEN_STATES

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.timestamp_pb2 import Timestamp

    from modelmeter.v1 import admin_service_pb2
    from modelmeter_server.core.tenants import Tenant
    from modelmeter_server.core.tokens import TokenRecord

    from .convert_request import Violations

MOST_NAME: Final = 128
"""Characters of a token's name."""

_MOST_SECONDS: Final = 315_576_000_000
"""Of a Duration: about 10,000 years."""


def fill_token(message: admin_service_pb2.Token, record: TokenRecord, now: float) -> None:
    """Write what is known of a token; its hash is nobody's business."""
    message.token_id = record.token_id
    message.tenant = record.tenant
    message.name = well_formed(record.name)
    message.state = TOKEN_STATES[record.state(now)]
    message.created_at.seconds = record.created_at
    if record.expires_at is not None:
        message.expires_at.seconds = record.expires_at
    if record.revoked_at is not None:
        message.revoked_at.seconds = record.revoked_at


def fill_tenant(message: admin_service_pb2.Tenant, tenant: Tenant) -> None:
    """Write a tenant."""
    message.name = tenant.name
    message.models.extend(tenant.models)
    message.max_sensitivity = SENSITIVITIES[tenant.max_sensitivity]
    message.default_sensitivity = SENSITIVITIES[tenant.default_sensitivity]
    message.admin = tenant.is_admin


def checked_name(name: str, found: Violations) -> str:
    """Return the name of a token; one that a line cannot show is noted."""
    if len(name) > MOST_NAME or not name.isprintable():
        found.add("name", f"must be up to {MOST_NAME} printable characters")
    return name


def end_of_life(
    request: admin_service_pb2.CreateTokenRequest | admin_service_pb2.RotateTokenRequest,
    now: float,
    found: Violations,
) -> int | None:
    """Return the second at which a new token ends; `None` where the request gives it no lifetime."""
    if not request.HasField("lifetime"):
        return None
    if not _is_duration(request.lifetime) or request.lifetime.seconds < 1:
        found.add("lifetime", "must be 1 s or more")
        return None
    return min(int(now) + request.lifetime.seconds, LAST_SECOND)


def overlap_of(request: admin_service_pb2.RotateTokenRequest, found: Violations) -> int:
    """Return for how many seconds the old token still opens."""
    if request.HasField("overlap") and not _is_duration(request.overlap):
        found.add("overlap", "must be 0 s or more")
        return 0
    return request.overlap.seconds


def moment(time: Timestamp, field: str, found: Violations) -> int:
    """Return a time in whole seconds since 1970."""
    if not 0 < time.seconds <= LAST_SECOND or not 0 <= time.nanos < 1_000_000_000:
        found.add(field, "must be a time from 1970 to 9999")
    return time.seconds


def _is_duration(duration: Duration) -> bool:
    return 0 <= duration.seconds <= _MOST_SECONDS and 0 <= duration.nanos < 1_000_000_000
