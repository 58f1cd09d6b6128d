"""Requests and models in one line, for tests of what happens before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from modelmeter_server.core.errors import FieldViolation
from modelmeter_server.core.models import ModelSpec
from modelmeter_server.core.request_checks import check_request
from modelmeter_server.core.requests import CompletionRequest, Message, Part, Role
from modelmeter_server.drivers.bedrock import capabilities_of
from modelmeter_server.drivers.driver import RequestRefused
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS

ANTHROPIC = "anthropic"
BEDROCK = "bedrock"
OPENAI = "openai_responses"
CHAT = "chat_completions"
GEMINI = "gemini"
KINDS = (ANTHROPIC, BEDROCK, CHAT, GEMINI, OPENAI)


def model_of(kind: str = ANTHROPIC, **fields: Any) -> ModelSpec:
    """Return a model of a provider kind, with all that the kind can do."""
    spec = {
        "name": "the-alias",
        "provider": kind,
        "provider_kind": kind,
        "provider_model": "the-model",
        "capabilities": WIRE_FORMATS[kind].capabilities,
    }
    return ModelSpec(**{**spec, **fields})


def thinker_of(kind: str) -> ModelSpec:
    """Return a model that takes a reasoning effort: at Bedrock one of a declared dialect."""
    if kind != BEDROCK:
        return model_of(kind)
    return model_of(kind, reasoning_dialect="claude", capabilities=capabilities_of("claude"))


def ask(text: str | None = "Hi", **fields: Any) -> CompletionRequest:
    """Return a request with this prompt."""
    return CompletionRequest(
        model="the-alias", call_id="7d3cfb0a-3a4e-4f0e-9d0b-0c6f5a1e2b3c", text=text, **fields
    )


def ask_messages(*messages: Message, **fields: Any) -> CompletionRequest:
    """Return a request with typed messages."""
    return ask(None, messages=messages, **fields)


def ask_native(native: str, **fields: Any) -> CompletionRequest:
    """Return a request in the provider's own format."""
    return ask(None, native_json=native, **fields)


def user(*parts: Part) -> Message:
    """Return a message of the caller's side."""
    return Message(Role.USER, parts)


def assistant(*parts: Part) -> Message:
    """Return a message of the model's side."""
    return Message(Role.ASSISTANT, parts)


def fields_of(violations: Iterable[FieldViolation]) -> list[str]:
    """Return the fields of some mistakes."""
    return [each.field for each in violations]


def wrong(request: CompletionRequest, model: ModelSpec | None = None) -> list[str]:
    """Return the fields that the checks for all find wrong, and make sure that each says how to mend it."""
    violations = check_request(request, model or model_of())
    assert all(each.description for each in violations)
    return fields_of(violations)


def body_of(request: CompletionRequest, model: ModelSpec | None = None) -> Any:
    """Return the provider's body, read."""
    return msgspec.json.decode(sent(request, model))


def sent(request: CompletionRequest, model: ModelSpec | None = None) -> bytes:
    """Return the provider's body as it leaves."""
    model = model or model_of()
    return WIRE_FORMATS[model.provider_kind].encode(request, model).body


def cannot(request: CompletionRequest, model: ModelSpec | None = None) -> list[str]:
    """Return the fields that the encoder refuses; empty if it refuses nothing."""
    try:
        sent(request, model)
    except RequestRefused as refusal:
        return fields_of(refusal.violations)
    return []
