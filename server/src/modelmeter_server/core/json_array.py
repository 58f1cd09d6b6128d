"""A JSON array that grows: bytes of a response body in, its whole elements out.

Google's streams come as one array when nobody asked for server-sent events, or when a proxy drops the question. Its
elements count as they end, like events. Any chunking of the same bytes gives the same elements; time is linear.
"""

from __future__ import annotations

import re
from typing import Final

from .sse import EventTooLarge, SseEvent

# A string without escapes is skipped in one step; any other opens a state of its own, so that no byte of a long one
# is looked at again with every chunk.
_OUTSIDE: Final = re.compile(rb'"[^"\\]*"|["\[\]{}]')
_INSIDE: Final = re.compile(rb'["\\]')


class JsonArraySplitter:
    """Split one array into its objects and arrays. Other elements say nothing and are left out."""

    __slots__ = ("_depth", "_limit", "_position", "_start", "_string", "_text", "is_closed")

    def __init__(self, *, element_limit: int) -> None:
        """Start before the first byte; an element over `element_limit` bytes makes `feed` raise."""
        self.is_closed = False
        """The array's own bracket was closed."""
        self._limit = element_limit
        self._text = bytearray()
        self._position = 0
        self._start: int | None = None
        """Where the open element begins."""
        self._depth = 0
        self._string = False

    @property
    def rest(self) -> bytes:
        """Return what came of the element that is still open; empty between elements."""
        return b"" if self._start is None else bytes(self._text[self._start :])

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes and return the elements that are whole now.

        Raises EventTooLarge for an element over the limit, with the elements before it.
        """
        elements: list[bytes] = []
        self._text += chunk
        while self._step(elements):
            pass
        self._forget()
        if len(self._text) > self._limit or any(len(element) > self._limit for element in elements):
            raise EventTooLarge(self._limit, [SseEvent("", each) for each in self._fitting(elements)])
        return elements

    def _fitting(self, elements: list[bytes]) -> list[bytes]:
        large = [index for index, element in enumerate(elements) if len(element) > self._limit]
        return elements[: large[0]] if large else elements

    def _step(self, elements: list[bytes]) -> bool:
        """Go to the next character that matters; return False when there is none yet."""
        if self.is_closed:
            return False
        match = (_INSIDE if self._string else _OUTSIDE).search(self._text, self._position)
        if match is None:
            self._position = len(self._text)
            return False
        sign, self._position = match[0], match.end()
        if self._string:
            return self._leave_string(sign, match.start())
        if sign == b'"':
            self._string = True
        elif sign in (b"[", b"{"):
            self._depth += 1
            if self._depth == 2:
                self._start = match.start()
        elif sign in (b"]", b"}"):
            self._close(elements)
        return True

    def _leave_string(self, sign: bytes, start: int) -> bool:
        if sign == b'"':
            self._string = False
        elif len(self._text) < start + 2:  # the character that the backslash protects has not come yet
            self._position = start
            return False
        else:
            self._position = start + 2
        return True

    def _close(self, elements: list[bytes]) -> None:
        self._depth -= 1
        if self._depth == 1 and self._start is not None:
            elements.append(bytes(self._text[self._start : self._position]))
            self._start = None
        self.is_closed = self._depth <= 0

    def _forget(self) -> None:
        """Drop what no element needs any more."""
        done = self._position if self._start is None else self._start
        del self._text[:done]
        self._position -= done
        if self._start is not None:
            self._start = 0
