"""From the body of a completion to the one that counts its input: the same members, as they were written."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.accumulators.token_count import TokenCountAccumulator

if TYPE_CHECKING:
    from collections.abc import Callable

    from .driver import PreparedRequest


def members_of(body: bytes) -> dict[str, msgspec.Raw]:
    """Return the members of a body that this service encoded, unread."""
    return msgspec.json.decode(body, type=dict[str, msgspec.Raw])


def without(body: bytes, names: frozenset[str]) -> bytes:
    """Return a body without the members that bear on the output alone, which counting endpoints refuse."""
    return msgspec.json.encode({name: raw for name, raw in members_of(body).items() if name not in names})


def counting(
    prepared: PreparedRequest, target: str, body: bytes, reader: Callable[..., TokenCountAccumulator]
) -> PreparedRequest:
    """Return the request that counts in place of the one that asks."""
    return msgspec.structs.replace(prepared, target=target, body=body, accumulator=reader)


def reader_of(member: str) -> Callable[..., TokenCountAccumulator]:
    """Return what reads a count from the member of this name."""
    return partial(TokenCountAccumulator, member=member)
