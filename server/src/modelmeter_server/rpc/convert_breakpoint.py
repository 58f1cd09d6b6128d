"""The marks of what a provider is to cache, in the core's terms. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.core.requests import CacheBreakpoint

if TYPE_CHECKING:
    from modelmeter.v1 import message_pb2
    from modelmeter.v1.model_service_pb2 import CompleteRequest

    from .convert_request import Violations


def breakpoint_of(
    owner: CompleteRequest | message_pb2.Tool | message_pb2.Part,
    field: str,
    found: Violations,
    path: str = "",
) -> CacheBreakpoint | None:
    """Return the breakpoint in a field of `owner`, which stands at `path`; a time that is none is noted in `found`."""
    if not owner.HasField(field):  # type: ignore[arg-type]
        return None
    told: message_pb2.CacheBreakpoint = getattr(owner, field)
    if not told.HasField("ttl"):
        return CacheBreakpoint()
    seconds = told.ttl.seconds + told.ttl.nanos / 1e9
    if told.ttl.seconds < 0 or not 0 <= told.ttl.nanos < 1_000_000_000 or not seconds:
        found.add(".".join(filter(None, (path, field, "ttl"))), "must be more than 0 s")
        return CacheBreakpoint()
    return CacheBreakpoint(seconds)
