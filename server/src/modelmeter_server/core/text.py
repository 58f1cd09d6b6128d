"""Text that has to fit somewhere: a byte limit, a log without keys, a protobuf string.

JSON may carry half of a character (a lone surrogate); protobuf, UTF-8 and SQL may not. A billed answer must
not die in an encoder, so every text passes `SurrogateJoiner` (deltas) or `well_formed` (whole strings) on
its way in.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

REDACTED: Final = "[redacted]"
"""What `scrub` writes in the place of a key."""


def well_formed(text: str) -> str:
    """Return the text with surrogate pairs joined and each lone surrogate replaced by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def cut_utf8(text: str, limit: int) -> str:
    """Return the longest start of the text, made well-formed, that takes at most `limit` bytes of UTF-8."""
    head = well_formed(text[: max(limit, 0)])  # a character takes at least one byte
    return head.encode()[: max(limit, 0)].decode("utf-8", "ignore")


def scrub(text: str, secrets: Sequence[str]) -> str:
    """Return the text with every configured key replaced by `[redacted]`.

    Scrub before cutting: half a key at the end of a cut text is not recognised. Empty keys are ignored; of
    two keys that begin at the same place the longer is replaced.
    """
    present = sorted((secret for secret in secrets if secret and secret in text), key=len, reverse=True)
    if not present:
        return text
    # One pass, not one per key: a key such as "redacted" must not match inside the replacement of another.
    return re.sub("|".join(map(re.escape, present)), REDACTED, text)


class SurrogateJoiner:
    """Make the deltas of one block well-formed, also where a character was split between two of them.

    The pushed parts and the flushed rest, joined, are `well_formed` of all deltas joined, however these
    were cut.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str) -> str:
        """Return what is certain of the block's text now; a high surrogate at the end is held back."""
        if not self._held and text.isascii():
            return text
        text = self._held + text
        self._held = ""
        if "\ud800" <= text[-1:] <= "\udbff":
            self._held = text[-1]
            text = text[:-1]
        return well_formed(text)

    def flush(self) -> str:
        """Return the rest at the end of the block: U+FFFD if half a character is still held back."""
        held, self._held = self._held, ""
        return "\ufffd" if held else ""
