"""The gate that every connection of this server passes: a host that is not on the list is not connected to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.core.errors import Failure, failure
from modelmeter_server.core.outcomes import Cause, Code, Kind

from .faults import ConnectError, Fault

if TYPE_CHECKING:
    from modelmeter_server.core.egress import Egress


class EgressGate:
    """One deployment's list, asked before each connection, so that a list that is replaced holds from then on."""

    def __init__(self, allowed: Egress | None = None) -> None:
        """`None` allows every host."""
        self._allowed = allowed

    def reconfigure(self, allowed: Egress | None) -> None:
        """Go by another list from the next connection on; those that are open stay open."""
        self._allowed = allowed

    def check(self, scheme: str, host: str, port: int) -> None:
        """Raise ConnectError for a host that may not be connected to."""
        if self._allowed is not None and not self._allowed.allows(scheme, host, port):
            raise ConnectError(Fault.EGRESS, f"{host}:{port} is not on the list of egress.allow")

    def check_address(self, scheme: str, host: str, address: str, port: int) -> None:
        """Raise ConnectError for a host that stands for an address which hands out the machine's credentials."""
        if self._allowed is not None and not self._allowed.allows_address(host, address, scheme, port):
            detail = f"{host} has a link-local address, which is not on the list of egress.allow"
            raise ConnectError(Fault.EGRESS, detail)


OPEN_GATE = EgressGate()
"""Lets every connection pass."""


def egress_refusal(detail: str) -> Failure:
    """Return the failure of a call whose connection the gate refused: ours to judge, and no repetition mends it."""
    message = f"this deployment may not connect there: {detail}"
    return failure(Kind.REFUSED, message, cause=Cause.LIMIT, code=Code.PERMISSION_DENIED, retryable=False)
