"""What the official SDKs send when they are given what we send: path, headers and body as they leave."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2
import openai
from google import genai
from google.genai import types as google

from .golden_requests import FREE


@dataclass
class Sent:
    """A request as it leaves."""

    target: str
    headers: Any
    body: dict[str, Any]


class _Wire:
    """A transport that keeps the one request, and answers with nothing that an SDK could read."""

    def __init__(self) -> None:
        self.sent: Sent | None = None

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        target = request.url.raw_path.decode()
        self.sent = Sent(target, request.headers, json.loads(request.content))
        return httpx2.Response(418, json={"error": {"message": "kept"}})


@contextmanager
def _wire() -> Iterator[tuple[_Wire, httpx2.Client]]:
    wire = _Wire()
    with httpx2.Client(transport=httpx2.MockTransport(wire)) as http:
        yield wire, http


def _sent(wire: _Wire, call: Callable[[], Any], error: type[Exception]) -> Sent:
    try:
        call()
    except error:
        pass
    assert wire.sent is not None
    return wire.sent


def _anthropic(body: dict[str, Any], gone: dict[str, Any]) -> Sent:
    with _wire() as (wire, http):
        client = anthropic.Anthropic(api_key="unused", http_client=http, max_retries=0)
        return _sent(wire, lambda: client.messages.create(**body, extra_body=gone), anthropic.APIStatusError)


def _openai(body: dict[str, Any], gone: dict[str, Any]) -> Sent:
    with _wire() as (wire, http):
        client = openai.OpenAI(api_key="unused", http_client=http, max_retries=0)
        resource = client.chat.completions if "messages" in body else client.responses
        return _sent(wire, lambda: resource.create(**body, extra_body=gone), openai.APIStatusError)


def _camel(value: Any) -> Any:
    """Return a value with the names of members in camel case: Google takes both, and the SDK mixes them."""
    if isinstance(value, dict):
        return {name: each if name in FREE else _camel(each) for name, each in _renamed(value)}
    return [_camel(each) for each in value] if isinstance(value, list) else value


def _renamed(members: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, each in members.items():
        first, *rest = name.split("_")
        yield first + "".join(word.title() for word in rest), each


def _gemini(body: dict[str, Any], _gone: dict[str, Any]) -> Sent:
    config = {**body, **body.get("generationConfig", {})}
    for member in ("contents", "generationConfig"):
        config.pop(member, None)
    with _wire() as (wire, http):
        # Its own default is v1 since 2026; what is sent here goes to v1beta, which knows more.
        options = google.HttpOptions(httpx_client=http, api_version="v1beta")
        with genai.Client(api_key="unused", http_options=options) as client:

            def call() -> None:
                for _ in client.models.generate_content_stream(
                    model="the-model",
                    contents=[google.Content.model_validate(each) for each in body["contents"]],
                    config=google.GenerateContentConfig.model_validate(config),
                ):
                    pass

            sent = _sent(wire, call, genai.errors.APIError)
    sent.body = _camel(sent.body)
    return sent


SEND: dict[str, Callable[[dict[str, Any], dict[str, Any]], Sent]] = {
    "anthropic": _anthropic,
    "chat_completions": _openai,
    "gemini": _gemini,
    "openai_responses": _openai,
}
"""By provider kind: send a body, and beside it the members that the SDK does not know by name."""
