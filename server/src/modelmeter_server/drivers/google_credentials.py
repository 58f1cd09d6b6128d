"""Access tokens of Google, for Vertex AI: google-auth, an extra, knows where credentials are and how they renew.

Application Default Credentials (the environment's file, gcloud's, the machine's account), or one service account file.
"""

from __future__ import annotations

import importlib.util
import time
from calendar import timegm
from typing import TYPE_CHECKING, Any, Final

from .authentication import CredentialsError, EgressRefused
from .file_watch import FileWatch
from .http import OPEN_GATE, ConnectError, EgressGate
from .renewal import Renewal
from .token_request import TokenRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from .http import HttpRequest

EXTRA: Final = "modelmeter-server[google]"

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
"""What tokens are asked for: the one scope that Vertex AI takes."""

_RENEW_SECONDS: Final = 225.0
"""Rest of a life at which a new token is fetched beside the calls; google-auth's own threshold. A machine's account
gives the same token until four minutes before its end, so that asking earlier would be in vain."""
_LEAST_SECONDS: Final = 30.0
"""Rest of a life at which calls wait for a new one: a request may stand in line for a connection."""
_UNTOLD_LIFE: Final = 600.0
"""Seconds that a token is used whose end nobody told."""


class _Token:
    """An access token as it was fetched; google-auth's object changes in a thread. Shows nothing of itself."""

    __slots__ = ("expires_at", "headers", "value")

    def __init__(self, value: str, headers: tuple[tuple[str, str], ...], expires_at: float) -> None:
        self.value = value
        self.headers = headers
        self.expires_at = expires_at


def can_fetch() -> bool:
    """Say whether google-auth is installed."""
    try:
        return importlib.util.find_spec("google.auth") is not None
    except ModuleNotFoundError:
        return False


def file_problem(path: Path) -> str | None:
    """Say why this is no service account file, or return `None`; quotes nothing of it."""
    try:
        _from_file(path)
    except Exception as error:  # noqa: BLE001 - whatever it holds, it is a mistake of the configuration
        return f"holds no service account ({type(error).__name__})"
    return None


def _from_file(path: Path) -> Any:
    from google.oauth2 import service_account

    # google-auth is typed in part.
    load: Any = service_account.Credentials.from_service_account_file
    return load(str(path), scopes=[SCOPE])


class GoogleCredentials:
    """Authorize requests with an access token that is renewed before it expires.

    google-auth reads files and uses the network: it is asked in a thread, once for all calls that wait.
    """

    def __init__(
        self,
        file: Path | None = None,
        *,
        proxy: str | None = None,
        ca_file: str | None = None,
        gate: EgressGate = OPEN_GATE,
    ) -> None:
        """Fetch nothing yet. Without a `file` of a service account the Application Default Credentials are used.

        `proxy` and `ca_file` hold for the way to the token endpoint, as for that to the provider.
        """
        self._file = file
        self._watch = FileWatch([] if file is None else [file])
        self._request = TokenRequest(proxy=proxy, ca_file=ca_file, gate=gate)
        self._credentials: Any = None
        self._renewal = Renewal(self._fetch)
        self._before = ""

    @property
    def is_ready(self) -> bool:
        """Say whether there is a token that will live on for a while."""
        token = self._renewal.value
        return token is not None and token.expires_at - time.time() > _LEAST_SECONDS

    async def prepare(self) -> None:
        """Wait for a token. Raises CredentialsError."""
        await self._renewal.wait()

    def headers(self, request: HttpRequest, url: str) -> tuple[tuple[str, str], ...]:
        """Return the header with the token, and that of the project that pays for the quota, if there is one."""
        token = self._renewal.value
        if token is None:
            return ()
        if token.expires_at - time.time() < _RENEW_SECONDS:
            self._renewal.renew()
        return token.headers

    @property
    def secrets(self) -> Sequence[str]:
        """Return the token, and the one before it, which calls under way may still have sent."""
        token = self._renewal.value
        return tuple(filter(None, (token.value if token else "", self._before)))

    def _fetch(self) -> _Token:
        """Return a new token; runs in a thread. Raises CredentialsError."""
        try:
            credentials = self._known() or self._find()
            credentials.refresh(self._request)
            token = _token(credentials)
        except Exception as error:
            shut = next((each for each in _causes(error) if isinstance(each, ConnectError)), None)
            if shut is not None:
                raise EgressRefused(shut.detail) from error
            lasting = _is_lasting(error)
            # A key that was replaced is read anew; so is what the environment names by now.
            self._credentials = None if lasting else self._credentials
            raise CredentialsError(_complaint(error, lasting=lasting), is_lasting=lasting) from error
        self._credentials = credentials
        self._before = self._renewal.value.value if self._renewal.value else ""
        return token

    def _known(self) -> Any:
        """Return the account, from the file if that was replaced; a file that holds none keeps the one before it."""
        if self._file is None or self._credentials is None or not self._watch.changed():
            return self._credentials
        try:
            return _from_file(self._file)
        except Exception:  # noqa: BLE001 - whatever it holds, the next token can be had without it
            self._watch.forget()
            return self._credentials

    def _find(self) -> Any:
        if self._file is not None:
            return _from_file(self._file)
        import google.auth

        request: Any = self._request
        credentials, _ = google.auth.default(scopes=[SCOPE], request=request)
        return credentials


def _token(credentials: Any) -> _Token:
    if not isinstance(credentials.token, str) or not credentials.token.isascii():
        msg = "the token endpoint gave no token"
        raise ValueError(msg)
    headers: dict[str, str] = {}
    credentials.apply(headers)
    expiry = credentials.expiry  # naive, in UTC
    expires_at = time.time() + _UNTOLD_LIFE if expiry is None else timegm(expiry.utctimetuple())
    return _Token(
        credentials.token, tuple((name.lower(), value) for name, value in headers.items()), expires_at
    )


def _is_lasting(error: Exception) -> bool:
    """Say whether somebody has to change the deployment: anything but a token endpoint that could not be asked."""
    from google.auth.exceptions import TransportError

    return not any(
        isinstance(each, TransportError | OSError) or getattr(each, "retryable", False) is True
        for each in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _complaint(error: Exception, *, lasting: bool) -> str:
    # Not the error's text: it may quote what a token endpoint or a credential program wrote.
    what = "the deployment has no usable Google credentials" if lasting else "Google gave no access token"
    return f"{what} ({type(error).__name__})"
