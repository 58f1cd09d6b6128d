"""Messages as `contents`: turns of parts, and results that carry the name of the tool that was called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from modelmeter_server.core.continuations import function_calls
from modelmeter_server.core.message_checks import part_field
from modelmeter_server.core.requests import (
    Continuation,
    MediaPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from modelmeter_server.drivers.json_body import (
    base64_text,
    embedded_arguments,
    refused,
    sole_continuation,
    split_data_url,
    state_turns,
)

if TYPE_CHECKING:
    import msgspec

    from modelmeter_server.core.requests import Message, Part

_ROLES: Final = {Role.USER: "user", Role.ASSISTANT: "model"}


class State(NamedTuple):
    """The turns of a continuation, as values and as the text to be embedded."""

    values: list[Any]
    turns: list[msgspec.Raw]


class Contents:
    """Turn messages into contents, in their order: results look back at the calls that they answer."""

    def __init__(self) -> None:
        """Start before the first message."""
        self._called: dict[str, tuple[str, bool]] = {}
        """By the id of a call: its name, and whether the provider itself knows the id."""

    def remember(self, turns: list[Any]) -> None:
        """Take note of the calls in the provider's own turns."""
        for call in function_calls(turns):
            self._called[call.id] = call.name, call.is_told

    def state(self, continuation: Continuation, field: str) -> State:
        """Return the turns of a continuation. Raises RequestRefused."""
        values, texts = state_turns(continuation, field)
        if not all(isinstance(value, dict) and isinstance(value.get("parts"), list) for value in values):
            msg = f"{field}.state_json"
            raise refused(msg, "must be the array of turns that the answer carried, untouched")
        return State(values, texts)

    def turns(self, message: Message, index: int) -> list[Any]:
        """Return a message as turns: one, or those of the continuation that stands in its place."""
        where = f"messages.messages[{index}].parts"
        if any(isinstance(part, Continuation) for part in message.parts):
            return self._continued(message, where)
        parts = [
            self._part(part, f"{where}[{number}].{part_field(part)}")
            for number, part in enumerate(message.parts)
        ]
        return [{"role": _ROLES[message.role], "parts": parts}]

    def _continued(self, message: Message, where: str) -> list[Any]:
        state = self.state(sole_continuation(message.parts, where), f"{where}[0].continuation")
        self.remember(state.values)
        return list(state.turns)

    def _part(self, part: Part, path: str) -> dict[str, Any]:
        match part:
            case TextPart():
                return {"text": part.text}
            case MediaPart():
                return _media(part, path)
            case ToolCallPart():
                return self._call(part, path)
            case ToolResultPart():
                return {"functionResponse": self._result(part, path)}
            case Continuation():
                raise refused(path, "a continuation stands for its whole turn: leave it alone in its message")

    def _call(self, part: ToolCallPart, path: str) -> dict[str, Any]:
        if part.free_text:
            msg = f"{path}.free_text"
            raise refused(msg, "this provider's tools take JSON, never free text")
        self._called[part.id] = part.name, True
        arguments = embedded_arguments(part.arguments_json or "{}", f"{path}.arguments_json")
        return {"functionCall": {"id": part.id, "name": part.name, "args": arguments}}

    def _result(self, part: ToolResultPart, path: str) -> dict[str, Any]:
        name, is_told = self._called.get(part.call_id, ("", False))
        if not name:
            msg = f"{path}.call_id"
            raise refused(msg, "answers no call before it, and this provider wants the name that was called")
        # An id that we made means nothing to the provider: it pairs such results with calls by name and order.
        known = {"id": part.call_id} if is_told else {}
        return {**known, "name": name, "response": {"error" if part.failed else "output": part.output}}


def _media(part: MediaPart, path: str) -> dict[str, Any]:
    if part.url is None:
        return {"inlineData": {"mimeType": part.media_type, "data": base64_text(part.data)}}
    if part.url[:5].lower() != "data:":
        return {"fileData": {"mimeType": part.media_type, "fileUri": part.url}}
    inline = split_data_url(part.url)
    if inline is None:
        msg = f"{path}.url"
        raise refused(msg, "must be a base64 `data:` URL; better send the bytes in `data`")
    media_type, data = inline
    return {"inlineData": {"mimeType": media_type, "data": data}}
