"""What every script comes to: docs/replay.md and the code say the same."""

from __future__ import annotations

import re
import tomllib

import pytest

from modelmeter_server.core.answers import Answer
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Certainty, Code, Stage
from modelmeter_server.core.requests import SchemaMode, Tool, ToolChoice, ToolMode
from modelmeter_server.drivers.http import Timeouts
from modelmeter_server.drivers.replay import ReplayDriver, builtin_scripts, parse_scripts
from tests.support import ROOT
from tests.support.replay import SCHEMA, book, driver_of, played, request_of, summary

TEXT = (ROOT / "docs" / "replay.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ((?:answer|[A-Z_]+) [A-Z_]+[^|]*) \|$", TEXT, re.MULTILINE))
SHORT = Timeouts(first_byte=0.02, idle=0.15)
TOOL = Tool(name="look", parameters_json='{"type":"object","properties":{"where":{"type":"string"}}}')


def outcome(script: str, condition: str = "") -> str:
    """Return what the table says, under a condition where that makes a difference."""
    usual, *others = ROWS[script].split(", ")
    return dict(other.split(": ") for other in others).get(condition, usual)


def driver() -> ReplayDriver:
    return ReplayDriver(timeouts=SHORT)


def test_the_table_lists_every_built_in_script_in_their_order_and_no_other():
    assert tuple(ROWS) == builtin_scripts().names


@pytest.mark.parametrize("script", ROWS)
async def test_a_script_comes_to_what_the_table_says(script):
    result = await played(driver(), script, request_of(tools=(TOOL,)))
    assert summary(result) == outcome(script)


@pytest.mark.parametrize("script", ROWS)
async def test_a_buffered_script_comes_to_what_the_table_says(script):
    result = await played(driver(), script, request_of(tools=(TOOL,)), buffered=True)
    assert summary(result) == outcome(script, "buffered")


@pytest.mark.parametrize("mode", SchemaMode)
@pytest.mark.parametrize("script", ROWS)
async def test_a_script_asked_for_a_schema_comes_to_what_the_table_says(script, mode):
    result = await played(driver(), script, request_of(output_schema_json=SCHEMA, schema_mode=mode))
    assert summary(result) == outcome(script, "schema")


@pytest.mark.parametrize("script", [script for script in ROWS if script not in ("truncated", "empty")])
async def test_a_script_from_which_a_tool_call_is_demanded_comes_to_what_the_table_says(script):
    request = request_of(tools=(TOOL,), tool_choice=ToolChoice(mode=ToolMode.REQUIRED))
    result = await played(driver(), script, request)
    assert summary(result) == outcome(script)


@pytest.mark.parametrize("script", ROWS)
async def test_usage_stands_beside_a_certainty_that_allows_it_and_nowhere_else(script):
    result = await played(driver(), script)
    known = result.certainty in (Certainty.EXACT, Certainty.AT_LEAST)
    assert (result.usage is not None) == known
    assert result.usage is None or result.usage.is_seen


@pytest.mark.parametrize(
    ("script", "code", "stage", "retryable"),
    [
        ("unreachable", Code.UNAVAILABLE, Stage.NOT_WRITTEN, True),
        ("no_answer", Code.UNAVAILABLE, Stage.WRITTEN, False),
        ("stall_before", Code.UNAVAILABLE, Stage.WRITTEN, False),
        ("unavailable", Code.UNAVAILABLE, Stage.BODY, True),
        ("overloaded", Code.RESOURCE_EXHAUSTED, Stage.BODY, True),
        ("quota", Code.FAILED_PRECONDITION, Stage.BODY, False),
        ("refused", Code.INVALID_ARGUMENT, Stage.BODY, False),
        ("unauthorized", Code.FAILED_PRECONDITION, Stage.BODY, False),
        ("cut", Code.ABORTED, Stage.OUTPUT, False),
        ("refusal", Code.ABORTED, Stage.OUTPUT, False),
    ],
)
async def test_a_failure_has_the_code_and_the_stage_of_its_ending(script, code, stage, retryable):
    result = await played(driver(), script)
    assert isinstance(result, Failure)
    assert (result.code, result.stage, result.retryable) == (code, stage, retryable)


async def test_a_named_delay_a_status_and_a_code_arrive_as_the_provider_told_them():
    result = await played(driver(), "rate_limited")
    assert isinstance(result, Failure)
    assert (result.http_status, result.retry_after, result.provider_code) == (429, 2.0, "rate_limit_error")
    assert str(result.provider_request_id).startswith("req_")


async def test_the_provider_s_message_is_shown_for_a_refusal_of_arguments_and_not_for_a_wrong_key():
    refused = await played(driver(), "refused")
    unauthorized = await played(driver(), "unauthorized")
    assert isinstance(refused, Failure)
    assert isinstance(unauthorized, Failure)
    assert "this prompt is too long" in refused.message
    assert "x-api-key" not in unauthorized.message


async def test_a_tool_call_is_made_with_arguments_that_fit_its_parameters():
    result = await played(driver(), "tool_call", request_of(tools=(TOOL,)))
    assert isinstance(result, Answer)
    assert [(call.name, call.arguments_json) for call in result.tool_calls] == [
        ("look", '{"where":"sample"}')
    ]


async def test_reasoning_is_billed_and_is_no_part_of_the_text():
    plain, thinking = await played(driver(), "answer"), await played(driver(), "reasoning")
    assert isinstance(plain, Answer)
    assert isinstance(thinking, Answer)
    assert thinking.usage is not None
    assert plain.usage is not None
    assert thinking.text == plain.text
    assert thinking.usage.reasoning_tokens
    assert (thinking.usage.output_tokens or 0) > (plain.usage.output_tokens or 0)


def test_every_script_of_the_document_loads():
    blocks = [tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)]
    scripts = [block for block in blocks if "scripts" in block]
    assert len(scripts) == 2
    assert all(parse_scripts(block) for block in scripts)


def test_every_example_of_scripts_loads():
    for file in (ROOT / "examples").glob("*scripts*.toml"):
        assert parse_scripts(tomllib.loads(file.read_text(encoding="utf-8")))


async def test_the_document_s_sequence_recovers_as_it_says():
    (block,) = (b for b in re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL) if "recovers" in b)
    recovering = ReplayDriver(scripts=book(tomllib.loads(block)["scripts"]))
    results = [await played(recovering, "recovers") for _ in range(4)]
    assert [summary(result).split()[0] for result in results] == [
        "RATE_LIMITED",
        "INTERRUPTED",
        "answer",
        "answer",
    ]
    assert isinstance(results[-1], Answer)
    assert results[-1].text == "All is well."


@pytest.mark.parametrize(
    ("play", "expected"),
    [
        ({"usage": {"final": False}}, "answer AT_LEAST"),
        ({"usage": {"input": 0, "output": 0}}, "answer UNKNOWN"),
        ({"cut_after": 0}, "UNAVAILABLE UNKNOWN NETWORK"),
        ({"cut_after": 0, "end": "clean"}, "UNAVAILABLE UNKNOWN NETWORK"),
        ({"cut_after": 3, "end": "clean"}, "INTERRUPTED AT_LEAST NETWORK"),
        ({"cut_after": 3, "usage": False}, "UNACCOUNTED UNKNOWN NETWORK"),
        ({"stops_at": "writing"}, "UNREACHABLE NONE NETWORK"),
        ({"status": 302, "headers": {"location": "https://example.com"}}, "REFUSED NONE PROVIDER"),
        ({"status": 529}, "RATE_LIMITED NONE PROVIDER"),
        ({"status": 400, "error": {"type": "billing_error"}}, "REFUSED NONE PROVIDER"),
        ({"error": {"type": "api_error"}, "end": "stall"}, "UNAVAILABLE UNKNOWN PROVIDER"),
        ({"stop_reason": "pause_turn"}, "answer EXACT"),
        ({"stop_reason": "a_word_from_next_year"}, "answer EXACT"),
        ({"wire": "openai_responses", "stop_reason": "failed"}, "UNUSABLE EXACT PROVIDER"),
        ({"wire": "openai_responses", "stop_reason": "cancelled"}, "INTERRUPTED EXACT PROVIDER"),
        ({"wire": "openai_responses", "stop_reason": "incomplete:content_filter"}, "UNUSABLE EXACT PROVIDER"),
        ({"wire": "openai_responses", "refusal": "No."}, "UNUSABLE EXACT PROVIDER"),
        ({"wire": "openai_responses", "error": {"type": "insufficient_quota"}}, "REFUSED NONE PROVIDER"),
        (
            {"wire": "openai_responses", "error": {"type": "server_error", "after": 6}},
            "UNACCOUNTED UNKNOWN PROVIDER",
        ),
        ({"wire": "openai_responses", "cut_after": 2}, "UNAVAILABLE UNKNOWN NETWORK"),
        ({"wire": "chat_completions", "cut_after": 3}, "UNACCOUNTED UNKNOWN NETWORK"),
        ({"wire": "chat_completions", "cut_after": -2}, "answer UNKNOWN"),
        ({"wire": "chat_completions", "cut_after": -1}, "answer EXACT"),
        ({"wire": "chat_completions", "refusal": "No."}, "UNUSABLE EXACT PROVIDER"),
        ({"wire": "chat_completions", "stop_reason": "abort"}, "INTERRUPTED EXACT PROVIDER"),
        ({"wire": "chat_completions", "error": {"type": "insufficient_quota"}}, "REFUSED NONE PROVIDER"),
        ({"wire": "gemini", "cut_after": 2}, "INTERRUPTED AT_LEAST NETWORK"),
        ({"wire": "gemini", "refusal": "No."}, "UNUSABLE EXACT PROVIDER"),
        ({"wire": "gemini", "usage": {"final": False}}, "answer AT_LEAST"),
        (
            {"wire": "gemini", "status": 429, "error": {"type": "RESOURCE_EXHAUSTED"}},
            "RATE_LIMITED NONE PROVIDER",
        ),
        ({"wire": "bedrock", "cut_after": 1}, "UNAVAILABLE UNKNOWN NETWORK"),
        ({"wire": "bedrock", "cut_after": -1}, "UNACCOUNTED UNKNOWN NETWORK"),
        ({"wire": "bedrock", "refusal": "No."}, "UNUSABLE EXACT PROVIDER"),
        ({"wire": "bedrock", "error": {"type": "throttlingException"}}, "RATE_LIMITED NONE PROVIDER"),
        (
            {"wire": "bedrock", "status": 400, "error": {"type": "ValidationException"}},
            "REFUSED NONE PROVIDER",
        ),
    ],
)
async def test_a_script_of_one_s_own_reaches_every_other_ending(play, expected):
    result = await played(driver_of(Timeouts(tail=0.02, idle=0.02), own=play), "own")
    assert summary(result) == expected
