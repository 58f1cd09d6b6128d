"""The one driver for every provider that speaks HTTP: pure encoding and accumulating, shared I/O.

A provider is a row (`WireFormat`): how to encode, which accumulator reads the answer, where the key goes. Everything
that touches a socket stands here once, for all of them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from modelmeter_server.core.accumulators import Accumulator
from modelmeter_server.core.calls import Attempt
from modelmeter_server.core.embeddings import EmbeddingRequest
from modelmeter_server.core.errors import OWN_FAULT, Failure, FieldViolation, failure, with_cause
from modelmeter_server.core.ladder import Evidence, severed
from modelmeter_server.core.models import Capabilities, ModelSpec
from modelmeter_server.core.outcomes import Cause, Certainty, End, Ending, Kind, Stage
from modelmeter_server.core.provider_errors import failure_from_http
from modelmeter_server.core.requests import CompletionRequest
from modelmeter_server.core.sse import EventTooLarge
from modelmeter_server.core.text import cut_utf8, scrub, well_formed

from .authentication import AuthenticatedExchange, Authenticator, CredentialsError, without_credentials
from .driver import LEDGER_DOWN, Observer, PreparedRequest, ProviderCall, RequestRefused, SessionLink
from .http import (
    Endpoint,
    ExchangeEnd,
    Fault,
    HttpRequest,
    Limits,
    Pool,
    ResponseHead,
    Timeouts,
    egress_refusal,
)
from .instance import CONNECTION_AGE, Instance
from .keys import Key, KeyLease, KeyRing, ring_of
from .keys.command import COMMAND_SECONDS
from .known_answer import KnownAnswer
from .lookup import EndedCall, LookupFailed, NotReconcilable, Reconciler, Told, cannot_tell, look_up
from .provider_words import without_keys

if TYPE_CHECKING:
    import ssl

    from modelmeter_server.core.answers import Answer, Expectation

OVERLOAD_RETRY_SECONDS = 1.0
"""What a caller is told to wait when the pool has no room: about the time in which calls come and go."""

_REQUEST_ID_HEADERS = (
    "request-id",
    "x-request-id",
    "x-amzn-requestid",
    "apim-request-id",
    "mistral-correlation-id",
)
_REQUEST_ID_BYTES = 256

# No repetition mends these: somebody has to change a certificate, a password or a setting.
_LASTING = frozenset((Fault.CERTIFICATE, Fault.PROXY_CREDENTIALS))
_CUT = frozenset((Fault.CUT, Fault.FIRST_BYTE_TIMEOUT, Fault.IDLE_TIMEOUT, Fault.TOTAL_TIMEOUT, Fault.BUG))


class RunningExchange(Protocol):
    """What a call needs of its exchange: a real one, or one that the replay provider plays."""

    async def run(self) -> ExchangeEnd:
        """See `Exchange.run`."""

    def cut(self, cause: Cause, detail: str = "") -> None:
        """See `Exchange.cut`."""

    def set_idle_timeout(self, seconds: float) -> None:
        """See `Exchange.set_idle_timeout`."""

    def pause_reading(self) -> None:
        """See `Exchange.pause_reading`."""

    def resume_reading(self) -> None:
        """See `Exchange.resume_reading`."""


class WireFormat(msgspec.Struct, frozen=True, kw_only=True):
    """What tells one HTTP provider kind from another."""

    kind: str
    capabilities: Capabilities
    encode: Callable[[CompletionRequest, ModelSpec], PreparedRequest]
    """Pure; raises RequestRefused."""
    accumulator: Callable[..., Accumulator]
    """Takes what `Accumulator` takes."""
    authenticate: Callable[[str], tuple[str, str]]
    """Turn a key into the header that carries it."""
    authenticator: Callable[[str], Authenticator] | None = None
    """Make what signs requests of an instance without a key, for its region."""
    reconciler: Reconciler | None = None
    """How it tells what an ended call consumed; `None` when it cannot."""
    version: str = "/v1"
    """The API's version, with which a target may begin."""
    versioned_base: re.Pattern[str] = re.compile(r".*/v1")
    """Base paths that say the version themselves, so that it is not repeated."""
    classify: Callable[..., Failure] = failure_from_http
    """What an HTTP status other than 2xx means; takes what `failure_from_http` takes."""
    count: Callable[[PreparedRequest, ModelSpec, str], PreparedRequest] | None = None
    """Turn a prepared completion into the request that counts its input, given the base path. Pure."""
    link: Callable[[Instance], SessionLink] | None = None
    """How a session keeps its turns on one socket; `None` where there is no such way."""
    embed: Callable[[EmbeddingRequest, ModelSpec, str], PreparedRequest] | None = None
    """Encode a batch of texts, given the base path. Pure; raises RequestRefused."""


class HttpDriver:
    """A provider instance behind HTTP."""

    def __init__(
        self,
        name: str,
        wire: WireFormat,
        endpoint: Endpoint,
        key: Key | KeyRing | None = None,
        *,
        timeouts: Timeouts | None = None,
        limits: Limits | None = None,
        resend_on_stale_connection: bool = True,
        authenticator: Authenticator | None = None,
        socket_age: float | None = CONNECTION_AGE,
    ) -> None:
        """Open no connection yet. Without a key or an authenticator no authentication is sent.

        `socket_age`: seconds after which a session's socket gets no other turn; `None` for no sockets at all.
        """
        self.name = name
        self.kind = wire.kind
        self.capabilities = wire.capabilities
        self._wire = wire
        self._endpoint = endpoint
        self._timeouts = timeouts or Timeouts()
        self._limits = limits or Limits()
        self._pool = Pool(
            endpoint, self._timeouts, self._limits, resend_on_stale_connection=resend_on_stale_connection
        )
        self.keys = ring_of(key, wire.authenticate)
        self._authenticator = authenticator
        self._socket_age = socket_age
        self._contexts: list[ssl.SSLContext | None] = []

    def prepare(self, request: CompletionRequest, model: ModelSpec) -> PreparedRequest:
        """Turn a checked request into the provider's body. Raises RequestRefused, also for a body that is too large."""
        return self._fitting(self._wire.encode(request, model), "prompt")

    def prepare_count(self, request: CompletionRequest, model: ModelSpec) -> PreparedRequest:
        """See `CountingDriver`. What is counted is what `prepare` would send."""
        if self._wire.count is None:
            raise RequestRefused(FieldViolation("model", "this provider cannot count tokens"))
        return self._wire.count(self.prepare(request, model), model, self._endpoint.base_path)

    def prepare_embedding(self, request: EmbeddingRequest, model: ModelSpec) -> PreparedRequest:
        """See `EmbeddingDriver`."""
        if self._wire.embed is None:
            raise RequestRefused(
                FieldViolation("model", "this provider has no embeddings: name another model")
            )
        return self._fitting(self._wire.embed(request, model, self._endpoint.base_path), "inputs")

    def _fitting(self, prepared: PreparedRequest, field: str) -> PreparedRequest:
        size, limit = len(prepared.body), self._limits.request_bytes
        if size > limit:
            fix = f"becomes {size:,} bytes for this provider and this deployment sends at most {limit:,}: shorten it"
            raise RequestRefused(FieldViolation(field, fix))
        return prepared

    def start(
        self,
        prepared: PreparedRequest,
        model: ModelSpec,
        expectation: Expectation,
        observer: Observer,
        *,
        deltas: bool,
    ) -> ProviderCall:
        """Make the call without sending anything yet."""
        if prepared.answer is not None:
            return KnownAnswer(prepared.answer)
        accumulator = (prepared.accumulator or self._wire.accumulator)(
            expectation, deltas=deltas, event_limit=self._limits.event_bytes, scrub=self._scrub
        )
        call = HttpCall(
            self.name,
            accumulator,
            observer,
            self._scrub,
            self._timeouts,
            self._limits,
            classify=self._wire.classify,
        )
        call.lease = self.keys.lease()
        call.exchange = self._exchange(prepared, call)
        return call

    def _exchange(self, prepared: PreparedRequest, call: HttpCall) -> RunningExchange:
        lease = call.lease
        if self._authenticator is None and (lease is None or lease.is_ready):
            request = self._request(prepared, () if lease is None else lease.header())
            return self._pool.exchange(request, call, permit=call.dispatching)
        authenticator = self._authenticator or lease
        assert authenticator is not None
        timeout = self._timeouts.connect if self._authenticator is not None else COMMAND_SECONDS
        request = self._request(prepared, ())
        return AuthenticatedExchange(self._pool, request, call, authenticator, timeout, call.dispatching)

    async def reconcile(self, call: EndedCall) -> Told:
        """Ask the provider what an ended call consumed. Raises NotReconcilable and LookupFailed."""
        reconciler = self._wire.reconciler
        if reconciler is None:
            raise NotReconcilable(cannot_tell(self.kind))
        target = self._target(reconciler.target(call))
        headers = await self._lookup_headers()
        limit = self._limits.answer_bytes
        return reconciler.read(
            await look_up(self._pool, target, headers, most_bytes=limit, scrub=self._scrub)
        )

    async def _lookup_headers(self) -> tuple[tuple[str, str], ...]:
        lease = self.keys.lease()
        if lease is None:
            return ()
        try:
            if not lease.is_ready:
                await lease.prepare()
        except CredentialsError as error:
            raise LookupFailed(without_credentials(error)) from None
        return lease.header()

    def open_link(self) -> SessionLink | None:
        """See `SessionDriver`. Credentials that have to be renewed do not go over sockets."""
        if self._wire.link is None or self._socket_age is None or self._authenticator is not None:
            return None
        if not self._contexts:
            self._contexts.append(
                self._endpoint.ssl_context()
            )  # reads the trust store: once, not for each session
        return self._wire.link(
            Instance(
                base=self,
                endpoint=self._endpoint,
                context=self._contexts[0],
                target=self._target,
                lease=self.keys.lease,
                accumulator=self._wire.accumulator,
                scrub=self._scrub,
                timeouts=self._timeouts,
                limits=self._limits,
                age=self._socket_age,
            )
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    @property
    def pool(self) -> Pool:
        """The connections of this instance, for metrics and tests."""
        return self._pool

    def _request(self, prepared: PreparedRequest, authentication: tuple[tuple[str, str], ...]) -> HttpRequest:
        headers = (("content-type", "application/json"), *prepared.headers, *authentication)
        return HttpRequest("POST", self._target(prepared.target), headers, prepared.body)

    def _target(self, path: str) -> str:
        """Join base path and path; both `https://host` and `https://host/v1` are common spellings of a base URL."""
        base = self._endpoint.base_path
        if path.startswith(f"{self._wire.version}/") and self._wire.versioned_base.fullmatch(base):
            path = path.removeprefix(self._wire.version)
        return base + path

    def _scrub(self, text: str) -> str:
        secrets = self.secrets
        return scrub(text, secrets) if secrets else text

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the keys and credentials of now and of before: what may show in no text."""
        known = self.keys.known
        return known if self._authenticator is None else (*known, *self._authenticator.secrets)


class HttpCall:
    """One provider request, its bytes flowing straight from the socket into the accumulator."""

    exchange: RunningExchange
    """Set by whoever makes the call: exchange and call know each other."""
    lease: KeyLease | None = None
    """The key that it goes with; set by whoever makes the call."""

    def __init__(
        self,
        target: str,
        accumulator: Accumulator,
        observer: Observer,
        scrub_keys: Callable[[str], str],
        timeouts: Timeouts,
        limits: Limits,
        *,
        classify: Callable[..., Failure] = failure_from_http,
    ) -> None:
        self.accumulator = accumulator
        self.received = 0
        self._classify = classify
        self._target = target
        self._observer = observer
        self._scrub = scrub_keys
        self._timeouts = timeouts
        self._error_limit = limits.error_body_bytes
        self._error_body: bytearray | None = None
        self._oversize: EventTooLarge | None = None
        self._tail_is_timed = False
        self._attempts: tuple[Attempt, ...] = ()
        self._fault: BaseException | None = None

    # What the transport tells, from within its read callback

    def dispatching(self, attempt: int) -> Awaitable[bool] | None:
        """Ask whether an attempt may leave."""
        return self._observer.dispatching(attempt, self._target)

    def written(self) -> None:
        """Pass on that the provider has the whole request."""
        self._observer.written()

    def head(self, head: ResponseHead) -> None:
        """Choose who reads the body: the accumulator, or whoever classifies errors (R-H1)."""
        if head.is_success:
            self.accumulator.hear(head.headers.get)
        else:
            self._error_body = bytearray()

    def data(self, chunk: bytes) -> bool:
        """Take the body bytes of one socket read; return True when nothing further matters."""
        if self._error_body is not None:
            self._error_body += chunk[: self._error_limit - len(self._error_body)]
            return len(self._error_body) >= self._error_limit
        accumulator = self.accumulator
        self.received += len(chunk)
        try:
            accumulator.feed(chunk)
        except EventTooLarge as error:
            self._oversize = error
            return True
        self._observer.progressed()
        if accumulator.awaits_tail is not self._tail_is_timed:
            self._tail_is_timed = accumulator.awaits_tail
            self.exchange.set_idle_timeout(
                self._timeouts.tail if accumulator.awaits_tail else self._timeouts.idle
            )
        return accumulator.done

    # What the engine asks

    async def run(self) -> Answer | Failure:
        """Send the request and read the answer; never raises but for a cancelled task."""
        if self.lease is None:
            return await self._run()
        self.lease.begin()
        result = None
        try:
            result = await self._run()
        finally:
            self.lease.end(result)
        return result

    async def _run(self) -> Answer | Failure:
        begun = time.monotonic()
        try:
            end = await self.exchange.run()
        except CredentialsError as error:
            return without_credentials(error)
        self._fault = end.error if end.fault is Fault.BUG else None
        result = self._completed(self._result(end), end)
        self._attempts = _attempts(self._target, end, result, time.monotonic() - begun)
        return result

    def cut(self, cause: Cause, detail: str = "") -> None:
        """End the call now; harmless when it has ended."""
        self.exchange.cut(cause, detail)

    def pause_reading(self) -> None:
        """See `PausableCall`."""
        self.exchange.pause_reading()

    def resume_reading(self) -> None:
        """See `PausableCall`."""
        self.exchange.resume_reading()

    @property
    def fault(self) -> BaseException | None:
        """Return what our own code raised within the exchange."""
        return self._fault

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Return what was sent; empty until `run` has returned."""
        return self._attempts

    def _result(self, end: ExchangeEnd) -> Answer | Failure:
        if self._error_body is not None and end.head is not None:
            return self._refusal(end, end.head, bytes(self._error_body))
        if not end.lost_written and (refusal := self._never_sent(end)) is not None:
            return refusal
        ending = self._ending(end)
        result = self.accumulator.finish(ending)
        if end.fault is Fault.ENCODING and isinstance(result, Failure) and result.kind is Kind.UNAVAILABLE:
            # The status said success and a body came: that nobody can read it does not make it free.
            return severed(Evidence(generated=True), ending, result.message)
        return result

    def _never_sent(self, end: ExchangeEnd) -> Failure | None:
        """Return the refusal of a request that this server kept back, unless it did."""
        if end.fault in (Fault.POOL_TIMEOUT, Fault.EXHAUSTED):
            return failure(Kind.OVERLOADED, end.detail, cause=Cause.LIMIT, retry_after=OVERLOAD_RETRY_SECONDS)
        if end.fault is Fault.EGRESS:
            return egress_refusal(end.detail)
        if end.fault is Fault.NOT_ALLOWED:
            return failure(Kind.LEDGER_DOWN, LEDGER_DOWN, cause=Cause.LIMIT)
        if end.fault is Fault.REQUEST_LIMIT:
            return failure(
                Kind.REFUSED, f"the request is too large for this deployment: {end.detail}", cause=Cause.LIMIT
            )
        return None

    def _refusal(self, end: ExchangeEnd, head: ResponseHead, body: bytes) -> Failure:
        """Classify an error answer. The status had said it all, however its body ended (R-H1)."""
        result = self._classify(head.status, head.headers.get, body, scrub=self._scrub)
        return with_cause(result, end.cause) if end.fault is Fault.CUT and end.cause else result

    def _ending(self, end: ExchangeEnd) -> Ending:
        if self._oversize is not None:
            return Ending(end=End.CUT, cause=Cause.LIMIT, stage=end.stage, detail=str(self._oversize))
        if end.fault is Fault.NONE:
            return Ending(end=End.CLEAN, stage=end.stage)
        return Ending(
            end=End.CUT if end.fault in _CUT else End.RESET,
            cause=end.cause or Cause.NETWORK,
            stage=end.stage,
            detail=OWN_FAULT if end.fault is Fault.BUG else end.detail,
            retryable=False if end.fault in _LASTING else None,
        )

    def _completed(self, result: Answer | Failure, end: ExchangeEnd) -> Answer | Failure:
        """Add what only the exchange knows, the status and the provider's id of the request; take keys out."""
        if end.head is not None:
            result = msgspec.structs.replace(result, provider_request_id=_request_id(end.head))
            if isinstance(result, Failure):
                result = msgspec.structs.replace(result, http_status=end.head.status)
        return without_keys(result, self._scrub)


def _request_id(head: ResponseHead) -> str | None:
    for name in _REQUEST_ID_HEADERS:
        if value := head.headers.get(name):
            return cut_utf8(well_formed(value), _REQUEST_ID_BYTES)
    return None


def _attempts(target: str, end: ExchangeEnd, result: Answer | Failure, elapsed: float) -> tuple[Attempt, ...]:
    """Return the record of what was sent; a stale connection's lost request is an attempt of its own."""
    lost = () if end.attempts < 2 else (_lost(target, end),)
    if end.fault is Fault.NOT_ALLOWED:
        return lost
    failed = result if isinstance(result, Failure) else None
    last = Attempt(
        number=end.attempts,
        target=target,
        stage=failed.stage if failed else Stage.OUTPUT,
        certainty=result.certainty,
        elapsed=max(0.0, elapsed - end.lost_seconds),
        kind=failed.kind if failed else None,
        cause=failed.cause if failed else None,
        usage=result.usage,
        http_status=end.head.status if end.head else None,
        provider_code=failed.provider_code if failed else None,
        provider_request_id=result.provider_request_id,
    )
    return (*lost, last)


def _lost(target: str, end: ExchangeEnd) -> Attempt:
    return Attempt(
        number=1,
        target=target,
        stage=Stage.WRITTEN if end.lost_written else Stage.WRITING,
        certainty=Certainty.UNKNOWN if end.lost_written else Certainty.NONE,
        elapsed=end.lost_seconds,
        kind=Kind.UNAVAILABLE if end.lost_written else Kind.UNREACHABLE,
        cause=Cause.NETWORK,
    )
