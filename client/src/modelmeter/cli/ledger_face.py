"""What the commands of the ledger share: the connection, how they fail, moments and money on the command line."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import click

from modelmeter.errors import ModelmeterError

from .connection import connect, named_tenant
from .exits import exit_of
from .failures import show_refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from modelmeter import Ledger

QUARTER = timedelta(minutes=15)
"""What the sums of the ledger are kept by."""

_AGO = re.compile(r"(\d{1,6})([hdw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
_MONEY = re.compile(r"([0-9.]+) ?([A-Z]{3})")


@contextmanager
def open_ledger(address: str, *, tls: bool, ca_file: Path | None) -> Iterator[Ledger]:
    """Yield the ledger of a server; what fails is told, and ends the program with the exit code that goes with it."""
    with connect(address, tls=tls, ca_file=ca_file) as client:
        try:
            yield client.ledger.of(named_tenant())
        except ModelmeterError as error:
            show_refusal(error)
            sys.exit(exit_of(error))
        except (ValueError, TypeError) as error:
            raise click.UsageError(str(error)) from None


class Moment(click.ParamType):  # type: ignore[type-arg]  # generic in its stubs alone
    """A date, a time, or how long ago: `2026-05-01`, `2026-05-01T12:00+02:00`, `12h`, `7d`, `4w`."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return the moment; without a time zone it is in UTC."""
        if isinstance(value, datetime):
            return value
        ago = _AGO.fullmatch(value)
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f'"{value}" is no date, no time, and no time ago such as 12h, 7d or 4w', param, ctx)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


class Money(click.ParamType):  # type: ignore[type-arg]  # generic in its stubs alone
    """An amount with its currency: `12.50USD` or `"12.50 USD"`."""

    name = "amount"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, str]:
        """Return billionths of a unit and the currency."""
        if isinstance(value, tuple):
            return value
        found = _MONEY.fullmatch(value)
        try:
            nanos = Decimal(found[1] if found else "").scaleb(9)
        except InvalidOperation:
            found = None
            nanos = Decimal(0)
        if found is None or nanos != int(nanos):
            self.fail(f'"{value}" is no amount such as 12.50USD, with at most nine places', param, ctx)
        return int(nanos), found[2]


def on_quarter(moment: datetime | None) -> datetime | None:
    """Return the beginning of the quarter of an hour that holds a moment."""
    if moment is None:
        return None
    seconds = moment.timestamp()
    return datetime.fromtimestamp(seconds - seconds % QUARTER.total_seconds(), UTC)


def time_text(moment: datetime | None) -> str:
    """Return a moment to the second, in UTC; empty for none."""
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
