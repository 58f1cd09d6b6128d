"""A session's way to its provider: one socket after another, and a driver for each turn.

A socket is replaced between turns only: when the provider or the network has ended it, and when it is so old that the
provider would end it within a turn. What the provider remembers of the session is bound to the socket.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from modelmeter_server.core.errors import FieldViolation
from modelmeter_server.core.provider_errors import failure_from_http
from modelmeter_server.drivers.count_body import members_of
from modelmeter_server.drivers.driver import PreparedRequest, RequestRefused

from .encode import TARGET
from .websocket import HandshakeRefused, Socket
from .websocket_call import WebSocketCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelmeter_server.core.answers import Expectation
    from modelmeter_server.core.models import Capabilities, ModelSpec
    from modelmeter_server.core.requests import CompletionRequest
    from modelmeter_server.drivers.driver import Driver, Observer, ProviderCall, TurnListener, TurnTerms
    from modelmeter_server.drivers.instance import Instance
    from modelmeter_server.drivers.keys import KeyLease

_HTTP_ONLY: Final = frozenset(("stream", "background"))
_OWNED: Final = ("type", "generate", "previous_response_id", "stream_id")


class WebSocketLink:
    """The sockets of one session, numbered from 1; at most one is open."""

    def __init__(self, instance: Instance) -> None:
        """Open nothing yet."""
        self._instance = instance
        self._socket: Socket | None = None
        self._number = 0
        self._is_closed = False

    @property
    def connection(self) -> int:
        """Return the number of the socket that was opened last; 0 before the first."""
        return self._number

    def is_ready(self) -> bool:
        """Say whether the next turn goes over the socket that is open, which remembers what went over it."""
        socket = self._socket
        if socket is None or (socket.age < self._instance.age and socket.is_alive()):
            return socket is not None
        socket.close()
        self._socket = None
        return False

    def turn(self, terms: TurnTerms, listener: TurnListener) -> Driver:
        """Return the driver of one turn."""
        return TurnDriver(self._instance, self, terms, listener)

    async def take(self) -> Socket:
        """See `SocketSource`."""
        if self._socket is not None and self.is_ready():
            return self._socket
        instance = self._instance
        lease = instance.lease()
        if lease is not None and not lease.is_ready:
            await lease.prepare()
        self._number += 1
        socket = Socket(
            self._number,
            instance.endpoint,
            instance.context,
            instance.target(TARGET),
            () if lease is None else lease.header(),
            timeouts=instance.timeouts,
            limits=instance.limits,
        )
        await _open(socket, lease, instance.scrub)
        if self._is_closed:
            socket.abort()
        self._socket = socket
        return socket

    def drop(self, socket: Socket) -> None:
        """See `SocketSource`."""
        socket.abort()
        if self._socket is socket:
            self._socket = None

    def close(self) -> None:
        """End the session's way; a turn under way has to be cut before."""
        self._is_closed = True
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()


async def _open(socket: Socket, lease: KeyLease | None, scrub: Callable[[str], str]) -> None:
    """Open a socket, and tell the key that it went with how that ended."""
    if lease is None:
        await socket.open()
        return
    lease.begin()
    refusal = None
    try:
        await socket.open()
    except HandshakeRefused as error:
        refusal = failure_from_http(error.status, error.headers.get, error.body, scrub=scrub)
        raise
    finally:
        lease.end(refusal)


class TurnDriver:
    """The provider instance as one turn of a session sees it."""

    def __init__(
        self, instance: Instance, link: WebSocketLink, terms: TurnTerms, listener: TurnListener
    ) -> None:
        self.name = instance.base.name
        self.kind = instance.base.kind
        self.capabilities: Capabilities = instance.base.capabilities
        self._instance = instance
        self._link = link
        self._terms = terms
        self._listener = listener

    def prepare(self, request: CompletionRequest, model: ModelSpec) -> PreparedRequest:
        """Turn a checked request into a `response.create`. Raises RequestRefused."""
        prepared = self._instance.base.prepare(self._terms.expand(request), model)
        members = members_of(prepared.body)
        refused = [name for name in _OWNED if name in members]
        if refused:
            fix = "the session says this itself"
            raise RequestRefused(*(FieldViolation(f"provider_options_json.{name}", fix) for name in refused))
        frame: dict[str, object] = {"type": "response.create"}
        frame.update((name, value) for name, value in members.items() if name not in _HTTP_ONLY)
        if self._terms.previous_response_id:
            frame["previous_response_id"] = self._terms.previous_response_id
        if not self._terms.generate:
            frame["generate"] = False
        return msgspec.structs.replace(prepared, body=msgspec.json.encode(frame))

    def start(
        self,
        prepared: PreparedRequest,
        model: ModelSpec,
        expectation: Expectation,
        observer: Observer,
        *,
        deltas: bool,
    ) -> ProviderCall:
        """Make the turn without sending anything yet."""
        instance = self._instance
        if not self._terms.generate:
            expectation = msgspec.structs.replace(expectation, may_be_empty=True)
        accumulator = partial(instance.accumulator, expectation, deltas=deltas)
        return WebSocketCall(
            self.name,
            self._link,
            prepared.body,
            accumulator(event_limit=instance.limits.event_bytes, scrub=instance.scrub),
            observer,
            self._listener,
            previous_response_id=self._terms.previous_response_id,
            scrub=instance.scrub,
            timeouts=instance.timeouts,
            limits=instance.limits,
        )

    async def aclose(self) -> None:
        """Close nothing: the socket belongs to the link."""
