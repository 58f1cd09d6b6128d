"""Who the caller of the RPC under way is. The one place that everything below a servicer learns it from."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelmeter_server.core.tenants import Tenant
    from modelmeter_server.identity.principal import Principal

# Without a default: whoever asks outside of an RPC, as in a thread beside it, must not be taken for somebody else.
_current: ContextVar[Principal] = ContextVar("current_principal")


def let_in(principal: Principal) -> None:
    """Set the caller of the RPC under way; it holds for its task and those that this one starts."""
    _current.set(principal)


def current_principal() -> Principal:
    """Return the caller of the RPC under way. Raises LookupError outside of one, and in threads beside it."""
    return _current.get()


def current_tenant() -> Tenant:
    """Return the tenant whose RPC is under way; its `name` is what the ledger books under. Raises LookupError."""
    return _current.get().tenant
