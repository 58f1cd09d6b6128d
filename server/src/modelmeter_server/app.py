"""The composition root: from settings to a running server and back. Everything else is handed what it needs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from .config.changes import compare
from .config.secret import Secret
from .config.settings import NO_LEDGER
from .config.telemetry import redaction_of
from .drivers.http import EgressGate
from .drivers.known_secrets import SECRET_CHANGES, KnownSecrets
from .drivers.open_files import allow_open_files
from .drivers.webhook import Webhook
from .engine.admission import Admission
from .engine.declared_ceilings import declare
from .engine.engine import Engine
from .engine.halting import HaltWatch
from .engine.holding import Desk
from .engine.ledger_gauge import LedgerGauge
from .engine.offers import Offer
from .engine.soft_limits import SoftLimits
from .ledger.queries import get_totals, list_all_halts
from .ledger.storage import StorageSettings, StoredLedger, open_ledger
from .parts import (
    breaker_rules,
    fixed_secrets,
    make_authenticator,
    make_catalog,
    make_driver,
    make_exporters,
    make_private_server,
    make_telemetry,
)
from .rpc.server import MOST_RPCS, RpcServer
from .telemetry.calls import call_recorder
from .telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from .config import (
        Changes,
        LedgerSettings,
        ServerSettings,
        Settings,
    )
    from .engine.recorder import Recorder
    from .ledger.replies import SoftLimit
    from .telemetry.exports import Exporters

_log = get_logger(__name__)

SPARE_FILES = 1_000
"""Open files beside those of calls and sessions: the ledger, listeners, callers that only look, idle connections."""

FORMER_SECRETS = 256
"""Keys of drivers that are gone which are still taken out of whatever is told, the newest first."""


class App:
    """A deployment: providers, engine, server."""

    def __init__(self, settings: Settings, recorder: Recorder | None = None) -> None:
        """Build it all inside a running loop; nothing listens or connects yet."""
        self.settings = settings
        """What holds now."""
        share = settings.share
        self.egress = EgressGate(settings.egress)
        self._former_secrets: tuple[Secret, ...] = ()
        self._known_secrets = KnownSecrets()
        drivers = {each.name: make_driver(each, self.egress) for each in settings.providers}
        self.telemetry = make_telemetry(settings, self._living_secrets)
        self.engine = Engine(
            make_catalog(settings, drivers),
            drivers,
            recorder or call_recorder(),
            admission=Admission(settings.admission(), share=share.count, worker=share.index),
            telemetry=self.telemetry,
            stream_buffer_bytes=settings.server.stream_buffer_bytes,
            slow_reader_seconds=settings.server.slow_reader_seconds,
        )
        self.engine.targets.reconfigure(breaker_rules(settings, self.engine.catalog))
        self.telemetry.ask_in_flight(lambda: self.engine.calls_in_flight)
        self.telemetry.ask_waiting(lambda: self.engine.admission.waiting)
        self.telemetry.ask_sessions(lambda: len(self.engine.sessions))
        identity = settings.identity
        self._authenticator = make_authenticator(identity, self.egress) if identity is not None else None
        self.server = RpcServer(
            self.engine,
            authenticator=self._authenticator,
            open_health=identity is not None and identity.open_health,
            open_reflection=identity is not None and identity.open_reflection,
            reflection=settings.server.reflection,
            reuse_port=share.count > 1,
            max_connection_age=settings.server.max_connection_age_seconds,
            most_rpcs=_most_rpcs(settings.server),
            has_admin=settings.server.admin_service != "private",
        )
        self.private = make_private_server(settings, self.server)
        """The listener for operators, if there is one."""
        self._bound_sessions(settings)
        self._ledger: StoredLedger | None = None
        self._soft_limits: SoftLimits | None = None
        self._halts: HaltWatch | None = None
        self._gauge: LedgerGauge | None = None
        self.private_address = ""
        """Where the private listener is, as bound."""
        self.exporters: Exporters | None = None
        """What exports metrics and traces; `None` before the start."""

    async def start(self) -> list[str]:
        """Open the ledger, listen and serve; return the addresses as bound.

        Raises ListenError, LedgerUnavailable and SchemaMismatch, and nothing is left open then.
        """
        server = self.settings.server
        _make_room(self.settings)
        try:
            self.exporters = make_exporters(self.settings, self.telemetry, self._living_secrets)
            await self._open_ledger(self.settings.ledger)
            if self.private is not None:
                self.private_address = await self.private.start(
                    server.tls, allow_insecure=server.private_allow_insecure
                )
            return await self.server.start(server.listen, server.tls, allow_insecure=server.allow_insecure)
        except BaseException:
            await self._close()
            raise

    async def stop(self, drain_seconds: float) -> int:
        """Shut down as `RpcServer.stop` says, then close the providers' connections and last the ledger.

        Return how many calls were cut.
        """
        cut = await self.server.stop(drain_seconds)
        await self._close()
        return cut

    def reconfigure(self, settings: Settings) -> Changes:
        """Serve by other settings from the next call on, all of them or none; return what has changed.

        What is under way goes on as it began. What needs a restart stays as it is (`config.changes.RESTART`).
        Raises whatever building the new parts raises, and nothing has changed then.
        """
        changes = compare(self.settings, settings)
        settings = changes.settings
        # First everything is built that can fail: drivers, models, who is let in. None of it is seen by anybody yet.
        offer = self._new_offer(changes)
        authenticator = self._authenticator
        if changes.touch("identity") or changes.touch("tenants"):
            authenticator = (
                None if settings.identity is None else make_authenticator(settings.identity, self.egress)
            )
        redaction = redaction_of(
            settings.telemetry.redaction,
            fixed_secrets(settings) + fixed_secrets(self.settings),
            self._living_secrets,
            SECRET_CHANGES.count,
        )
        # Then it takes the place of the old, between two steps of the loop. Nothing here may fail or wait.
        # Whatever else depends on settings is told of the new ones here, by a `reconfigure` of its own.
        if authenticator is not None and self._authenticator is not None:
            # The same one with other knowledge, so that who was let in and would be no more is cut.
            self._authenticator.reconfigure(authenticator)
        else:
            self._authenticator = authenticator
        self.settings = settings
        self._remember_secrets()
        self.egress.reconfigure(settings.egress)
        self.engine.offers.replace(offer)
        self.engine.targets.reconfigure(breaker_rules(settings, offer.catalog))
        self.engine.reconfigure(
            settings.admission(),
            stream_buffer_bytes=settings.server.stream_buffer_bytes,
            slow_reader_seconds=settings.server.slow_reader_seconds,
        )
        self._bound_sessions(settings)
        if changes.touch("server"):
            _make_room(settings)
        self._reconfigure_listeners(settings)
        self.telemetry.reconfigure(redaction)
        return changes

    def _new_offer(self, changes: Changes) -> Offer:
        """Return the models and drivers of new settings; an instance that is as it was keeps its connections."""
        before, settings = self.engine.offers.current, changes.settings
        drivers = {
            each.name: before.drivers[each.name]
            if each.name in before.drivers and not changes.touch("providers", each.name)
            else make_driver(each, self.egress)
            for each in settings.providers
        }
        return Offer(make_catalog(settings, drivers), drivers)

    def _reconfigure_listeners(self, settings: Settings) -> None:
        identity, tls = settings.identity, settings.server.tls
        self.server.reconfigure(
            self._authenticator,
            tls,
            open_health=identity is not None and identity.open_health,
            open_reflection=identity is not None and identity.open_reflection,
        )
        if self.private is not None:
            self.private.reconfigure(tls)

    def _bound_sessions(self, settings: Settings) -> None:
        self.engine.sessions.bound(
            limit=settings.share.of(settings.server.max_sessions),
            idle_seconds=settings.server.session_idle_seconds,
            age_seconds=settings.server.session_age_seconds,
        )

    async def _open_ledger(self, settings: LedgerSettings) -> None:
        if settings.url == NO_LEDGER:
            return
        storage = StorageSettings(
            url=settings.url,
            durability=settings.durability,
            lease_seconds=settings.lease,
            expire_after=settings.expire_after,
        )
        self._soft_limits = SoftLimits(
            Webhook(settings.webhook_url, gate=self.egress) if settings.webhook_url else None
        )
        self._soft_limits.start()
        self._ledger = await open_ledger(storage, on_soft_limit=self._soft_limit_passed)
        await self.declare_ceilings()
        desk = Desk(
            self._ledger,
            content_seconds=int(settings.content_retention),
            replay_only=settings.replay_only,
            max_draining_calls=settings.max_draining_calls,
        )
        self.engine.use_ledger(desk)
        self._halts = HaltWatch(
            self._ledger, list_all_halts, self.engine.halted, lambda: self.engine.calls_in_flight > 0
        )
        self._halts.start()
        self.telemetry.ask_ledger(lambda: desk.ledger.is_up)
        interval = self.settings.telemetry.ledger_interval
        self._gauge = LedgerGauge(self._ledger, get_totals, self.telemetry.instruments, interval)
        self._gauge.start()

    async def declare_ceilings(self) -> None:
        """Set the ceilings that the settings declare in the ledger, where there is one. Raises LedgerUnavailable."""
        identity = self.settings.identity
        if self._ledger is not None:
            await declare(self._ledger, () if identity is None else identity.ceilings)

    def _living_secrets(self) -> Sequence[str]:
        """Return the providers' keys and tokens of now and of before."""
        return self._known_secrets.of(self.engine.offers.drivers, self._former_secrets)

    def _remember_secrets(self) -> None:
        """Keep the keys of drivers that are about to go: what was sent with them may come back in an error."""
        known = list(dict.fromkeys(self._living_secrets()))
        self._former_secrets = tuple(map(Secret, known[:FORMER_SECRETS]))

    def _soft_limit_passed(self, limit: SoftLimit) -> None:
        self.telemetry.soft_limit_passed(limit.ceiling_id, limit.percent, limit.standing)
        if self._soft_limits is not None:
            self._soft_limits.passed(limit)

    async def _close(self) -> None:
        if self.private is not None:
            await self.private.stop()
        self._remember_secrets()
        await self.engine.offers.aclose()
        if self._halts is not None:
            await self._halts.stop()
        if self._gauge is not None:
            await self._gauge.stop()
        if self._ledger is not None:
            await self._ledger.aclose()
        if self._soft_limits is not None:
            await self._soft_limits.stop()
        if self.exporters is not None:
            await asyncio.to_thread(self.exporters.close)


def _most_rpcs(server: ServerSettings) -> int:
    """Return a bound for the whole server also for each worker: a reload may ask for more."""
    return MOST_RPCS + 2 * server.max_concurrent_calls + server.max_queued_calls + server.max_sessions


def _make_room(settings: Settings) -> None:
    """Let this process open the connections of as many calls and sessions as it may have."""
    calls = settings.share.of(settings.server.max_concurrent_calls)
    wanted = 2 * calls + settings.share.of(settings.server.max_sessions) + SPARE_FILES
    allowed = allow_open_files(wanted)
    if allowed < calls + SPARE_FILES:
        _log.warning(
            "fewer files may be opened than calls can need: raise RLIMIT_NOFILE",
            allowed=allowed,
            wanted=wanted,
        )


@asynccontextmanager
async def running(settings: Settings, recorder: Recorder | None = None) -> AsyncIterator[list[str]]:
    """Serve inside this block, for demos and tests: yields the addresses, and cuts what still runs at the end.

    Raises ListenError.
    """
    app = App(settings, recorder)
    addresses = await app.start()
    try:
        yield addresses
    finally:
        await app.stop(0)
