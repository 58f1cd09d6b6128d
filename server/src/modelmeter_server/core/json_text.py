"""JSON text: three ways to read it, for three degrees of trust, and one way to write it.

`loads_lenient` reads what a provider was already paid for: it gives up only when nothing can be read at all.
`loads_strict` reads what a model was told to write: no repair, no NaN (R-X1). `leading_members` reads the
start of a body that was cut (R-H6). Whatever the bytes are, the only exception is `NotJson`.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Final, cast

import msgspec

from modelmeter_server.core.counters import INT64_MAX
from modelmeter_server.core.text import well_formed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_DEPTH: Final = 128
"""Nested arrays and objects that strict text may have: what serde_json, the strictest of the common
parsers, reads by default. Whoever walks an accepted value recursively stays far from Python's own limit."""

_MAX_LEADING: Final = 10_000
"""Members of a cut object that are looked at. Recorded answers have dozens; each costs a step in Python, and a body
of millions of them would keep everybody else waiting."""

_TOO_DEEP: Final = "too many nested arrays and objects"
_TOO_LARGE: Final = "a number is too large"
_TOO_LONG: Final = "a number has too many digits"
_TRUNCATED: Final = "Input data was truncated"  # in the words of msgspec
_INT_DIGITS: Final = 4300  # sys.int_info.default_max_str_digits: longer literals cost quadratic time
_JSON_SPACE: Final = re.compile(r"[ \t\n\r]*")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")


class NotJson(ValueError):
    """Report text that is not JSON, or not the JSON that was asked for; the message is a short reason."""


class TooDeep(NotJson):
    """Report a document nested so deeply that it cannot be read at all."""


def loads_lenient(data: bytes) -> object:
    """Return the value of one JSON document, reading past damage that does not hide its structure.

    Bad UTF-8 becomes U+FFFD, control characters may stand in strings, and a number that no double or int64
    can hold never costs the values beside it (R-U7): NaN, Infinity and 1e999 become None, integers of
    thousands of digits are cut to the int64 range. Lone surrogates stay, because the next delta may bring
    the other half. Of a name that is told twice the last value wins. Raises `NotJson`.
    """
    try:
        return cast(object, msgspec.json.decode(data))
    except msgspec.DecodeError as error:
        # No second reading of megabytes will find the rest; half a surrogate pair gets the same complaint.
        if str(error) == _TRUNCATED and b"\\u" not in data:
            raise NotJson(_TRUNCATED) from None
    except (ValueError, RecursionError):
        pass
    try:
        return cast(object, _LENIENT.decode(data.decode("utf-8", "replace").removeprefix("\ufeff")))
    except RecursionError:
        raise TooDeep(_TOO_DEEP) from None
    except ValueError as error:
        raise NotJson(str(error)) from None


def loads_event(data: bytes) -> object:
    """Return the value of one event's data like `loads_lenient`, and of an object that is nested too deeply for it
    the members that stand before the deep one: they must not be lost for a member that nobody asked for.

    Raises `NotJson`.
    """
    try:
        return loads_lenient(data)
    except TooDeep:
        return leading_members(data.decode("utf-8", "replace").removeprefix("\ufeff"))[0]


def loads_strict(text: str) -> object:
    """Return the value of one JSON document that a model wrote, without repair.

    Integers of up to 4,300 digits stay integers. A lone surrogate, which JSON's grammar allows as an
    escape, becomes U+FFFD: no UTF-8 text can carry it. Of a name that is told twice the last value wins, as
    for every common parser. Raises `NotJson`: on NaN and Infinity, on a number that overflows a double or
    has more digits, on more than `MAX_DEPTH` nested arrays and objects, and on anything before or after the
    document but white space.
    """
    try:
        value = cast(object, _STRICT.decode(well_formed(text)))
    except RecursionError:
        raise NotJson(_TOO_DEEP) from None
    except ValueError as error:
        raise NotJson(str(error)) from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deeper(value, MAX_DEPTH):
        raise NotJson(_TOO_DEEP)
    return _with_well_formed_strings(value) if _SURROGATE_ESCAPE.search(text) else value


def leading_members(prefix: str) -> tuple[dict[str, object], str | None]:
    """Return the whole top-level members of a cut JSON object, and the name of the member that is cut.

    The members stand in the order of the text, so that the caller can tell what was told before what. A
    number at the very end is cut: more digits may have followed. Anything that is not the start of an
    object has no members, and of an absurd number of members the first ones are returned.
    """
    members: dict[str, object] = {}
    position = _skip_space(prefix, 0)
    expected = "{"
    for _ in range(_MAX_LEADING):
        if prefix[position : position + 1] != expected:
            break
        expected = ","
        position = _skip_space(prefix, position + 1)
        if prefix[position : position + 1] != '"':
            break
        try:
            key, position = _LENIENT.raw_decode(prefix, position)
        except ValueError:
            break
        position = _skip_space(prefix, position)
        if prefix[position : position + 1] != ":":
            return members, key
        start = _skip_space(prefix, position + 1)
        try:
            value, position = _LENIENT.raw_decode(prefix, start)
        except (ValueError, RecursionError):
            return members, key
        if position == len(prefix) and prefix[start] in "-0123456789":
            return members, key
        members[key] = value
        position = _skip_space(prefix, position)
    return members, None


def dumps_compact(value: object) -> str:
    """Return one line of JSON without white space; the same value gives the same text.

    Names keep their order, text stays text; a lone surrogate is written as its escape, so that the line is
    always valid UTF-8. Raises `NotJson` for NaN, Infinity, integers over 4,300 digits, cycles, too deep
    nesting and values that JSON does not have.
    """
    try:
        text = _ENCODER.encode(value)
    except (ValueError, TypeError, RecursionError) as error:
        raise NotJson(_TOO_DEEP if isinstance(error, RecursionError) else str(error)) from None
    return text if text.isascii() else _SURROGATE.sub(_escape, text)


def _skip_space(text: str, position: int) -> int:
    match = _JSON_SPACE.match(text, position)
    return match.end() if match else position


def _lenient_int(literal: str) -> int:
    if len(literal) <= _INT_DIGITS:
        return int(literal)
    return -INT64_MAX if literal.startswith("-") else INT64_MAX


def _lenient_float(literal: str) -> float | None:
    number = float(literal)
    return number if math.isfinite(number) else None


def _strict_int(literal: str) -> int:
    if len(literal) > _INT_DIGITS:
        raise NotJson(_TOO_LONG)
    return int(literal)


def _strict_float(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise NotJson(_TOO_LARGE)
    return number


def _no_constant(name: str) -> object:
    reason = f"{name} is not JSON"
    raise NotJson(reason)


def _is_deeper(value: object, depth: int) -> bool:
    level = [value]
    for _ in range(depth + 1):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return False
    return True


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _with_well_formed_strings(value: object) -> object:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [_with_well_formed_strings(item) for item in value]
    if isinstance(value, dict):
        return {well_formed(key): _with_well_formed_strings(item) for key, item in value.items()}
    return value


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"


_LENIENT: Final = json.JSONDecoder(
    parse_int=_lenient_int,
    parse_float=cast("Callable[[str], float]", _lenient_float),
    parse_constant=lambda name: None,
    strict=False,
)
_STRICT: Final = json.JSONDecoder(
    parse_int=_strict_int, parse_float=_strict_float, parse_constant=_no_constant
)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
