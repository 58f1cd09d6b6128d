"""The gRPC server: options, services, listening, and a shutdown that leaves no bill unsettled."""

from __future__ import annotations

import asyncio
import math
import os
from typing import TYPE_CHECKING, Any, Final

import grpc

from modelmeter_server.telemetry.log import get_logger

from .admin_service import AdminService
from .boundary import Boundary
from .event_service import EventService
from .gate import Gate, keeper
from .health import HealthService
from .ledger_service import LedgerService
from .listen import ServerTls, TlsFiles, open_addresses
from .model_service import ModelService
from .services import EVENTS, LEDGER, SERVICE, add_admin, add_services
from .watching import Watching

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelmeter_server.engine.engine import Engine
    from modelmeter_server.identity.authenticator import CallerAuthenticator
    from modelmeter_server.ledger.ledger import Ledger

_log = get_logger(__name__)

RECEIVE_BYTES: Final = 64 * 1024 * 1024
"""Twice what a request may take, so that a request that is too large is refused by us, with a type and a reason."""

PING_INTERVAL_MS: Final = 10_000
"""Clients may ping this often, also while a model thinks for minutes. gRPC's own default ends such a connection with
`too_many_pings` (SeldonIO/MLServer#290, sgl-project/sglang#19986)."""

KEEPALIVE_MS: Final = 60_000
"""How often the server looks for clients that are gone without a word; they would hold provider calls open."""

KEEPALIVE_TIMEOUT_MS: Final = 20_000

LEDGER_LOOK_SECONDS: Final = 0.5
"""How often health looks at the ledger; as often as a ledger that is down tries its database."""
HANDSHAKE_TIMEOUT_MS: Final = 10_000
"""What a connection gets to say what it is, TLS included. gRPC's own default lets one say nothing for two minutes."""

_LONGEST_MS: Final = 2**31 - 1
"""What gRPC takes for ever."""

METADATA_BYTES: Final = 16 * 1024
"""Of one RPC, a bearer token among them; a little more is refused at random, and twice as much always."""

MAX_PENDING_RPCS: Final = 10_000
"""RPCs that have arrived and are not taken up yet. From a thousand on gRPC by itself drops some at random, with
CANCELLED, from which nobody can tell whether the call ran. What waits is soon served, or refused with a reason."""
MOST_RPCS: Final = 20_000
"""RPCs that are open at once beyond the calls and sessions there may be. Admission counts a call when its request is
here; without this bound callers could open any number of them and send none, for 18 KB each."""

QUIET_SECONDS: Final = 0.2
MOST_QUIET_SECONDS: Final = 2.0
"""Once all calls are settled, callers are told for this long that the server shuts down: until none has come for a
while. gRPC ends a call that reaches it while it closes with CANCELLED, from which nobody can tell whether it ran."""

FLUSH_SECONDS: Final = 5.0
"""What settled calls get at shutdown to write their last message to a slow reader."""


def server_options(
    *, reuse_port: bool = False, max_connection_age: float = math.inf
) -> list[tuple[str, Any]]:
    """Return the channel options.

    `reuse_port` lets several processes share a port; without it a clash is an error. After `max_connection_age`
    seconds, a tenth more or less, a client is asked by GOAWAY to open another connection.
    """
    return [
        ("grpc.so_reuseport", int(reuse_port)),
        ("grpc.max_receive_message_length", RECEIVE_BYTES),
        ("grpc.max_send_message_length", -1),
        ("grpc.http2.min_ping_interval_without_data_ms", PING_INTERVAL_MS),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", PING_INTERVAL_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
        ("grpc.max_connection_age_ms", int(min(max(max_connection_age * 1000, 1), _LONGEST_MS))),
        # An old connection ends when its last call does: a call that is cut is paid for all the same.
        ("grpc.max_connection_age_grace_ms", _LONGEST_MS),
        ("grpc.max_metadata_size", METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", 2 * METADATA_BYTES),
        ("grpc.server.max_pending_requests", MAX_PENDING_RPCS),
        ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING_RPCS),
    ]


class RpcServer:
    """A server for one engine. `start` it, then `stop` it; it cannot be started again."""

    def __init__(
        self,
        engine: Engine,
        *,
        authenticator: CallerAuthenticator | None = None,
        open_health: bool = False,
        open_reflection: bool = False,
        reflection: bool = True,
        reuse_port: bool = False,
        max_connection_age: float = math.inf,
        most_rpcs: int = MOST_RPCS,
        has_admin: bool = True,
    ) -> None:
        """Register the services; needs a running loop.

        Without an `authenticator` nobody is asked who they are; `open_health` and `open_reflection` exempt these two
        services. `reflection` lets clients read the schema from the server. Connections that are older than
        `max_connection_age` seconds take no new calls. More than `most_rpcs` at once are RESOURCE_EXHAUSTED. Without
        `has_admin` the service of operators is not here, and `admin` can be served elsewhere.
        """
        self._engine = engine
        telemetry = engine.telemetry
        self.health = HealthService(SERVICE, LEDGER, *(() if telemetry is None else (EVENTS,)))
        self._following: asyncio.Task[None] | None = None
        self._tls: ServerTls | None = None
        self.gate = Gate(keeper(authenticator, open_health=open_health, open_reflection=open_reflection))
        self.admin = AdminService(authenticator)
        watching = [] if telemetry is None else [Watching(telemetry)]
        self._server = grpc.aio.server(
            interceptors=[*watching, Boundary(), self.gate],
            options=server_options(reuse_port=reuse_port, max_connection_age=max_connection_age),
            maximum_concurrent_rpcs=most_rpcs,
        )
        add_services(
            self._server,
            ModelService(engine),
            LedgerService(engine),
            self.health,
            None if telemetry is None else EventService(telemetry, f"{os.uname().nodename}:{os.getpid()}"),
            reflection=reflection,
            admin=has_admin,
        )
        if has_admin:
            add_admin(self._server, self.admin)

    async def start(
        self, addresses: Sequence[str], tls: TlsFiles | None = None, *, allow_insecure: bool = False
    ) -> list[str]:
        """Listen on every address and serve; return the addresses as bound. Raises ListenError."""
        self._tls = None if tls is None else ServerTls(tls)
        bound = open_addresses(self._server, addresses, self._tls, allow_insecure=allow_insecure)
        await self._server.start()
        if self._engine.desk is not None:
            self._following = asyncio.create_task(self._follow(self._engine.desk.ledger))
        return bound

    def reconfigure(
        self,
        authenticator: CallerAuthenticator | None,
        tls: TlsFiles | None,
        *,
        open_health: bool = False,
        open_reflection: bool = False,
    ) -> None:
        """Ask the next RPC by other rules, and show the next connection what other files hold.

        RPCs under way go on. Whether TLS is spoken stays as it is.
        """
        self.gate.keeper = keeper(authenticator, open_health=open_health, open_reflection=open_reflection)
        self.admin.reconfigure(authenticator)
        if self._tls is not None and tls is not None:
            self._tls.reconfigure(tls)

    async def _follow(self, ledger: Ledger) -> None:
        """Let health say what the ledger does; of its coming and going nobody tells."""
        was_up = True
        while True:
            is_up = ledger.is_up
            if is_up != was_up:
                _log.warning("the ledger is back" if is_up else "the ledger is down: calls are refused")
            was_up = is_up
            self.health.tell_ledger(is_up=is_up)
            await asyncio.sleep(LEDGER_LOOK_SECONDS)

    def stop_serving(self) -> None:
        """Turn readiness off, for good; calls are still taken."""
        self.health.stop_serving()

    async def stop(self, drain_seconds: float) -> int:
        """Shut down in order; return how many calls were cut.

        Readiness goes off and new calls are refused; calls under way get `drain_seconds`, then they are cut, and
        every outcome is settled before the connections close. gRPC's own stop would not wait for handlers whose
        callers are gone (grpc/grpc#37239). Call it again with 0 to hurry.
        """
        self.stop_serving()
        if self._following is not None:
            self._following.cancel()
        was_busy = self._engine.calls_in_flight > 0
        cut = await self._engine.drain(drain_seconds)
        if was_busy or self._engine.turned_away:
            await self._wait_quiet()
        if self._engine.telemetry is not None:
            self._engine.telemetry.bus.close()
        self.health.close()
        await self._server.stop(FLUSH_SECONDS)
        await self._engine.sessions.settled()
        return cut

    async def _wait_quiet(self) -> None:
        for _ in range(round(MOST_QUIET_SECONDS / QUIET_SECONDS)):
            before = self._engine.turned_away
            await asyncio.sleep(QUIET_SECONDS)
            if self._engine.turned_away == before:
                return
