"""Frames of a Responses WebSocket: what each one is, and whether it belongs to the turn under way (R-W3). Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from .lenient import EventDecoder

CONNECTION_LIMIT: Final = "websocket_connection_limit_reached"
"""The socket is too old for another turn; a new one takes the turn with its full input (R-W1)."""

PREVIOUS_NOT_FOUND: Final = "previous_response_not_found"
"""The response to go on from is not known on this connection; the full input is needed (R-W1)."""

TOO_BIG: Final = "message_too_big"
"""The turn's frame is larger than the provider reads (close code 1009, R-W2)."""

TERMINAL: Final = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.done": "completed",
}
"""Events that end a response, and the status that each stands for. The last is another API's; some gateways send it
after `completed`."""

_REMEMBERED: Final = 64
"""Ended responses that are still recognised: one late event or two follow an end, if any."""


class FrameResponse(msgspec.Struct):
    """What a frame says of its response."""

    id: str = ""
    status: str = ""


class Frame(msgspec.Struct):
    """What every frame is asked."""

    type: str = ""
    sequence_number: int | None = None
    """Absent in an error of the protocol; with one the error belongs to a response, whose end may follow."""
    response: FrameResponse = msgspec.field(default_factory=FrameResponse)


read_frame = EventDecoder(Frame)
"""Decode what a frame is. Raises NotJson only if nothing can be read at all."""


def generates(name: str) -> bool:
    """Say whether an event of this name proves that the model generated (R-O1)."""
    return name.endswith(".delta") or name.startswith("response.output_item.")


class CurrentResponse:
    """Which response the turn under way is answered by; its first event with an id says so."""

    def __init__(self) -> None:
        self.id = ""
        """Empty as long as nobody said."""
        self._previous: str | None = None
        self._ended: deque[str] = deque(maxlen=_REMEMBERED)

    def begin(self, previous_response_id: str | None) -> None:
        """Begin a turn that goes on from this response."""
        self._remember()
        self._previous = previous_response_id

    def admits(self, frame: Frame) -> bool:
        """Say whether a frame belongs to the turn: one that names another response does not."""
        named = frame.response.id
        if not named:
            return True
        if not self.id and named != self._previous and named not in self._ended:
            self.id = named
        return named == self.id

    def _remember(self) -> None:
        if self.id:
            self._ended.append(self.id)
        self.id = ""
