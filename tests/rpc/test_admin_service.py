"""AdminService through both faces of the client: tokens are made, changed and ended, and what they open follows."""

from __future__ import annotations

import asyncio
import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from modelmeter import (
    AsyncClient,
    Client,
    NewToken,
    RefusedError,
    Sensitivity,
    Tenant,
    TokenState,
)
from modelmeter.v1 import admin_service_pb2, admin_service_pb2_grpc
from tests.support.identities import age_tokens, bearer, gated
from tests.support.running_server import Details, serving
from tests.support.scripted_driver import ScriptedDriver, answering

FACES = pytest.mark.parametrize("kind", [Client, AsyncClient])


async def do(client: Any, name: str, /, *args: Any, **options: Any) -> Any:
    """Call a method of `client.admin`, of either face."""
    method = getattr(client.admin, name)
    if inspect.iscoroutinefunction(method):
        return await method(*args, timeout=10, **options)
    return await asyncio.to_thread(method, *args, timeout=10, **options)


async def opens(address: str, token: str) -> bool:
    async with AsyncClient(address, token=token, timeout=10) as client:
        try:
            await client.complete("claude", "Hi")
        except RefusedError as error:
            return error.code is not grpc.StatusCode.UNAUTHENTICATED
        return True


@FACES
async def test_a_token_lives_as_an_admin_says(tmp_path, kind):
    async with gated(tmp_path) as gate:
        client = kind(gate.address, token=gate.ops)
        made: NewToken = await do(client, "create_token", "acme", name="ci", lifetime=timedelta(days=1))
        assert await opens(gate.address, made.secret)
        assert (made.token.tenant, made.token.name, made.token.state) == ("acme", "ci", TokenState.ACTIVE)
        next_one: NewToken = await do(client, "rotate_token", made.token.token_id)
        assert await opens(gate.address, next_one.secret)
        assert not await opens(gate.address, made.secret)
        assert next_one.previous is not None
        assert next_one.previous.state is TokenState.EXPIRED
        ended = await do(client, "expire_token", next_one.token.token_id, datetime.now(UTC))
        assert ended.state is TokenState.EXPIRED
        assert not await opens(gate.address, next_one.secret)
        last: NewToken = await do(client, "create_token", "acme")
        assert (await do(client, "revoke_token", last.token.token_id)).state is TokenState.REVOKED
        assert not await opens(gate.address, last.secret)


@FACES
async def test_a_rotated_token_lives_as_long_as_the_old_one_unless_it_is_told_otherwise(tmp_path, kind):
    async with gated(tmp_path) as gate:
        client = kind(gate.address, token=gate.ops)
        ids = {}
        for name, life in (("ends", timedelta(days=90)), ("told", timedelta(days=90)), ("endless", None)):
            made: NewToken = await do(client, "create_token", "acme", name=name, lifetime=life)
            ids[name] = made.token.token_id
        age_tokens(gate.tokens.path, 30 * 24 * 60 * 60)
        begun = datetime.now(UTC).replace(microsecond=0)
        ends: NewToken = await do(client, "rotate_token", ids["ends"])
        told: NewToken = await do(client, "rotate_token", ids["told"], lifetime=timedelta(days=365))
        endless: NewToken = await do(client, "rotate_token", ids["endless"])
        done = datetime.now(UTC)
    assert ends.token.expires_at is not None
    assert begun <= ends.token.expires_at - timedelta(days=90) <= done
    assert told.token.expires_at is not None
    assert begun <= told.token.expires_at - timedelta(days=365) <= done
    assert endless.token.expires_at is None


@FACES
async def test_tokens_are_listed_without_their_secrets(tmp_path, kind):
    async with gated(tmp_path) as gate:
        client = kind(gate.address, token=gate.ops)
        made = await do(client, "create_token", "other")
        every = await do(client, "tokens")
        some = await do(client, "tokens", tenant="other")
    assert {each.tenant for each in every} == {"ops", "acme", "other"}
    assert [each.tenant for each in some] == ["other", "other"]
    assert made.secret not in repr((every, some, made))


@FACES
async def test_tenants_are_told_as_configured(tmp_path, kind):
    async with gated(tmp_path) as gate:
        client = kind(gate.address, token=gate.ops)
        names = [each.name for each in await do(client, "tenants")]
        other = await do(client, "tenant", "other")
        with pytest.raises(RefusedError) as caught:
            await do(client, "tenant", "nobody")
    assert names == ["acme", "ops", "other"]
    assert other == Tenant(
        "other", ("gpt", "anthropic/*"), Sensitivity.INTERNAL, Sensitivity.PUBLIC, admin=False
    )
    assert caught.value.code is grpc.StatusCode.NOT_FOUND


async def test_pages_hold_every_token_once(tmp_path):
    async with gated(tmp_path) as gate:
        made = {gate.tokens.create("acme")[0].token_id for _ in range(7)}
        stub = admin_service_pb2_grpc.AdminServiceStub(gate.running.channel)
        found, request = [], admin_service_pb2.ListTokensRequest(page_size=3)
        while True:
            page = await stub.ListTokens(request, metadata=bearer(gate.ops))
            found += [each.token_id for each in page.tokens]
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
    assert len(found) == len(set(found)) == 10
    assert made < set(found)


MISTAKES: list[tuple[str, Any, str]] = [
    ("CreateToken", admin_service_pb2.CreateTokenRequest(tenant="nobody"), "tenant"),
    ("CreateToken", admin_service_pb2.CreateTokenRequest(tenant="acme", name="a\nb"), "name"),
    ("CreateToken", admin_service_pb2.CreateTokenRequest(tenant="acme", name="x" * 129), "name"),
    (
        "CreateToken",
        admin_service_pb2.CreateTokenRequest(tenant="acme", lifetime=Duration(seconds=0)),
        "lifetime",
    ),
    (
        "CreateToken",
        admin_service_pb2.CreateTokenRequest(tenant="acme", lifetime=Duration(seconds=-1)),
        "lifetime",
    ),
    (
        "RotateToken",
        admin_service_pb2.RotateTokenRequest(token_id="x", overlap=Duration(seconds=-1)),
        "overlap",
    ),
    ("ExpireToken", admin_service_pb2.ExpireTokenRequest(token_id="x"), "expires_at"),
    ("ListTokens", admin_service_pb2.ListTokensRequest(page_size=-1), "page_size"),
    ("ListTenants", admin_service_pb2.ListTenantsRequest(page_token="?"), "page_token"),
]


@pytest.mark.parametrize(("method", "request_", "field"), MISTAKES)
async def test_a_mistake_is_named_and_changes_nothing(tmp_path, method, request_, field):
    async with gated(tmp_path) as gate:
        before = gate.tokens.path.read_bytes()
        stub = admin_service_pb2_grpc.AdminServiceStub(gate.running.channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await getattr(stub, method)(request_, timeout=10, metadata=bearer(gate.ops))
        details = Details(caught.value)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert [each.field for each in details.bad_request.field_violations] == [field]
        assert gate.tokens.path.read_bytes() == before


@pytest.mark.parametrize("method", ["RotateToken", "ExpireToken", "RevokeToken"])
@pytest.mark.parametrize("token_id", ["", "unknown", "../tokens", "a" * 4096])
async def test_an_unknown_token_is_not_found(tmp_path, method, token_id):
    async with gated(tmp_path) as gate:
        stub = admin_service_pb2_grpc.AdminServiceStub(gate.running.channel)
        request = getattr(admin_service_pb2, f"{method}Request")(token_id=token_id)
        if method == "ExpireToken":
            request.expires_at.GetCurrentTime()
        call = getattr(stub, method)(request, timeout=10, metadata=bearer(gate.ops))
        assert await call.code() is grpc.StatusCode.NOT_FOUND


async def test_a_deployment_without_tokens_says_so():
    async with serving(ScriptedDriver(answering())) as running:
        stub = admin_service_pb2_grpc.AdminServiceStub(running.channel)
        call = stub.ListTokens(admin_service_pb2.ListTokensRequest(), timeout=10)
        assert await call.code() is grpc.StatusCode.FAILED_PRECONDITION
        listed = await stub.ListTenants(admin_service_pb2.ListTenantsRequest(), timeout=10)
    assert [(each.name, each.admin, list(each.models)) for each in listed.tenants] == [
        ("default", True, ["*"])
    ]


async def test_a_file_that_cannot_be_written_is_a_precondition_and_keeps_its_path_to_itself(tmp_path):
    async with gated(tmp_path) as gate:
        gate.tokens.path.write_text("nothing")
        stub = admin_service_pb2_grpc.AdminServiceStub(gate.running.channel)
        request = admin_service_pb2.CreateTokenRequest(tenant="acme")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.CreateToken(request, timeout=10, metadata=bearer(gate.ops))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert str(tmp_path) not in repr(caught.value)
