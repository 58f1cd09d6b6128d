"""Providers' usage exports: which columns are read, and how they are compared."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter._ledger_results import call_from
from modelmeter.cli.ledger_spend import BAR, bar
from modelmeter.cli.usage_exports import ExportUnreadable, Usage, compare, read_export, total
from modelmeter.v1 import ledger_service_pb2 as pb
from modelmeter.v1 import usage_pb2

ANTHROPIC = (
    "usage_date_utc,model_version,api_key,usage_input_tokens_no_cache,usage_input_tokens_cache_write_5m,"
    "usage_input_tokens_cache_read,usage_output_tokens\n2026-05-01,claude-opus-5,key,100,20,30,50\n"
)
OPENAI = (
    "start_time,model,num_model_requests,input_tokens,output_tokens,input_cached_tokens\n"
    "1777593600,gpt-5,3,150,50,30\n"
)


def call(day: int, model: str, tokens: int, **fields):
    proto = pb.CallRecord(model_asked="alias", model_served=model, usage=usage_pb2.Usage(input_tokens=tokens))
    proto.reserve_time.FromDatetime(datetime(2026, 5, day, 23, 59, tzinfo=UTC).replace(tzinfo=None))
    for name, value in fields.items():
        setattr(proto, name, value)
    return call_from(proto)


@pytest.mark.parametrize(
    ("text", "model", "calls"),
    [(ANTHROPIC, "claude-opus-5", 1), (OPENAI, "gpt-5", 3)],
    ids=["anthropic", "openai"],
)
def test_cached_input_is_counted_once(text, model, calls):
    (row,) = read_export(text)
    assert (row.day, row.model, row.usage) == (date(2026, 5, 1), model, Usage(calls, 200, 0))


@pytest.mark.parametrize(
    "text",
    [
        '{"date": "2026-05-01T23:00:00-02:00", "model": "m", "input_tokens": 1, "cost": "$0.5"}\n',
        '[{"day": "2026-05-02", "model": "m", "prompt_tokens": 1, "total_cost": 0.5}]',
        "\ufeffdate,model,completion_tokens,cost_usd\n2026-05-02,m,1,0.50\n",
    ],
    ids=["json lines", "json", "csv"],
)
def test_each_format_is_read(text):
    (row,) = read_export(text)
    assert (row.day, row.model, row.usage) == (date(2026, 5, 2), "m", Usage(1, 1, 500_000_000))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "empty"),
        ("model\nx\n", "neither a day nor an id"),
        ("date,input_tokens\n2026-05-01,many\n", "row 1"),
        ("date\nsoon\n", "no day"),
        ('{"date": 1}\n{', "line 2"),
        ("[1]", "no object"),
        ("date,cost\n2026-05-01,free\n", "no amount"),
    ],
)
def test_what_is_no_export_says_where(text, hint):
    with pytest.raises(ExportUnreadable, match=hint):
        read_export(text)


def test_calls_are_compared_by_day_and_model():
    rows = read_export("date,model,input_tokens\n2026-05-01,m,100\n2026-05-02,m,100\n2026-05-02,n,50\n")
    compared = compare(rows, [call(1, "m", 90), call(2, "m", 100), call(2, "other", 7), call(3, "m", 9)])
    assert [(each.key, each.model, each.ledger.tokens) for each in compared] == [
        ("2026-05-01", "m", 90),
        ("2026-05-02", "m", 100),
        ("2026-05-02", "n", 0),
    ]
    assert total(compared).rate == 190 / 250


@pytest.mark.parametrize("field", ["provider_request_id", "provider_response_id"])
def test_an_id_of_the_provider_finds_its_call_on_any_day(field):
    rows = read_export("id,input_tokens\nreq_1,100\nreq_2,100\n")
    compared = compare(rows, [call(9, "m", 100, **{field: "req_1"})])
    assert [(each.key, each.ledger.tokens) for each in compared] == [("req_1", 100), ("req_2", 0)]


def test_nothing_has_no_rate():
    (only,) = compare(read_export("date\n2026-05-01\n"), [])
    assert only.rate is None


@given(st.integers(0, 10**15), st.integers(0, 10**15))
def test_a_bar_is_no_longer_than_its_room_and_shows_anything_above_nothing(amount, more):
    drawn = bar(amount, amount + more)
    assert len(drawn) <= BAR
    assert bool(drawn) is (amount > 0)
