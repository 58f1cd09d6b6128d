"""JWTs: what is forged, of another issuer, for another audience or out of time is never taken."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm

from modelmeter_server.identity.jwt_verifier import JwtRules, JwtVerifier
from modelmeter_server.identity.key_set import KeySet, KeySetError, parse_keys
from modelmeter_server.identity.principal import NoKeys, NotAuthenticated
from tests.support.identities import AUDIENCE, ISSUER, Issuer

NOW = int(time.time())


@pytest.fixture(scope="module")
def issuer():
    return Issuer()


async def refusal(issuer: Issuer, token: str) -> str:
    with pytest.raises(NotAuthenticated) as caught:
        await issuer.verifier().vouch(token)
    return str(caught.value)


def encoded(document: object) -> str:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def hmac_signed(header: dict[str, object], claims: object, key: bytes) -> str:
    signed = f"{encoded(header)}.{encoded(claims)}"
    return f"{signed}.{encoded(hmac.new(key, signed.encode(), hashlib.sha256).digest())}"


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_a_good_token_names_its_tenant_and_subject(issuer, algorithm):
    assert (await issuer.verifier().vouch(issuer.token(algorithm))).tenant == "acme"


@pytest.mark.parametrize("name", ["none", "None", "NONE", "", None, "HS256", "RS384", "PS256", "ES384", 5])
async def test_no_other_algorithm_is_taken_whatever_the_signature_says(issuer, name):
    header = {"kid": "RS256", "typ": "JWT"} | ({} if name is None else {"alg": name})
    for signature in ("", issuer.token().rsplit(".", 1)[1]):
        forged = f"{encoded(header)}.{encoded(issuer.claims())}.{signature}"
        assert "RS256, ES256 or EdDSA" in await refusal(issuer, forged) or name == 5


@pytest.mark.parametrize("form", [PublicFormat.SubjectPublicKeyInfo, PublicFormat.PKCS1])
async def test_the_public_key_is_no_secret_of_an_hmac(issuer, form):
    public = issuer.rsa.public_key()
    keys = [public.public_bytes(encoding, form) for encoding in (Encoding.PEM, Encoding.DER)]
    for key in (*keys, keys[0].strip(), json.dumps(RSAAlgorithm.to_jwk(public)).encode(), b""):
        for algorithm in ("HS256", "RS256"):
            forged = hmac_signed({"alg": algorithm, "kid": "RS256"}, issuer.claims(), key)
            assert await refusal(issuer, forged)


async def test_a_key_vouches_for_its_own_algorithm_alone(issuer):
    for signer in issuer.keys:
        for named in issuer.keys:
            if signer != named:
                assert await refusal(issuer, issuer.token(signer, kid=named))


async def test_a_signature_over_other_claims_is_none(issuer):
    header, _, signature = issuer.token().split(".")
    forged = f"{header}.{encoded(issuer.claims(tenant='ops'))}.{signature}"
    assert await refusal(issuer, forged) == "the token is not valid"


async def test_a_key_that_travels_in_the_token_is_not_asked(issuer):
    mine = rsa.generate_private_key(65537, 2048)
    own = json.loads(RSAAlgorithm.to_jwk(mine.public_key()))
    for extra in ({"jwk": own}, {"jku": "https://evil.test/keys"}, {"x5u": "https://evil.test/c"}):
        forged = jwt.encode(issuer.claims(), mine, algorithm="RS256", headers={"kid": "RS256", **extra})
        assert await refusal(issuer, forged) == "the token is not valid"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"exp": NOW - 5}, "has expired"),
        ({"exp": None}, "is not valid"),
        ({"exp": "soon"}, "is not valid"),
        ({"exp": float("inf")}, "is not valid"),
        ({"nbf": NOW + 86_400}, "is not valid yet"),
        ({"iat": NOW + 86_400}, "is not valid yet"),
        ({"aud": "another"}, "another audience"),
        ({"aud": None}, "is not valid"),
        ({"aud": []}, "is not valid"),
        ({"iss": "https://evil.test"}, "another issuer"),
        ({"iss": None}, "is not valid"),
        ({"iss": ISSUER + "/"}, "another issuer"),
        ({"tenant": None}, 'the claim "tenant" is missing'),
        ({"tenant": ["ops"]}, 'the claim "tenant" is missing'),
        ({"tenant": ""}, 'the claim "tenant" is missing'),
    ],
)
async def test_claims_that_do_not_hold_are_told_apart(issuer, changed, reason):
    assert reason in await refusal(issuer, issuer.token(**changed))


@pytest.mark.parametrize("kid", ["another", "../RS256", "RS256\x00", "' OR 1=1"])
async def test_an_unknown_key_is_refused(issuer, kid):
    assert "does not publish" in await refusal(issuer, issuer.token(kid=kid))


async def test_a_token_without_a_key_id_is_refused_where_there_are_several_keys(issuer):
    assert "does not publish" in await refusal(issuer, issuer.token(kid=None))


@pytest.mark.parametrize(
    "text", ["", ".", "..", "a.b.c", "e30.e30.e30", "A" * 8000, "é.é.é", "{}", encoded(b"[" * 5000) + ".e30."]
)
async def test_what_is_no_jwt_at_all_is_refused_without_a_fault(issuer, text):
    assert await refusal(issuer, text)


async def test_a_header_that_demands_what_nobody_knows_is_refused(issuer):
    token = jwt.encode(
        issuer.claims(), issuer.rsa, algorithm="RS256", headers={"kid": "RS256", "crit": ["x"], "x": 1}
    )
    assert await refusal(issuer, token) == "the token is not valid"


async def test_a_leeway_forgives_clocks_that_differ_and_no_more(issuer):
    rules = JwtRules(issuer=ISSUER, audience=AUDIENCE, leeway=60)
    verifier = JwtVerifier(rules, KeySet(issuer.fetch))
    now = int(time.time())
    assert (await verifier.vouch(issuer.token(exp=now - 5, nbf=now + 5))).expires_at == now + 55
    with pytest.raises(NotAuthenticated):
        await verifier.vouch(issuer.token(exp=now - 90))


# The keys


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_keys_are_read_once_for_all_who_wait():
    issuer, gate, asked = Issuer(), asyncio.Event(), []

    async def slow() -> bytes:
        asked.append(1)
        await gate.wait()
        return issuer.document

    keys = KeySet(slow)
    waiting = [asyncio.create_task(keys.find("RS256")) for _ in range(50)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    gate.set()
    found = await asyncio.gather(*waiting[1:])
    assert len(asked) == 1
    assert all(key is not None and key.algorithm_name == "RS256" for key in found)


async def test_a_new_key_is_found_at_once_and_unknown_ones_do_not_flood_the_issuer():
    clock, issuer, documents = Clock(), Issuer(), [Issuer().document]
    asked = []

    async def fetch() -> bytes:
        asked.append(1)
        return documents[-1]

    keys = KeySet(fetch, clock)
    old = await keys.find("RS256")
    for _ in range(100):
        assert await keys.find("new") is None
    assert len(asked) == 1
    document = json.loads(issuer.document)
    document["keys"][0]["kid"] = "new"
    documents.append(json.dumps(document).encode())
    clock.now += 31
    assert await keys.find("new") is not None
    assert len(asked) == 2
    assert old is not None


async def test_keys_outlive_an_issuer_that_is_away_and_are_missed_only_where_none_were_ever_read():
    clock, issuer = Clock(), Issuer()
    answers: list[bytes | OSError] = [OSError("away"), issuer.document, OSError("away"), b"<html>"]

    async def fetch() -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    keys = KeySet(fetch, clock)
    for _ in range(3):
        with pytest.raises(NoKeys):
            await keys.find("RS256")
    for _ in range(3):
        clock.now += 400
        assert await keys.find("RS256") is not None
        await asyncio.sleep(0)
    assert len(answers) <= 1


@pytest.mark.parametrize("document", [b"", b"{}", b'{"keys": 7}', b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_key_set_is_an_error(document):
    with pytest.raises(KeySetError):
        parse_keys(document)


def test_keys_that_cannot_be_trusted_are_left_out():
    weak = json.loads(RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key()))
    rest = [
        {**weak, "kid": "weak"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "shared", "alg": "HS256"},
        {"kty": "RSA", "n": "AQAB", "e": "!", "kid": "broken"},
        {"kty": "EC", "crv": "P-384", "x": "AA", "y": "AA", "kid": "curve"},
        {**json.loads(Issuer().document)["keys"][0], "use": "enc", "kid": "encryption"},
        {**json.loads(Issuer().document)["keys"][0], "alg": "HS256", "kid": "confused"},
        "text",
        None,
    ]
    assert parse_keys(json.dumps({"keys": rest}).encode()) == {}


async def test_an_end_that_no_clock_will_see_is_no_fault_of_ours(issuer):
    assert (await issuer.verifier().vouch(issuer.token(exp=10**400))).expires_at == float("inf")


@pytest.mark.parametrize("keys", ['"none"', "{}", "null", "7"])
def test_keys_that_are_no_list_are_no_key_set(keys):
    """A set that holds nothing takes everybody's key away; a document of another shape must not pass for one."""
    with pytest.raises(KeySetError):
        parse_keys(f'{{"keys": {keys}}}'.encode())
