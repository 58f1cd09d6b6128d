"""What a writer knows of the rows it works on: their ids, and the calls under way here, which need no reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from modelmeter_server.core.journal import CallKey, CallState

from .batch import GenerationKey
from .packing import call_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .batch import Changes, Wanted
    from .rows import CallRow


class _Loaded(NamedTuple):
    number: int
    """The id."""
    row: CallRow
    dispatch: int
    """As it stands in the database."""


class LoadedCalls:
    """Calls of the batch at work, each one object, however often it is asked for; and open calls of this server.

    An open call of a server changes by that server's writer alone, until its lease is lost: so its row may be kept. A
    store forgets them all when its server was fenced off, and when a batch failed, because the book-keeper had
    changed them already.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._kept: dict[GenerationKey, _Loaded] = {}
        self._batch: dict[GenerationKey, _Loaded] = {}

    def begin(self) -> None:
        """Start a batch."""
        self._batch = {}

    def forget(self) -> None:
        """Keep nothing: rows may have changed elsewhere, or here without having been written."""
        self._kept = {}
        self._batch = {}

    def known(self, keys: Iterable[GenerationKey]) -> tuple[list[CallRow], list[GenerationKey]]:
        """Return the rows that need no loading, and the keys that do."""
        rows, missing = [], []
        for key in keys:
            found = self._batch.get(key)
            if found is None and (found := self._kept.get(key)) is not None:
                self._batch[key] = found
            if found is None:
                missing.append(key)
            else:
                rows.append(found.row)
        return rows, missing

    def add(self, record: Sequence[Any]) -> CallRow:
        """Return the row of a record of `CALL_COLUMNS`: the one known already, if there is one."""
        key = GenerationKey(record[1], record[2], record[3])
        found = self._batch.get(key) or self._kept.get(key)
        if found is None:
            row = call_of(record)
            found = _Loaded(record[0], row, row.dispatch)
        self._batch[key] = found
        return found.row

    def insert(self, row: CallRow, number: int) -> None:
        """Note the id of a new row."""
        self._batch[key_of(row)] = _Loaded(number, row, row.dispatch)

    def id_of(self, key: GenerationKey) -> int:
        """Return the id of a row of this batch."""
        return self._batch[key].number

    def is_admitted_again(self, row: CallRow) -> bool:
        """Say whether a row of this batch was reserved anew in it."""
        return self._batch[key_of(row)].dispatch != row.dispatch

    def commit(self, changes: Changes, owner: int) -> None:
        """Keep the rows that were written, are open and belong to this server."""
        for row in (*changes.inserted_calls, *changes.updated_calls):
            key = key_of(row)
            if row.owner == owner and row.state <= CallState.DISPATCHED:
                self._kept[key] = _Loaded(self._batch[key].number, row, row.dispatch)
            else:
                self._kept.pop(key, None)


def key_of(row: Any) -> GenerationKey:
    """Return the key of a call, an attempt or a content."""
    return GenerationKey(row.tenant, row.call_id, row.generation)


def newest(records: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    """Return the record of the highest generation of each call, from records of `CALL_COLUMNS`."""
    best: dict[CallKey, Sequence[Any]] = {}
    for record in records:
        key = CallKey(record[1], record[2])
        if key not in best or best[key][3] < record[3]:
            best[key] = record
    return list(best.values())


def tenants_of(wanted: Wanted) -> set[str]:
    """Return whose rows are wanted; for `open_of` and `expired_at` only the rows can tell."""
    tenants = {key.tenant for keys in (wanted.calls, wanted.generations, wanted.effects) for key in keys}
    tenants.update(key.tenant for key in wanted.contents)
    tenants.update(subject.tenant for subject in wanted.subjects)
    tenants.update(tenant for tenant, _ in wanted.ceilings)
    tenants.update(key.subject.tenant for key in wanted.windows)
    return tenants
