"""How a provider learns who calls: by a header that carries a key, or by a signature.

A signature needs credentials that expire; they are got before a connection is taken.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from modelmeter_server.core.errors import Failure, failure
from modelmeter_server.core.outcomes import Cause, Code, Kind, Stage

from .http import ExchangeEnd, Fault, egress_refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .http import HttpRequest, Pool
    from .http.delivery import Permit, Sink
    from .http.exchange import Exchange


def key_header(name: str) -> Callable[[str], tuple[str, str]]:
    """Return what turns a key into the header of this name: `authorization` bears it, any other holds it bare."""

    def header(key: str) -> tuple[str, str]:
        return name, f"Bearer {key}" if name == "authorization" else key

    return header


class CredentialsError(Exception):
    """There are no credentials, so that nothing was sent; the message holds none of them."""

    def __init__(self, message: str, *, is_lasting: bool) -> None:
        super().__init__(message)
        self.is_lasting = is_lasting
        """No repetition mends it: somebody has to change the deployment."""


class EgressRefused(CredentialsError):
    """The deployment may not connect to where its credentials are; the message says to which host."""

    def __init__(self, message: str) -> None:
        super().__init__(message, is_lasting=True)


class Authenticator(Protocol):
    """Proves to a provider who calls, where that takes more than a header with a key."""

    @property
    def is_ready(self) -> bool:
        """Say whether a request could be signed now."""

    async def prepare(self) -> None:
        """Get credentials. May be cancelled. Raises CredentialsError."""

    def headers(self, request: HttpRequest, url: str) -> tuple[tuple[str, str], ...]:
        """Return what to add to the request, which goes to this absolute URL."""

    @property
    def secrets(self) -> Sequence[str]:
        """Return what must be cut out of any text of the provider.

        Once they are others, `SECRET_CHANGES.note()` says so to those who remember them.
        """


class AuthenticatedExchange:
    """An exchange that begins once its request is signed."""

    def __init__(
        self,
        pool: Pool,
        request: HttpRequest,
        sink: Sink,
        authenticator: Authenticator,
        timeout: float,
        permit: Permit | None = None,
    ) -> None:
        """`timeout`: seconds that credentials may take; they are a step of getting a connection."""
        self._pool = pool
        self._request = request
        self._sink = sink
        self._authenticator = authenticator
        self._timeout = timeout
        self._permit = permit
        self._exchange: Exchange | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._end: ExchangeEnd | None = None

    async def run(self) -> ExchangeEnd:
        """See `Exchange.run`. Raises CredentialsError before anything is sent."""
        if self._end is None and not self._authenticator.is_ready:
            await self._prepare()
        if self._end is not None:
            return self._end
        endpoint = self._pool.endpoint
        url = f"{endpoint.scheme}://{endpoint.authority}{self._request.target}"
        added = self._authenticator.headers(self._request, url)
        signed = replace(self._request, headers=(*self._request.headers, *added))
        self._exchange = self._pool.exchange(signed, self._sink, permit=self._permit)
        return await self._exchange.run()

    async def _prepare(self) -> None:
        self._preparing = asyncio.ensure_future(self._authenticator.prepare())
        # It may fail in the very moment in which the call is cut, and then nobody asks for its error.
        self._preparing.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            await asyncio.wait((self._preparing,), timeout=self._timeout)
        finally:
            late = self._preparing.cancel()
        if self._end is not None:
            return
        if late:
            self._end = _not_sent(Fault.CONNECT_TIMEOUT, Cause.NETWORK, "no credentials in time")
        else:
            self._preparing.result()

    def cut(self, cause: Cause, detail: str = "") -> None:
        """See `Exchange.cut`."""
        if self._exchange is not None:
            self._exchange.cut(cause, detail)
        elif self._end is None:
            self._end = _not_sent(Fault.CUT, cause, detail or "cut")
            if self._preparing is not None:
                self._preparing.cancel()

    def set_idle_timeout(self, seconds: float) -> None:
        """See `Exchange.set_idle_timeout`."""
        if self._exchange is not None:
            self._exchange.set_idle_timeout(seconds)

    def pause_reading(self) -> None:
        """See `Exchange.pause_reading`."""
        if self._exchange is not None:
            self._exchange.pause_reading()

    def resume_reading(self) -> None:
        """See `Exchange.resume_reading`."""
        if self._exchange is not None:
            self._exchange.resume_reading()


def _not_sent(fault: Fault, cause: Cause, detail: str) -> ExchangeEnd:
    return ExchangeEnd(
        stage=Stage.NOT_WRITTEN,
        fault=fault,
        cause=cause,
        detail=detail,
        head=None,
        attempts=1,
        reused=False,
        request_written=False,
    )


def without_credentials(error: CredentialsError) -> Failure:
    """Nothing was sent: what a provider would refuse with 401, or a service of ours that could not be asked."""
    if isinstance(error, EgressRefused):
        return egress_refusal(str(error))
    if error.is_lasting:
        return failure(Kind.REFUSED, str(error), cause=Cause.LIMIT, code=Code.FAILED_PRECONDITION)
    return failure(Kind.UNREACHABLE, str(error), cause=Cause.NETWORK)
