"""A service account of Google whose token endpoint is a scripted server."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from .fault_server import FaultServer, Reply

PROJECT = "quota-project"
TOKEN = "ya29.c.first-token-0123456789"


@cache
def private_key() -> str:
    """Return a key in PEM, made once."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption()).decode()


def account_file(folder: Path, token_url: str, **fields: Any) -> Path:
    """Write the file of an account and return its path."""
    file = folder / "account.json"
    account = {
        "type": "service_account",
        "project_id": "a-project",
        "private_key_id": "key-1",
        "private_key": private_key(),
        "client_email": "robot@a-project.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": f"{token_url}/token",
        **fields,
    }
    file.write_text(json.dumps(account))
    return file


def token(value: object = TOKEN, *, life: object = 3600, **fields: Any) -> Reply:
    """Return the endpoint's answer with a token of so many seconds."""
    document = {"access_token": value, "expires_in": life, "token_type": "Bearer"}
    return answer(document, **fields)


def answer(document: object, status: int = 200, **fields: Any) -> Reply:
    """Return any answer of the endpoint; bytes as they are."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Reply(
        status=status, headers={"content-type": "application/json"}, chunks=[body], framing="length", **fields
    )


def endpoint_of(*replies: Reply) -> FaultServer:
    """Return a token endpoint that gives these replies, the last of them again and again."""
    *first, last = replies
    server = FaultServer(last)
    server.script(first)
    return server
