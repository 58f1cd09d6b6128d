"""The key `dialect` of a provider: a built-in profile by its name, or a table of one with the fields that differ."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from modelmeter_server.core.dialects import (
    CACHE_MARKS,
    COMPATIBLE,
    DIALECTS,
    EFFORT_FIELDS,
    END_USER_FIELDS,
    MAX_TOKENS_FIELDS,
    MEDIA,
    OPENAI,
    SAMPLING,
    SEED_FIELDS,
    Dialect,
)
from modelmeter_server.core.requests import ReasoningEffort
from modelmeter_server.core.stop_reasons import Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .tables import Table

_KEY = "dialect"
_PATH = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@-]+)+")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VERSION = re.compile(r"[A-Za-z0-9._-]+")
_MEMBER = re.compile(r"[A-Za-z0-9_.-]+")
# Headers that the transport writes itself, or that change what the body means.
_TAKEN_HEADERS = frozenset(
    ("host", "content-length", "content-type", "transfer-encoding", "connection", "te")
)
_CLASSES = tuple(stop.value for stop in Stop if stop is not Stop.UNRECOGNIZED)
_CHOICES = {
    "max_tokens_field": MAX_TOKENS_FIELDS,
    "seed_field": SEED_FIELDS,
    "effort_field": EFFORT_FIELDS,
    "cache_marks": CACHE_MARKS,
    "end_user_field": END_USER_FIELDS,
}
_LISTS: dict[str, tuple[str, ...]] = {
    "media": MEDIA,
    "sampling": SAMPLING,
    "reasoning_efforts": tuple(each.value for each in ReasoningEffort),
}
_MOST_STOPS = 1000

# What cannot be true together: the key to blame, when, why, the fix.
_IMPOSSIBLE: tuple[tuple[str, Callable[[Dialect], bool], str, str], ...] = (
    (
        "strict_schemas",
        lambda it: it.strict_schemas and not it.strict,
        "a server without `strict` rejects no strict schema",
        "set strict = true, or remove this",
    ),
    (
        "effort_field",
        lambda it: it.effort_field != EFFORT_FIELDS[0] and not it.reasoning_efforts,
        "there is no effort to send",
        "name the server's reasoning_efforts, or remove this",
    ),
    (
        "seed_field",
        lambda it: it.seed_field != SEED_FIELDS[0] and "seed" not in it.sampling,
        "there is no seed to send",
        'add "seed" to sampling, or remove this',
    ),
    (
        "max_stop_sequences",
        lambda it: it.max_stop_sequences > 0 and "stop_sequences" not in it.sampling,
        "there are no stop sequences to send",
        'add "stop_sequences" to sampling, or remove this',
    ),
    (
        "parallel_switch",
        lambda it: it.parallel_switch and not it.tool_choice,
        "a server that leaves the choice of tools to the model has no switch for parallel calls",
        "set tool_choice = true, or parallel_switch = false",
    ),
)


def read_dialect(table: Table) -> Dialect | None:
    """Return the dialect of a provider, or `None` when the file names none; mistakes are noted."""
    if not isinstance(table.peek(_KEY), dict):
        name = table.choice(_KEY, DIALECTS, "") if _KEY in table else ""
        return DIALECTS.get(name)
    inner = table.table(_KEY)
    base = DIALECTS[inner.choice("base", DIALECTS, COMPATIBLE.name)]
    told = {
        field.name: _READERS[type(getattr(base, field.name))](inner, field.name, getattr(base, field.name))
        for field in msgspec.structs.fields(Dialect)
        if field.name not in ("name", "base_url")
    }
    inner.close()
    dialect = msgspec.structs.replace(base, **told)
    _note_impossible(inner, dialect)
    return dialect


def default_dialect(*, has_base_url: bool) -> Dialect:
    """Return the dialect of a provider that names none: a server of one's own promises less than OpenAI's."""
    return COMPATIBLE if has_base_url else OPENAI


def _note_impossible(table: Table, dialect: Dialect) -> None:
    for key, is_impossible, problem, fix in _IMPOSSIBLE:
        if is_impossible(dialect):
            table.mistake(key if key in table else None, problem, fix)


def _flag(table: Table, key: str, default: bool) -> bool:
    return table.flag(key, default=default)


def _integer(table: Table, key: str, default: int) -> int:
    return table.integer(key, default, least=0, most=_MOST_STOPS)


def _text(table: Table, key: str, default: str) -> str:
    if key in _CHOICES:
        return table.choice(key, _CHOICES[key], default)
    value = table.text(key)
    if value is None:
        return default
    pattern, fix = _SHAPES[key]
    if not pattern.fullmatch(value) or (key == "auth_header" and value.lower() in _TAKEN_HEADERS):
        table.mistake(key, f'"{value}" cannot be sent', fix)
        return default
    return value.lower() if key == "auth_header" else value


_SHAPES = {
    "path": (_PATH, 'write a path such as "/v1/chat/completions", without a query'),
    "api_version": (_VERSION, 'write a version such as "2024-10-21"'),
    "auth_header": (_TOKEN, 'write the name of a header of its own, such as "api-key"'),
}


def _texts(table: Table, key: str, default: tuple[Any, ...]) -> tuple[Any, ...]:
    values = table.texts(key)
    if values is None:
        return default
    known: Iterable[str] | None = _LISTS.get(key)
    for value in values:
        if known is not None and value not in known:
            table.mistake(key, f'"{value}" is not a known value', f"known are {', '.join(known)}")
        elif not _MEMBER.fullmatch(value):
            table.mistake(key, f'"{value}" is no member of a message', "write the names of members")
    if key == "reasoning_efforts":
        return tuple(each for each in ReasoningEffort if each.value in values)
    return values


def _stops(table: Table, key: str, default: dict[str, Stop]) -> dict[str, Stop]:
    inner = table.table(key)
    told = {word: inner.choice(word, _CLASSES, Stop.UNRECOGNIZED.value) for word in inner}
    inner.close()
    return default | {word: Stop(value) for word, value in told.items()}


_READERS: dict[type, Callable[[Table, str, Any], Any]] = {
    bool: _flag,
    int: _integer,
    str: _text,
    tuple: _texts,
    dict: _stops,
}
