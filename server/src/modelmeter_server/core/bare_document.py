"""A JSON document in an event stream that belongs to no event (R-E5).

Front ends write their failure straight into the body, on one line or pretty-printed over several, and Google's in an
array. Whatever is no error is nobody's business and ignored.
"""

from __future__ import annotations

from typing import Final

from modelmeter_server.core.json_text import NotJson, loads_lenient

DOCUMENT_LIMIT: Final = 1024 * 1024
"""Bytes that are gathered: the limit of an HTTP error body. A longer document is ignored."""

_CLOSERS: Final = {b"{": b"}", b"[": b"]"}

_PARSE_ATTEMPTS: Final = 8  # a document of a million closing braces must not be parsed a million times


def may_begin(line: bytes) -> bool:
    """Tell whether a line may be the first of a document."""
    return line[:1] in _CLOSERS


class BareDocument:
    """Gather the lines of one document. `marked` ones were called an error by the provider: any object is one."""

    __slots__ = ("_attempts", "_lost", "_text", "_value", "marked")

    def __init__(self, *, marked: bool) -> None:
        """Start without lines."""
        self.marked = marked
        self._text = bytearray()
        self._attempts = 0
        self._lost = False
        self._value: object = None

    def add(self, line: bytes) -> bool:
        """Add one line; return whether the document is whole now, so that nobody waits for its end."""
        if self._lost or len(self._text) + len(line) >= DOCUMENT_LIMIT:
            self._lost = True
            self._text.clear()
            return False
        first = not self._text
        if not first:
            self._text += b"\n"
        self._text += line
        closer = _CLOSERS.get(bytes(self._text[:1]), b"}")
        may_be_whole = line.rstrip()[-1:] == closer if first else line[:1] == closer
        if not may_be_whole or self._attempts == _PARSE_ATTEMPTS:
            return False
        self._attempts += 1
        return self.is_whole()

    def is_whole(self) -> bool:
        """Tell whether the lines are one JSON document."""
        if self._value is None and self._text:
            try:
                self._value = loads_lenient(bytes(self._text))
            except NotJson:
                return False
        return self._value is not None

    def is_error(self) -> bool:
        """Tell whether the document is whole and tells an error."""
        if not self.is_whole():
            return False
        value = self._value[0] if isinstance(self._value, list) and self._value else self._value
        return isinstance(value, dict) and (self.marked or _names_an_error(value))

    def text(self) -> bytes:
        """Return the lines joined by LF; empty if they were more than `DOCUMENT_LIMIT`."""
        return bytes(self._text)


def _names_an_error(document: dict[str, object]) -> bool:
    error = document.get("error")
    if isinstance(error, dict) or document.get("type") == "error":
        return True
    told = (error, document.get("error_type"), document.get("error_message"))
    return any(isinstance(word, str) and word for word in told)
