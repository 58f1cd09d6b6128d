"""Open the addresses that the server listens on, with an error that names the address and the fix."""

from __future__ import annotations

import ipaddress
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import msgspec

from modelmeter_server.drivers.server_certificate import Certificate, CertificateError, CertificateFiles
from modelmeter_server.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

_log = get_logger(__name__)


class ListenError(Exception):
    """An address cannot be listened on; the message says why and what to do."""


class TlsFiles(msgspec.Struct, frozen=True):
    """PEM files of a server that speaks TLS. A file that is replaced counts from the next connection on."""

    certificate: Path
    """The chain, the server's own certificate first."""
    key: Path
    """The unencrypted key."""
    client_ca: Path | None = None
    """The authorities of clients, each of which must then show a certificate."""


def open_addresses(
    server: grpc.aio.Server, addresses: Sequence[str], tls: ServerTls | None, *, allow_insecure: bool
) -> list[str]:
    """Open every address and return them as bound: a port 0 is replaced by the port that was chosen.

    Raises ListenError: without TLS, for an address that other machines can reach unless `allow_insecure`; for an
    address that is in use or not ours.
    """
    credentials = tls.credentials if tls is not None else None
    for address in addresses:
        if credentials is None and not allow_insecure and not is_loopback(address):
            message = (
                f"will not listen on {address} without TLS, because other machines can reach it: configure TLS, "
                "listen on 127.0.0.1, or allow it explicitly (allow_insecure = true) if something else shields it"
            )
            raise ListenError(message)
    return [_open(server, address, credentials) for address in addresses]


def _open(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError:
        port = 0
    if not port:
        message = (
            f"cannot listen on {address}: another process has the port, the address is not this machine's, or the "
            "port needs more rights; stop the other process or choose another address"
        )
        raise ListenError(message)
    host, colon, asked = address.rpartition(":")
    return f"{host}:{port}" if colon and asked == "0" else address


class ServerTls:
    """What a server shows and whom it asks for certificates. Its files may be replaced, and named anew."""

    def __init__(self, tls: TlsFiles) -> None:
        """Read the files. Raises ListenError when they cannot be read or do not fit together."""
        files = _files(tls)
        try:
            first = files.read()
        except CertificateError as error:
            raise ListenError(str(error)) from None
        self._renewal = _Renewal(files)
        fetch: Any = self._renewal  # the type stubs do not know that it may say that nothing has changed
        self.credentials = grpc.dynamic_ssl_server_credentials(
            _configuration(first), fetch, require_client_authentication=tls.client_ca is not None
        )

    def reconfigure(self, tls: TlsFiles) -> None:
        """Show what other files hold, from the next connection on; whether clients are asked stays as it is."""
        self._renewal.name(_files(tls))


def _files(tls: TlsFiles) -> CertificateFiles:
    return CertificateFiles(tls.certificate, tls.key, tls.client_ca)


def _configuration(certificate: Certificate) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(certificate.key, certificate.chain)], certificate.client_ca
    )


class _Renewal:
    """What gRPC asks before every handshake, in a thread of its own: is there another certificate?"""

    def __init__(self, files: CertificateFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._complaint = ""

    def name(self, files: CertificateFiles) -> None:
        """Look at other files from now on."""
        with self._lock:
            files.follow(self._files)
            self._files = files

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        with self._lock:
            try:
                renewed = self._files.renewed()
            except CertificateError as error:
                self._complain(str(error))
                return None
            self._complaint = ""
        if renewed is None:
            return None
        _log.info("the certificate was renewed")
        return _configuration(renewed)

    def _complain(self, reason: str) -> None:
        if reason != self._complaint:
            _log.error("the certificate is not renewed; the one before still holds", reason=reason)
        self._complaint = reason


def is_loopback(address: str) -> bool:
    """Say whether only this machine can reach an address; a name other than localhost may mean anything."""
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
