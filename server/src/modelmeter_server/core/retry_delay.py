"""The wait that a provider asks for (R-R1). It is reported as told; the retry policy caps it.

Pure: an HTTP date is measured against the response's own `Date` header, so no clock is read or trusted.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?)s")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH: Final = f"(?P<month>{'|'.join(_MONTHS)})"
_TIME: Final = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
# The three forms of RFC 9110, 5.6.7. Written out because library parsers read "-3" or "soon" as some year.
_HTTP_DATES: Final = tuple(
    re.compile(form)
    for form in (
        rf"[A-Z][a-z]{{2}}, (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT",
        rf"[A-Z][a-z]{{5,8}}, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT",
        rf"[A-Z][a-z]{{2}} {_MONTH} (?P<day>[0-9 ][0-9]) {_TIME} (?P<year>[0-9]{{4}})",
    )
)
_RETRY_INFO: Final = "google.rpc.RetryInfo"


def retry_delay(headers_get: Callable[[str], str | None], body: object | None) -> float | None:
    """Return the seconds that the provider asks to wait, or None if it names no usable delay.

    `headers_get` takes lower-case names; `body` is the parsed JSON of the error, if it is JSON. The first
    usable of `retry-after-ms`, `retry-after` in seconds or as a date after the response's `Date` (0 if it
    is before), and `google.rpc.RetryInfo` in the body counts. Negative and infinite numbers, words and
    prose are not usable.
    """
    milliseconds = _number(headers_get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    told = headers_get("retry-after")
    for delay in (_number(told), _date_delay(told, headers_get("date")), _retry_info(body)):
        if delay is not None:
            return delay
    return None


def _number(text: str | None) -> float | None:
    if text is None or not _NUMBER.fullmatch(text.strip()):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def _date_delay(told: str | None, now: str | None) -> float | None:
    until, since = _http_date(told), _http_date(now)
    if until is None or since is None:
        return None
    return max(0.0, (until - since).total_seconds())


def _http_date(text: str | None) -> datetime | None:
    for form in _HTTP_DATES:
        match = form.fullmatch((text or "").strip())
        if match is None:
            continue
        year = int(match["year"])
        if len(match["year"]) == 2:
            year += 2000 if year < 70 else 1900  # POSIX's pivot: no clock here knows "50 years ahead"
        clock = int(match["hour"]), int(match["minute"]), min(int(match["second"]), 59)  # 60 is a leap second
        try:
            return datetime(year, _MONTHS.index(match["month"]) + 1, int(match["day"]), *clock, tzinfo=UTC)
        except ValueError:
            return None
    return None


def _retry_info(body: object | None) -> float | None:
    for detail in _error_details(body):
        kind, delay = detail.get("@type"), detail.get("retryDelay")
        if isinstance(kind, str) and kind.endswith(_RETRY_INFO) and isinstance(delay, str):
            match = _DURATION.fullmatch(delay)
            return _number(match[1]) if match else None
    return None


def _error_details(body: object | None) -> Iterator[dict[str, object]]:
    # Gemini wraps the error in an array where the request did not ask for an event stream.
    if isinstance(body, list) and body:
        body = body[0]
    error = body.get("error") if isinstance(body, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict):
            yield detail
