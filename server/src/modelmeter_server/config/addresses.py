"""Addresses to listen on, as gRPC takes them."""

from __future__ import annotations

import re

_HOST_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^\[\]:/\s]+):(?P<port>\d{1,5})")
HIGHEST_PORT = 65_535
_FORMS = 'write "host:port", "[IPv6 address]:port" or "unix:/path"'


def check_address(address: str) -> None:
    """Raise ValueError, which says what to write instead, unless this is an address to listen on."""
    if address.startswith("unix-abstract:"):
        return
    if address.startswith("unix:"):
        if not address.removeprefix("unix:").startswith("/"):
            msg = f'"{address}" has no absolute path; {_FORMS}'
            raise ValueError(msg)
        return
    match = _HOST_PORT.fullmatch(address)
    if match is None or int(match["port"]) > HIGHEST_PORT:
        msg = f'"{address}" is not an address to listen on; {_FORMS}'
        raise ValueError(msg)


def of_worker(address: str, index: int) -> str:
    """Return what the worker of this index listens on where no two can share an address.

    The port, or the name of the socket, is the configured one for the first, and counts up for the others.
    """
    if not index or not address:
        return address
    if address.startswith("unix"):
        return f"{address}.{index}"
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + index}" if int(port) else address


def last_port(address: str, workers: int) -> int:
    """Return the highest port that `of_worker` gives for an address; 0 for a socket."""
    if address.startswith("unix") or not address:
        return 0
    return int(of_worker(address, workers - 1).rpartition(":")[2])
