"""What was said in a session, so that a turn can be sent with all that came before it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from .requests import Message, Part, Role, TextPart, ToolCallPart

if TYPE_CHECKING:
    from .answers import Answer
    from .requests import CompletionRequest

MAX_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of a transcript, as JSON: a context window of a million tokens of text is half of it."""

_size = msgspec.json.Encoder().encode


class Transcript:
    """The turns of a session so far, oldest first, as long as all of them are known and fit."""

    def __init__(self, limit: int = MAX_BYTES) -> None:
        """Begin with none."""
        self.is_whole = True
        """All that was said is here. Once it is not, nothing is, until `clear`."""
        self.bytes = 0
        self.limit = limit
        """Most bytes."""
        self._messages: tuple[Message, ...] = ()

    def __len__(self) -> int:
        return len(self._messages)

    def before(self, request: CompletionRequest) -> CompletionRequest:
        """Return the request with all that was said before it as its messages; itself if nothing was."""
        if not self._messages:
            return request
        return msgspec.structs.replace(
            request, text=None, messages=(*self._messages, *(_messages_of(request) or ()))
        )

    def add(self, request: CompletionRequest, answer: Answer) -> None:
        """Keep a turn and its answer. One that cannot be kept, or has no room, costs the whole transcript."""
        asked = _messages_of(request)
        if not self.is_whole:
            return
        if asked is None:
            self.lose()
            return
        said = (*asked, *_message_of(answer))
        self.bytes += len(_size(said))
        if self.bytes > self.limit:
            self.lose()
        else:
            self._messages += said

    def clear(self) -> None:
        """Begin anew."""
        self.is_whole, self.bytes, self._messages = True, 0, ()

    def lose(self) -> None:
        """Something is said that is not known here."""
        self.is_whole, self.bytes, self._messages = False, 0, ()


def _messages_of(request: CompletionRequest) -> tuple[Message, ...] | None:
    """Return a turn's prompt as messages; `None` for one in the provider's own format."""
    if request.messages is not None:
        return request.messages
    return (Message(Role.USER, (TextPart(request.text),)),) if request.text else None


def _message_of(answer: Answer) -> tuple[Message, ...]:
    if answer.continuation is not None:
        return (Message(Role.ASSISTANT, (answer.continuation,)),)
    parts: list[Part] = [TextPart(answer.text)] if answer.text else []
    parts += [
        ToolCallPart(id=each.id, name=each.name, arguments_json=each.arguments_json, free_text=each.free_text)
        for each in answer.tool_calls
    ]
    return (Message(Role.ASSISTANT, tuple(parts)),) if parts else ()
