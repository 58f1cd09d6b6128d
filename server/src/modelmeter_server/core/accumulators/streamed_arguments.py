"""Arguments of a tool call that come as values at JSON paths (Vertex AI, `streamFunctionCallArguments`).

`{"jsonPath": "$.items[0].name", "stringValue": "ap", "willContinue": true}`, then the rest of that text at the same
path. What cannot be followed makes the whole arguments unreadable: half of them would be a call that nobody made.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Final

from ..json_text import MAX_DEPTH
from .accumulator import spelled

_STEP: Final = re.compile(
    r"""\.(?P<name>[^.\[\]'"]+)|\[(?P<index>[0-9]{1,9})\]|\[(?:'(?P<single>[^']*)'|"(?P<double>[^"]*)")\]"""
)
_UNREADABLE: Final = "\N{HORIZONTAL ELLIPSIS}"
"""What stands for arguments that could not be followed; no reader takes it for JSON."""


class _Text:
    """A text that may go on; joined once at the end."""

    __slots__ = ("pieces",)

    def __init__(self, text: str) -> None:
        self.pieces = [text]


class StreamedArguments:
    """Put the arguments of one call together."""

    __slots__ = ("_is_broken", "_root")

    def __init__(self) -> None:
        """Start with no argument told."""
        self._root: dict[str, Any] = {}
        self._is_broken = False

    def add(self, pieces: object) -> None:
        """Take the `partialArgs` of one chunk."""
        for piece in pieces if isinstance(pieces, list) else ():
            if not (isinstance(piece, dict) and self._set(piece.get("jsonPath"), *_value(piece))):
                self._is_broken = True

    def text(self) -> str:
        """Return the arguments as JSON text."""
        return _UNREADABLE if self._is_broken else spelled(_joined(self._root))

    def _set(self, path: object, told: bool, value: Any) -> bool:
        steps = _steps(path)
        if not steps or not told:
            return False
        place: Any = self._root
        for step, following in pairwise(steps):
            place = _enter(place, step, [] if isinstance(following, int) else {})
        return place is not None and _put(place, steps[-1], value)


def _value(piece: dict[str, Any]) -> tuple[bool, Any]:
    """Return whether the piece tells a value, and it."""
    text = piece.get("stringValue")
    if isinstance(text, str):
        return True, _Text(text)
    for name in ("numberValue", "boolValue"):
        if isinstance(piece.get(name), bool | int | float):
            return True, piece[name]
    return "nullValue" in piece, None


def _steps(path: object) -> list[str | int]:
    """Return the steps of a path such as `$.a[0]['b c']`; none if it is no such path."""
    if not isinstance(path, str) or not path.startswith("$") or path.count(".") + path.count("[") > MAX_DEPTH:
        return []
    steps: list[str | int] = []
    position = 1
    while match := _STEP.match(path, position):
        position = match.end()
        if match["index"] is not None:
            steps.append(int(match["index"]))
        else:
            steps.append(
                next(name for name in (match["name"], match["single"], match["double"]) if name is not None)
            )
    return steps if position == len(path) else []


def _enter(place: Any, step: str | int, empty: Any) -> Any:
    """Return what stands at the step, begun if nothing does; `None` if the place has no such step."""
    if isinstance(place, dict) and isinstance(step, str):
        inner = place.setdefault(step, empty)
    elif isinstance(place, list) and isinstance(step, int) and step <= len(place):
        # Elements come in their order: a far index of a hostile server must not cost its worth of memory.
        if step == len(place):
            place.append(empty)
        inner = place[step]
    else:
        return None
    return inner if type(inner) is type(empty) else None


def _put(place: Any, step: str | int, value: Any) -> bool:
    if isinstance(place, dict) and isinstance(step, str):
        before = place.get(step)
    elif isinstance(place, list) and isinstance(step, int) and step <= len(place):
        if step == len(place):
            place.append(None)
        before = place[step]
    else:
        return False
    if isinstance(before, _Text) and isinstance(value, _Text):
        before.pieces += value.pieces
    else:
        place[step] = value
    return True


def _joined(value: Any) -> Any:
    if isinstance(value, _Text):
        return "".join(value.pieces)
    if isinstance(value, dict):
        return {name: _joined(member) for name, member in value.items()}
    return [_joined(item) for item in value] if isinstance(value, list) else value
