"""The certificate that the server shows and the authorities of its clients, read anew whenever their files change."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, NamedTuple

from modelmeter_server.drivers.file_watch import FileWatch

if TYPE_CHECKING:
    from pathlib import Path


class CertificateError(Exception):
    """The files cannot be read or do not fit together; the message says which and why."""


class Certificate(NamedTuple):
    """PEM texts."""

    chain: bytes
    key: bytes
    client_ca: bytes | None


class CertificateFiles:
    """Read the files of a server together: a certificate without its key is none."""

    def __init__(self, chain: Path, key: Path, client_ca: Path | None) -> None:
        self._chain = chain
        self._key = key
        self._client_ca = client_ca
        self._watch = FileWatch([path for path in (chain, key, client_ca) if path is not None])
        self._last: Certificate | None = None

    def read(self) -> Certificate:
        """Return what the files hold now. Raises CertificateError."""
        self._watch.changed()
        self._last = self._checked()
        return self._last

    def follow(self, before: CertificateFiles) -> None:
        """Take the place of other files: what they held last is nothing new, should these hold the same."""
        self._last = before._last

    def renewed(self) -> Certificate | None:
        """Return what the files hold if that has changed since the last success, else `None`.

        Raises CertificateError when they have changed and do not fit, as between the replacing of one and of the next.
        """
        if not self._watch.changed():
            return None
        try:
            found = self._checked()
        except CertificateError:
            self._watch.forget()
            raise
        if found == self._last:
            return None
        self._last = found
        return found

    def _checked(self) -> Certificate:
        try:
            found = Certificate(
                self._chain.read_bytes(),
                self._key.read_bytes(),
                None if self._client_ca is None else self._client_ca.read_bytes(),
            )
            # OpenSSL loads pairs from files only: what is checked is read once more, and must be what was read.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._chain, self._key, password="")
            unchanged = (self._chain.read_bytes(), self._key.read_bytes()) == found[:2]
        except (OSError, ValueError) as error:
            raise CertificateError(_complaint(self._chain, error)) from None
        if self._client_ca is not None and found.client_ca is not None:
            _check_authorities(self._client_ca, found.client_ca)
        if not unchanged:
            message = f"{self._chain} is being replaced"
            raise CertificateError(message)
        return found


def _check_authorities(path: Path, pem: bytes) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=pem.decode("ascii", "replace"))
    except (OSError, ValueError) as error:
        raise CertificateError(_complaint(path, error)) from None


def _complaint(path: Path, error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return f"cannot read the TLS file {getattr(error, 'filename', None) or path}: {reason}"
