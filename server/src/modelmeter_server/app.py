"""The composition root: from settings to a running server and back. Everything else is handed what it needs."""

from __future__ import annotations

import asyncio
import importlib.metadata
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from .config.addresses import of_worker
from .config.changes import compare
from .config.secret import Secret
from .config.settings import NO_LEDGER
from .config.telemetry import redaction_of, sampling_of
from .drivers import replay
from .drivers.bedrock.signing import SigV4
from .drivers.google_credentials import GoogleCredentials
from .drivers.http import OPEN_GATE, EgressGate, Endpoint
from .drivers.http_driver import HttpDriver
from .drivers.key_set_source import KeySetAddress, KeySetFile
from .drivers.keys import FixedKey, KeyCommand, KeyFile, KeyRing
from .drivers.webhook import Webhook
from .drivers.wire_formats import wire_format
from .engine.admission import Admission
from .engine.catalog import Catalog
from .engine.declared_ceilings import declare
from .engine.engine import Engine
from .engine.halting import HaltWatch
from .engine.holding import Desk
from .engine.ledger_gauge import LedgerGauge
from .engine.offers import Offer
from .engine.soft_limits import SoftLimits
from .identity.authenticator import CallerAuthenticator
from .identity.jwt_verifier import JwtVerifier
from .identity.key_set import KeySet
from .identity.token_file import TokenFile
from .ledger.queries import get_totals, list_all_halts
from .ledger.storage import StorageSettings, StoredLedger, open_ledger
from .rpc.listen import ListenError
from .rpc.private import PrivateServer
from .rpc.server import RpcServer
from .telemetry.bus import EventBus
from .telemetry.calls import call_recorder
from .telemetry.exports import Exporters, Exports
from .telemetry.log import get_logger
from .telemetry.meters import Meters
from .telemetry.observation import Telemetry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from .config import (
        Changes,
        IdentitySettings,
        JwtSettings,
        LedgerSettings,
        ModelSettings,
        ProviderSettings,
        Settings,
    )
    from .core.models import ModelSpec
    from .drivers.authentication import Authenticator
    from .drivers.driver import Driver
    from .drivers.http_driver import WireFormat
    from .drivers.keys import KeySource
    from .engine.breaker import BreakerRules
    from .engine.recorder import Recorder
    from .ledger.replies import SoftLimit

_log = get_logger(__name__)

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
        identity = settings.identity
        self._authenticator = make_authenticator(identity, self.egress) if identity is not None else None
        self.server = RpcServer(
            self.engine,
            authenticator=self._authenticator,
            open_health=identity is not None and identity.open_health,
            open_reflection=identity is not None and identity.open_reflection,
            reflection=settings.server.reflection,
            reuse_port=share.count > 1,
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
            settings.telemetry.redaction, _secrets(settings) + _secrets(self.settings), self._living_secrets
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

    def _living_secrets(self) -> list[str]:
        """Return the providers' keys and tokens of now and of before."""
        drivers = self.engine.offers.drivers
        now = [each for driver in drivers if isinstance(driver, HttpDriver) for each in driver.secrets]
        return [*now, *(each.reveal() for each in self._former_secrets)]

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


def make_telemetry(settings: Settings, living: Callable[[], Iterable[str]] = tuple) -> Telemetry:
    """Return what observes the calls of a deployment."""
    told = settings.telemetry
    return Telemetry(
        bus=EventBus(recent=told.recent_events, waiting=told.waiting_events, watchers=told.max_watchers),
        meters=Meters(told.max_series),
        redaction=redaction_of(told.redaction, _secrets(settings), living),
        sampling=sampling_of(told.sampling),
        payloads=told.tool_payloads,
        old_names=told.old_names,
        by_tenant=told.tenant_attribute,
        samples=told.remembered_calls,
    )


def make_exporters(
    settings: Settings, telemetry: Telemetry, living: Callable[[], Iterable[str]] = tuple
) -> Exporters:
    """Begin to export. Raises ListenError when Prometheus' address cannot be listened on."""
    told = settings.telemetry
    address = of_worker(told.prometheus.listen, settings.share.index)
    host, _, port = address.rpartition(":")
    exports = Exports(
        otlp_endpoint=told.otlp.endpoint,
        otlp_insecure=told.otlp.insecure,
        otlp_interval=told.otlp.interval,
        traces=told.otlp.traces,
        metrics=told.otlp.metrics,
        service_name=told.otlp.service_name,
        version=importlib.metadata.version("modelmeter-server"),
        prometheus_host=host.strip("[]"),
        prometheus_port=int(port or 0),
    )
    redaction = redaction_of(told.redaction, _secrets(settings), living)
    try:
        return Exporters(telemetry, exports, redaction, old_names=told.old_names)
    except OSError as error:
        message = (
            f"cannot listen on {address} (telemetry.prometheus.listen): {error.strerror or error}; stop the other "
            "process, or choose another address"
        )
        raise ListenError(message) from None


def _secrets(settings: Settings) -> tuple[str, ...]:
    """Return what stays as it is: the proxies' addresses and passwords. Keys may change, and drivers tell them."""
    addresses = [each.proxy.reveal() for each in settings.providers if each.proxy is not None]
    passwords = [unquote(urlsplit(address).password or "") for address in addresses]
    webhook = settings.ledger.webhook_url
    return tuple(filter(None, (*addresses, *passwords, webhook)))


def make_authenticator(identity: IdentitySettings, gate: EgressGate = OPEN_GATE) -> CallerAuthenticator:
    """Return what tells callers apart."""
    return CallerAuthenticator(
        identity.tenants,
        tokens=TokenFile(identity.tokens_file) if identity.tokens_file is not None else None,
        jwt=_jwt_verifier(identity.jwt, gate) if identity.jwt is not None else None,
        certificates=identity.certificates,
    )


def _jwt_verifier(jwt: JwtSettings, gate: EgressGate) -> JwtVerifier:
    if jwt.jwks_url is not None:
        return JwtVerifier(jwt.rules, KeySet(KeySetAddress(jwt.jwks_url, ca_file=jwt.ca_file, gate=gate)))
    assert jwt.jwks_file is not None
    return JwtVerifier(jwt.rules, KeySet(KeySetFile(jwt.jwks_file)))


def make_private_server(settings: Settings, public: RpcServer) -> PrivateServer | None:
    """Return the listener for operators, which tells the health of the public server."""
    server = settings.server
    if not server.private_listen:
        return None
    address = of_worker(server.private_listen, settings.share.index)
    admin = None if server.admin_service == "public" else public.admin
    return PrivateServer(address, public.gate, public.health, admin)


def make_driver(provider: ProviderSettings, gate: EgressGate = OPEN_GATE) -> Driver:
    """Return the driver of a provider instance."""
    if provider.kind == replay.KIND:
        return replay.ReplayDriver(provider.name, provider.scripts, provider.timeouts)
    wire = provider.wire or wire_format(provider.kind, provider.dialect)
    endpoint = Endpoint.parse(
        provider.base_url,
        proxy=_proxy(provider),
        ca_file=_ca_file(provider),
        gate=gate,
    )
    return HttpDriver(
        provider.name,
        wire,
        endpoint,
        make_keys(provider, wire),
        timeouts=provider.timeouts,
        limits=provider.limits,
        resend_on_stale_connection=provider.resend_on_stale_connection,
        authenticator=_authenticator(provider, wire, gate),
        socket_age=provider.socket_seconds,
    )


def make_keys(provider: ProviderSettings, wire: WireFormat) -> KeyRing:
    """Return the keys of a provider instance."""

    def complain(problem: str) -> None:
        _log.warning("a key is in trouble", provider=provider.name, reason=problem)

    sources: list[KeySource] = []
    for each in provider.keys:
        if each.command:
            sources.append(KeyCommand(each.command, ttl=each.ttl, complain=complain))
        elif each.value is not None and each.file is not None:
            sources.append(KeyFile(each.file, each.value.reveal(), complain))
        elif each.value is not None:
            sources.append(FixedKey(each.value))
    return KeyRing(sources, wire.authenticate, complain=complain)


def _proxy(provider: ProviderSettings) -> str | None:
    return provider.proxy.reveal() if provider.proxy is not None else None


def _ca_file(provider: ProviderSettings) -> str | None:
    return str(provider.ca_file) if provider.ca_file is not None else None


def _authenticator(provider: ProviderSettings, wire: WireFormat, gate: EgressGate) -> Authenticator | None:
    """Return what signs the instance's requests, where no key goes with them."""
    if provider.credentials:
        return GoogleCredentials(
            provider.credentials_file, proxy=_proxy(provider), ca_file=_ca_file(provider), gate=gate
        )
    if wire.authenticator is None or provider.keys or provider.region is None:
        return None
    signer = wire.authenticator(provider.region)
    if isinstance(signer, SigV4):
        signer.use_gate(gate)
    return signer


def make_catalog(settings: Settings, drivers: dict[str, Driver]) -> Catalog:
    """Return the models that callers may ask for."""

    def spec_of(model: ModelSettings) -> ModelSpec:
        driver = drivers[model.provider]
        return model.spec(driver.kind, driver.capabilities)

    models = [*map(spec_of, settings.models), *(each.spec(spec_of) for each in settings.routes)]
    direct = {
        each.name: (drivers[each.name].kind, drivers[each.name].capabilities)
        for each in settings.providers
        if each.allow_direct_models
    }
    return Catalog(models, direct)


def breaker_rules(settings: Settings, catalog: Catalog) -> dict[str, BreakerRules]:
    """Return by which rules each target of a model with targets is watched, by the target's name."""
    rules = {each.name: each.breaker for each in settings.providers}
    routes = [each.route for each in catalog.routed if each.route is not None]
    return {each.name: rules[each.model.provider] for route in routes for each in route.targets}


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
