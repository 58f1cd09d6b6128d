"""Tool calls of Chat Completions, put together from fragments that servers number and name in many ways (R-T1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..answers import ToolCall
from ..json_text import NotJson, loads_strict
from ..lenient import word
from ..text_buffer import TextBuffer
from .accumulator import spelled

if TYPE_CHECKING:
    from collections.abc import Callable

_OWN = frozenset(("index", "id", "function", "custom"))
_MAX_LOOKS = 8  # arguments in a million pieces must not be parsed a million times
_OF_FUNCTION = frozenset(("name", "arguments", "input"))


class ChatCall:
    """One tool call while it streams."""

    __slots__ = (
        "arguments",
        "call_index",
        "fields",
        "free_text",
        "function_fields",
        "id",
        "is_announced",
        "looks",
        "name",
    )

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments = TextBuffer()
        self.free_text = False
        self.fields: dict[str, Any] = {}
        """Members that are not understood here, such as signatures: they go back with the turn."""
        self.function_fields: dict[str, Any] = {}
        self.is_announced = False
        self.looks = 0
        """How often its arguments were parsed to see whether they are whole."""
        self.call_index: int | None = None
        """Position among the caller's tool calls, once it was announced as one."""

    def call(self) -> ToolCall:
        """Return the call as it stands; without argument text it takes nothing (R-T3)."""
        arguments = str(self.arguments) or ("" if self.free_text else "{}")
        return ToolCall(id=self.id, name=self.name, arguments_json=arguments, free_text=self.free_text)

    def turn(self) -> dict[str, Any]:
        """Return the call in the provider's shape, with all that it said of it."""
        call = self.call()
        kind, member = ("custom", "input") if self.free_text else ("function", "arguments")
        inner = {**self.function_fields, "name": call.name, member: call.arguments_json}
        return {**self.fields, "id": self.id, "type": kind, kind: inner}


class ChatCalls:
    """The tool calls of one message, in the order in which they were opened."""

    def __init__(self, has_room: Callable[[], bool]) -> None:
        """`has_room` is asked before a call is opened."""
        self._has_room = has_room
        self._by_index: dict[int, ChatCall] = {}
        self._current: ChatCall | None = None
        self.opened: list[ChatCall] = []

    def take(self, fragment: dict[str, Any], *, is_whole: bool = False) -> tuple[ChatCall, str] | None:
        """Take one fragment; return its call and what of its argument text is certain by now.

        `is_whole`: it is a call of a whole message, which is no fragment of any other, whatever its id.
        """
        free_text = not isinstance(fragment.get("function"), dict) and isinstance(
            fragment.get("custom"), dict
        )
        told = fragment.get("custom" if free_text else "function")
        function: dict[str, Any] = told if isinstance(told, dict) else {}
        id, name = word(fragment.get("id")), word(function.get("name"))
        arguments = function.get("input" if free_text else "arguments")
        # Some servers send an object instead of text; null is nothing.
        text = arguments if isinstance(arguments, str) else spelled(arguments)
        call = self._open() if is_whole else self._call(fragment.get("index"), id, name, text)
        if call is None:
            return None
        call.id = call.id or id
        call.name = call.name or name
        call.free_text = call.free_text or free_text
        _keep(call.fields, fragment, _OWN)
        _keep(call.function_fields, function, _OF_FUNCTION)
        return call, call.arguments.append(text) if text else ""

    def _open(self) -> ChatCall | None:
        if not self._has_room():
            return None
        self._current = ChatCall()
        self.opened.append(self._current)
        return self._current

    def _call(self, index: object, id: str, name: str, text: str) -> ChatCall | None:
        """Find the call of a fragment, or open one.

        A missing index means the current call. Only a name opens a call while one is open: with a new id, even at a
        used index, or where no id is told and the name is another one or the arguments begin anew, as servers do that
        number every call 0.
        """
        place = index if type(index) is int else None
        call = self._current if place is None else self._by_index.get(place)
        if call is None and self._current is not None and not name:
            call = self._current
        if call is None or (name and _is_another(call, id, name, text)):
            call = self._open()
            if call is None:
                return None
        if place is not None:
            self._by_index[place] = call
        self._current = call
        return call


def _is_another(call: ChatCall, id: str, name: str, text: str) -> bool:
    renamed = bool(call.name) and name != call.name
    if not id:
        return renamed or (not call.id and _begins_anew(call, text))
    return id != call.id and (bool(call.id) or renamed)


def _begins_anew(call: ChatCall, text: str) -> bool:
    """Say whether an object begins after a whole one. The same once more may be the same call, told again."""
    if text[:1] != "{" or call.looks == _MAX_LOOKS:
        return False
    call.looks += 1
    arguments = str(call.arguments)
    try:
        return text != arguments and isinstance(loads_strict(arguments), dict)
    except NotJson:
        return False


def _keep(kept: dict[str, Any], told: dict[str, Any], understood: frozenset[str]) -> None:
    if len(told) > 1:
        kept.update(
            (name, value) for name, value in told.items() if value is not None and name not in understood
        )
