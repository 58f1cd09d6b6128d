"""From what a batch looks for to keys, and from records as either driver returns them to rows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modelmeter_server.core.ceilings import Scope

from .packing import ceiling_of, window_of
from .rows import CeilingWindowRow, ContentRow, ServerRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modelmeter_server.core.ceilings import Ceiling

    from .batch import GenerationKey, Wanted, WindowKey

_FOREVER = 2**63 - 1

DIMENSIONS = {Scope.TENANT.value: "TENANT", Scope.RUN.value: "RUN", Scope.MODEL.value: "MODEL"}
"""Which sums a ceiling of a scope counts."""


def generation_keys(keys: Iterable[GenerationKey]) -> Iterator[tuple[Any, ...]]:
    """Return (tenant, call_id, generation) of each."""
    return ((key.tenant, key.call_id, key.generation) for key in keys)


def call_keys(wanted: Wanted) -> Iterator[tuple[Any, ...]]:
    """Return (tenant, call_id) of each call whose newest generation is wanted."""
    return ((key.tenant, key.call_id) for key in wanted.calls)


def effect_keys(wanted: Wanted) -> Iterator[tuple[Any, ...]]:
    """Return (tenant, run_id, effect_key) of each effect."""
    return ((key.tenant, key.run_id, key.key) for key in wanted.effects)


def subject_keys(wanted: Wanted) -> Iterator[tuple[Any, ...]]:
    """Return (tenant, scope, name) of each subject."""
    return ((key.tenant, key.scope, key.name) for key in wanted.subjects)


def standing_of(records: Iterable[Sequence[Any]]) -> tuple[list[ServerRow], frozenset[str]]:
    """Return the servers and the governed tenants of (owner, lease_until, closed, tenant); owner or tenant is null."""
    servers, governed = [], []
    for owner, lease_until, closed, tenant in records:
        if owner is None:
            governed.append(tenant)
        else:
            servers.append(ServerRow(owner=owner, lease_until=lease_until, closed=bool(closed)))
    return servers, frozenset(governed)


def is_fenced_off(own: int, servers: Iterable[ServerRow]) -> bool:
    """Say whether the own server is none of those that may write."""
    return not any(row.owner == own and not row.closed for row in servers)


def contents_of(records: Iterable[Sequence[Any]]) -> list[ContentRow]:
    """Return the contents of (tenant, call_id, generation, outcome, provider_body)."""
    return [
        ContentRow(
            tenant=tenant, call_id=call_id, generation=generation, outcome_json=outcome, provider_body=body
        )
        for tenant, call_id, generation, outcome, body in records
    ]


def ceilings_of(records: Iterable[Sequence[Any]]) -> list[Ceiling]:
    """Return the ceilings of records of `CEILING_COLUMNS`, each once."""
    return list({tuple(record[:2]): ceiling_of(record) for record in records}.values())


def window_places(keys: Iterable[WindowKey]) -> dict[tuple[str, str, int], WindowKey]:
    """Return windows by `WINDOW_KEY`."""
    return {(key.ceiling_id, key.name, key.starts_at): key for key in keys}


def windows_of(records: Iterable[Sequence[Any]]) -> dict[tuple[str, str, int], CeilingWindowRow]:
    """Return the windows of records of `WINDOW_COLUMNS`, by `WINDOW_KEY`."""
    rows = map(window_of, records)
    return {(row.ceiling_id, row.name, row.starts_at): row for row in rows}


def spend_of(key: WindowKey) -> tuple[str, str, str, int, int]:
    """Return tenant, dimension, value, first and end quarter of the spend rows that a window counts."""
    subject = key.subject
    value = "" if subject.scope == Scope.TENANT.value else key.name
    ends_at = _FOREVER if key.ends_at is None else key.ends_at
    return subject.tenant, DIMENSIONS[subject.scope], value, key.starts_at, ends_at


def new_window(key: WindowKey, sums: Sequence[Any]) -> CeilingWindowRow:
    """Return a window that begins with these sums: settled, held and unsettled, each in tokens and in nano units."""
    settled_tokens, settled_nanos, held_tokens, held_nanos, unsettled_tokens, unsettled_nanos = map(int, sums)
    return CeilingWindowRow(
        ceiling_id=key.ceiling_id,
        name=key.name,
        starts_at=key.starts_at,
        settled_tokens=settled_tokens,
        settled_nanos=settled_nanos,
        held_tokens=held_tokens,
        held_nanos=held_nanos,
        unsettled_tokens=unsettled_tokens,
        unsettled_nanos=unsettled_nanos,
    )
