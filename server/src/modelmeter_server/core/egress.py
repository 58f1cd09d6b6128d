"""Where a deployment may connect to: exact hosts, compared as DNS compares them. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

import msgspec

DEFAULT_PORTS: Final = {"http": 80, "https": 443}
"""What an entry without a port allows: the port that the scheme of the address goes by."""

_NAME: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_PORT: Final = re.compile(r"[0-9]{1,5}")
_FORMS: Final = 'write "host", "host:port" or "[IPv6 address]:port", without a scheme, a path or a wildcard'

# Where clouds hand out a machine's credentials to whoever asks from inside, beside the link-local ones: those of AWS
# (of the machine and of its pods), Google, Oracle, Alibaba and Azure.
_METADATA: Final = tuple(
    map(
        ipaddress.ip_network,
        ("fd00:ec2::/32", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "100.100.100.200", "168.63.129.16"),
    )
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


class Egress(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts that may be connected to."""

    hosts: frozenset[tuple[str, int | None]]
    """Host in normal form and port; without a port the scheme's own."""

    def allows(self, scheme: str, host: str, port: int) -> bool:
        """Say whether a connection to this host and port may be opened for an address of this scheme."""
        name = normal_host(host)
        return (name, port) in self.hosts or (
            (name, None) in self.hosts and port == DEFAULT_PORTS.get(scheme)
        )

    def allows_address(self, host: str, address: str, scheme: str, port: int) -> bool:
        """Say whether a host that is allowed may stand for this address.

        One that hands out the machine's own credentials must be allowed by itself: whoever answers for an allowed
        name could point it there.
        """
        return not is_metadata(address) or normal_host(host) == address or self.allows(scheme, address, port)


def parse_entry(text: str) -> tuple[str, int | None]:
    """Return host and port of an entry of the list. Raises ValueError, which says what to write."""
    host, port = _split(text)
    name = normal_host(host)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        if not _NAME.fullmatch(name):
            message = f'"{text}" is no host; {_FORMS}'
            raise ValueError(message) from None
    if port is None:
        return name, None
    if not _PORT.fullmatch(port) or not 1 <= int(port) <= 65_535:
        message = f'"{text}" has no port from 1 to 65535; {_FORMS}'
        raise ValueError(message)
    return name, int(port)


def _split(text: str) -> tuple[str, str | None]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        if rest and not rest.startswith(":"):
            message = f'"{text}" is no host; {_FORMS}'
            raise ValueError(message)
        return host, rest[1:] if rest else None
    if text.count(":") > 1:  # an IPv6 address, whose last group could be taken for a port
        return text, None
    host, colon, port = text.partition(":")
    return host, port if colon else None


def normal_host(host: str) -> str:
    """Return a host as it is compared: in lower case, in ASCII (IDNA), without a dot at its end, addresses in short."""
    bare = host.strip("[]").rstrip(".") if host.endswith(".") else host.strip("[]")
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        pass
    try:
        return bare.encode("idna").decode("ascii").lower()
    except UnicodeError:
        return bare.lower()


def is_metadata(address: str) -> bool:
    """Say whether this is an address where clouds hand out credentials: a link-local one, or another that is known."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = _ipv4_within(found) or found
    return inner.is_link_local or any(inner in network for network in _METADATA)


def _ipv4_within(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that an IPv6 one leads to: mapped, or by a translator on the way."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour
