"""`modelmeter healthcheck`: ask a server whether it takes calls. For probes that are commands, as Docker's are."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import grpc

_TIMEOUT = 3.0
"""Docker's and Kubernetes' probes give 5 s and 1 s by default; what answers later than this is not well."""

_ANY_HOST = re.compile(r"^(0\.0\.0\.0|\[::\])(?=:\d+$)")


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _default_address() -> str:
    """Return the first address that a server in this environment listens on, as this machine reaches it."""
    listen = os.environ.get("MODELMETER_LISTEN", "").split(",")[0].strip() or "127.0.0.1:50051"
    return _ANY_HOST.sub(lambda host: "127.0.0.1" if host[0] == "0.0.0.0" else "[::1]", listen)  # noqa: S104


@click.command()
@click.option(
    "--address",
    envvar="MODELMETER_ADDRESS",
    default=_default_address,
    show_envvar=True,
    metavar="HOST:PORT",
    help="The server.  [default: the first of MODELMETER_LISTEN, else 127.0.0.1:50051]",
)
@click.option(
    "--service", default="readiness", show_default=True, help="What to ask for: readiness, liveness."
)
@click.option(
    "--tls", is_flag=True, envvar="MODELMETER_TLS", show_envvar=True, help="Speak TLS to the server."
)
@click.option(
    "--ca-file",
    type=_FILE,
    envvar="MODELMETER_CA_FILE",
    show_envvar=True,
    help="PEM file of the authorities to trust; speaks TLS.",
)
@click.option(
    "--client-cert",
    type=_FILE,
    envvar="MODELMETER_CLIENT_CERT",
    show_envvar=True,
    help="PEM file of a certificate, for a server that asks for one; speaks TLS.",
)
@click.option(
    "--client-key",
    type=_FILE,
    envvar="MODELMETER_CLIENT_KEY",
    show_envvar=True,
    help="PEM file of its key.",
)
@click.option(
    "--token-file",
    type=_FILE,
    envvar="MODELMETER_TOKEN_FILE",
    show_envvar=True,
    help="File with a bearer token, for a server whose health is not open; or the token in MODELMETER_TOKEN.",
)
@click.option("--server-name", help="Name in the server's certificate, where the address has another.")
@click.option("--timeout", type=float, default=_TIMEOUT, show_default=True, metavar="SECONDS")
def healthcheck(
    address: str,
    service: str,
    tls: bool,
    ca_file: Path | None,
    client_cert: Path | None,
    client_key: Path | None,
    token_file: Path | None,
    server_name: str | None,
    timeout: float,
) -> None:
    """Ask a server whether it takes calls.

    The exit code is 0 if it does, and 1 if it does not or cannot be reached.
    """
    import grpc
    from grpc_health.v1 import health_pb2

    credentials = _credentials(tls, ca_file, client_cert, client_key)
    with _channel(address, credentials, server_name) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        # By hand: the type stubs of the generated stub know no method.
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        metadata = _metadata(address, token_file, is_secure=credentials is not None)
        try:
            status = check(request, timeout=timeout, metadata=metadata).status
        except grpc.RpcError as error:
            click.echo(f"{address}: {error.code().name}: {error.details()}", err=True)
            sys.exit(1)
    word = health_pb2.HealthCheckResponse.ServingStatus.Name(status)
    click.echo(f"{address}: {service} is {word}")
    sys.exit(status != health_pb2.HealthCheckResponse.SERVING)


def _metadata(address: str, token_file: Path | None, *, is_secure: bool) -> tuple[tuple[str, str], ...]:
    """Return the token as metadata; none goes to another machine in the clear."""
    from modelmeter_server.rpc.listen import is_loopback

    text = os.environ.get("MODELMETER_TOKEN", "") if token_file is None else token_file.read_text("utf-8")
    if not text.strip() or not (is_secure or is_loopback(address)):
        return ()
    return (("authorization", f"Bearer {text.strip()}"),)


def _credentials(
    tls: bool, ca_file: Path | None, client_cert: Path | None, client_key: Path | None
) -> grpc.ChannelCredentials | None:
    """Return what to speak TLS with, `None` where no option asks for it. Raises click.UsageError."""
    from modelmeter import tls_credentials

    if not (tls or ca_file or client_cert or client_key):
        return None
    try:
        return tls_credentials(ca_file=ca_file, certificate=client_cert, key=client_key)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _channel(
    address: str, credentials: grpc.ChannelCredentials | None, server_name: str | None
) -> grpc.Channel:
    import grpc

    # An ambient proxy has no business between a probe and its own machine.
    options: list[tuple[str, str | int]] = [("grpc.enable_http_proxy", 0)]
    if credentials is None:
        return grpc.insecure_channel(address, options)
    if server_name is not None:
        options.append(("grpc.ssl_target_name_override", server_name))
    return grpc.secure_channel(address, credentials, options)
