"""A provider's usage export, read and compared with the ledger. Pure.

An export is CSV with a header, a JSON array, or JSON lines. Known columns, of which the first one there is counts:

    day       date, day, usage_date_utc, start_time_iso, starting_at, start_time, timestamp, created_at
    id        request_id, generation_id, response_id, id
    model     model, model_version, model_id
    input     input_tokens, prompt_tokens; or the sum of the parts that Anthropic tells apart
    output    output_tokens, usage_output_tokens, completion_tokens
    cost      cost, cost_usd, total_cost, amount

A day is a date, an ISO time or seconds since the epoch, in UTC. Other columns are passed over.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modelmeter import LedgerCall

_DAY = (
    "date",
    "day",
    "usage_date_utc",
    "start_time_iso",
    "starting_at",
    "start_time",
    "timestamp",
    "created_at",
)
_ID = ("request_id", "generation_id", "response_id", "id")
_MODEL = ("model", "model_version", "model_id")
_INPUT = ("input_tokens", "prompt_tokens")
_OUTPUT = ("output_tokens", "usage_output_tokens", "completion_tokens")
_COST = ("cost", "cost_usd", "total_cost", "amount")
# Anthropic's console and its Admin API tell cached input apart.
_INPUT_PARTS = (
    "usage_input_tokens_no_cache",
    "usage_input_tokens_cache_write_5m",
    "usage_input_tokens_cache_write_1h",
    "usage_input_tokens_cache_read",
    "uncached_input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
)


class ExportUnreadable(Exception):
    """The file is no usage export; the message says where and why."""


@dataclass(frozen=True)
class Usage:
    """Tokens and money of a call or of a day's calls of a model."""

    calls: int = 0
    tokens: int = 0
    nano_units: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.calls + other.calls, self.tokens + other.tokens, self.nano_units + other.nano_units)


@dataclass(frozen=True)
class ExportRow:
    """One line of an export."""

    key: str
    """The request's id; or the day."""
    by_id: bool
    """Whether `key` is an id."""
    day: date | None
    model: str
    usage: Usage
    has_cost: bool


@dataclass(frozen=True)
class Compared:
    """What the provider and the ledger say of one day and model, or of one request."""

    key: str
    model: str
    provider: Usage
    ledger: Usage

    @property
    def rate(self) -> float | None:
        """The share of the provider's tokens that the ledger has; None where the provider tells none."""
        return share(self.ledger.tokens, self.provider.tokens)


def share(part: int, whole: int) -> float | None:
    """Return a share; None of nothing."""
    return None if whole == 0 else part / whole


def read_export(text: str) -> list[ExportRow]:
    """Return the lines of an export. Raises ExportUnreadable."""
    rows = [
        _row(number, record) for number, record in enumerate(_records(text), start=1) if any(record.values())
    ]
    if not rows:
        message = "the export is empty"
        raise ExportUnreadable(message)
    return rows


def _records(text: str) -> Iterable[Mapping[str, Any]]:
    start = text.lstrip("\ufeff \r\n\t")
    if start.startswith("["):
        found = _json(start, 1)
        yield from (_mapping(each, number) for number, each in enumerate(found, start=1))
    elif start.startswith("{"):
        for number, line in enumerate(start.splitlines(), start=1):
            if line.strip():
                yield _mapping(_json(line, number), number)
    else:
        yield from csv.DictReader(io.StringIO(start, newline=""))


def _json(text: str, number: int) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        message = f"line {number} is not JSON: {error}"
        raise ExportUnreadable(message) from None


def _mapping(value: object, number: int) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        message = f"line {number} is no object"
        raise ExportUnreadable(message)
    return value


def _row(number: int, record: Mapping[str, Any]) -> ExportRow:
    told_id = _first(record, _ID)
    day = _day(_first(record, _DAY), number)
    if not told_id and day is None:
        message = f"row {number} has neither a day nor an id; known columns: {', '.join((*_DAY, *_ID))}"
        raise ExportUnreadable(message)
    cost = _first(record, _COST)
    tokens = _tokens(record, _INPUT, number) or sum(_count(record.get(part), number) for part in _INPUT_PARTS)
    usage = Usage(
        calls=_count(record.get("num_model_requests"), number) or 1,
        tokens=tokens + _tokens(record, _OUTPUT, number),
        nano_units=_nanos(cost, number),
    )
    key = str(told_id) if told_id else day.isoformat() if day is not None else ""
    return ExportRow(
        key=key,
        by_id=bool(told_id),
        day=day,
        model=str(_first(record, _MODEL) or ""),
        usage=usage,
        has_cost=cost is not None,
    )


def _first(record: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((record[name] for name in names if record.get(name) not in (None, "")), None)


def _tokens(record: Mapping[str, Any], names: Iterable[str], number: int) -> int:
    return _count(_first(record, names), number)


def _count(value: object, number: int) -> int:
    if value in (None, ""):
        return 0
    try:
        count = int(str(value).replace(",", ""))
    except ValueError:
        message = f'row {number}: "{value}" is no number of tokens'
        raise ExportUnreadable(message) from None
    return count


def _nanos(value: object, number: int) -> int:
    if value in (None, ""):
        return 0
    try:
        return int(Decimal(str(value).replace(",", "").lstrip("$")).scaleb(9))
    except (InvalidOperation, ValueError, OverflowError):
        message = f'row {number}: "{value}" is no amount of money'
        raise ExportUnreadable(message) from None


def _day(value: object, number: int) -> date | None:
    if value is None:
        return None
    text = str(value).strip()
    try:
        if text.replace(".", "", 1).isdigit():
            return datetime.fromtimestamp(float(text), UTC).date()
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        message = f'row {number}: "{value}" is no day'
        raise ExportUnreadable(message) from None
    return moment.date() if moment.tzinfo is None else moment.astimezone(UTC).date()


def compare(rows: Iterable[ExportRow], calls: Iterable[LedgerCall]) -> list[Compared]:
    """Return what both sides say, for each day and model or each id of the export, in order of the export's keys.

    A call counts for the model by which the provider called it, else for the one it was asked as. A call that the
    export does not name is left out: the export may be of one key or workspace among several.
    """
    found: dict[tuple[str, str], Compared] = {}
    ids: set[str] = set()
    for row in rows:
        place = (row.key, "" if row.by_id else row.model)
        known = found.get(place, Compared(row.key, row.model, Usage(), Usage()))
        found[place] = replace(known, provider=known.provider + row.usage)
        if row.by_id:
            ids.add(row.key)
    for call in calls:
        known_as = _place(call, found, ids)
        if known_as is not None:
            both = found[known_as]
            found[known_as] = replace(both, ledger=both.ledger + _usage(call))
    return [found[place] for place in sorted(found)]


def _place(
    call: LedgerCall, found: Mapping[tuple[str, str], Compared], ids: set[str]
) -> tuple[str, str] | None:
    for told in (call.provider_request_id, call.provider_response_id):
        if told in ids:
            return told, ""
    if call.reserved_at is None:
        return None
    day = call.reserved_at.date().isoformat()
    asked = call.model_asked
    for model in (call.model_served, asked, asked.partition("/")[2], ""):
        if (day, model) in found:
            return day, model
    return None


def _usage(call: LedgerCall) -> Usage:
    usages = (call.usage, *(each.usage for each in call.additional_usage))
    tokens = sum((usage.input_tokens or 0) + (usage.output_tokens or 0) for usage in usages)
    cost = 0 if call.cost is None else call.cost.nano_units
    return Usage(calls=1, tokens=tokens, nano_units=cost)


def total(compared: Iterable[Compared]) -> Compared:
    """Return the sum of everything."""
    provider, ledger = Usage(), Usage()
    for each in compared:
        provider, ledger = provider + each.provider, ledger + each.ledger
    return Compared("total", "", provider, ledger)
