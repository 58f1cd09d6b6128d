"""Keys of an issuer come over our own HTTP client: no redirect, no proxy of the environment, within bounds."""

from __future__ import annotations

import pytest

from modelmeter_server.drivers.key_set_source import MOST_BYTES, KeySetAddress, KeySetFile, KeySetUnavailable
from modelmeter_server.identity.jwt_verifier import JwtRules, JwtVerifier
from modelmeter_server.identity.key_set import KeySet
from modelmeter_server.identity.principal import NoKeys
from tests.support.fault_server import Authority, FaultServer, Reply
from tests.support.identities import AUDIENCE, ISSUER, Issuer


async def test_keys_are_fetched_and_judge_tokens():
    issuer = Issuer()
    async with FaultServer() as server:
        server.script([Reply(chunks=[issuer.document])])
        verifier = JwtVerifier(
            JwtRules(issuer=ISSUER, audience=AUDIENCE), KeySet(KeySetAddress(f"{server.url}/keys?x=1"))
        )
        assert (await verifier.vouch(issuer.token())).tenant == "acme"
        assert (await verifier.vouch(issuer.token("EdDSA"))).tenant == "acme"
        (request,) = server.requests
    assert (request.method, request.target) == ("GET", "/keys?x=1")


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=302, headers={"location": "http://127.0.0.1:9/keys"}),
        Reply(status=500),
        Reply(status=404),
        Reply(chunks=[b" " * (MOST_BYTES + 1)]),
        Reply(chunks=[b"{"], end="truncate"),
        Reply(silent=True, end="reset"),
    ],
)
async def test_what_is_no_whole_answer_is_no_key_set(monkeypatch, reply):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with FaultServer() as server:
        server.default = reply
        source = KeySetAddress(f"{server.url}/keys")
        with pytest.raises(KeySetUnavailable):
            await source()
        with pytest.raises(NoKeys):
            await KeySet(source).find("RS256")


async def test_an_issuer_that_nobody_vouches_for_is_not_believed():
    async with FaultServer(tls=Authority().server()) as server:
        server.default = Reply(chunks=[Issuer().document])
        with pytest.raises(KeySetUnavailable):
            await KeySetAddress(f"{server.url}/keys")()


async def test_a_file_is_read_as_far_as_a_key_set_can_be_long(tmp_path):
    path = tmp_path / "keys.json"
    path.write_bytes(b"x" * (MOST_BYTES + 7))
    assert len(await KeySetFile(path)()) == MOST_BYTES
    path.unlink()
    with pytest.raises(NoKeys):
        await KeySet(KeySetFile(path)).find("RS256")
