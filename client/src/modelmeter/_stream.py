"""What the sync and the async stream have in common: which messages mean what, and how it may end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._results import event_from, has_outcome
from .events import Started, StreamEvent, UsageSnapshot
from .results import Completion

if TYPE_CHECKING:
    from ._lost import CallRecord
    from .v1.model_service_pb2 import StreamCompleteResponse


class StreamProgress:
    """How far a streamed call has come."""

    def __init__(self, record: CallRecord) -> None:
        self._record = record
        self._completion: Completion | None = None
        self._sequence = 0

    @property
    def call_id(self) -> str:
        """The call's id."""
        return self._record.call_id

    @property
    def sequence(self) -> int:
        """The position of the last delta that arrived: the `from_sequence` with which to go on."""
        return self._sequence

    @property
    def usage(self) -> UsageSnapshot | None:
        """What the provider has told about usage so far; None when nothing yet."""
        return self._record.snapshot

    @property
    def completion(self) -> Completion:
        """The whole answer with its bill, once the stream has been read to its end.

        Raises RuntimeError before that.
        """
        if self._completion is None:
            message = "the stream has not been read to its end, so there is no completion"
            raise RuntimeError(message)
        return self._completion

    def _event(self, message: StreamCompleteResponse) -> StreamEvent | None:
        """Return the event to hand out; None to read on: a failure comes again as the status."""
        if message.HasField("failed"):
            self._record.failed = message.failed
            return None
        self._sequence = max(self._sequence, message.sequence)
        event = event_from(message)
        match event:
            case None:
                pass
            case Started():
                self._record.started = True
            case UsageSnapshot():
                self._record.snapshot = event
            case Completion():
                if not has_outcome(message.completion):
                    return None
                self._completion = event
            case _:
                self._record.generated = True
        return event
