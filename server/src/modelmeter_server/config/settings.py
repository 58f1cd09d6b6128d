"""What a deployment is told, as frozen values.

Nothing here reads a file or the environment: `config.load` does, once, at start. Whatever holds a `Settings`
may rely on every value having been checked, every key having been read and every path being absolute.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from modelmeter_server.core.call_limits import (
    MAX_CONCURRENT_CALLS,
    MAX_QUEUED_CALLS,
    QUEUE_SECONDS,
    AdmissionLimits,
)
from modelmeter_server.core.ceilings import Ceiling
from modelmeter_server.core.dialects import Dialect
from modelmeter_server.core.egress import Egress
from modelmeter_server.core.redaction import ToolRule
from modelmeter_server.core.shares import Share
from modelmeter_server.core.tenants import Tenant
from modelmeter_server.core.toml_words import KeyPath
from modelmeter_server.drivers.http.limits import Limits, Timeouts
from modelmeter_server.drivers.http_driver import WireFormat
from modelmeter_server.drivers.instance import CONNECTION_AGE
from modelmeter_server.drivers.keys.command import TTL
from modelmeter_server.drivers.replay.book import ScriptBook
from modelmeter_server.engine.breaker import BreakerRules
from modelmeter_server.engine.reading import SLOW_READER_SECONDS, STREAM_BUFFER_BYTES
from modelmeter_server.identity.jwt_verifier import JwtRules
from modelmeter_server.rpc.listen import TlsFiles

from .model_settings import ModelSettings, RouteSettings
from .secret import Secret

DEFAULT_LISTEN = "127.0.0.1:50051"

ADMIN_PLACES = ("public", "private", "both")

NO_LEDGER = "none"
"""What stands in place of a ledger's URL on a deployment that keeps none."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The gRPC server."""

    listen: tuple[str, ...] = (DEFAULT_LISTEN,)
    """Addresses: `host:port`, `[IPv6]:port` or `unix:/path`; port 0 takes a free one."""
    drain_seconds: float = 25.0
    """How long calls in flight may go on after SIGTERM. Kubernetes kills 30 s after it by default."""
    max_concurrent_calls: int = MAX_CONCURRENT_CALLS
    """Calls in flight before new ones wait, or are shed as OVERLOADED."""
    max_queued_calls: int = MAX_QUEUED_CALLS
    """Calls that wait for room; 0 sheds at once."""
    queue_seconds: float = QUEUE_SECONDS
    """How long each of them waits at most."""
    stream_buffer_bytes: int = STREAM_BUFFER_BYTES
    """Bytes of a provider's answer that a stream's reader may be behind before no more is read."""
    slow_reader_seconds: float = SLOW_READER_SECONDS
    """How long a stream's reader may take for one message before its call is cut."""
    drain_delay_seconds: float = 0.0
    """How long calls are still taken after SIGTERM, while readiness is off already."""
    workers: int = 1
    """Processes that share the addresses."""
    reload_on_change: bool = True
    """Look at the configuration, and at the files that it names, every second."""
    private_listen: str = ""
    """Address of channelz, health and reflection for operators; empty for none."""
    private_allow_insecure: bool = False
    """Serve them without TLS where other machines can reach them."""
    admin_service: str = "public"
    """On which listener the `AdminService` is: one of `ADMIN_PLACES`."""
    max_connection_age_seconds: float = math.inf
    """How old a caller's connection may become before its next calls go on another one."""
    max_sessions: int = 1000
    """Sessions that are open at once before another is shed as OVERLOADED."""
    session_idle_seconds: float = 900.0
    """How long a session may wait for its next turn."""
    session_age_seconds: float = 86_400.0
    """How old a session may become; it ends between turns."""
    allow_anonymous: bool = False
    """Let everybody in as an admin on addresses that other machines can reach, where nobody is asked who they are."""
    allow_insecure: bool = False
    """Serve without TLS on addresses that other machines can reach."""
    tls: TlsFiles | None = None
    """The certificate that the server shows."""
    log_level: str = "info"
    """One of `telemetry.log.LEVELS`."""
    reflection: bool = True
    """Let clients read the schema from the server."""


class LedgerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where calls are booked and answers kept."""

    url: str = "sqlite:///modelmeter.db"
    """`sqlite:///FILE`, `postgresql://...`, or `none`."""
    durability: str = "process"
    """What a booking outlives: the end of the process, or of the machine's power."""
    lease: float = 10.0
    """Seconds after which the calls of a server that fell silent are given up."""
    content_retention: float = 86_400.0
    """Seconds for which answers are kept; 0 keeps none."""
    expire_after: float = 86_400.0
    """Seconds after which what nobody told is written off."""
    replay_only: bool = False
    """Answer from the journal alone; nothing is bought."""
    max_draining_calls: int = 100
    """Requests that are read on at once after their callers have left."""
    webhook_url: str = ""
    """Told of passed shares of ceilings; empty for nobody."""

    def __repr__(self) -> str:
        """Show neither URL: both may hold credentials."""
        return f"LedgerSettings(durability={self.durability!r}, replay_only={self.replay_only!r}, ...)"


class KeySettings(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a provider instance, and where it is from."""

    value: Secret | None = None
    """As the environment or the file held it at start; `None` for a command, which is run when it is needed."""
    file: Path | None = None
    """Where it is read again once the file changes."""
    command: tuple[str, ...] = ()
    """The program that prints it, and its arguments."""
    ttl: float = TTL
    """Seconds after which the program is asked again."""

    def __repr__(self) -> str:
        """Show no argument: one may be a secret."""
        return f"KeySettings(file={self.file!r}, command={self.command[:1]!r}, value={self.value!r})"


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A provider instance: one endpoint, one set of credentials."""

    name: str
    """The instance's name; the first part of `provider/model`."""
    kind: str
    """One of `config.kinds.SUPPORTED`, or the kind of an installed driver."""
    base_url: str = ""
    """Origin and base path; empty for `replay`."""
    keys: tuple[KeySettings, ...] = ()
    """One or several, of which each request goes with one; none where no key is sent."""
    credentials: str = ""
    """What takes the place of a key: `google`, or nothing."""
    credentials_file: Path | None = None
    """A service account of Google; without one the Application Default Credentials are used."""
    region: str | None = None
    """For `bedrock`: what requests are signed for, when there is no key."""
    dialect: Dialect | None = None
    """How this server speaks; for `chat_completions` only."""
    wire: WireFormat | None = None
    """What the driver of another distribution made of the instance's `settings`."""
    settings: dict[str, Any] = {}
    """As they stand in the file."""
    timeouts: Timeouts = Timeouts()
    limits: Limits = Limits()
    breaker: BreakerRules = BreakerRules()
    """When calls that have another target are no longer sent here."""
    max_concurrent_calls: int | None = None
    """Calls that the instance has at once; `None` for as many as the server."""
    allow_direct_models: bool = False
    """Whether callers may ask for `name/model` without an alias."""
    resend_on_stale_connection: bool = True
    """Send once more when a reused connection dies before any byte of an answer."""
    socket_seconds: float | None = CONNECTION_AGE
    """Seconds after which a session's WebSocket gets no other turn; `None` for no WebSockets."""
    proxy: Secret | None = None
    """URL of an HTTP proxy that opens tunnels; it may hold credentials."""
    ca_file: Path | None = None
    """PEM file that replaces the system's trust store."""
    scripts: ScriptBook | None = None
    """What `replay` plays; `None` for other kinds."""


class JwtSettings(msgspec.Struct, frozen=True, kw_only=True):
    """JWTs of one issuer, and where its keys are: at an address or in a file."""

    rules: JwtRules
    jwks_url: str | None = None
    jwks_file: Path | None = None
    ca_file: Path | None = None
    """PEM file that replaces the system's trust store on the way to `jwks_url`."""


class IdentitySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How callers prove who they are. Without it nobody is asked."""

    tenants: tuple[Tenant, ...] = ()
    """In the order of the file; names are unique, and there is one at least."""
    tokens_file: Path | None = None
    jwt: JwtSettings | None = None
    certificates: dict[str, str] = {}
    """Names of client certificates, such as `dns:agent.internal`, and the tenant of each."""
    ceilings: tuple[Ceiling, ...] = ()
    """What bounds the tenants from the start, without ids."""
    open_health: bool = False
    """Answer the health service to anybody."""
    open_reflection: bool = False
    """Answer the reflection service to anybody."""


class SamplingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which events are shown."""

    rate: float = 1.0
    """Share of the calls whose events are shown; failures always are."""
    prompt: float | None = None
    """A rate for one family of kinds in the place of `rate`."""
    tool: float | None = None
    response: float | None = None
    embedding: float | None = None
    attempt: float | None = None
    key: str = "modelmeter"
    """Servers with the same key show the same calls."""


class RedactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is taken out of events, besides keys and bearer tokens."""

    tools: dict[str, ToolRule] = {}
    """What becomes of all payloads of a tool."""
    patterns: tuple[str, ...] = ()
    """Regular expressions whose matches are replaced."""
    hashed: tuple[str, ...] = ()
    """Regular expressions whose matches are hashed."""
    hash_key_env: Secret | None = None
    """The key of the hashes, as the named variable holds it."""


class OtlpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Export to an OpenTelemetry collector."""

    endpoint: str = ""
    """URL of its gRPC receiver; empty for no export."""
    insecure: bool = False
    """Speak without TLS."""
    interval: float = 60.0
    """Seconds between two exports of metrics."""
    traces: bool = True
    metrics: bool = True
    service_name: str = "modelmeter"


class PrometheusSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics for Prometheus to fetch."""

    listen: str = ""
    """`host:port` of its own listener; empty for none."""


class TelemetrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the server tells about itself."""

    recent_events: int = 10_000
    """Events that `QueryEvents` can look back at."""
    waiting_events: int = 10_000
    """Events that wait for a slow watcher before the oldest are lost."""
    max_watchers: int = 100
    remembered_calls: int = 10_000
    """Calls that `GetInsights` looks back at."""
    tool_payloads: bool = False
    """Show what the providers' own tools were asked and gave, redacted and cut."""
    max_series: int = 1_000
    """Combinations of attributes of one metric; more are counted together."""
    tenant_attribute: bool = False
    """Tell tenants apart in the counts of calls and costs."""
    old_names: bool = False
    """Write the GenAI names of before as well."""
    ledger_interval: float = 15.0
    """Seconds between two looks at the sums of the ledger."""
    sampling: SamplingSettings = SamplingSettings()
    redaction: RedactionSettings = RedactionSettings()
    otlp: OtlpSettings = OtlpSettings()
    prometheus: PrometheusSettings = PrometheusSettings()


class NamedFile(msgspec.Struct, frozen=True):
    """A file that the configuration names, or the configuration itself."""

    key: KeyPath
    """The key that names it; empty for the configuration."""
    path: Path
    digest: bytes
    """Of what it held, to tell whether it has changed."""

    def __repr__(self) -> str:
        """Show no digest: it may be that of a short secret."""
        return f"NamedFile({self.path})"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a deployment is told."""

    server: ServerSettings = ServerSettings()
    ledger: LedgerSettings = LedgerSettings()
    providers: tuple[ProviderSettings, ...] = ()
    """In the order of the file; names are unique."""
    models: tuple[ModelSettings, ...] = ()
    """In the order of the file; names are unique and their providers exist."""
    routes: tuple[RouteSettings, ...] = ()
    """The models with targets, in the order of the file; no name is among those of `models`."""
    telemetry: TelemetrySettings = TelemetrySettings()
    egress: Egress | None = None
    """`None`: every host may be connected to."""
    identity: IdentitySettings | None = None
    """`None`: whoever reaches the server is let in."""
    share: Share = Share()
    """Which of the server's processes this one is: limits of the server are divided by `share.of`."""
    files: tuple[NamedFile, ...] = ()
    """What the settings were read from."""

    def admission(self) -> AdmissionLimits:
        """Return the limits on calls, of all workers together."""
        tenants = () if self.identity is None else self.identity.tenants
        return AdmissionLimits(
            concurrent=self.server.max_concurrent_calls,
            queued=self.server.max_queued_calls,
            queue_seconds=self.server.queue_seconds,
            tenants={each.name: each.limits for each in tenants},
            models={each.name: each.limits for each in self.models},
            targets={
                each.name: each.max_concurrent_calls
                for each in self.providers
                if each.max_concurrent_calls is not None
            },
        )

    def provider(self, name: str) -> ProviderSettings | None:
        """Return the provider instance of this name, or `None`."""
        return next((each for each in self.providers if each.name == name), None)
