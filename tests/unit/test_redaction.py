"""What is taken out of texts before anybody sees them, and how the rest is cut."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from modelmeter_server.core.redaction import PAYLOAD_BYTES, Redaction, ToolRule, truncated, without_keys
from tests.support.domain_values import any_texts

KEYS = [
    "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789",
    "sk-proj-ABCDEFGHIJKLMNOP1234",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "AKIAIOSFODNN7EXAMPLE",
    "gsk_abcdefghijklmnopqrst0123",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "xoxb-1234567890-abcdefghij",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "ya29.a0AfH6SMBabcdefghijklmnop",
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("around", ["{}", "the key {} was wrong", '{{"echo": "{}"}}', "x={}&y=1"])
def test_what_looks_like_a_key_is_taken_out_wherever_it_stands(key, around):
    text = without_keys(around.format(key))
    assert key not in text
    assert "[redacted]" in text


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abc.def-ghi",
        "authorization=bearer abcdefghijk",
        "Authorization: Basic abcdEF12",
        '{"x-api-key": "hunter2hunter2"}',
        "api_key=hunter2hunter2",
        '{\\"password\\": \\"hunter2hunter2\\"}',
    ],
)
def test_what_is_called_a_secret_is_taken_out_whatever_it_looks_like(text):
    cleaned = without_keys(text)
    assert "hunter2" not in cleaned
    assert "abc" not in cleaned


@pytest.mark.parametrize(
    "text",
    ["sk-learn is a library", "the bearer of good news", "a key idea", "the tokens: 12", "basic research"],
)
def test_ordinary_words_stay(text):
    assert without_keys(text) == text


@given(st.text(max_size=200), st.sampled_from(KEYS), st.text(max_size=200))
def test_no_key_survives_between_any_texts(before, key, after):
    assume(not before[-1:].isalnum() and before[-1:] not in ("-", "_", ".", "+", "/"))
    assert key not in without_keys(before + key + after)


def test_keys_in_json_leave_json():
    text = json.dumps({"a": KEYS[0], "authorization": "Bearer abcdefgh", "n": 1})
    assert json.loads(without_keys(text))["n"] == 1


def test_a_private_key_is_taken_out_whole_also_without_its_end():
    text = "a -----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc"
    assert without_keys(text) == "a [redacted]"


@given(any_texts, st.text(st.characters(categories=["L", "N"]), min_size=8, max_size=20), any_texts)
def test_a_secret_of_the_deployment_is_in_no_cleaned_text(before, secret, after):
    assume(secret not in "[redacted]")
    assert secret not in Redaction(secrets=(secret,)).clean(before + secret + after)


def test_a_pattern_is_replaced_and_a_hashed_one_stays_recognisable():
    rules = Redaction(
        patterns=(re.compile(r"\d{4}-\d{4}"),), hashed=(re.compile(r"[\w.]+@[\w.]+"),), hash_key=b"k"
    )
    one = rules.clean("card 1234-5678 of ann@example.org")
    two = rules.clean("mail to ann@example.org")
    assert "1234" not in one
    assert "ann" not in one + two
    (first,), (second,) = re.findall(r"\[hash:\w{16}\]", one), re.findall(r"\[hash:\w{16}\]", two)
    assert first == second


def test_a_hash_depends_on_its_key():
    hashed = (re.compile("x+"),)
    texts = {Redaction(hashed=hashed, hash_key=key).clean("xx") for key in (b"a", b"b")}
    assert len(texts) == 2


def test_a_tool_can_be_dropped_or_hashed_whole():
    rules = Redaction(tools={"search": ToolRule.DROP, "files": ToolRule.HASH}, hash_key=b"k")
    dropped, hashed = rules.payload("what I seek", "search"), rules.payload("what I seek", "files")
    assert (dropped.text, dropped.truncated, dropped.original_bytes) == ("", True, 11)
    assert re.fullmatch(r"\[hash:\w{16}\]", hashed.text)
    assert rules.payload("what I seek", "other").text == "what I seek"


def test_a_key_that_the_cut_would_split_is_taken_out_before():
    text = "x" * (PAYLOAD_BYTES - 10) + " " + KEYS[0]
    payload = Redaction().payload(text, "search")
    assert KEYS[0][:9] not in payload.text


def test_the_rules_name_no_secret_when_they_are_printed():
    assert "hunter" not in repr(Redaction(secrets=("hunter2",), hash_key=b"hunter3"))


# Cutting


@given(st.text(), st.integers(0, 40))
@example("aé", 2)
@example("ab", 2)
@example("€", 2)
def test_a_cut_ends_on_a_whole_character_and_says_how_long_the_text_was(text, limit):
    payload = truncated(text, limit)
    whole = text.encode()
    assert len(payload.text.encode()) <= limit
    assert text.startswith(payload.text)
    assert payload.original_bytes == len(whole)
    assert payload.truncated == (len(whole) > limit)
    if payload.truncated:  # not one character more would have fitted
        assert len(text[: len(payload.text) + 1].encode()) > limit


@given(any_texts, st.integers(0, 400))
def test_halves_of_characters_do_no_harm(text, limit):
    payload = truncated(text, limit)
    assert len(payload.text.encode()) <= limit


def test_exactly_the_limit_is_not_cut():
    assert not truncated("é" * (PAYLOAD_BYTES // 2), PAYLOAD_BYTES).truncated
    assert truncated("é" * (PAYLOAD_BYTES // 2) + "a", PAYLOAD_BYTES).truncated
