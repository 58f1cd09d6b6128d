"""AWS Signature Version 4 with credentials that refresh themselves. botocore, an extra, knows both."""

from __future__ import annotations

import importlib.util
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from modelmeter_server.core.egress import DEFAULT_PORTS
from modelmeter_server.drivers.authentication import CredentialsError, EgressRefused
from modelmeter_server.drivers.http import OPEN_GATE, ConnectError, EgressGate
from modelmeter_server.drivers.renewal import Renewal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from modelmeter_server.drivers.http import HttpRequest

SERVICE: Final = "bedrock"
"""The name that signatures are made for; it is not the host's."""

EXTRA: Final = "modelmeter-server[bedrock]"

_MACHINE_ACCOUNTS: Final = {"iam-role": "169.254.169.254", "container-role": "169.254.170.2"}
"""botocore's providers of credentials that ask the machine, and whom they ask."""

_RENEW_SECONDS: Final = 15 * 60
"""Rest of a life at which new credentials are fetched beside the calls; botocore's own advisory window."""
_LOOK_SECONDS: Final = 300.0
"""How often credentials that never expire are looked for anew, beside the calls."""
_LEAST_SECONDS: Final = 60
"""Rest of a life at which calls wait for new ones: a signed request may stand in line for a connection."""


class MissingExtra(RuntimeError):
    """Report that botocore is not installed."""

    def __init__(self) -> None:
        super().__init__(f'AWS credentials need botocore: pip install "{EXTRA}", or configure an API key')


def can_sign() -> bool:
    """Say whether botocore is installed."""
    return importlib.util.find_spec("botocore") is not None


class SigV4:
    """Sign the requests of one region with what botocore's chain of credentials finds.

    The chain reads the environment, shared files and the machine's role, and may use the network: it is asked in a
    thread, once for all calls that wait.
    """

    def __init__(self, region: str, find_credentials: Callable[[], Any] | None = None) -> None:
        """Fetch nothing yet; `find_credentials` returns botocore's credentials or `None`, and may block.

        Raises:
            MissingExtra: botocore is not installed.
        """
        if not can_sign():
            raise MissingExtra
        self._region = region
        self._gate = OPEN_GATE
        self._find = find_credentials or self._from_chain
        self._renewal = Renewal(self._fetch)
        self._fetched_at = 0.0
        self._before: tuple[str, ...] = ()

    def use_gate(self, gate: EgressGate) -> None:
        """Let the chain ask no service that the gate is shut for; call it before the first request."""
        self._gate = gate

    @property
    def is_ready(self) -> bool:
        """Say whether there are credentials that will live on for a while."""
        return self._frozen is not None and not self._expires_within(_LEAST_SECONDS)

    async def prepare(self) -> None:
        """Wait for credentials. Raises CredentialsError."""
        await self._renewal.wait()

    def headers(self, request: HttpRequest, url: str) -> tuple[tuple[str, str], ...]:
        """Return the headers of the signature."""
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        if self._expires_within(_RENEW_SECONDS) or self._may_be_replaced():
            self._renewal.renew()
        own = {name.lower() for name, _ in request.headers}
        signed = AWSRequest(request.method, url, headers=dict(request.headers), data=request.body)
        SigV4Auth(self._frozen, SERVICE, self._region).add_auth(signed)
        return tuple(
            (name.lower(), value) for name, value in signed.headers.items() if name.lower() not in own
        )

    @property
    def secrets(self) -> Sequence[str]:
        """Return the parts of the credentials, and of those before them."""
        return (*_parts(self._frozen), *self._before)

    def _expires_within(self, seconds: int) -> bool:
        needs_refresh = getattr(self._credentials, "refresh_needed", None)  # lasting ones have none
        return needs_refresh is not None and bool(needs_refresh(seconds))

    def _may_be_replaced(self) -> bool:
        """Say whether to look again at credentials that never expire: a shared file may hold others by now."""
        return self._lasts and time.monotonic() - self._fetched_at > _LOOK_SECONDS

    @property
    def _lasts(self) -> bool:
        return self._credentials is not None and not hasattr(self._credentials, "refresh_needed")

    @property
    def _credentials(self) -> Any:
        return self._renewal.value[0] if self._renewal.value else None

    @property
    def _frozen(self) -> Any:
        """Return the credentials as they were when they were fetched: botocore's may change in a thread."""
        return self._renewal.value[1] if self._renewal.value else None

    def _fetch(self) -> tuple[Any, Any]:
        """Return credentials and their state now; runs in a thread. Raises CredentialsError."""
        from botocore.exceptions import BotoCoreError

        try:
            self._fetched_at = time.monotonic()
            credentials = self._find() if self._lasts else self._credentials or self._find()
            if credentials is None:
                msg = "the deployment has no AWS credentials"
                raise CredentialsError(msg, is_lasting=True)
            frozen = credentials.get_frozen_credentials()
            if _parts(frozen) != _parts(self._frozen):
                self._before = _parts(self._frozen)
            return credentials, frozen
        except ConnectError as error:
            raise EgressRefused(error.detail) from error
        except (BotoCoreError, OSError, ValueError, KeyError, RuntimeError) as error:
            # Not the error's text: it may quote what a credential process printed.
            msg = f"AWS credentials could not be fetched ({type(error).__name__})"
            raise CredentialsError(msg, is_lasting=False) from error

    def _from_chain(self) -> Any:
        from botocore.session import Session

        session = Session()
        session.set_config_variable("region", self._region)
        # The machine's own account is asked by a client that nothing can be hooked into.
        resolver = session.get_component("credential_provider")
        for provider, address in _MACHINE_ACCOUNTS.items():
            try:
                self._gate.check("http", address, DEFAULT_PORTS["http"])
            except ConnectError:
                resolver.remove(provider)
        session.register("before-send", self._check)
        return session.get_credentials()

    def _check(self, request: Any, **_: Any) -> None:
        parts = urlsplit(request.url)
        self._gate.check(parts.scheme, parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme])


def _parts(frozen: Any) -> tuple[str, ...]:
    if frozen is None:
        return ()
    return tuple(filter(None, (frozen.access_key, frozen.secret_key, frozen.token)))
