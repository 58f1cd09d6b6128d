"""Tenants with tokens, JWTs and certificates of their own, and servers that ask for them."""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

import modelmeter.v1
from modelmeter_server.core.requests import Sensitivity
from modelmeter_server.core.tenants import Tenant
from modelmeter_server.identity.authenticator import CallerAuthenticator
from modelmeter_server.identity.jwt_verifier import JwtRules, JwtVerifier
from modelmeter_server.identity.key_set import KeySet
from modelmeter_server.identity.token_file import TokenFile
from modelmeter_server.rpc.reflection import NAMES
from modelmeter_server.telemetry.observation import Telemetry

from .running_server import Running, serving
from .scripted_driver import ScriptedDriver, answering

OPS = Tenant(name="ops", is_admin=True)
ACME = Tenant(name="acme", models=("claude",))
OTHER = Tenant(name="other", models=("gpt", "anthropic/*"), max_sensitivity=Sensitivity.INTERNAL)
TENANTS = (OPS, ACME, OTHER)

LIST_SERVICES = b"\x3a\x00"
"""A request to the reflection service."""

ISSUER, AUDIENCE = "https://issuer.test", "modelmeter"


class Issuer:
    """Signs JWTs with an RSA key, an elliptic one and an Edwards one, and publishes them."""

    def __init__(self) -> None:
        self.rsa = rsa.generate_private_key(65537, 2048)
        self.keys: dict[str, Any] = {
            "RS256": self.rsa,
            "ES256": ec.generate_private_key(ec.SECP256R1()),
            "EdDSA": ed25519.Ed25519PrivateKey.generate(),
        }
        self.asked = 0

    @property
    def document(self) -> bytes:
        """Return the JWK Set; the id of each key is its algorithm."""
        kinds: dict[str, Any] = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}
        keys = [
            {**json.loads(kinds[name].to_jwk(key.public_key())), "kid": name, "use": "sig"}
            for name, key in self.keys.items()
        ]
        return json.dumps({"keys": keys}).encode()

    async def fetch(self) -> bytes:
        self.asked += 1
        return self.document

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Return the claims of a good token, changed; `None` takes one out."""
        now = int(time.time())
        good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "agent-7", "tenant": "acme", "exp": now + 300}
        return {name: value for name, value in {**good, **changed}.items() if value is not None}

    def token(self, algorithm: str = "RS256", kid: str | None = "", **changed: Any) -> str:
        """Return a signed token; its key id is that of the algorithm unless given."""
        headers = {} if kid is None else {"kid": kid or algorithm}
        return jwt.encode(self.claims(**changed), self.keys[algorithm], algorithm=algorithm, headers=headers)

    def verifier(self) -> JwtVerifier:
        return JwtVerifier(JwtRules(issuer=ISSUER, audience=AUDIENCE, leeway=0), KeySet(self.fetch))


def age_tokens(path: Path, seconds: int) -> None:
    """Write a file of tokens as if each had been made this much earlier, for as long a life as it has."""
    document = json.loads(path.read_text())
    for each in document["tokens"]:
        each["created_at"] -= seconds
        if each.get("expires_at") is not None:
            each["expires_at"] -= seconds
    path.write_text(json.dumps(document))


@dataclass
class Gated:
    """A server that asks who calls, and what its callers hold."""

    running: Running
    tokens: TokenFile
    issuer: Issuer
    ops: str
    acme: str
    other: str

    @property
    def address(self) -> str:
        return self.running.address


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that carries a token."""
    return (("authorization", f"Bearer {token}"),)


@asynccontextmanager
async def gated(folder: Path, **options: Any) -> AsyncIterator[Gated]:
    """Serve the model `claude` to three tenants, each with a token: an admin's, and those of two others."""
    tokens, issuer = TokenFile(folder / "tokens.json"), Issuer()
    held = [tokens.create(tenant.name)[1] for tenant in TENANTS]
    authenticator = CallerAuthenticator(TENANTS, tokens=tokens, jwt=issuer.verifier())
    driver = options.pop("driver", None) or ScriptedDriver(answering())
    rpc: dict[str, Any] = {"authenticator": authenticator}
    for key in ("open_health", "open_reflection", "reflection"):
        if key in options:
            rpc[key] = options.pop(key)
    async with serving(driver, rpc=rpc, **{"telemetry": Telemetry(), **options}) as running:
        yield Gated(running, tokens, issuer, *held)


@dataclass(frozen=True)
class Method:
    """A method of any service, to be called with bytes."""

    path: str
    streams_requests: bool
    streams_responses: bool

    async def code(self, channel: grpc.aio.Channel, metadata: Any = ()) -> grpc.StatusCode:
        """Call it with an empty request; return the code that it ended with, OK also for a stream that answers."""
        arity = f"{_flow(self.streams_requests)}_{_flow(self.streams_responses)}"
        call = getattr(channel, arity)(self.path)
        request = {} if self.streams_requests else {"request": b""}
        running = call(**request, timeout=10, metadata=tuple(metadata))
        if self.streams_requests:
            try:
                await running.write(LIST_SERVICES)
                await running.done_writing()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                # It ended before all was written, for which grpc.aio puts a code of its own, INTERNAL, in the place of
                # the server's. Who is ended without being heard needs to say nothing.
                running = call(**request, timeout=10, metadata=tuple(metadata))
                return await running.code()
        try:
            if self.streams_responses and await running.read() is not grpc.aio.EOF:
                running.cancel()
                return grpc.StatusCode.OK
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # it ended before anything was read
        code: grpc.StatusCode = await running.code()
        return code


def _flow(is_stream: bool) -> str:
    return "stream" if is_stream else "unary"


def every_method() -> list[Method]:
    """Return every method that a server serves, from the descriptors of ours and of the standard services."""
    from grpc_health.v1 import health_pb2
    from grpc_reflection.v1alpha import reflection_pb2

    own = [
        importlib.import_module(f"modelmeter.v1.{module.name}").DESCRIPTOR
        for module in pkgutil.iter_modules(modelmeter.v1.__path__)
        if module.name.endswith("_pb2")
    ]
    found = []
    for file in (*own, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
        for service in file.services_by_name.values():
            names = NAMES if service.full_name in NAMES else (service.full_name,)
            found += [
                Method(f"/{name}/{each.name}", each.client_streaming, each.server_streaming)
                for name in names
                for each in service.methods
            ]
    return found
