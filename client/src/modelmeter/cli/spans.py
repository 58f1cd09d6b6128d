"""Spans of time on the command line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_MOST_DAYS = 36_500


class Span(click.ParamType):  # type: ignore[type-arg]  # generic in its stubs alone
    """A span of time: `90d`, `12h`, `30m` or `45s`."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Return the span."""
        text = str(value)
        number, unit = text[:-1], _UNITS.get(text[-1:])
        if unit is None or not number.isdecimal() or len(number) > 9:
            self.fail(f"{text!r} is no time: write 90d, 12h, 30m or 45s", param, ctx)
        span = timedelta(**{unit: int(number)})
        if span.days > _MOST_DAYS:
            self.fail(f"{text!r} is more than a hundred years", param, ctx)
        return span
