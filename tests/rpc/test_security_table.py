"""One row for every method that is served: who may call it, and what another tenant's credential gets there.

A method without a row fails: whoever adds one says what it may tell to whom.
"""

from __future__ import annotations

import io

import grpc
import pytest

from modelmeter.v1 import admin_service_pb2, admin_service_pb2_grpc, model_service_pb2, session_pb2
from modelmeter_server.rpc.authorization import ADMIN_METHODS, ADMIN_SERVICE
from modelmeter_server.telemetry.log import configure_logging
from tests.support import ROOT
from tests.support.identities import bearer, every_method, gated
from tests.support.running_server import read_all

OK, DENIED, UNAUTHENTICATED = (
    grpc.StatusCode.OK,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
)
ADMINS, TENANTS, PUBLIC = "admins", "tenants", "public"

ROWS = {
    # Whose data it reads or changes; where that is told apart by tenant, the test that shows it.
    "AdminService/CreateToken": (ADMINS, ""),
    "AdminService/ExpireToken": (ADMINS, ""),
    "AdminService/GetTenant": (ADMINS, ""),
    "AdminService/ListTenants": (ADMINS, ""),
    "AdminService/ListTokens": (ADMINS, ""),
    "AdminService/RevokeToken": (ADMINS, ""),
    "AdminService/RotateToken": (ADMINS, ""),
    "EventService/GetInsights": (TENANTS, "test_acting_tenants"),
    "EventService/QueryEvents": (TENANTS, "test_acting_tenants"),
    "EventService/WatchEvents": (TENANTS, "test_acting_tenants"),
    "LedgerService/ClearHalt": (TENANTS, "test_acting_tenants"),
    "LedgerService/DeleteCeiling": (TENANTS, "test_acting_tenants"),
    "LedgerService/EraseContent": (TENANTS, "test_tenants_ledger"),
    "LedgerService/GetCall": (TENANTS, "test_tenants_ledger"),
    "LedgerService/GetCeiling": (TENANTS, "test_tenants_ledger"),
    "LedgerService/GetSpend": (TENANTS, "test_tenants_ledger"),
    "LedgerService/ListCalls": (TENANTS, "test_tenants_ledger"),
    "LedgerService/ListCeilings": (TENANTS, "test_tenants_ledger"),
    "LedgerService/ListHalts": (TENANTS, "test_tenants_ledger"),
    "LedgerService/ReadAnswer": (TENANTS, "test_tenants_ledger"),
    "LedgerService/ReconcileCall": (TENANTS, "test_acting_tenants"),
    "LedgerService/SetCeiling": (TENANTS, "test_acting_tenants"),
    "LedgerService/SetHalt": (TENANTS, "test_acting_tenants"),
    "ModelService/Complete": (TENANTS, "test_authorization"),
    "ModelService/CountTokens": (TENANTS, "test_authorization"),
    "ModelService/Embed": (TENANTS, "test_authorization"),
    "ModelService/GetModel": (TENANTS, "test_authorization"),
    "ModelService/ListModels": (TENANTS, "test_authorization"),
    "ModelService/Session": (TENANTS, "test_security_table"),
    "ModelService/StreamComplete": (TENANTS, "test_authorization"),
    "Health/Check": (PUBLIC, ""),
    "Health/List": (PUBLIC, ""),
    "Health/Watch": (PUBLIC, ""),
    "ServerReflection/ServerReflectionInfo": (PUBLIC, ""),
}
METHODS = every_method()


def short(path: str) -> str:
    service, method = path.strip("/").split("/")
    return f"{service.rpartition('.')[2]}/{method}"


def test_every_method_has_a_row_and_every_row_a_method():
    assert {short(each.path) for each in METHODS} == ROWS.keys()


def test_the_rows_of_admins_are_those_of_the_gate():
    gate = {short(each.path) for each in METHODS if each.path.startswith(f"/{ADMIN_SERVICE}/")}
    assert {name for name, (who, _) in ROWS.items() if who == ADMINS} == gate | set(map(short, ADMIN_METHODS))


def test_the_tests_that_the_rows_name_are_there_and_name_the_method():
    for name, (_, test) in ROWS.items():
        if test:
            text = (ROOT / "tests" / "rpc" / f"{test}.py").read_text(encoding="utf-8")
            assert name.split("/")[1] in text, name


@pytest.mark.parametrize("method", METHODS, ids=[each.path for each in METHODS])
async def test_each_credential_gets_what_the_row_says(tmp_path, ledger, method):
    who, _ = ROWS[short(method.path)]
    log = io.BytesIO()
    configure_logging("debug", log)
    try:
        async with gated(tmp_path, ledger=ledger) as gate:
            record, revoked = gate.tokens.create("acme")
            gate.tokens.revoke(record.token_id)
            _, expired = gate.tokens.create("acme", expires_at=1)
            wrong = f"mm_{'0' * 12}_{'a' * 43}"
            forged = gate.issuer.token(aud="another")
            secrets = (revoked, expired, wrong, forged, gate.acme, gate.other, gate.ops)
            codes = {name: await method.code(gate.running.channel, bearer(name)) for name in secrets}
            codes["missing"] = await method.code(gate.running.channel)
            told = log.getvalue().decode()
    finally:
        configure_logging("error", io.BytesIO())
    for name in (revoked, expired, wrong, forged, "missing"):
        assert codes[name] is UNAUTHENTICATED
    for name in (gate.acme, gate.other):
        assert codes[name] is not UNAUTHENTICATED
        assert (codes[name] is DENIED) is (who == ADMINS) or "ModelService" in method.path
    assert codes[gate.ops] not in (UNAUTHENTICATED, DENIED)
    assert not [secret for secret in secrets if (secret[16:] if secret.startswith("mm_") else secret) in told]


async def test_a_session_with_a_model_of_others_is_denied_before_it_is_open(tmp_path):
    async with gated(tmp_path) as gate:
        for model, code in (("claude", OK), ("gpt", DENIED), ("ghost", DENIED)):
            call = gate.running.stub.Session(metadata=bearer(gate.acme), timeout=5)
            await call.write(model_service_pb2.SessionRequest(open=session_pb2.SessionOpen(model=model)))
            await call.done_writing()
            _, error = await read_all(call)
            assert (OK if error is None else error.code()) is code


async def test_a_token_that_is_made_is_told_once_and_logged_never(tmp_path):
    log = io.BytesIO()
    configure_logging("debug", log)
    try:
        async with gated(tmp_path) as gate:
            stub = admin_service_pb2_grpc.AdminServiceStub(gate.running.channel)
            made = await stub.CreateToken(
                admin_service_pb2.CreateTokenRequest(tenant="acme"), metadata=bearer(gate.ops)
            )
            listed = await stub.ListTokens(admin_service_pb2.ListTokensRequest(), metadata=bearer(gate.ops))
    finally:
        configure_logging("error", io.BytesIO())
    assert made.secret not in log.getvalue().decode()
    assert made.secret not in str(listed)
    assert made.secret not in (tmp_path / "tokens.json").read_text()
