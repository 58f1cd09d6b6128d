"""Every RPC asks who calls: no method, stream or reflection can be reached without a credential that is good now."""

from __future__ import annotations

import io
import time
from typing import Any

import grpc
import jwt
import msgspec
import pytest
from structlog.testing import capture_logs

from modelmeter.v1 import admin_service_pb2, admin_service_pb2_grpc, model_service_pb2
from modelmeter_server.identity import token_file
from modelmeter_server.rpc.authorization import ADMIN_SERVICE, HEALTH_SERVICE, certificate_names
from modelmeter_server.rpc.reflection import NAMES
from modelmeter_server.telemetry.log import configure_logging, get_logger
from tests.support.identities import Issuer, bearer, every_method, gated
from tests.support.odd_certificates import OddAuthority
from tests.support.running_server import MODEL, Details, asking, read_all, streaming

METHODS = every_method()
IDS = [each.path for each in METHODS]
UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED


def wrong_credentials(gate):
    """Return metadata that must open nothing, each for a reason of its own."""
    expired = gate.tokens.create("acme", expires_at=int(time.time()) - 1)[1]
    revoked_record, revoked = gate.tokens.create("acme")
    gate.tokens.revoke(revoked_record.token_id)
    stranger = gate.tokens.create("nobody")[1]
    return {
        "missing": (),
        "empty": bearer(""),
        "no scheme": (("authorization", gate.acme),),
        "another scheme": (("authorization", f"Basic {gate.acme}"),),
        "twice": bearer(gate.acme) + bearer(gate.acme),
        "another header": (("x-authorization", f"Bearer {gate.acme}"),),
        "wrong": bearer(gate.acme[:-1] + ("a" if gate.acme[-1] != "a" else "b")),
        "another's id": bearer(gate.acme[:16] + gate.other[16:]),
        "unknown": bearer("mm_" + "0" * 12 + "_" + "a" * 43),
        "expired": bearer(expired),
        "revoked": bearer(revoked),
        "a tenant that is not configured": bearer(stranger),
        "too long": bearer("mm_" + "a" * 9_000),
        "a jwt of nobody": bearer(Issuer().token()),
        "a jwt that is over": bearer(gate.issuer.token(exp=int(time.time()) - 1)),
        "a jwt of an unknown tenant": bearer(gate.issuer.token(tenant="nobody")),
    }


async def test_no_method_answers_to_a_wrong_credential(tmp_path):
    async with gated(tmp_path) as gate:
        found = {
            (method.path, name): await method.code(gate.running.channel, metadata)
            for name, metadata in wrong_credentials(gate).items()
            for method in METHODS
        }
    assert len(found) >= 16 * 15
    assert {key: code for key, code in found.items() if code is not UNAUTHENTICATED} == {}
    assert gate.running.driver.calls == []


async def test_the_log_names_the_tenant_that_is_not_configured_and_its_caller_is_not_told(tmp_path):
    async with gated(tmp_path) as gate:
        for token in (gate.tokens.create("nobody")[1], gate.issuer.token(tenant="nobody")):
            with capture_logs() as logs, pytest.raises(grpc.aio.AioRpcError) as caught:
                await gate.running.stub.Complete(asking(), metadata=bearer(token))
            assert [line["tenant"] for line in logs if line["event"] == "not authenticated"] == ["nobody"]
            assert "nobody" not in (caught.value.details() or "")


async def test_every_method_lets_an_admin_past_the_gate(tmp_path):
    async with gated(tmp_path) as gate:
        for credential in (gate.ops, gate.issuer.token(tenant="ops")):
            codes = {m.path: await m.code(gate.running.channel, bearer(credential)) for m in METHODS}
            assert not [path for path, code in codes.items() if code in (UNAUTHENTICATED, DENIED)]


async def test_every_method_of_admins_is_denied_to_others_and_no_other_is(tmp_path):
    async with gated(tmp_path) as gate:
        codes = {m.path: await m.code(gate.running.channel, bearer(gate.acme)) for m in METHODS}
    denied = {path for path, code in codes.items() if code is DENIED and "/ModelService/" not in path}
    assert denied >= {path for path in codes if path.startswith(f"/{ADMIN_SERVICE}/")}
    assert not [path for path, code in codes.items() if code is UNAUTHENTICATED]


async def test_a_denial_says_why_and_is_typed(tmp_path):
    async with gated(tmp_path) as gate:
        unknown = await gate.running.error(timeout=5)
        stub = admin_service_pb2_grpc.AdminServiceStub(gate.running.channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ListTokens(admin_service_pb2.ListTokensRequest(), metadata=bearer(gate.acme))
    for error, words in (
        (unknown, "send `authorization: Bearer TOKEN`"),
        (caught.value, '"acme" is no admin'),
    ):
        details = Details(error)
        assert words in (error.details() or "")
        assert (details.info.reason, details.info.domain) == ("REFUSED", "modelmeter")
        assert details.model_error.may_have_generated is False


async def test_a_stream_is_turned_away_before_its_first_message(tmp_path):
    async with gated(tmp_path) as gate:
        events, error = await read_all(gate.running.stub.StreamComplete(streaming(), timeout=5))
    assert events == []
    assert error is not None
    assert error.code() is UNAUTHENTICATED


async def test_health_and_reflection_are_open_where_the_deployment_says_so_and_nothing_else(tmp_path):
    async with gated(tmp_path, open_health=True, open_reflection=True) as gate:
        codes = {m.path: await m.code(gate.running.channel) for m in METHODS}
    opened = {path for path, code in codes.items() if code is not UNAUTHENTICATED}
    assert {path.split("/")[1] for path in opened} == {HEALTH_SERVICE, *NAMES}


async def test_reflection_can_be_closed_altogether(tmp_path):
    async with gated(tmp_path, reflection=False) as gate:
        codes = [
            await m.code(gate.running.channel, bearer(gate.ops))
            for m in METHODS
            if m.path.split("/")[1] in NAMES
        ]
    assert codes == [grpc.StatusCode.UNIMPLEMENTED] * 2


async def test_an_unknown_method_stays_unknown(tmp_path):
    async with gated(tmp_path) as gate:
        guess: Any = gate.running.channel.unary_unary("/modelmeter.v1.ModelService/Guess")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await guess(b"", timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_tenant_sees_and_calls_its_own_models_only(tmp_path):
    models = (MODEL, msgspec.structs.replace(MODEL, name="gpt"))
    async with gated(tmp_path, models=models) as gate:
        stub: Any = gate.running.stub
        listed = {}
        for name, token in (("acme", gate.acme), ("other", gate.other), ("ops", gate.ops)):
            page = await stub.ListModels(model_service_pb2.ListModelsRequest(), metadata=bearer(token))
            listed[name] = [model.name for model in page.models]
        codes = {}
        for name in ("claude", "gpt", "ghost"):
            for method, request in (
                (stub.Complete, asking(model=name)),
                (stub.GetModel, model_service_pb2.GetModelRequest(name=name)),
                (stub.CountTokens, model_service_pb2.CountTokensRequest(request=asking(model=name))),
                (stub.Embed, model_service_pb2.EmbedRequest(model=name, inputs=["x"])),
            ):
                with_token = method(request, timeout=5, metadata=bearer(gate.acme))
                codes[name, type(request).__name__] = await with_token.code()
    assert listed == {"acme": ["claude"], "other": ["gpt"], "ops": ["claude", "gpt"]}
    ok = grpc.StatusCode.OK
    for name, code in (("claude", ok), ("gpt", DENIED), ("ghost", DENIED)):
        assert {codes[name, kind] for kind in ("CompleteRequest", "GetModelRequest")} == {code}
        assert {codes[name, kind] is DENIED for kind in ("CountTokensRequest", "EmbedRequest")} == {
            code is DENIED
        }


async def test_a_token_that_is_revoked_elsewhere_is_refused_within_a_look(tmp_path, monkeypatch):
    monkeypatch.setattr(token_file, "LOOK_SECONDS", 0.0)
    async with gated(tmp_path) as gate:
        before = await gate.running.stub.Complete(asking(), timeout=5, metadata=bearer(gate.acme))
        elsewhere = token_file.TokenFile(tmp_path / "tokens.json")
        elsewhere.revoke(gate.acme.split("_")[1])
        call = gate.running.stub.Complete(asking(), timeout=5, metadata=bearer(gate.acme))
        assert await call.code() is UNAUTHENTICATED
        assert "is revoked" in (await call.details() or "")
    assert before.completion.text == "Hello."


async def test_no_token_is_ever_logged(tmp_path):
    """The log is read back, and one planted line proves that the search would find a token."""
    log = io.BytesIO()
    configure_logging("debug", log)
    try:
        async with gated(tmp_path) as gate:
            secrets = [
                gate.ops,
                gate.acme,
                gate.issuer.token(),
                "mm_" + "x" * 12 + "_" + "y" * 43,
                "hunter2" * 9,
            ]
            for secret in secrets:
                for method in METHODS:
                    await method.code(gate.running.channel, bearer(secret))
            stub = admin_service_pb2_grpc.AdminServiceStub(gate.running.channel)
            made = await stub.CreateToken(
                admin_service_pb2.CreateTokenRequest(tenant="acme"), metadata=bearer(gate.ops)
            )
            secrets.append(made.secret)
            told = log.getvalue().decode()
            get_logger("planted").error("a line", token=gate.acme)
            planted = log.getvalue().decode()
    finally:
        configure_logging("error", io.BytesIO())
    assert "not authenticated" in told
    assert "a token was created" in told
    parts = [part for secret in secrets for part in {secret, secret.split("_")[-1], secret.split(".")[-1]}]
    assert [part for part in parts if part in told] == []
    assert gate.acme in planted


async def test_a_known_algorithm_by_another_name_opens_nothing(tmp_path):
    async with gated(tmp_path) as gate:
        none = jwt.encode(gate.issuer.claims(), "", algorithm="none", headers={"kid": "RS256"})
        for forged in (none, none.replace(".", ".", 1), f"{none}AAAA"):
            call = gate.running.stub.Complete(asking(), timeout=5, metadata=bearer(forged))
            assert await call.code() is UNAUTHENTICATED
        good = gate.running.stub.Complete(asking(), timeout=5, metadata=bearer(gate.issuer.token()))
        assert (await good).completion.text == "Hello."


def test_names_of_a_certificate_keep_their_sort():
    """A DNS name that looks like an address of SPIFFE, or a common name like a DNS name, is no other sort of name."""
    pem, _ = OddAuthority().issue(("dns", b"spiffe://a"), ("uri", b"spiffe://b"), common=("agent",))
    properties = {"x509_pem_cert": [pem], "peer_dns": [b"elsewhere"], "x509_common_name": [b"elsewhere"]}
    assert certificate_names(properties) == ("uri:spiffe://b", "dns:spiffe://a", "cn:agent")
    assert certificate_names({}) == ()
    assert certificate_names({"x509_pem_cert": [b"nothing"]}) == ()
