"""The HTTP cases of the recorded material: what a provider sends, what was asked, what is right."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from modelmeter import Tool
from modelmeter_server.core.requests import FORCED_TOOL
from tests.support.fault_server import Reply
from tests.support.material import SHARED, has_material
from tests.support.provider_service import API_KEY

PROVIDERS = ("anthropic", "bedrock", "chat_completions", "gemini", "openai_responses")

_ENDS = {"clean": "clean", "reset": "truncate", "stall": "stall"}


@dataclass
class Case:
    """One case, ready to be served and asked."""

    id: str
    provider: str
    stream: bool
    reply: Reply
    prompt: str
    options: dict[str, Any]
    expect: dict[str, Any]


def load_cases() -> list[Case]:
    """Return the HTTP cases of the providers that are served; none without the material."""
    if not has_material():
        return []
    documents = [json.loads(path.read_text()) for path in sorted((SHARED / "cases").glob("*.json"))]
    return [
        _case(document)
        for document in documents
        if document["transport"] == "http" and document["provider"] in PROVIDERS
    ]


def _case(document: dict[str, Any]) -> Case:
    asked = document["request"]
    http = document["http"]
    options: dict[str, Any] = {}
    if asked.get("schema"):
        options = {"schema": asked["schema"], "schema_mode": asked["schema_mode"]}
    if asked.get("tools"):
        options["tools"] = [Tool(name, parameters={"type": "object"}) for name in asked["tools"]]
    reply = Reply(
        status=http["status"],
        headers={name: value for name, value in http["headers"].items() if name != "connection"},
        chunks=[chunk for chunk in map(_placed, _chunks(document)) if chunk],
        end=_ENDS[document["ends"]],  # type: ignore[arg-type]  # the values are those of `End`
        early=http.get("early", False),
    )
    return Case(
        id=document["id"],
        provider="-".join(
            [document["provider"], *([document["dialect"]] if document.get("dialect") else [])]
        ),
        stream=asked["stream"],
        reply=reply,
        prompt="p" * asked.get("prompt_bytes", 5),
        options=options,
        expect=document["expect"],
    )


def _chunks(document: dict[str, Any]) -> list[bytes]:
    if "body_chunks_b64" in document:
        return [base64.b64decode(chunk) for chunk in document["body_chunks_b64"]]
    return [chunk.encode() for chunk in document["body_chunks"]]


def _placed(chunk: bytes) -> bytes:
    """Put the service's own names where the case leaves room for them."""
    return chunk.replace(b"@@RESPOND_TOOL@@", FORCED_TOOL.encode()).replace(b"@@API_KEY@@", API_KEY.encode())
