"""From reads to the sink: the head once, body bytes decoded and counted, and a verdict when the answer is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from .answer import AnswerReader
from .decoding import Decoder, DecodingError, decoder_for
from .faults import Fault

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from .limits import Limits
    from .message import ResponseHead


class Permit(Protocol):
    """Who must allow a request to leave."""

    def __call__(self, attempt: int) -> Awaitable[bool] | None:
        """Return what says whether this attempt may leave; `None`: it may, now."""


class Sink(Protocol):
    """Where an answer goes.

    Called from the loop's read and write path: must not block. An exception ends the exchange with fault BUG.
    Nothing is called any more once the exchange has ended.
    """

    def written(self) -> None:
        """Learn that the network has the whole request. At most once; after `head` when the answer came early."""

    def head(self, head: ResponseHead) -> None:
        """Take the final answer's status and headers: once, before any data."""

    def data(self, chunk: bytes) -> bool:
        """Take decoded body bytes: those of one socket read joined, in steps of 1 MiB when they were compressed.

        Return true for enough: the exchange ends with fault NONE.
        """


class Verdict(NamedTuple):
    """The answer is over."""

    fault: Fault
    detail: str = ""
    reusable: bool = False
    """The connection may carry another exchange, as far as the answer goes."""


class Delivery:
    """Deliver one answer."""

    def __init__(self, sink: Sink, limits: Limits, *, to_head: bool) -> None:
        """Start with nothing read. `to_head`: the request was HEAD."""
        self._sink = sink
        self._limits = limits
        self._limit = limits.answer_bytes
        self._reader = AnswerReader(limits, to_head=to_head)
        self._decoder: Decoder | None = None
        self._received = 0
        self._delivered = 0
        self._closed = False
        self.head: ResponseHead | None = None
        """The head, from the moment the sink is told."""

    @property
    def begun(self) -> bool:
        """At least one byte of whatever answer arrived."""
        return self._reader.begun

    @property
    def body_seen(self) -> bool:
        """At least one body byte arrived."""
        return self._reader.body_seen

    def close(self) -> None:
        """Tell the sink nothing from now on."""
        self._closed = True
        self._reader.close()

    def feed(self, data: bytes) -> Verdict | None:
        """Take one read; return the verdict when it ends the answer.

        Raises:
            Exception: whatever the sink raised.
        """
        reader = self._reader
        reader.feed(data)
        if self.head is None and reader.head is not None:
            verdict = self._tell_head(reader.head)
            if verdict is not None:
                return verdict
        if self.head is None and reader.failure is not None:
            return Verdict(*reader.failure)  # nobody knows whose body this is
        body = reader.take()
        if body and not self._closed:
            verdict = self._give(body) if self._decoder is None else self._decode(self._decoder, body)
            if verdict is not None:
                return verdict
        if reader.failure is not None:
            return Verdict(*reader.failure)
        return self._whole() if reader.complete else None

    def end_of_stream(self) -> Verdict | None:
        """Learn that the peer closed in good order; return the verdict if that is how this answer ends."""
        self._reader.end_of_stream()
        return self._whole() if self._reader.complete else None

    def _tell_head(self, head: ResponseHead) -> Verdict | None:
        self.head = head
        self._decoder = decoder_for(head.headers.get_all("content-encoding"))
        if not head.is_success:
            self._limit = self._limits.error_body_bytes
        self._sink.head(head)
        announced = self._reader.content_length
        # An error's body is read as far as its limit goes: it says why. An answer that cannot be had whole is
        # not begun.
        if (
            head.is_success
            and not self._reader.complete
            and announced is not None
            and announced > self._limit
        ):
            return self._over()
        return None

    def _decode(self, decoder: Decoder, body: bytes) -> Verdict | None:
        self._received += len(body)
        try:
            for piece in decoder.feed(body):
                verdict = self._give(piece)
                if verdict is not None or self._closed:
                    return verdict
        except DecodingError as exc:
            return Verdict(Fault.ENCODING, str(exc))
        return self._over() if self._received > self._limit else None

    def _give(self, piece: bytes) -> Verdict | None:
        room = self._limit - self._delivered
        self._delivered += len(piece)
        if len(piece) > room:
            piece = piece[:room]
        if piece and self._sink.data(piece):
            return Verdict(Fault.NONE, reusable=self._reusable)
        return self._over() if self._delivered > self._limit else None

    def _whole(self) -> Verdict:
        if self._decoder is not None and self.body_seen and not self._decoder.is_whole:
            return Verdict(Fault.TRUNCATED, "the compressed body stops before its own end")
        return Verdict(Fault.NONE, reusable=self._reusable)

    def _over(self) -> Verdict:
        return Verdict(Fault.ANSWER_LIMIT, f"answer over {self._limit} bytes")

    @property
    def _reusable(self) -> bool:
        return self._reader.complete and self._reader.keep_alive and not self._reader.excess
