"""TLS from files: whom to trust, and the certificate of the client itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from os import PathLike


def tls_credentials(
    *,
    ca_file: str | PathLike[str] | None = None,
    certificate: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
) -> grpc.ChannelCredentials:
    """Return the credentials of a client, for `Client(..., credentials=...)`.

    `ca_file` is a PEM file of the only authorities to trust, None for gRPC's own. `certificate` (the chain, the
    client's own first) and `key` are what the client shows to a server that asks for it (mTLS). The files are read
    once: make a new client when they change. Raises OSError for a file that cannot be read, ValueError for one of the
    two alone.
    """
    if (certificate is None) != (key is None):
        message = "a client shows a certificate with its key: give both or neither"
        raise ValueError(message)
    return grpc.ssl_channel_credentials(
        root_certificates=_read(ca_file), private_key=_read(key), certificate_chain=_read(certificate)
    )


def _read(file: str | PathLike[str] | None) -> bytes | None:
    return None if file is None else Path(file).read_bytes()
