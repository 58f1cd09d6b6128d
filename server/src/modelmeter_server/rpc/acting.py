"""For which tenant a caller acts: its own, or, as an admin, another one that the request names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

from modelmeter_server.core.errors import failure
from modelmeter_server.core.outcomes import Cause, Code, Kind
from modelmeter_server.engine.plan import Refused

from .identity import current_tenant
from .stays import stays_as_admin

if TYPE_CHECKING:
    from modelmeter_server.core.errors import Failure

    from .convert_request import Violations

EVERY_TENANT: Final = "*"
"""What admins write for all tenants, where that can be asked."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class NamesTenant(Protocol):
    """A request that may name a tenant."""

    @property
    def tenant(self) -> str:
        """Return the name; empty for the caller's own."""


def acting_for(request: NamesTenant, found: Violations, *, every: bool = False) -> str:
    """Return the name of the tenant that a request is about; with `every` it may be all of them.

    Whether there is such a tenant is another question: the ledger keeps the bills of those that are gone. Raises
    Refused for a caller that is no admin and names another tenant, the same whether or not there is one.
    """
    caller = current_tenant()
    if request.tenant in ("", caller.name):
        return caller.name
    if not caller.is_admin:
        raise Refused(admins_only(f'the tenant "{caller.name}" is no admin and may name no other tenant'))
    if not (_NAME.fullmatch(request.tenant) or (every and request.tenant == EVERY_TENANT)):
        found.add(
            "tenant", "must be the name of a tenant: up to 64 letters, digits, dots, dashes, underscores"
        )
    stays_as_admin()
    return request.tenant


def admins_only(message: str) -> Failure:
    """Return the refusal of what only an admin may do."""
    return failure(Kind.REFUSED, message, cause=Cause.LIMIT, code=Code.PERMISSION_DENIED)
