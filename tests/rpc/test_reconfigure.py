"""A running deployment takes over other settings: at once for what comes, not at all for what is under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
import trustme

import modelmeter
from modelmeter.errors import OverloadedError
from modelmeter.v1 import model_service_pb2, model_service_pb2_grpc
from modelmeter_server import app as composition
from modelmeter_server.app import App
from modelmeter_server.config import Changes, IdentitySettings, load
from modelmeter_server.drivers.http import EgressGate
from modelmeter_server.identity.authenticator import CallerAuthenticator
from modelmeter_server.identity.token_file import TokenFile
from tests.e2e import hostile
from tests.support.certificates import trusting, unshared, write_server
from tests.support.fault_server import FaultServer, Reply

KIND = "anthropic"
WHOLE = hostile.answer(KIND, "Hel", "lo.")
HALF = WHOLE.index(b"Hel") + WHOLE[WHOLE.index(b"Hel") :].index(b"\n\n") + 2


@dataclass
class Deployment:
    """An app, the file that it was made from, and a client."""

    app: App
    file: Path
    client: modelmeter.AsyncClient

    def reload(self, text: str) -> Changes:
        self.file.write_text(text)
        return self.app.reconfigure(load(self.file, ENVIRON))


ENVIRON = {"KEY": "sk-one", "OTHER": "sk-two"}


def document(
    url: str, *, key: str = "KEY", model: str = "m", price: str = "1", server: str = "", rest: str = ""
) -> str:
    return (
        f'[server]\nlisten = "localhost:0"\n{server}\n[ledger]\nurl = "none"\n'
        f'[providers.p]\nkind = "{KIND}"\nbase_url = "{url}"\napi_key_env = "{key}"\n'
        f'[models.{model}]\nprovider = "p"\nmodel = "m-test"\n'
        f'price = {{ currency = "USD", input = "{price}", output = "{price}" }}\n{rest}'
    )


@asynccontextmanager
async def deployed(folder: Path, text: str, token: str | None = None) -> AsyncIterator[Deployment]:
    file = folder / "m.toml"
    file.write_text(text)
    app = App(load(file, ENVIRON))
    (address,) = await app.start()
    async with modelmeter.AsyncClient(address, token=token) as client:
        yield Deployment(app, file, client)
    await app.stop(0)


@asynccontextmanager
async def two_providers() -> AsyncIterator[tuple[FaultServer, FaultServer]]:
    async with FaultServer(Reply(chunks=[WHOLE])) as one, FaultServer(Reply(chunks=[WHOLE])) as other:
        yield one, other


async def test_models_come_and_go_at_once(tmp_path):
    async with two_providers() as (one, _), deployed(tmp_path, document(one.url)) as served:
        changes = served.reload(document(one.url, model="n"))
        names = [each.name for each in await served.client.models()]
        assert (await served.client.complete("n", "Hi")).text == "Hello."
        with pytest.raises(modelmeter.ModelmeterError, match="no such model"):
            await served.client.complete("m", "Hi")
    assert names == ["n"]
    assert changes.listed() == ["models.m", "models.n"]


async def test_a_call_under_way_ends_at_the_provider_that_it_began_with(tmp_path):
    gate = asyncio.Event()
    async with two_providers() as (one, other), deployed(tmp_path, document(one.url)) as served:
        one.script([Reply(chunks=[WHOLE[:HALF], gate, WHOLE[HALF:]])])
        async with served.client.stream("m", "Hi") as stream:
            texts = stream.text
            assert await anext(texts) == "Hel"
            served.reload(document(other.url))
            assert (await served.client.complete("m", "Hi")).text == "Hello."
            gate.set()
            assert [text async for text in texts] == ["lo."]
        await one.disconnected(seconds=5)
        assert (len(one.requests), len(other.requests)) == (1, 1)


async def test_the_price_of_a_call_is_that_of_its_beginning(tmp_path):
    gate = asyncio.Event()
    async with two_providers() as (one, _), deployed(tmp_path, document(one.url)) as served:
        before = (await served.client.complete("m", "Hi")).cost
        one.script([Reply(chunks=[WHOLE[:HALF], gate, WHOLE[HALF:]])])
        async with served.client.stream("m", "Hi") as stream:
            texts = stream.text
            assert await anext(texts) == "Hel"
            served.reload(document(one.url, price="3"))
            gate.set()
            assert [text async for text in texts] == ["lo."]
        after = (await served.client.complete("m", "Hi")).cost
    assert before is not None
    assert after is not None
    assert stream.completion.cost == before
    assert after.nano_units == 3 * before.nano_units


async def test_a_provider_that_is_as_it_was_keeps_its_connections(tmp_path):
    async with two_providers() as (one, _), deployed(tmp_path, document(one.url)) as served:
        await served.client.complete("m", "Hi")
        served.reload(document(one.url, model="n", server="drain_seconds = 1"))
        await served.client.complete("n", "Hi")
        assert (one.connections, len(one.requests)) == (1, 2)


async def test_a_new_key_goes_with_the_next_request_and_out_of_what_is_told(tmp_path):
    async with two_providers() as (one, _), deployed(tmp_path, document(one.url)) as served:
        await served.client.complete("m", "Hi")
        served.reload(document(one.url, key="OTHER"))
        await served.client.complete("m", "Hi")
        assert [each.headers["x-api-key"] for each in one.requests] == ["sk-one", "sk-two"]
        told = served.app.telemetry.happenings.clean("it said sk-two and sk-one", 100)
    assert "sk-" not in told


async def test_a_session_takes_its_turns_where_it_was_opened(tmp_path):
    async with two_providers() as (one, other), deployed(tmp_path, document(one.url)) as served:
        async with served.client.session("m") as session:
            await (await session.turn("Hi")).result()
            served.reload(document(other.url, model="n"))
            assert (await (await session.turn("Hi again")).result()).text == "Hello."
            async with served.client.session("n") as later:
                await (await later.turn("Hi")).result()
        await one.disconnected(seconds=5)
        assert (len(one.requests), len(other.requests)) == (2, 1)


async def test_what_cannot_be_built_changes_nothing(tmp_path, monkeypatch):
    def broken(_provider: object, _gate: object) -> None:
        raise OSError("no trust store")

    async with two_providers() as (one, other), deployed(tmp_path, document(one.url)) as served:
        before = served.app.settings
        monkeypatch.setattr(composition, "make_driver", broken)
        with pytest.raises(OSError, match="no trust store"):
            served.reload(document(other.url, model="n", server="max_concurrent_calls = 1"))
        assert served.app.settings is before
        assert (await served.client.complete("m", "Hi")).text == "Hello."
        assert len(one.requests) == 1


async def test_the_limit_of_calls_holds_for_the_next_call(tmp_path):
    gate = asyncio.Event()
    async with two_providers() as (one, _), deployed(tmp_path, document(one.url)) as served:
        one.script([Reply(chunks=[WHOLE[:HALF], gate, WHOLE[HALF:]])])
        async with served.client.stream("m", "Hi") as stream:
            assert await anext(stream.text) == "Hel"
            served.reload(document(one.url, server="max_concurrent_calls = 1"))
            with pytest.raises(OverloadedError):
                await served.client.complete("m", "Hi")
            served.reload(document(one.url, server="max_concurrent_calls = 2"))
            await served.client.complete("m", "Hi")
            gate.set()


async def test_a_tenant_that_is_gone_is_let_in_no_more_and_its_stream_ends_with_its_bill(tmp_path):
    gate = asyncio.Event()
    _, token = TokenFile(tmp_path / "tokens.json").create("acme")
    identity = '[identity]\ntokens_file = "tokens.json"\n[tenants.{}]\n'
    async with two_providers() as (one, _):
        text = document(one.url, rest=identity.format("acme"))
        async with deployed(tmp_path, text, token) as served:
            one.script([Reply(chunks=[WHOLE[:HALF], gate, WHOLE[HALF:]])])
            async with served.client.stream("m", "Hi") as stream:
                texts = stream.text
                assert await anext(texts) == "Hel"
                served.reload(document(one.url, rest=identity.format("other")))
                with pytest.raises(modelmeter.ModelmeterError, match="not configured here"):
                    await served.client.complete("m", "Hi")
                with pytest.raises(modelmeter.CallInterruptedError, match="not configured here") as caught:
                    await anext(texts)
                assert caught.value.usage is not None
            gate.set()
            served.reload(text)
            await served.client.complete("m", "Hi")


async def test_what_knows_callers_stays_unless_it_is_about_them(tmp_path, monkeypatch):
    """Keys of an issuer that were fetched are not fetched again because a price has changed."""
    made: list[object] = []
    make = composition.make_authenticator

    def counted(identity: IdentitySettings, gate: EgressGate) -> CallerAuthenticator:
        made.append(identity)
        return make(identity, gate)

    monkeypatch.setattr(composition, "make_authenticator", counted)
    identity = '[identity]\ntokens_file = "tokens.json"\n[tenants.{}]\n'
    async with deployed(tmp_path, document("http://127.0.0.1:9", rest=identity.format("a"))) as served:
        served.reload(document("http://127.0.0.1:9", price="2", rest=identity.format("a")))
        assert len(made) == 1
        served.reload(document("http://127.0.0.1:9", price="2", rest=identity.format("b")))
        assert len(made) == 2


async def test_certificates_under_other_names_are_shown_from_the_next_connection_on(tmp_path):
    old, new = trustme.CA(), trustme.CA()
    for name, authority in (("one", old), ("two", new)):
        (tmp_path / name).mkdir()
        write_server(tmp_path / name, authority)
    tls = 'tls = {{ certificate = "{0}/server.pem", key = "{0}/server.key" }}'
    file = tmp_path / "m.toml"
    file.write_text(document("http://127.0.0.1:9", server=tls.format("one")))
    app = App(load(file, ENVIRON))
    (address,) = await app.start()

    async def is_trusted(authority: trustme.CA, number: int) -> bool:
        async with grpc.aio.secure_channel(address, trusting(authority), unshared(number)) as channel:
            models = model_service_pb2_grpc.ModelServiceStub(channel)
            call = models.ListModels(model_service_pb2.ListModelsRequest(), timeout=10)
            return await call.code() is grpc.StatusCode.OK

    assert await is_trusted(old, 1)
    file.write_text(document("http://127.0.0.1:9", server=tls.format("two")))
    app.reconfigure(load(file, ENVIRON))
    assert await is_trusted(new, 2)
    assert not await is_trusted(old, 3)
    await app.stop(0)
