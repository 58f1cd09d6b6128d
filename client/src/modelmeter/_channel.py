"""How the client talks: the options of its channel, deadlines and metadata of its calls.

Every option has a reason here, and every one can be overridden.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from ._version import __version__

DEFAULT_TIMEOUT = 600.0
"""Seconds. The server's own limit on a whole call is 600 s unless it is configured otherwise."""

_LONGEST_TIMEOUT = 1e9
"""Seconds. gRPC adds a timeout to the clock as nanoseconds in 63 bits, and one of 292 years is over at once."""

_KEY = re.compile(r"[0-9a-z_.-]+")
_VALUE = re.compile(rb"[ -~]*")

Metadata: TypeAlias = Mapping[str, str | bytes] | Iterable[tuple[str, str | bytes]]

_LEDGER_LOOKUPS = ("GetCall", "ListCalls", "GetSpend", "GetCeiling", "ListCeilings", "ListHalts")

# Retries only for lookups. A completion repeated by the transport could be bought twice: repeating is the
# caller's decision, by `retryable`, and then with the same call id.
_SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [
                {"service": "modelmeter.v1.ModelService", "method": "ListModels"},
                {"service": "modelmeter.v1.ModelService", "method": "GetModel"},
                *({"service": "modelmeter.v1.LedgerService", "method": name} for name in _LEDGER_LOOKUPS),
            ],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.1s",
                "maxBackoff": "2s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}

_OPTIONS: dict[str, str | int] = {
    # With the probe, a slow reader lets megabytes of deltas pile up in the transport before the server feels it.
    "grpc.http2.bdp_probe": 0,
    # Thinking models are silent for minutes; pings tell a silent peer from a dead one. Only while a call runs.
    "grpc.keepalive_time_ms": 30_000,
    "grpc.keepalive_timeout_ms": 10_000,
    "grpc.http2.max_pings_without_data": 0,
    # Answers can be long; 4 MiB, the default, is less than the server's limit on one.
    "grpc.max_receive_message_length": 64 * 1024 * 1024,
    # No server of ours takes a larger request, so it need not travel to be refused.
    "grpc.max_send_message_length": 64 * 1024 * 1024,
    # By default trailers above 8 KiB are dropped at random, and the bill of a failed call stands in them.
    "grpc.max_metadata_size": 64 * 1024,
    "grpc.absolute_max_metadata_size": 128 * 1024,
    "grpc.service_config": json.dumps(_SERVICE_CONFIG),
    "grpc.primary_user_agent": f"modelmeter-python/{__version__}",
}


def channel_options(target: str, overrides: Mapping[str, str | int] | None) -> list[tuple[str, str | int]]:
    """Return the channel options for a target: the defaults, with `overrides` in their place."""
    # The C core would send even loopback connections through an ambient https_proxy.
    loopback: dict[str, str | int] = {"grpc.enable_http_proxy": 0} if is_loopback(target) else {}
    return list({**_OPTIONS, **loopback, **(overrides or {})}.items())


def is_loopback(target: str) -> bool:
    """Say whether a gRPC target is on this machine: a Unix socket, `localhost`, or a loopback address.

    A list of addresses (`ipv4:127.0.0.1:1,127.0.0.1:2`) is, if every one of them is.
    """
    scheme, colon, rest = target.partition(":")
    if colon and scheme in {"unix", "unix-abstract"}:
        return True
    if colon and scheme in {"dns", "ipv4", "ipv6"}:
        target = rest.rpartition("/")[2] if rest.startswith("//") else rest
    return all(_is_loopback_host(_host(address)) for address in target.split(","))


def _host(address: str) -> str:
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


def _is_loopback_host(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def deadline(timeout: float | None, default: float) -> float | None:
    """Return the seconds that gRPC is told, None for no deadline.

    `timeout` None is the default, `math.inf` is none; what is past already is 0, so that the call fails as a
    late one does, and what is longer than a life is cut. Raises ValueError for a timeout that is not a number.
    """
    chosen = default if timeout is None else timeout
    if chosen == math.inf:
        return None
    # Also for an int that no float holds: it is compared, not converted.
    if chosen >= _LONGEST_TIMEOUT:
        return _LONGEST_TIMEOUT
    if math.isnan(chosen):
        message = "a timeout is a number of seconds, math.inf for none"
        raise ValueError(message)
    return max(chosen, 0.0)


def call_metadata(metadata: Metadata | None, token: str | None) -> tuple[tuple[str, str | bytes], ...]:
    """Return the metadata of a call; the caller's own `authorization` goes before the client's token.

    Raises ValueError for what no HTTP/2 header may hold, TypeError for what is neither text nor bytes: gRPC would
    name neither the key nor the reason, and for asyncio raise an exception of its own insides. A value is never
    quoted, for it may be a secret.
    """
    pairs = metadata.items() if isinstance(metadata, Mapping) else metadata or ()
    own = tuple(_checked_pair(key, value) for key, value in pairs)
    if token is None or any(key == "authorization" for key, _ in own):
        return own
    return (*own, ("authorization", f"Bearer {token}"))


def _checked_pair(key: str, value: str | bytes) -> tuple[str, str | bytes]:
    # gRPC refuses upper-case keys too.
    key = key.lower()
    if not _KEY.fullmatch(key):
        message = f"{key!r} is no key of metadata: letters, digits, dots, dashes and underscores"
        raise ValueError(message)
    binary = key.endswith("-bin")
    if not isinstance(value, bytes if binary else (str, bytes)):
        message = f"metadata {key!r} is {'bytes' if binary else 'text'}, not {type(value).__name__}"
        raise TypeError(message)
    if not binary and not _is_header_value(value):
        message = (
            f"metadata {key!r} is printable ASCII without line ends, or bytes under a key that ends in -bin"
        )
        raise ValueError(message)
    return key, value


def _is_header_value(value: str | bytes) -> bool:
    octets = value if isinstance(value, bytes) else value.encode(errors="surrogatepass")
    return _VALUE.fullmatch(octets) is not None


def check_token(target: object, token: object, *, secure: bool) -> None:
    """Raise ValueError when a token would cross a network in the clear, or when no metadata can hold it.

    Raises TypeError for a token that is not text. What a ready channel does with a token is the business of whoever
    made it.
    """
    if token is None:
        return
    if not isinstance(token, str):
        message = f"a token is text, not {type(token).__name__}"
        raise TypeError(message)
    if not _is_header_value(token):
        message = "a token is printable ASCII without line ends; was it read from a file with its last one?"
        raise ValueError(message)
    if isinstance(target, str) and not secure and not is_loopback(target):
        message = (
            f"a token for {target} needs TLS: give credentials=grpc.ssl_channel_credentials(),"
            " or send it as metadata if something else encrypts the connection"
        )
        raise ValueError(message)
