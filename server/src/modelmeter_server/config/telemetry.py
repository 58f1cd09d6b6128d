"""The section `[telemetry]`."""

from __future__ import annotations

import importlib.util
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from modelmeter_server.core.events import UNSAMPLED, Family
from modelmeter_server.core.redaction import Redaction, ToolRule, compiled
from modelmeter_server.core.sampling import Sampling
from modelmeter_server.drivers.http.endpoint import check_web_address

from .addresses import check_address
from .secret import Secret
from .settings import (
    OtlpSettings,
    PrometheusSettings,
    RedactionSettings,
    SamplingSettings,
    TelemetrySettings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .tables import Table

DEFAULTS: Final = TelemetrySettings()

_MANY: Final = 1_000_000
_SAMPLED: Final = tuple(family.value for family in Family if family not in UNSAMPLED)
_NEEDED: Final = {"otlp": "opentelemetry.exporter.otlp.proto.grpc", "prometheus": "prometheus_client"}
"""What each extra brings."""


def read_telemetry(table: Table, environ: Mapping[str, str] | None) -> TelemetrySettings:
    """Read `[telemetry]`; without an environment no key is looked up."""
    settings = TelemetrySettings(
        recent_events=table.integer("recent_events", DEFAULTS.recent_events, least=0, most=_MANY),
        waiting_events=table.integer("waiting_events", DEFAULTS.waiting_events, least=1, most=_MANY),
        max_watchers=table.integer("max_watchers", DEFAULTS.max_watchers, least=1, most=10_000),
        remembered_calls=table.integer("remembered_calls", DEFAULTS.remembered_calls, least=1, most=_MANY),
        tool_payloads=table.flag("tool_payloads", default=DEFAULTS.tool_payloads),
        max_series=table.integer("max_series", DEFAULTS.max_series, least=2, most=_MANY),
        tenant_attribute=table.flag("tenant_attribute", default=DEFAULTS.tenant_attribute),
        old_names=table.flag("old_names", default=DEFAULTS.old_names),
        ledger_interval=table.seconds("ledger_interval", DEFAULTS.ledger_interval),
        sampling=_read_sampling(table.table("sampling")),
        redaction=_read_redaction(table.table("redaction"), environ),
        otlp=_read_otlp(table.table("otlp")),
        prometheus=_read_prometheus(table.table("prometheus")),
    )
    table.close()
    return settings


def _read_sampling(table: Table) -> SamplingSettings:
    rates = {name: _rate(table, name) for name in ("rate", *_SAMPLED)}
    key = table.text("key") or DEFAULTS.sampling.key
    table.close()
    return SamplingSettings(key=key, **{name: rate for name, rate in rates.items() if rate is not None})


def _rate(table: Table, key: str) -> float | None:
    value: float | None = table.get(key, (int, float), "a number from 0 to 1")
    if value is not None and not 0 <= value <= 1:
        table.mistake(key, f"{value} is out of range", "write a number from 0 to 1")
        return None
    return value


def _read_redaction(table: Table, environ: Mapping[str, str] | None) -> RedactionSettings:
    inner = table.table("tools")
    known = [rule.value for rule in ToolRule]
    tools = {name: ToolRule(inner.choice(name, known, ToolRule.DROP.value)) for name in inner}
    patterns, hashed = _patterns(table, "patterns"), _patterns(table, "hashed")
    if (hashed or ToolRule.HASH in tools.values()) and "hash_key_env" not in table:
        table.mistake(
            None,
            "hashes without a key: short values could be guessed from them",
            "name an environment variable that holds a key in hash_key_env",
        )
    settings = RedactionSettings(
        tools=tools, patterns=patterns, hashed=hashed, hash_key_env=_hash_key(table, environ)
    )
    table.close()
    return settings


def _patterns(table: Table, key: str) -> tuple[str, ...]:
    return tuple(each for each in table.texts(key) or () if table.checked(key, each, _check_pattern))


def _check_pattern(pattern: str) -> None:
    try:
        found = re.compile(pattern)
    except re.error as error:
        message = f"{pattern!r} is no regular expression: {error}"
        raise ValueError(message) from None
    if found.search("") is not None:
        message = f"{pattern!r} matches nothing at all, too: write one that needs a character at least"
        raise ValueError(message)


def _hash_key(table: Table, environ: Mapping[str, str] | None) -> Secret | None:
    name = table.text("hash_key_env")
    if name is None or environ is None:
        return None
    if not environ.get(name):
        table.mistake("hash_key_env", f"the environment has no {name}", "set it, or name another variable")
        return None
    return Secret(environ[name])


def _read_otlp(table: Table) -> OtlpSettings:
    default = DEFAULTS.otlp
    endpoint = table.text("endpoint") or ""
    if endpoint:
        _require(table, "otlp")
    settings = OtlpSettings(
        endpoint=endpoint,
        insecure=table.flag("insecure", default=default.insecure),
        interval=table.seconds("interval", default.interval),
        traces=table.flag("traces", default=default.traces),
        metrics=table.flag("metrics", default=default.metrics),
        service_name=table.text("service_name") or default.service_name,
    )
    if endpoint and not table.checked("endpoint", collector_address(settings), _check_collector):
        settings = OtlpSettings()
    elif endpoint and collector_address(settings).startswith("http://") is not settings.insecure:
        fix = "write http:// with insecure = true, or https:// without it"
        table.mistake("endpoint", "says something else than insecure about TLS", fix)
    table.close()
    return settings


def collector_address(settings: OtlpSettings) -> str:
    """Return the collector's address with its scheme, which may be left out."""
    if "://" in settings.endpoint:
        return settings.endpoint
    return f"{'http' if settings.insecure else 'https'}://{settings.endpoint}"


def _check_collector(address: str) -> None:
    check_web_address(address)
    parts = urlsplit(address)
    if parts.username is not None or parts.path not in ("", "/") or parts.query or parts.fragment:
        # gRPC's own forms of an address, among them those that lead elsewhere, stand in such places.
        message = "it is the address of a gRPC receiver: write http://HOST:PORT or https://HOST:PORT"
        raise ValueError(message)


def _read_prometheus(table: Table) -> PrometheusSettings:
    address = table.text("listen") or ""
    if address and table.checked("listen", address, _check_listen):
        _require(table, "prometheus")
    else:
        address = ""
    table.close()
    return PrometheusSettings(listen=address)


def _check_listen(address: str) -> None:
    check_address(address)
    if address.startswith("unix"):
        message = 'Prometheus fetches from a port: write "127.0.0.1:9464"'
        raise ValueError(message)


def _require(table: Table, extra: str) -> None:
    if not _is_installed(_NEEDED[extra]):
        table.mistake(None, "needs packages that are not here", f'install "modelmeter-server[{extra}]"')


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package around it is there
        return False


def sampling_of(settings: SamplingSettings) -> Sampling:
    """Return which events are shown."""
    told = {family: getattr(settings, family.value) for family in Family if family.value in _SAMPLED}
    rates = {family: rate for family, rate in told.items() if rate is not None}
    return Sampling(rate=settings.rate, rates=rates, key=settings.key.encode())


def redaction_of(
    settings: RedactionSettings,
    secrets: tuple[str, ...],
    living: Callable[[], Iterable[str]] = tuple,
    changes: Callable[[], int] = int,
) -> Redaction:
    """Return the rules by which events are redacted.

    `secrets` are the deployment's own, `living` tells those that change while it runs, `changes` how often they did.
    """
    key = settings.hash_key_env
    return Redaction(
        tools=settings.tools,
        patterns=compiled(settings.patterns),
        hashed=compiled(settings.hashed),
        hash_key=key.reveal().encode() if key is not None else b"",
        secrets=secrets,
        living=living,
        changes=changes,
    )
