"""Requests about another tenant than the caller's own."""

from __future__ import annotations

from typing import Any, TypeVar

_Send = TypeVar("_Send")


def naming(send: _Send, tenant: str) -> _Send:
    """Return a sender that writes the tenant into each request first: into its filter, where that names it."""
    if not tenant:
        return send
    sender: Any = send

    def named(method: Any, request: Any, *others: Any) -> Any:
        (request if "tenant" in request.DESCRIPTOR.fields_by_name else request.filter).tenant = tenant
        return sender(method, request, *others)

    face: Any = named
    return face  # type: ignore[no-any-return]
