"""A running deployment takes over other settings: at once for what comes, not at all for what is under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

import modelmeter
from modelmeter.enums import PassReason
from modelmeter.errors import OverloadedError
from modelmeter.v1 import model_service_pb2, model_service_pb2_grpc
from modelmeter_server import app as composition
from modelmeter_server import parts
from modelmeter_server.app import App
from modelmeter_server.config import Changes, ConfigError, IdentitySettings, load
from modelmeter_server.drivers.http import EgressGate
from modelmeter_server.identity.authenticator import CallerAuthenticator
from modelmeter_server.identity.token_file import TokenFile
from modelmeter_server.rpc import stays
from modelmeter_server.rpc.authorization import Authorization
from tests.e2e import hostile
from tests.support.certificates import trusting, unshared, write_server
from tests.support.fault_server import FaultServer, Reply
from tests.support.ledgers import until

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
    url: str,
    *,
    key: str = "KEY",
    model: str = "m",
    price: str = "1",
    server: str = "",
    provider: str = "",
    rest: str = "",
) -> str:
    source = provider or f'api_key_env = "{key}"'
    return (
        f'[server]\nlisten = "localhost:0"\n{server}\n[ledger]\nurl = "none"\n'
        f'[providers.p]\nkind = "{KIND}"\nbase_url = "{url}"\n{source}\n'
        f'[models.{model}]\nprovider = "p"\nmodel = "m-test"\n'
        f'price = {{ currency = "USD", input = "{price}", output = "{price}" }}\n{rest}'
    )


@asynccontextmanager
async def deployed(folder: Path, text: str, token: str | None = None) -> AsyncIterator[Deployment]:
    file = folder / "m.toml"
    file.write_text(text)
    app = App(load(file, ENVIRON))
    (address,) = await app.start()
    try:
        async with modelmeter.AsyncClient(address, token=token) as client:
            yield Deployment(app, file, client)
    finally:
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


PRICED = """
[models.dear]
provider = "p"
model = "m-dear"
price = {{ currency = "USD", input = "{dear}", output = "{dear}" }}
[models.r]
targets = [{{ model = "m" }}, {{ model = "dear" }}]
"""


async def test_a_turn_holds_what_the_dearest_target_of_its_own_model_may_cost(tmp_path):
    def priced(dear: str) -> str:
        kept = f'url = "sqlite:///{tmp_path}/l.db"'
        return document(one.url, rest=PRICED.format(dear=dear)).replace('url = "none"', kept)

    gates = [asyncio.Event(), asyncio.Event()]
    async with two_providers() as (one, _):
        one.script([Reply(chunks=[WHOLE[:HALF], gate, WHOLE[HALF:]]) for gate in gates])
        async with deployed(tmp_path, priced("5")) as served, served.client.session("r") as session:
            held: list[int] = []
            for gate in gates:
                turn = await session.turn("Hi", max_output_tokens=100)
                await until(lambda: len(one.requests) > len(held))
                held.append((await served.client.ledger.get_call(turn.call_id)).booking.held.nano_units)
                gate.set()
                await turn.result()
                served.reload(priced("1"))
    assert min(held) > 500_000  # 100 tokens at 5 USD a million


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
            served.reload(document(one.url, server="max_concurrent_calls = 1\nmax_queued_calls = 0"))
            with pytest.raises(OverloadedError):
                await served.client.complete("m", "Hi")
            served.reload(document(one.url, server="max_concurrent_calls = 2"))
            await served.client.complete("m", "Hi")
            gate.set()


CALLS = {
    "target p": {"provider": 'api_key_env = "KEY"\nmax_concurrent_calls = {}'},
    "model m": {"rest": "limits = {{ concurrent = {} }}\n"},
    "tenant acme": {
        "rest": '[identity]\ntokens_file = "tokens.json"\n[tenants.acme]\nlimits = {{ concurrent = {} }}\n'
    },
}


@pytest.mark.parametrize("subject", CALLS)
async def test_every_limit_that_a_reload_brings_counts_what_is_under_way_and_lets_in_who_waits(
    tmp_path, subject
):
    _, token = TokenFile(tmp_path / "tokens.json").create("acme")
    ((name, terms),) = CALLS[subject].items()
    gate = asyncio.Event()
    async with two_providers() as (one, _):

        def limited(allowed: int, queued: int) -> str:
            server = f"max_queued_calls = {queued}"
            return document(one.url, server=server, **{name: terms.format(allowed)})

        async with deployed(tmp_path, limited(9, 9), token if "tenant" in subject else None) as served:
            one.script([Reply(chunks=[WHOLE[:HALF], gate, WHOLE[HALF:]])])
            async with served.client.stream("m", "Hi") as stream:
                assert await anext(stream.text) == "Hel"
                served.reload(limited(1, 0))
                with pytest.raises(OverloadedError, match=f"the {subject} allows 1"):
                    await served.client.complete("m", "Hi")
                served.reload(limited(1, 9))
                waiting = asyncio.create_task(served.client.complete("m", "Hi"))
                await until(lambda: served.app.engine.admission.waiting == 1)
                served.reload(limited(2, 9))
                assert (await waiting).text == "Hello."
                gate.set()


TARGETS = """
[providers.q]
kind = "{kind}"
base_url = "{url}"
api_key_env = "KEY"
breaker = {{ failures = {failures} }}
[models.r]
model = "m-test"
targets = [{{ provider = "q" }}, {{ provider = "p" }}]
"""


async def test_a_target_that_a_reload_brings_is_watched_by_the_rules_that_it_brings(tmp_path):
    failing = FaultServer(Reply(status=503, chunks=[hostile.answer(KIND, "down")]))
    async with two_providers() as (one, _), failing as down, deployed(tmp_path, document(one.url)) as served:
        for failures in (2, 1):
            served.reload(document(one.url, rest=TARGETS.format(kind=KIND, url=down.url, failures=failures)))
            if failures == 2:
                assert (await served.client.complete("r", "Hi")).passed_over == ()
        await served.client.complete("r", "Hi")
        answer = await served.client.complete("r", "Hi")
        assert [each.reason for each in answer.passed_over] == [PassReason.OPEN]
        assert len(down.requests) == 2


async def test_a_host_that_is_no_longer_allowed_is_not_connected_to_any_more(tmp_path):
    """Only a session that was opened before still has a place there: a provider off the list is a mistake."""

    def allowing(url: str, *urls: str) -> str:
        hosts = ", ".join(f'"{each.removeprefix("http://")}"' for each in urls)
        return document(url, rest=f"[egress]\nallow = [{hosts}]\n")

    async with two_providers() as (one, other):
        async with deployed(tmp_path, allowing(one.url, one.url, other.url)) as served:
            one.script([Reply(chunks=[WHOLE], close=True)])
            async with served.client.session("m") as session:
                assert (await (await session.turn("Hi")).result()).text == "Hello."
                with pytest.raises(ConfigError, match="not on the list"):
                    served.reload(allowing(one.url, other.url))
                served.reload(allowing(other.url, other.url))
                with pytest.raises(modelmeter.RefusedError, match="may not connect there") as caught:
                    await (await session.turn("Hi again")).result()
            assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED
            assert (await served.client.complete("m", "Hi")).text == "Hello."
        assert (len(one.requests), len(other.requests)) == (1, 1)


async def test_a_key_may_come_from_elsewhere_after_a_reload(tmp_path):
    (tmp_path / "p.key").write_text("sk-from-file")
    sources = (
        'api_key_file = "p.key"',
        'api_key_command = ["/bin/echo", "sk-from-command"]',
        'api_keys = [{ env = "OTHER" }]',
    )
    async with two_providers() as (one, _), deployed(tmp_path, document(one.url)) as served:
        await served.client.complete("m", "Hi")
        for source in sources:
            served.reload(document(one.url, provider=source))
            await served.client.complete("m", "Hi")
        told = served.app.telemetry.happenings.clean("sk-one sk-from-file sk-from-command sk-two", 100)
        keys = [each.headers["x-api-key"] for each in one.requests]
    assert keys == ["sk-one", "sk-from-file", "sk-from-command", "sk-two"]
    assert "sk-" not in told


IDENTITY = '[identity]\ntokens_file = "tokens.json"\n[tenants.{}]\n'


async def test_a_tenant_that_is_gone_is_let_in_no_more_and_its_stream_is_cut_with_its_bill(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(stays, "LOOK_SECONDS", 0.02)
    _, token = TokenFile(tmp_path / "tokens.json").create("acme")
    async with two_providers() as (one, _):
        text = document(one.url, rest=IDENTITY.format("acme"))
        async with deployed(tmp_path, text, token) as served:
            authenticator = served.app._authenticator
            one.script([Reply(chunks=[WHOLE[:HALF], asyncio.Event(), WHOLE[HALF:]])])
            async with served.client.stream("m", "Hi") as stream:
                texts = stream.text
                assert await anext(texts) == "Hel"
                served.reload(document(one.url, rest=IDENTITY.format("other")))
                with pytest.raises(modelmeter.ModelmeterError, match="not configured here"):
                    await served.client.complete("m", "Hi")
                with pytest.raises(modelmeter.ModelmeterError, match="not configured here any more") as cut:
                    await anext(texts)
            assert cut.value.usage is not None
            assert cut.value.usage.input_tokens
            served.reload(text)
            await served.client.complete("m", "Hi")
            assert served.app._authenticator is authenticator


async def test_a_tenant_that_stays_keeps_its_stream_through_a_reload(tmp_path):
    _, token = TokenFile(tmp_path / "tokens.json").create("acme")
    gate = asyncio.Event()
    async with two_providers() as (one, _):
        text = document(one.url, rest=IDENTITY.format("acme"))
        async with deployed(tmp_path, text, token) as served:
            one.script([Reply(chunks=[WHOLE[:HALF], gate, WHOLE[HALF:]])])
            async with served.client.stream("m", "Hi") as stream:
                texts = stream.text
                assert await anext(texts) == "Hel"
                keeper = served.app.server.gate.keeper
                assert isinstance(keeper, Authorization)
                served.reload(document(one.url, rest=IDENTITY.format("other") + "[tenants.acme]\n"))
                keeper.stays.look()
                gate.set()
                assert [text async for text in texts] == ["lo."]


async def test_health_is_open_to_anybody_as_soon_as_a_reload_says_so(tmp_path):
    async def asked(address: str) -> grpc.StatusCode:
        async with grpc.aio.insecure_channel(address) as channel:
            check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
            code: grpc.StatusCode = await check(b"", timeout=10).code()
            return code

    identity = '[identity]\ntokens_file = "tokens.json"\nopen_health = {}\n[tenants.a]\n'
    file = tmp_path / "m.toml"
    file.write_text(document("http://127.0.0.1:9", rest=identity.format("false")))
    app = App(load(file, ENVIRON))
    (address,) = await app.start()
    codes = [await asked(address)]
    for word in ("true", "false"):
        file.write_text(document("http://127.0.0.1:9", rest=identity.format(word)))
        app.reconfigure(load(file, ENVIRON))
        codes.append(await asked(address))
    await app.stop(0)
    closed = grpc.StatusCode.UNAUTHENTICATED
    assert codes == [closed, grpc.StatusCode.OK, closed]


async def test_what_knows_callers_stays_unless_it_is_about_them(tmp_path, monkeypatch):
    """Keys of an issuer that were fetched are not fetched again because a price has changed."""
    made: list[object] = []
    make = parts.make_authenticator

    def counted(identity: IdentitySettings, gate: EgressGate) -> CallerAuthenticator:
        made.append(identity)
        return make(identity, gate)

    monkeypatch.setattr(composition, "make_authenticator", counted)
    async with deployed(tmp_path, document("http://127.0.0.1:9", rest=IDENTITY.format("a"))) as served:
        served.reload(document("http://127.0.0.1:9", price="2", rest=IDENTITY.format("a")))
        assert len(made) == 1
        served.reload(document("http://127.0.0.1:9", price="2", rest=IDENTITY.format("b")))
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
