"""What a chat message holds beside its text and its tool calls: no business of ours, and returned with the turn.

Signatures and encrypted reasoning travel in such members (`reasoning_details`, `extra_content`). They come in pieces
like everything else: texts are joined, entries of a list by their index, and of any other value the last one stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_GROWING: Final = frozenset(("text", "summary", "data", "thinking", "arguments"))
"""Members of a list's entries that come in pieces; a signature or a format comes whole."""

_RETOLD: Final = frozenset(("executed_tools",))
"""Lists whose entries are told again with all their members (Groq): first that a tool runs, then what it gave."""

_Entry = dict[str, Any]


class MessageExtras:
    """Gather the members of one message that are not understood here."""

    __slots__ = ("_entries", "_has_room", "_plain", "_texts")

    def __init__(self, has_room: Callable[[], bool]) -> None:
        """`has_room` is asked before something new is kept, so that a hostile stream cannot fill the memory."""
        self._has_room = has_room
        self._texts: dict[str, list[str]] = {}
        self._entries: dict[str, list[_Entry]] = {}
        self._plain: dict[str, Any] = {}

    def add(self, name: str, value: object) -> None:
        """Take one piece of a member."""
        if isinstance(value, str):
            pieces = self._texts.get(name)
            if pieces is not None:
                pieces.append(value)
            elif self._has_room():
                self._texts[name] = [value]
        elif isinstance(value, list):
            for each in value:
                self._add_entry(self._entries.setdefault(name, []), each, grows=name not in _RETOLD)
        elif name in self._plain or self._has_room():
            self._plain[name] = value

    def _add_entry(self, entries: list[_Entry], value: object, *, grows: bool) -> None:
        piece: _Entry = value if isinstance(value, dict) else {"": value}
        last = entries[-1] if entries else None
        if last is None or not _continues(last, piece):
            if not self._has_room():
                return
            last = {}
            entries.append(last)
        for name, member in piece.items():
            if member is None:
                last.setdefault(name, None)
            elif grows and name in _GROWING and isinstance(member, str):
                # A list of pieces, joined at the end: joining with every piece would cost quadratic time.
                told = last.get(name)
                if isinstance(told, _Pieces):
                    told.append(member)
                else:
                    last[name] = _Pieces((member,))
            else:
                last[name] = member

    def entries(self, name: str) -> Iterator[dict[str, Any]]:
        """Return the entries of a list that are objects, as far as they came."""
        return (whole for entry in self._entries.get(name, ()) if isinstance(whole := _whole(entry), dict))

    def members(self) -> dict[str, Any]:
        """Return the members as one message would hold them."""
        joined: dict[str, Any] = {name: "".join(pieces) for name, pieces in self._texts.items()}
        for name, entries in self._entries.items():
            joined[name] = [_whole(entry) for entry in entries]
        return joined | self._plain


class _Pieces(list[str]):
    """The pieces of a text; a type of its own, so that no list of the provider's is taken for one."""


def _continues(last: _Entry, piece: _Entry) -> bool:
    """Say whether a piece belongs to the last entry: the same index, which must be told, and the same type."""
    index = piece.get("index")
    return type(index) is int and last.get("index") == index and last.get("type") == piece.get("type")


def _whole(entry: _Entry) -> Any:
    if entry.keys() == {""}:
        return entry[""]
    return {name: "".join(told) if isinstance(told, _Pieces) else told for name, told in entry.items()}
