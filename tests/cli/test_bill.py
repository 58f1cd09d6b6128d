"""The rows of a bill: what is known is told, what is not is never made up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter import errors
from modelmeter._results import attempts_from
from modelmeter.cli import bill
from modelmeter.enums import Cause, Certainty, CostSource, Disposition, ErrorKind, PassReason, Stage
from modelmeter.results import AdditionalUsage, Cost, PassedOver, Price, PriceTier, Timings, Usage
from modelmeter.v1 import error_pb2, usage_pb2

INT64 = st.integers(0, 2**63 - 1)


def cost(nano_units, **details):
    told = {"source": CostSource.PRICE_TABLE, "certainty": Certainty.EXACT, "minor_units": 0, **details}
    return Cost(nano_units=nano_units, currency="USD", **told)


@pytest.mark.parametrize(
    ("nano_units", "text"),
    [
        (0, "0.00"),
        (1, "0.000000001"),
        (10_000_000, "0.01"),
        (123_000, "0.000123"),
        (1_500_000_000, "1.50"),
        (1_234_567_890_000_000_000, "1,234,567,890.00"),
    ],
)
def test_money_is_shown_to_its_last_digit_with_two_places_at_least(nano_units, text):
    assert bill.units(nano_units) == text


@given(INT64)
def test_money_reads_back_as_the_same_number_of_nano_units(nano_units):
    whole, _, part = bill.units(nano_units).replace(",", "").partition(".")
    assert int(whole) * 10**9 + int(part.ljust(9, "0")) == nano_units
    assert len(part) >= 2


def test_an_unknown_cost_is_not_shown_as_a_number():
    assert bill.money(None) == "not known"


def test_a_cost_that_is_a_lower_bound_says_so():
    assert bill.money(cost(10, certainty=Certainty.AT_LEAST)).endswith(", AT_LEAST)")
    assert "AT_LEAST" not in bill.money(cost(10))


def test_a_cost_says_who_worked_it_out():
    assert "provider's own figure" in bill.money(cost(10, source=CostSource.PROVIDER))
    assert "price table" in bill.money(cost(10))


def test_usage_that_nobody_told_is_not_shown_as_zero():
    assert bill.tokens(Usage()) == "not told"
    assert bill.tokens(Usage(input_tokens=5)) == "input 5, output not told"


def test_a_told_zero_is_a_zero():
    assert bill.tokens(Usage(input_tokens=0, output_tokens=0)) == "input 0, output 0"


def test_parts_stand_inside_their_totals():
    usage = Usage(input_tokens=2048, cache_read_tokens=1900, output_tokens=310, reasoning_tokens=120)
    assert bill.tokens(usage) == "input 2,048 (1,900 from cache), output 310 (120 reasoning)"


def test_requests_to_hosted_tools_are_told():
    assert bill.tokens(Usage(hosted_tool_requests={"web_search": 2})).endswith("web_search: 2 requests")


def attempt(number, certainty):
    told = usage_pb2.Certainty.Value(f"CERTAINTY_{certainty.value}")
    (made,) = attempts_from([error_pb2.Attempt(number=number, certainty=told)])
    return made


def rows(**details):
    return dict(bill.of_error(errors.ModelmeterError("it failed", **details)))


def test_an_interrupted_call_tells_its_tokens_its_certainty_and_its_cost():
    told = rows(
        kind=ErrorKind.INTERRUPTED,
        cause=Cause.NETWORK,
        stage=Stage.OUTPUT,
        disposition=Disposition.LANDED,
        usage=Usage(input_tokens=12, output_tokens=3),
        certainty=Certainty.AT_LEAST,
        estimated_output_tokens=9,
        cost=cost(81_000, certainty=Certainty.AT_LEAST),
        model_asked="m",
        target="p",
        call_id="id",
    )
    assert told == {
        "model": "m, served by p",
        "happened": "LANDED, ended by NETWORK at stage OUTPUT",
        "tokens": "input 12, output 3",
        "estimate": "9 output tokens, counted from the text",
        "certainty": "AT_LEAST: a lower bound, told before the end",
        "cost": "0.000081 USD (by the deployment's price table, AT_LEAST)",
        "repeat": "no: it would be a second bill",
        "call id": "id",
    }


def test_a_call_that_certainly_cost_nothing_has_no_row_for_a_cost():
    told = rows(certainty=Certainty.NONE, may_have_generated=False)
    assert told["certainty"] == "NONE: nothing was or will be billed"
    assert not {"tokens", "cost"} & told.keys()


@pytest.mark.parametrize(
    ("details", "text"),
    [
        ({"retryable": True, "may_have_generated": False, "retry_after": 2.5}, "yes after 2.5 s"),
        ({"retryable": True, "may_have_generated": True}, "yes, though it may be billed twice"),
        ({"retryable": False, "may_have_generated": False}, "no"),
        ({"retryable": False, "may_have_generated": True}, "no: it would be a second bill"),
    ],
)
def test_the_advice_to_repeat_says_what_it_may_cost(details, text):
    assert rows(**details)["repeat"] == text


def test_who_was_passed_over_for_what_is_told_anyway_is_not_repeated():
    same, other = (
        "bad request: request.temperature: takes 0 to 1",
        "bad request: request.temperature: takes 0 to 2",
    )
    passed_over = tuple(PassedOver(name, PassReason.CANNOT, why) for name, why in (("a", same), ("b", other)))
    refused = errors.RefusedError(same, kind=ErrorKind.REFUSED, passed_over=passed_over)
    told = [text for label, text in bill.of_error(refused) if label == "passed over"]
    assert told == ["b: CANNOT, bad request: temperature: takes 0 to 2"]


def test_what_the_provider_said_is_told_untouched():
    told = rows(http_status=429, provider_code="rate_limit_error", provider_request_id="req_1")
    assert told["provider"] == "HTTP 429, rate_limit_error, request req_1"


def test_work_billed_beside_the_call_has_a_row_of_its_own():
    extra = AdditionalUsage(kind="compaction", model="small", usage=Usage(input_tokens=1, output_tokens=2))
    assert rows(additional_usage=(extra,))["besides"] == "compaction by small: input 1, output 2"


def test_times_that_were_not_taken_are_left_out():
    assert bill.times(Timings(queue=0.001, first_token=None, total=2.5)) == "queue 0.001 s, total 2.500 s"


def test_the_titles_of_failures_are_the_words_of_the_contract():
    assert bill.title(errors.UnusableError("x", kind=ErrorKind.UNUSABLE)) == "UNUSABLE"
    assert bill.title(errors.LostContactError("x")) == "NO OUTCOME"
    assert bill.title(errors.NotConnectedError("x")) == "NOT CONNECTED"


def test_a_list_shows_the_base_rates_and_that_there_are_more():
    tier = PriceTier("3", "15", "", "", "", 0, "", "", "")
    assert bill.rates(Price("USD", (tier,), {})) == "3 / 15 USD"
    assert bill.rates(Price("USD", (tier, tier), {})) == "3 / 15 USD and more"
    assert bill.rates(None) == ""


def test_who_found_no_server_is_told_how_to_get_one():
    rows = dict(bill.of_error(errors.NotConnectedError("x", retryable=True, certainty=Certainty.NONE)))
    assert "`modelmeter serve`" in rows["repeat"]
    assert "--address" in rows["repeat"]


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("Tls handshake failed: SSL_ERROR_SSL: CERTIFICATE_VERIFY_FAILED: self signed", "--ca-file"),
        ("Tls handshake failed: SSL_ERROR_SSL: OPENSSL_internal:WRONG_VERSION_NUMBER", "without TLS"),
        ("UNAVAILABLE: ipv4:127.0.0.1:50051: Socket closed", "--client-cert"),
        ("Failed parsing HTTP/2 (Expected SETTINGS frame as the first frame)", "does not speak gRPC"),
        ("the session is over, nothing of this turn was sent", "another session"),
    ],
)
def test_who_is_not_let_in_is_told_what_may_be_missing(words, advice):
    rows = dict(bill.of_error(errors.NotConnectedError(words, retryable=True, certainty=Certainty.NONE)))
    assert advice in rows["repeat"]
    assert "`modelmeter serve`" not in rows["repeat"]


@pytest.mark.parametrize(
    ("certainties", "words"),
    [
        ((Certainty.UNKNOWN, Certainty.EXACT), "an attempt before may be billed as well"),
        ((Certainty.UNKNOWN, Certainty.AT_LEAST), "told before the end"),
        ((Certainty.AT_LEAST,), "told before the end"),
    ],
)
def test_a_lower_bound_says_where_the_doubt_is(certainties, words):
    attempts = tuple(attempt(number, certainty) for number, certainty in enumerate(certainties, 1))
    assert words in rows(certainty=Certainty.AT_LEAST, attempts=attempts)["certainty"]


@pytest.mark.parametrize(
    ("details", "text"),
    [
        ({}, "m"),
        ({"attempts_total": 1}, "m, asked of p"),
        ({"attempts_total": 1, "disposition": Disposition.LANDED}, "m, served by p"),
        ({"attempts_total": 1, "model_served": "m-1"}, "m as m-1, served by p"),
    ],
    ids=["before dispatch", "asked", "generated", "named by the provider"],
)
def test_a_provider_served_a_failed_call_only_if_it_showed_that_it_did(details, text):
    assert rows(model_asked="m", target="p", **details)["model"] == text


def test_every_rate_of_a_price_has_a_name_in_the_list():
    tier = PriceTier("1", "2", "3", "4", "5", 0, "", "6", "7")
    (_, (scope, text)) = bill.of_price(Price("USD", (tier,), {}))
    assert (scope, [part.rpartition(" ")[2] for part in text.split(", ")]) == ("base", list("1234567"))
    assert text.endswith("audio input 6, audio output 7")
