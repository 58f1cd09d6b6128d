"""What the engine needs of a provider: prepare a request, run it, cut it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from modelmeter_server.core.accumulators import Accumulator
from modelmeter_server.core.answers import Answer
from modelmeter_server.core.requests import CompletionRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from modelmeter_server.core.answers import Expectation
    from modelmeter_server.core.calls import Attempt
    from modelmeter_server.core.embeddings import EmbeddingRequest
    from modelmeter_server.core.errors import Failure, FieldViolation
    from modelmeter_server.core.models import Capabilities, ModelSpec
    from modelmeter_server.core.outcomes import Cause


LEDGER_DOWN = "the ledger could not note the request, so nothing was sent; this server's log tells why"


class RequestRefused(Exception):
    """The provider cannot do what the request asks; nothing was sent."""

    def __init__(self, *violations: FieldViolation) -> None:
        super().__init__("; ".join(f"{each.field}: {each.description}" for each in violations))
        self.violations = violations


class BodyRefused(RequestRefused):
    """The finished body must not leave; its violations have paths of the body, not of the request."""


class PreparedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A provider request that is ready to be sent; holds no credentials."""

    target: str
    """Path and query below the provider's base URL."""
    body: bytes
    """The JSON document."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of this wire format, without authentication."""
    accumulator: Callable[..., Accumulator] | None = None
    """Who reads the answer, if it is no completion; takes what `Accumulator` takes."""
    answer: Answer | None = None
    """The answer, where it is known without asking; then nothing is sent."""


class Observer(Protocol):
    """Hears what happens to a provider request while it runs. Called on the event loop; must not block."""

    def dispatching(self, number: int, target: str) -> Awaitable[bool] | None:
        """Attempt `number` is about to be sent to this instance, and not a byte of it has left.

        It may leave once what is returned says True; False ends the call unsent. `None`: nobody has to be asked.
        """

    def written(self) -> None:
        """The whole request was handed to the network: the provider may bill from here on."""

    def progressed(self) -> None:
        """The accumulator holds news: deltas to drain or another usage. At most once a socket read."""


class ProviderCall(Protocol):
    """One provider request under way."""

    accumulator: Accumulator
    received: int
    """Bytes of the answer's body so far."""

    async def run(self) -> Answer | Failure:
        """Send the request and read the answer; call it once.

        Never raises for anything that the provider or the network does. If the task is cancelled the connection
        is closed at once; use `cut` where the outcome matters.
        """

    def cut(self, cause: Cause, detail: str = "") -> None:
        """End the call now: the connection is closed in this loop iteration and `run` returns what is known.

        Harmless when the call has ended.
        """

    @property
    def fault(self) -> BaseException | None:
        """Return what our own code raised while the call ran, for the log; `None` as long as it did not."""

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Return what was sent so far: two when a stale connection made one re-send necessary."""


@runtime_checkable
class PausableCall(Protocol):
    """A provider call whose provider can be made to wait, so that its answer need not be kept for a slow reader."""

    def pause_reading(self) -> None:
        """Read no more of the answer until `resume_reading`; no timer but the total runs meanwhile.

        What the network has handed over already still comes. Harmless when the call has ended, as is the other.
        """

    def resume_reading(self) -> None:
        """Read on."""


class Driver(Protocol):
    """A provider instance: one endpoint, one set of credentials, one wire format."""

    name: str
    """The instance's name, as configured; the `target` of outcomes."""
    kind: str
    capabilities: Capabilities

    def prepare(self, request: CompletionRequest, model: ModelSpec) -> PreparedRequest:
        """Turn a checked request into the provider's body. Pure; raises RequestRefused."""

    def start(
        self,
        prepared: PreparedRequest,
        model: ModelSpec,
        expectation: Expectation,
        observer: Observer,
        *,
        deltas: bool,
    ) -> ProviderCall:
        """Make the call without sending anything yet. `deltas` makes its accumulator keep deltas for a stream."""

    async def aclose(self) -> None:
        """Close all connections."""


class TurnTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How one turn of a session stands to the turns before it."""

    expand: Callable[[CompletionRequest], CompletionRequest]
    """Put the turn's request into its place: itself, or behind all that was said before. Pure, for any thread."""
    previous_response_id: str | None = None
    """The response that the provider goes on from."""
    generate: bool = True
    """Without it the provider reads the prompt and writes nothing."""


class TurnListener(Protocol):
    """Hears what happens on a session's socket while a turn is under way. Called on the event loop; must not block."""

    def sending(self, connection: int) -> None:
        """The turn is about to be sent over this socket of the session."""

    def send_failed(self) -> None:
        """There was no socket to send it over."""

    def frame(self, data: bytes) -> None:
        """A frame came."""

    def transport_failed(self) -> None:
        """The socket ended within the turn."""


class SessionLink(Protocol):
    """A session's way to its provider: sockets, at most one at a time, which remember what went over them."""

    @property
    def connection(self) -> int:
        """Return the number of the socket that was opened last, from 1; 0 before the first."""

    def is_ready(self) -> bool:
        """Say whether the next turn goes over the socket that is open; one that is too old or dead is closed now."""

    def turn(self, terms: TurnTerms, listener: TurnListener) -> Driver:
        """Return the driver of one turn; one turn at a time."""

    def close(self) -> None:
        """Close the socket, between turns."""


@runtime_checkable
class SessionDriver(Protocol):
    """A driver that can keep a session's turns on one socket."""

    def open_link(self) -> SessionLink | None:
        """Return a session's way to the provider; `None` where the deployment has no such way."""


@runtime_checkable
class CountingDriver(Protocol):
    """A driver that can tell the input tokens of a request without making it."""

    def prepare_count(self, request: CompletionRequest, model: ModelSpec) -> PreparedRequest:
        """Turn a checked request into one that counts it. Pure; raises RequestRefused as `prepare` does."""


@runtime_checkable
class EmbeddingDriver(Protocol):
    """A driver that can turn texts into vectors."""

    def prepare_embedding(self, request: EmbeddingRequest, model: ModelSpec) -> PreparedRequest:
        """Turn a checked batch into the provider's. Pure; raises RequestRefused."""
