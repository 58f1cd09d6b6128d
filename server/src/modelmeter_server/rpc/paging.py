"""Page sizes and page tokens. Pure."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .convert_request import Violations

DEFAULT_PAGE: Final = 100
LARGEST_PAGE: Final = 1000

_MARK: Final = b"m1:"

_Item = TypeVar("_Item")
_Position = TypeVar("_Position", bound=msgspec.Struct)


class NamesPage(Protocol):
    """A request for a page of a listing."""

    @property
    def page_size(self) -> int:
        """Return how many items are asked for; 0 for the default."""

    @property
    def page_token(self) -> str:
        """Return the token that came with the page before; empty for the first page."""


def page_asked(request: NamesPage, found: Violations) -> tuple[int, str]:
    """Return how many items a page has, and the position that it follows, empty for the start."""
    return page_size(request.page_size, found), position(request.page_token, found)


def page_size(asked: int, found: Violations) -> int:
    """Return how many items a page has: 0 asks for the default, more than `LARGEST_PAGE` is cut to that."""
    if asked < 0:
        found.add("page_size", "must not be negative")
    return min(asked, LARGEST_PAGE) if asked > 0 else DEFAULT_PAGE


def page_token(position: str) -> str:
    """Return the token of a page that follows `position`."""
    return base64.urlsafe_b64encode(_MARK + position.encode()).decode()


def page_of(items: Mapping[str, _Item], size: int, after: str) -> tuple[list[_Item], str]:
    """Return the items whose keys follow `after`, in their order and `size` at most, and the token of the next page.

    For what is in memory as a whole; the token is empty when this is the last page.
    """
    keys = sorted(key for key in items if key > after)
    rest = page_token(keys[size - 1]) if len(keys) > size else ""
    return [items[key] for key in keys[:size]], rest


def position(token: str, found: Violations) -> str:
    """Return the position of a token; the start for an empty token and for one that this server never gave out."""
    if not token:
        return ""
    try:
        data = base64.b64decode(token.encode(), altchars=b"-_", validate=True)
        if data.startswith(_MARK) and b"\0" not in data:  # PostgreSQL compares no text with U+0000
            return data.removeprefix(_MARK).decode()
    except (binascii.Error, UnicodeError):
        pass
    found.add("page_token", "must be `next_page_token` of the page before, or empty")
    return ""


def token_of(at: msgspec.Struct) -> str:
    """Return the token of a page that follows a position of several fields, all of them plain JSON."""
    return page_token(msgspec.json.encode(msgspec.structs.astuple(at)).decode())


def position_as(kind: type[_Position], token: str, found: Violations) -> _Position | None:
    """Return the position that `token_of` put into a token; `None` for the start, and for what is none of its kind."""
    text = position(token, found)
    if not text:
        return None
    try:
        return msgspec.convert(
            dict(zip(kind.__struct_fields__, msgspec.json.decode(text, type=list[object]), strict=True)), kind
        )
    except (msgspec.MsgspecError, ValueError):
        found.add("page_token", "must be `next_page_token` of a page of the same listing")
        return None
