"""R-R1: the wait that a provider named, and nothing else that looks like one."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.retry_delay import retry_delay

if TYPE_CHECKING:
    from pathlib import Path

NOW = "Thu, 13 Aug 2026 15:36:31 GMT"


def delay(body: object = None, **headers: str) -> float | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return retry_delay(named.get, body)


def retry_info(told: object, kind: object = "type.googleapis.com/google.rpc.RetryInfo") -> dict[str, object]:
    return {"error": {"code": 429, "details": [{"@type": "x"}, {"@type": kind, "retryDelay": told}]}}


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ("20", 20),
        ("0", 0),
        ("1.5", 1.5),
        ("0.25", 0.25),
        (".5", 0.5),
        (" 7 ", 7),
        ("86400", 86400),
        ("5.", 5),
    ],
)
def test_seconds_are_read_with_fractions(told: str, seconds: float):
    assert delay(retry_after=told) == seconds


@given(st.integers(0, 10**9))
def test_no_delay_is_capped(seconds: int):
    assert delay(retry_after=str(seconds)) == seconds
    assert delay(retry_after_ms=str(seconds)) == seconds / 1000


@pytest.mark.parametrize(
    "told",
    [
        "",
        "-3",
        "-0.5",
        "inf",
        "nan",
        "Infinity",
        "soon",
        "5 minutes",
        "1_000",
        "1e3",
        "5, 5",
        "٣",
        "0x10",
        "9" * 400,
    ],
)
def test_what_is_no_number_of_seconds_is_unknown(told: str):
    assert delay(retry_after=told, date=NOW) is None
    assert delay(retry_after_ms=told) is None


def test_milliseconds_come_first():
    assert delay(retry_after_ms="2500", retry_after="20") == 2.5
    assert delay(retry_after_ms="soon", retry_after="20") == 20


@pytest.mark.parametrize(
    "told", ["Thu, 13 Aug 2026 15:37:13 GMT", "Thursday, 13-Aug-26 15:37:13 GMT", "Thu Aug 13 15:37:13 2026"]
)
def test_a_date_in_any_http_form_is_measured_against_the_response_date(told: str):
    assert delay(retry_after=told, date=NOW) == 42


@given(st.integers(-(10**8), 10**8))
def test_a_date_counts_from_the_response_date_and_a_past_one_is_now(seconds: int):
    until = datetime(2026, 8, 13, 15, 36, 31, tzinfo=UTC) + timedelta(seconds=seconds)
    assert delay(retry_after=f"{until:%a, %d %b %Y %H:%M:%S} GMT", date=NOW) == max(0, seconds)


def test_a_date_without_the_response_date_is_unknown():
    told = "Thu, 13 Aug 2026 15:37:13 GMT"
    assert delay(retry_after=told) is None
    assert delay(retry_after=told, date="yesterday") is None


@pytest.mark.parametrize(
    "told",
    [
        "Thu, 32 Aug 2026 15:37:13 GMT",
        "Thu, 13 Aug 2026 25:37:13 GMT",
        "Thu, 13 Aug 0000 15:37:13 GMT",
        "Thu, 13 Foo 2026 15:37:13 GMT",
        "13 Aug 2026",
        "2026-08-13T15:37:13Z",
    ],
)
def test_what_is_no_http_date_is_unknown(told: str):
    assert delay(retry_after=told, date=NOW) is None


def test_a_leap_second_and_a_year_of_two_digits_are_dates():
    assert delay(retry_after="Thu, 13 Aug 2026 15:36:60 GMT", date=NOW) == 28
    assert delay(retry_after="Sun Nov  6 08:49:38 1994", date="Sunday, 06-Nov-94 08:49:37 GMT") == 1


@pytest.mark.parametrize(("told", "seconds"), [("34.4s", 34.4), ("0s", 0), ("7s", 7), ("0.000000001s", 1e-9)])
def test_the_body_names_a_delay_by_retry_info(told: str, seconds: float):
    assert delay(retry_info(told)) == seconds
    assert delay([retry_info(told)]) == seconds


@pytest.mark.parametrize(
    "told", ["-3s", "34", "34.4 s", "s", "infs", "", None, 34, ["34s"], "PT34S", "9" * 400 + "s"]
)
def test_a_malformed_retry_info_is_unknown(told: object):
    assert delay(retry_info(told)) is None


def test_a_header_comes_before_the_body_and_the_body_after_a_malformed_header():
    assert delay(retry_info("34s"), retry_after="5") == 5
    assert delay(retry_info("34s"), retry_after="-5") == 34
    assert delay(retry_info("34s"), retry_after="soon", date=NOW) == 34


@pytest.mark.parametrize(
    "body",
    [
        *(None, [], [1], "text", 5, {}),
        *({"error": None}, {"error": "Please retry in 34s"}, {"error": {"details": {}}}),
        *({"error": {"details": ["x", None]}}, {"error": {"message": "retry in 34s", "retryDelay": "34s"}}),
        *(retry_info("34s", kind="google.rpc.QuotaFailure"), retry_info("34s", kind=7)),
    ],
)
def test_prose_and_other_shapes_are_not_parsed(body: object):
    assert delay(body) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["error", "details", "@type", "x"]), inner)
    ),
)


@given(json_values, st.text(), st.text(), st.text())
def test_anything_gives_a_delay_from_zero_up_or_none(body: object, ms: str, seconds: str, date: str):
    told = delay(body, retry_after_ms=ms, retry_after=seconds, date=date)
    assert told is None or 0 <= told < float("inf")


def test_the_recorded_cases_give_their_delay(shared: Path):
    cases = [json.loads(path.read_text()) for path in sorted((shared / "cases").glob("*.json"))]
    named = [case for case in cases if "R-R1" in case["rules"] and case["transport"] == "http"]
    assert len(named) >= 7
    for case in named:
        found = retry_delay(case["http"]["headers"].get, None)
        expected = case["expect"]["retry_after_ms"]
        assert found == (None if expected is None else expected / 1000), case["id"]
