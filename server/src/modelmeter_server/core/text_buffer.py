"""Text that arrives in pieces, joined once at the end."""

from __future__ import annotations

from .text import SurrogateJoiner


class TextBuffer(SurrogateJoiner):
    """Gather the deltas of one block; what leaves it is always valid Unicode."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[str] = []

    def append(self, text: str) -> str:
        """Add a delta and return the part of it that is certain by now; half a character is held back."""
        # Nearly every delta is plain ASCII: the test is repeated here to save a call for each.
        piece = text if text.isascii() and not self._held else self.push(text)
        if piece:
            self._pieces.append(piece)
        return piece

    def close(self) -> str:
        """End the block; return U+FFFD if half a character was still held back, else nothing."""
        rest = self.flush()
        if rest:
            self._pieces.append(rest)
        return rest

    def __bool__(self) -> bool:
        return bool(self._pieces or self._held)

    def __str__(self) -> str:
        return "".join(self._pieces)
