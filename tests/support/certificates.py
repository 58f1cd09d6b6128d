"""Authorities and the PEM files that they issue."""

from __future__ import annotations

from pathlib import Path

import grpc
import trustme

from modelmeter_server.rpc.listen import TlsFiles


def write_server(folder: Path, authority: trustme.CA, clients: trustme.CA | None = None) -> TlsFiles:
    """Write a certificate for `localhost`, over the one that is there; with `clients`, their authority too."""
    issued = authority.issue_cert("localhost")
    files = TlsFiles(
        folder / "server.pem", folder / "server.key", folder / "clients.pem" if clients else None
    )
    # The certificate first: until the key follows, the two do not fit together.
    files.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    files.key.write_bytes(issued.private_key_pem.bytes())
    if clients is not None and files.client_ca is not None:
        files.client_ca.write_bytes(clients.cert_pem.bytes())
    return files


def trusting(*authorities: trustme.CA, own: trustme.LeafCert | None = None) -> grpc.ChannelCredentials:
    """Return the credentials of a client that trusts these authorities and shows a certificate of its own, if any."""
    roots = b"".join(each.cert_pem.bytes() for each in authorities)
    if own is None:
        return grpc.ssl_channel_credentials(roots)
    chain = b"".join(blob.bytes() for blob in own.cert_chain_pems)
    return grpc.ssl_channel_credentials(roots, own.private_key_pem.bytes(), chain)


def unshared(number: int) -> list[tuple[str, str | int]]:
    """Return channel options under which no connection or TLS session of another channel is used again."""
    return [("grpc.use_local_subchannel_pool", 1), ("test.number", number)]
