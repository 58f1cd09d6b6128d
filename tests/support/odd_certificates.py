"""An authority that signs whatever name it is given: NUL characters, line ends, no name at all."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID

_DAY = datetime.timedelta(days=1)
_PEM = serialization.Encoding.PEM
_TAGS = {"uri": 0x86, "dns": 0x82, "email": 0x81}


def _name(texts: tuple[str, ...]) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each, _validate=False) for each in texts])


def _other_names(names: tuple[tuple[str, bytes], ...]) -> bytes:
    """Return the DER of a list of short names; the library would not write the odd ones."""
    body = b"".join(bytes([_TAGS[sort], len(name)]) + name for sort, name in names)
    assert len(body) < 128
    return bytes([0x30, len(body)]) + body


@dataclass
class OddAuthority:
    """Issues certificates of clients."""

    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    @property
    def pem(self) -> bytes:
        """Return its own certificate."""
        basic = x509.BasicConstraints(ca=True, path_length=None)
        return self._signed(("odd",), self.key, [(basic, True)]).public_bytes(_PEM)

    def issue(self, *names: tuple[str, bytes], common: tuple[str, ...] = ()) -> tuple[bytes, bytes]:
        """Return the PEM of a certificate with these names, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        extensions: list[tuple[x509.ExtensionType, bool]] = []
        if names:
            oid = ExtensionOID.SUBJECT_ALTERNATIVE_NAME
            extensions.append((x509.UnrecognizedExtension(oid, _other_names(names)), False))
        chain = self._signed(common, key, extensions).public_bytes(_PEM)
        own = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return chain, own

    def _signed(
        self,
        common: tuple[str, ...],
        key: ec.EllipticCurvePrivateKey,
        extensions: list[tuple[x509.ExtensionType, bool]],
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(common))
            .issuer_name(_name(("odd",)))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self.key, hashes.SHA256())
