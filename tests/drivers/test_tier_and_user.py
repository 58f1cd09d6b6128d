"""The tier that the deployment chose and the person that the caller names: one place in each format, or a refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from modelmeter_server.core.dialects import DIALECTS
from modelmeter_server.drivers.chat_completions import encode as encode_chat
from modelmeter_server.drivers.chat_completions.capabilities import capabilities
from tests.support.completion_requests import (
    ANTHROPIC,
    BEDROCK,
    CHAT,
    GEMINI,
    KINDS,
    OPENAI,
    ask,
    body_of,
    cannot,
    model_of,
    wrong,
)

TIERS: dict[str, tuple[str, object]] = {
    ANTHROPIC: ("service_tier", "flex"),
    BEDROCK: ("serviceTier", {"type": "flex"}),
    CHAT: ("service_tier", "flex"),
    GEMINI: ("serviceTier", "flex"),
    OPENAI: ("service_tier", "flex"),
}
USERS: dict[str, tuple[str, object]] = {
    ANTHROPIC: ("metadata", {"user_id": "u1"}),
    CHAT: ("safety_identifier", "u1"),
    OPENAI: ("safety_identifier", "u1"),
}
METADATA: dict[str, tuple[str, object]] = {
    ANTHROPIC: ("metadata", {"user_id": "u2"}),
    BEDROCK: ("requestMetadata", {"team": "a"}),
    CHAT: ("metadata", {"team": "a"}),
    GEMINI: ("labels", {"team": "a"}),
    OPENAI: ("metadata", {"team": "a"}),
}


def body(kind: str, *, tier: str | None = None, **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = body_of(ask("Hi", **fields), model_of(kind, service_tier=tier))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_tier_of_the_model_is_asked_for_in_the_providers_word(kind):
    name, value = TIERS[kind]
    assert body(kind, tier="flex")[name] == value
    assert name not in body(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_person_is_named_where_the_provider_has_a_field_and_refused_elsewhere(kind):
    if kind not in USERS:
        assert wrong(ask("Hi", end_user_id="u1"), model_of(kind)) == ["end_user_id"]
        return
    name, value = USERS[kind]
    assert body(kind, end_user_id="u1")[name] == value
    assert name not in body(kind)
    assert wrong(ask("Hi", end_user_id="u" * 128), model_of(kind)) == []
    assert wrong(ask("Hi", end_user_id="u" * 129), model_of(kind)) == ["end_user_id"]


@pytest.mark.parametrize(("dialect", "field"), [("groq", "user"), ("openrouter", "user"), ("azure", "user")])
def test_a_server_is_told_the_person_in_its_own_field(dialect, field):
    request = ask("Hi", end_user_id="u1")
    told = json.loads(encode_chat(request, model_of(CHAT), DIALECTS[dialect]).body)
    assert told[field] == "u1"


def test_a_server_that_nobody_knows_is_told_no_person():
    model = model_of(CHAT, capabilities=capabilities(DIALECTS["compatible"]))
    assert wrong(ask("Hi", end_user_id="u1"), model) == ["end_user_id"]


@pytest.mark.parametrize("kind", KINDS)
def test_metadata_pass_in_the_providers_own_format(kind):
    name, value = METADATA[kind]
    assert body(kind, provider_options_json=json.dumps({name: value}))[name] == value


@pytest.mark.parametrize("kind", USERS)
def test_the_options_cannot_name_another_person(kind):
    name, value = USERS[kind]
    options = json.dumps({name: {"user_id": "u2"} if isinstance(value, dict) else "u2"})
    where = "provider_options_json.metadata.user_id" if kind == ANTHROPIC else f"provider_options_json.{name}"
    request = ask("Hi", end_user_id="u1", provider_options_json=options)
    assert cannot(request, model_of(kind)) == [where]
