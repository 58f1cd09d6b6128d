"""Files that a configuration names: keys, certificates, scripts."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tables import Table


def readable_file(table: Table, key: str, name: str | None, folder: Path) -> Path | None:
    """Return the absolute path of a file that can be read; note a mistake and return `None` otherwise."""
    if name is None:
        return None
    if "\0" in name:
        table.mistake(key, "is no path: it holds a NUL character", "correct the path")
        return None
    try:
        path = folder / Path(name).expanduser()
    except RuntimeError:
        table.mistake(key, "begins with the home of an unknown user", "correct the path")
        return None
    table.names_file(key, path)
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        table.mistake(key, f"cannot read {path}: {error.strerror}", "correct the path or its permissions")
        return None
    return path


def digest(path: Path) -> bytes:
    """Return what tells whether a file has changed; nothing of one that cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return b""


def certificate_problem(certificate: Path, key: Path) -> str | None:
    """Say why this certificate and key cannot serve, or return `None`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # An encrypted key would make OpenSSL ask on the terminal: it gets an empty passphrase instead.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        return f"TLS cannot use it with its key ({_reason(error)})"
    return None


def trust_problem(ca_file: Path) -> str | None:
    """Say why this file is no trust store, or return `None`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(ca_file)
    except (OSError, ValueError) as error:
        return f"holds no PEM certificate ({_reason(error)})"
    return None


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
