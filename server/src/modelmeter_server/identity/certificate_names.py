"""The names in a client's certificate, as the tenants of a configuration spell them.

They are read from the certificate itself: gRPC tells names of its own reading, which end at the first NUL character,
so that whoever is given `agent.internal<NUL>.elsewhere.example` would be `agent.internal`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Iterator

_REMEMBERED: Final = 1_024
"""Certificates whose names are remembered: a client shows the same one with every call."""


@lru_cache(_REMEMBERED)
def names_in(pem: bytes) -> tuple[str, ...]:
    """Return the names in a PEM certificate, URIs first and the common name last; none in one that cannot be read.

    Each begins with its sort, `uri:`, `dns:` or `cn:`. Of several common names the first counts, as in gRPC.
    """
    try:
        return tuple(_names(x509.load_pem_x509_certificate(pem)))
    except (ValueError, TypeError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return ()


def _names(certificate: x509.Certificate) -> Iterator[str]:
    try:
        others = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        pass
    else:
        yield from (f"uri:{each}" for each in others.get_values_for_type(x509.UniformResourceIdentifier))
        yield from (f"dns:{each}" for each in others.get_values_for_type(x509.DNSName))
    for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[:1]:
        value = each.value
        yield f"cn:{value if isinstance(value, str) else value.decode('utf-8', 'replace')}"
