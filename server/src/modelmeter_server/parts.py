"""From settings to the parts of a deployment: each is built here, and `app` puts them together."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from .config.addresses import of_worker
from .config.telemetry import redaction_of, sampling_of
from .drivers import replay
from .drivers.bedrock.signing import SigV4
from .drivers.google_credentials import GoogleCredentials
from .drivers.http import OPEN_GATE, EgressGate, Endpoint
from .drivers.http_driver import HttpDriver
from .drivers.key_set_source import KeySetAddress, KeySetFile
from .drivers.keys import FixedKey, KeyCommand, KeyFile, KeyRing
from .drivers.known_secrets import SECRET_CHANGES
from .drivers.wire_formats import wire_format
from .engine.catalog import Catalog
from .identity.authenticator import CallerAuthenticator
from .identity.jwt_verifier import JwtVerifier
from .identity.key_set import KeySet
from .identity.token_file import TokenFile
from .rpc.listen import ListenError
from .rpc.private import PrivateServer
from .telemetry.bus import EventBus
from .telemetry.exports import Exporters, Exports
from .telemetry.log import get_logger
from .telemetry.meters import Meters
from .telemetry.observation import Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .config import (
        IdentitySettings,
        JwtSettings,
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
    from .rpc.server import RpcServer

_log = get_logger(__name__)


def make_telemetry(settings: Settings, living: Callable[[], Iterable[str]] = tuple) -> Telemetry:
    """Return what observes the calls of a deployment."""
    told = settings.telemetry
    return Telemetry(
        bus=EventBus(recent=told.recent_events, waiting=told.waiting_events, watchers=told.max_watchers),
        meters=Meters(told.max_series),
        redaction=redaction_of(told.redaction, fixed_secrets(settings), living, SECRET_CHANGES.count),
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
    redaction = redaction_of(told.redaction, fixed_secrets(settings), living, SECRET_CHANGES.count)
    try:
        return Exporters(telemetry, exports, redaction, old_names=told.old_names)
    except OSError as error:
        message = (
            f"cannot listen on {address} (telemetry.prometheus.listen): {error.strerror or error}; stop the other "
            "process, or choose another address"
        )
        raise ListenError(message) from None


def fixed_secrets(settings: Settings) -> tuple[str, ...]:
    """Return what is secret as long as the settings hold: proxies' addresses and passwords. Drivers tell their keys."""
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
