"""Confidential prompts reach only the models that may see them, and answers are labelled."""

from __future__ import annotations

from typing import Any

import grpc
import msgspec
import pytest

import modelmeter
from modelmeter.v1 import message_pb2
from modelmeter_server.core.requests import Sensitivity
from modelmeter_server.core.tenants import Tenant
from modelmeter_server.identity.authenticator import CallerAuthenticator
from modelmeter_server.identity.token_file import TokenFile
from tests.support.identities import bearer
from tests.support.running_server import MODEL, asking, read_all, serving, streaming
from tests.support.scripted_driver import ScriptedDriver, answering

NUMBERS = {each: message_pb2.Sensitivity.Value(f"SENSITIVITY_{each.name}") for each in Sensitivity}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", Sensitivity)
@pytest.mark.parametrize("highest", Sensitivity)
async def test_a_prompt_above_the_models_maximum_is_not_dispatched(prompt, highest, stream):
    model = msgspec.structs.replace(MODEL, max_sensitivity=highest)
    async with serving(ScriptedDriver(answering()), models=[model]) as running:
        if prompt > highest:
            error = await running.error(sensitivity=NUMBERS[prompt], stream=stream)
            assert error.code() is grpc.StatusCode.PERMISSION_DENIED
            assert f"the prompt is {prompt.name}" in (error.details() or "")
            assert running.driver.calls == []
            return
        answer = (await running.ask(sensitivity=NUMBERS[prompt], stream=stream)).completion
    assert answer.sensitivity == NUMBERS[highest]
    assert answer.trust == message_pb2.TRUST_UNTRUSTED


@pytest.mark.parametrize("prompt", Sensitivity)
@pytest.mark.parametrize("floor", Sensitivity)
async def test_a_configured_floor_labels_answers_and_never_below_their_prompts(prompt, floor):
    model = msgspec.structs.replace(MODEL, max_sensitivity=Sensitivity.SECRET, output_sensitivity=floor)
    async with serving(ScriptedDriver(answering()), models=[model]) as running:
        answer = (await running.ask(sensitivity=NUMBERS[prompt])).completion
    assert answer.sensitivity == NUMBERS[max(prompt, floor)]
    assert answer.trust == message_pb2.TRUST_UNTRUSTED


async def test_a_tenant_has_a_usual_and_a_highest_sensitivity(tmp_path):
    tenant = Tenant(
        name="acme", default_sensitivity=Sensitivity.INTERNAL, max_sensitivity=Sensitivity.CONFIDENTIAL
    )
    tokens = TokenFile(tmp_path / "t.json")
    _, token = tokens.create("acme")
    models = [
        MODEL,
        msgspec.structs.replace(
            MODEL, name="own", max_sensitivity=Sensitivity.SECRET, output_sensitivity=Sensitivity.PUBLIC
        ),
    ]
    gate = CallerAuthenticator([tenant], tokens=tokens)
    codes = {}
    async with serving(ScriptedDriver(answering()), models=models, rpc={"authenticator": gate}) as running:
        for model in ("claude", "own"):
            for level in (None, *Sensitivity):
                fields: dict[str, Any] = {} if level is None else {"sensitivity": NUMBERS[level]}
                call = running.stub.Complete(asking(model=model, **fields), timeout=5, metadata=bearer(token))
                codes[model, level] = await call.code()
        async with modelmeter.AsyncClient(running.address, token=token) as client:
            async with client.session("claude") as session:
                with pytest.raises(modelmeter.RefusedError, match="the prompt is INTERNAL"):
                    await session.ask("silent")
            async with client.session("own") as session:
                assert (await session.ask("silent")).sensitivity is modelmeter.Sensitivity.INTERNAL
        silent = streaming(model="own")
        events, _ = await read_all(running.stub.StreamComplete(silent, timeout=5, metadata=bearer(token)))
    allowed = {key for key, code in codes.items() if code is grpc.StatusCode.OK}
    below = (Sensitivity.PUBLIC, Sensitivity.INTERNAL, Sensitivity.CONFIDENTIAL)
    assert allowed == {("claude", Sensitivity.PUBLIC), ("own", None), *(("own", each) for each in below)}
    assert {codes[key] for key in codes.keys() - allowed} == {grpc.StatusCode.PERMISSION_DENIED}
    assert events[-1].completion.sensitivity == message_pb2.SENSITIVITY_INTERNAL


async def test_a_turn_is_as_confidential_as_what_was_said_before_it():
    """The model is sent all of it, and its answer may tell it."""
    model = msgspec.structs.replace(
        MODEL, max_sensitivity=Sensitivity.SECRET, output_sensitivity=Sensitivity.PUBLIC
    )
    public, internal, secret = (
        modelmeter.Sensitivity.PUBLIC,
        modelmeter.Sensitivity.INTERNAL,
        modelmeter.Sensitivity.SECRET,
    )
    async with (
        serving(ScriptedDriver(answering()), models=[model]) as running,
        modelmeter.AsyncClient(running.address) as client,
        client.session("claude") as session,
    ):
        told = [
            (await session.ask("x", sensitivity=each, previous_response_id=previous)).sensitivity
            for each, previous in (
                (internal, None),
                (public, None),
                (secret, None),
                (internal, None),
                (public, None),
                (internal, ""),
                (public, None),
            )
        ]
    assert told == [internal, internal, secret, secret, secret, internal, internal]
