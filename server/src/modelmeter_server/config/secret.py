"""A value that must never show: provider keys and proxy credentials."""

from __future__ import annotations

import hmac
from typing import NoReturn, final


@final
class Secret:
    """Hold a text that only `reveal` gives out.

    It prints as `Secret(***)`, compares in constant time, and refuses to be pickled, copied into JSON or
    formatted, so that a forgotten log line or crash report cannot carry it.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself. Every call site is a place to review."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        msg = "a Secret cannot be pickled or copied"
        raise TypeError(msg)
