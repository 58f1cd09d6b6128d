"""Typed decoding of provider events that never loses an event for one odd field.

The fast path decodes straight into a struct of the few fields that are needed. On any complaint the event is read by
`loads_event` and the struct is filled field by field; what does not fit keeps its default.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from .counters import INT64_MAX
from .json_text import loads_event
from .text import well_formed

T = TypeVar("T", bound=msgspec.Struct)

UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""What msgspec raises for an event that it cannot put into the struct."""


class EventDecoder(Generic[T]):
    """Decode one kind of event. All fields of the struct must have defaults."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self.strictly = msgspec.json.Decoder(kind).decode
        """Decode or raise one of UNREADABLE. For the one kind of event that comes by the hundred: a call less."""

    def __call__(self, data: bytes) -> T:
        """Return the event. Raises NotJson only if nothing can be read at all."""
        try:
            return self.strictly(data)
        except UNREADABLE:
            return self.leniently(data)

    def leniently(self, data: bytes) -> T:
        """Return what can be read of an event. Raises NotJson if nothing can."""
        return fill(self._kind, loads_event(data))


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)  # it resolves annotations anew each time, 150 us of them


def fill(kind: type[T], document: object) -> T:
    """Build a struct from a decoded document, field by field, keeping defaults where a value does not fit."""
    members = document if isinstance(document, dict) else {}
    values: dict[str, Any] = {}
    for field in _fields(kind):
        value = members.get(field.encode_name)
        if value is None:
            continue
        if field.type is Any:
            values[field.name] = value
            continue
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            values[field.name] = fill(field.type, value)
            continue
        try:
            values[field.name] = msgspec.convert(value, field.type)
        except ValueError:  # of msgspec, and of UTF-8: a lone surrogate cannot be encoded into its complaint
            continue
    return kind(**values)


def word(value: object) -> str:
    """Return a JSON value that should be an id, a name or a text: strings made well-formed, whole numbers spelled.

    Everything else is nothing: spelling it in Python's way would help nobody, and fails on deep nesting.
    """
    if isinstance(value, str):
        return well_formed(value)
    return str(value) if type(value) is int and abs(value) <= INT64_MAX else ""
