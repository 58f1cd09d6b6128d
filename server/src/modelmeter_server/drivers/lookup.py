"""Asking a provider what an ended call consumed, over the connections of its own instance.

What to ask and how to read it is each provider's own (`drivers/*/reconcile.py`); the request stands here once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import httpx
import msgspec

from modelmeter_server.core.errors import Failure, failure
from modelmeter_server.core.json_text import NotJson, loads_lenient
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Kind
from modelmeter_server.core.retry_delay import retry_delay
from modelmeter_server.core.text import cut_utf8
from modelmeter_server.core.usage import AdditionalUsage, Usage

from .http import Fault, HttpxTransport, egress_refusal, exchange_end

if TYPE_CHECKING:
    from .http import Pool

TIMEOUT: Final = 20.0
"""Seconds for each step of a lookup."""

_GONE = (404, 410)
_LATER = (408, 425)


class EndedCall(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a call whose bill is asked for."""

    model: str
    """As configured, for messages."""
    response_id: str
    """The provider's id of the answer; empty when it never told one."""
    recoverable: bool
    """Whether the model is configured so that the provider keeps its answers."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider told of an ended call."""

    usage: Usage
    certainty: Certainty
    additional_usage: tuple[AdditionalUsage, ...] = ()
    nano_units: int | None = None
    """Money in nano US dollars, where the provider tells it."""
    service_tier: str | None = None


class NotReconcilable(Exception):
    """The provider cannot tell; the message says why and what would help."""


def cannot_tell(kind: str) -> str:
    """Return why no provider of a kind can be asked."""
    return f"providers of kind {kind} cannot tell what an ended call consumed: book a figure with a reason"


class LookupFailed(Exception):
    """The provider could not be asked now."""

    def __init__(self, verdict: Failure) -> None:
        super().__init__(verdict.message)
        self.verdict = verdict


class Reconciler(msgspec.Struct, frozen=True):
    """How one provider kind tells what an ended call consumed. Both are pure and raise NotReconcilable."""

    target: Callable[[EndedCall], str]
    """Return path and query below the base URL."""
    read: Callable[[bytes], Told]
    """Read the answer's body."""


@runtime_checkable
class ReconcilingDriver(Protocol):
    """A driver whose provider may be able to tell."""

    async def reconcile(self, call: EndedCall) -> Told:
        """Ask what an ended call consumed. Raises NotReconcilable and LookupFailed."""


def record(body: bytes) -> object:
    """Return the JSON value of a body; `None` for none."""
    try:
        return loads_lenient(body)
    except NotJson:
        return None


async def look_up(
    pool: Pool,
    target: str,
    headers: tuple[tuple[str, str], ...],
    *,
    most_bytes: int,
    scrub: Callable[[str], str],
) -> bytes:
    """Return the body of a GET at a provider instance; `target` is the whole path. Raises what a driver does."""
    endpoint = pool.endpoint
    url = f"{endpoint.scheme}://{endpoint.authority}{target}"
    # Not closed: it would close the pool, which is the driver's.
    client = httpx.AsyncClient(
        transport=HttpxTransport.over(pool), timeout=TIMEOUT, trust_env=False, follow_redirects=False
    )
    try:
        async with client.stream("GET", url, headers=list(headers)) as response:
            body = await _body(response, most_bytes)
    except httpx.RequestError as error:
        end = exchange_end(error)
        if end is not None and end.fault is Fault.EGRESS:
            raise LookupFailed(egress_refusal(end.detail)) from None
        detail = cut_utf8(scrub(str(error)), 200) or type(error).__name__
        message = f"the provider could not be asked: {detail}"
        raise LookupFailed(failure(Kind.UNREACHABLE, message, cause=Cause.NETWORK)) from None
    if response.is_success:
        return body
    raise _refusal(response)


async def _body(response: httpx.Response, most_bytes: int) -> bytes:
    parts, size = [], 0
    async for part in response.aiter_raw():
        parts.append(part)
        size += len(part)
        if size > most_bytes:
            message = f"the provider's record is larger than {most_bytes:,} bytes"
            raise LookupFailed(
                failure(Kind.REFUSED, message, cause=Cause.LIMIT, code=Code.FAILED_PRECONDITION)
            )
    return b"".join(parts)


def _refusal(response: httpx.Response) -> Exception:
    status = response.status_code
    if status in _GONE:
        return NotReconcilable("the provider keeps no record of the call, or no longer")
    message = f"the provider refused to tell (HTTP {status})"
    if status == 429:
        wait = retry_delay(response.headers.get, None)
        return LookupFailed(failure(Kind.RATE_LIMITED, message, http_status=status, retry_after=wait))
    if status >= 500 or status in _LATER:
        return LookupFailed(failure(Kind.UNREACHABLE, message, http_status=status))
    return LookupFailed(failure(Kind.REFUSED, message, code=Code.FAILED_PRECONDITION, http_status=status))
