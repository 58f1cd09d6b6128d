"""JSON documents for programs: everything that a value of the client holds, and nothing made up.

`null` means that nobody told; it is never 0.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any

# The proto and the status bytes repeat what the other fields say.
_LEFT_OUT = frozenset(("proto", "raw_status"))


def document(**named: object) -> str:
    """Return one JSON document with a single key, which says what it is: `completion`, `error`, `models`."""
    return json.dumps(plain(named), ensure_ascii=False, indent=2)


def plain(value: Any) -> Any:
    """Return a value of the client in the terms of JSON; enums are the contract's words."""
    if isinstance(value, Enum):
        return value.value if isinstance(value.value, str) else value.name
    if is_dataclass(value) and not isinstance(value, type):
        # Two exceptions have no kind of their own: no server told them.
        named = {"type": type(value).__name__} if isinstance(value, Exception) else {}
        named |= {field.name: getattr(value, field.name) for field in fields(value)}
        return {name: plain(inner) for name, inner in named.items() if name not in _LEFT_OUT}
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list | tuple | array):
        return [plain(inner) for inner in value]
    return value
