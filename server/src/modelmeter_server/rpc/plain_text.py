"""No U+0000 in what callers write to the ledger: PostgreSQL keeps none, and would fail the whole statement. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf.message import Message

NUL_REFUSED = "must not hold the character U+0000"


def fields_with_nul(message: Message, path: str = "") -> Iterator[str]:
    """Yield the paths of all texts of a message that hold U+0000; of a map, the path of the map."""
    for field, value in message.ListFields():
        here = path + field.name
        if hasattr(value, "items"):
            if any(_holds_nul(each) for entry in value.items() for each in entry):
                yield here
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            for index, each in enumerate(value):
                yield from _in_value(each, f"{here}[{index}]")
        else:
            yield from _in_value(value, here)


def _in_value(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Message):
        yield from fields_with_nul(value, f"{path}.")
    elif _holds_nul(value):
        yield path


def _holds_nul(value: Any) -> bool:
    return isinstance(value, str) and "\0" in value
