"""Try an address before gRPC does: its core would print lines of its own, and does not say what is wrong."""

from __future__ import annotations

import errno
import os
import socket

from modelmeter_server.rpc.listen import ListenError

_FIXES = {
    errno.EADDRINUSE: "stop the other process, or choose another port",
    errno.EADDRNOTAVAIL: "choose an address of this machine",
    errno.EACCES: "choose a port from 1024 on, or allow this one (CAP_NET_BIND_SERVICE)",
}


def reserve(address: str) -> str:
    """Take an address for processes that will share it, for as long as this one lives, and return it with its port.

    The socket is bound and never listens, so no connection comes to it; it outlives the program that this process
    becomes. Raises ListenError.
    """
    check_free(address)
    host, _, port = address.rpartition(":")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as kept:
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            kept.bind(place)
            found = kept.getsockname()[1]
            os.set_inheritable(kept.detach(), True)
    except OSError as error:
        raise ListenError(_sentence(address, error)) from None
    return f"{host}:{found}"


def check_free(address: str) -> None:
    """Raise ListenError, which says why and what to do, if a TCP address cannot be listened on at the moment."""
    if address.startswith("unix"):
        return
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        for family, kind, protocol, _, place in found[:1]:
            with socket.socket(family, kind, protocol) as probe:
                # As gRPC does: connections that linger after a restart are no obstacle.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
                probe.listen(1)
    except OSError as error:
        raise ListenError(_sentence(address, error)) from None


def _sentence(address: str, error: OSError) -> str:
    reason = error.strerror or str(error)
    fix = _FIXES.get(error.errno or 0, "choose another address")
    return f"cannot listen on {address}: {reason}; {fix}"
