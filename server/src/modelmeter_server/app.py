"""The composition root: from settings to a running server and back. Everything else is handed what it needs."""

from __future__ import annotations

import asyncio
import gc
import importlib.metadata
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

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
from .engine.catalog import Catalog
from .engine.declared_ceilings import declare
from .engine.engine import Engine
from .engine.halting import HaltWatch
from .engine.holding import Desk
from .engine.ledger_gauge import LedgerGauge
from .engine.soft_limits import SoftLimits
from .identity.authenticator import CallerAuthenticator
from .identity.jwt_verifier import JwtVerifier
from .identity.key_set import KeySet
from .identity.token_file import TokenFile
from .ledger.queries import get_totals, list_all_halts
from .ledger.storage import StorageSettings, StoredLedger, open_ledger
from .rpc.server import RpcServer
from .telemetry.bus import EventBus
from .telemetry.calls import call_recorder
from .telemetry.exports import Exporters, Exports
from .telemetry.log import configure_logging, get_logger
from .telemetry.meters import Meters
from .telemetry.observation import Telemetry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from .config import IdentitySettings, JwtSettings, LedgerSettings, ProviderSettings, Settings
    from .drivers.authentication import Authenticator
    from .drivers.driver import Driver
    from .drivers.http_driver import WireFormat
    from .drivers.keys import KeySource
    from .engine.recorder import Recorder
    from .ledger.replies import SoftLimit

_log = get_logger(__name__)


class App:
    """A deployment: providers, engine, server."""

    def __init__(self, settings: Settings, recorder: Recorder | None = None) -> None:
        """Build it all inside a running loop; nothing listens or connects yet."""
        self._settings = settings
        self.egress = EgressGate(settings.egress)
        self._drivers = {each.name: make_driver(each, self.egress) for each in settings.providers}
        self.telemetry = make_telemetry(settings, self._living_secrets)
        self.engine = Engine(
            make_catalog(settings, self._drivers),
            self._drivers,
            recorder or call_recorder(),
            max_concurrent_calls=settings.server.max_concurrent_calls,
            telemetry=self.telemetry,
        )
        self.telemetry.ask_in_flight(lambda: self.engine.calls_in_flight)
        identity = settings.identity
        self.server = RpcServer(
            self.engine,
            authenticator=make_authenticator(identity, self.egress) if identity is not None else None,
            open_health=identity is not None and identity.open_health,
            open_reflection=identity is not None and identity.open_reflection,
            reflection=settings.server.reflection,
        )
        self.engine.sessions.bound(
            limit=settings.server.max_sessions,
            idle_seconds=settings.server.session_idle_seconds,
            age_seconds=settings.server.session_age_seconds,
        )
        self._ledger: StoredLedger | None = None
        self._soft_limits: SoftLimits | None = None
        self._halts: HaltWatch | None = None
        self._gauge: LedgerGauge | None = None
        self.exporters: Exporters | None = None
        """What exports metrics and traces; `None` before the start."""

    async def start(self) -> list[str]:
        """Open the ledger, listen and serve; return the addresses as bound.

        Raises ListenError, OSError, LedgerUnavailable and SchemaMismatch, and nothing is left open then.
        """
        server = self._settings.server
        try:
            self.exporters = make_exporters(self._settings, self.telemetry, self._living_secrets)
            await self._open_ledger(self._settings.ledger)
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
        identity = self._settings.identity
        await declare(self._ledger, () if identity is None else identity.ceilings)
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
        interval = self._settings.telemetry.ledger_interval
        self._gauge = LedgerGauge(self._ledger, get_totals, self.telemetry.instruments, interval)
        self._gauge.start()

    def _living_secrets(self) -> list[str]:
        """Return the providers' keys and tokens of now and of before."""
        return [
            secret
            for driver in self._drivers.values()
            if isinstance(driver, HttpDriver)
            for secret in driver.secrets
        ]

    def _soft_limit_passed(self, limit: SoftLimit) -> None:
        self.telemetry.soft_limit_passed(limit.ceiling_id, limit.percent, limit.standing)
        if self._soft_limits is not None:
            self._soft_limits.passed(limit)

    async def _close(self) -> None:
        for driver in self._drivers.values():
            await driver.aclose()
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
    """Begin to export. Raises OSError when Prometheus' address cannot be listened on."""
    told = settings.telemetry
    host, _, port = told.prometheus.listen.rpartition(":")
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
    return Exporters(telemetry, exports, redaction, old_names=told.old_names)


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
    models = [
        each.spec(drivers[each.provider].kind, drivers[each.provider].capabilities)
        for each in settings.models
    ]
    direct = {
        each.name: (drivers[each.name].kind, drivers[each.name].capabilities)
        for each in settings.providers
        if each.allow_direct_models
    }
    return Catalog(models, direct)


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


async def serve(settings: Settings, announce: Callable[[Sequence[str]], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then drain; a second signal cuts what is left. Raises ListenError.

    `announce` is told the addresses once calls are welcome.
    """
    with _Signals() as signals:  # before the server listens: a supervisor may change its mind early
        app = App(settings)
        addresses = await app.start()
        # What is there by now stays until the end: modules, stubs, schemas. The collector passes over it from now on.
        gc.collect()
        gc.freeze()
        _log.info("serving", addresses=addresses, models=len(app.engine.catalog))
        if announce is not None:
            announce(addresses)
        await signals.first.wait()
        _log.info("draining", calls=app.engine.calls_in_flight, seconds=settings.server.drain_seconds)
        hurry = asyncio.create_task(_hurry(signals.second, app))
        cut = await app.stop(settings.server.drain_seconds)
        hurry.cancel()
        _log.info("stopped", cut=cut)


class _Signals:
    """Hear SIGTERM and SIGINT inside a block."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._heard)
        return self

    def __exit__(self, *_reason: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.remove_signal_handler(number)

    def _heard(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


async def _hurry(second: asyncio.Event, app: App) -> None:
    await second.wait()
    await app.engine.drain(0)


def run(settings: Settings, announce: Callable[[Sequence[str]], None] | None = None) -> None:
    """Configure logging and serve on uvloop where it is installed; returns after a signal. Raises ListenError."""
    configure_logging(settings.server.log_level)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(settings, announce))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # no wheel for this platform; asyncio's own loop costs 5 to 11 % more
        return None
    return uvloop.new_event_loop
