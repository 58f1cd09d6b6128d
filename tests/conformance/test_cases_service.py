"""Every HTTP case over a real socket, through the service and the client, on both paths."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

import modelmeter
from modelmeter import ModelmeterError
from tests.conformance.asking import Face, Heard, ask
from tests.conformance.cases import Case, load_cases
from tests.support.fault_server import FaultServer
from tests.support.material import MISSING
from tests.support.provider_service import API_KEY, provider_service

CASES = load_cases()

_COUNTERS = ("input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens", "reasoning_tokens")


def _models(case: Case) -> list[str]:
    """A body that answers an unstreamed request must be read the same by whoever had asked for a stream (R-H4)."""
    return [case.provider] if case.stream else [case.provider, f"{case.provider}-buffered"]


RUNS = [
    pytest.param(case, face, model, id=f"{case.id}-{face}-{model}")
    for case in CASES
    for face in ("unary", "stream")
    for model in _models(case)
]


@pytest.mark.skipif(not CASES, reason=MISSING)
@pytest.mark.parametrize(("case", "face", "model"), RUNS)
async def test_a_case_has_its_outcome_certainty_disposition_and_code(
    case: Case, face: Face, model: str
) -> None:
    async with FaultServer(case.reply) as provider, provider_service(provider) as service:
        heard = await ask(service.client, face, model, case.prompt, **case.options)
    expect = case.expect
    assert (heard.kind.lower(), heard.code) == (expect["outcome"], expect["grpc_code"])
    assert heard.result.certainty.name == expect["certainty"]
    _check_usage(heard.result, expect)
    if isinstance(heard.result, ModelmeterError):
        _check_error(heard.result, expect)
    else:
        _check_completion(heard, heard.result, expect)


def _check_usage(result: modelmeter.Completion | ModelmeterError, expect: dict[str, Any]) -> None:
    if expect["usage"] is None:
        assert not result.usage.told, "unknown usage is absent, never zeros"
    for counter in _COUNTERS if expect["usage"] else ():
        assert (getattr(result.usage, counter) or 0) == expect["usage"][counter], counter
    if "additional_usage" in expect:
        told = [
            {
                "type": extra.kind,
                "model": extra.model or None,
                "input_tokens": extra.usage.input_tokens,
                "output_tokens": extra.usage.output_tokens,
            }
            for extra in result.additional_usage
        ]
        assert told == expect["additional_usage"]
    for part, tokens in expect.get("price_split", {}).items():
        assert getattr(result.usage, part) == tokens


def _check_error(error: ModelmeterError, expect: dict[str, Any]) -> None:
    assert error.disposition.name == expect["disposition"]
    expected_wait = expect["retry_after_ms"]
    assert (error.retry_after is None) == (expected_wait is None)
    if expected_wait is not None:
        assert error.retry_after == pytest.approx(expected_wait / 1000)
    if expect.get("detail_code"):
        assert error.provider_code == expect["detail_code"]
    for hidden in expect.get("detail_must_not_contain", []):
        secret = hidden.replace("@@API_KEY@@", API_KEY)
        assert secret not in error.message
        assert secret.encode() not in error.raw_status


def _check_completion(heard: Heard, completion: modelmeter.Completion, expect: dict[str, Any]) -> None:
    for name in ("text", "truncated", "stop_reason"):
        if expect.get(name) is not None:
            assert getattr(completion, name) == expect[name]
    if "text_sha256" in expect:
        assert len(completion.text) == expect["text_len"]
        assert hashlib.sha256(completion.text.encode()).hexdigest() == expect["text_sha256"]
    if expect["structured"] is not None:
        assert completion.structured_json is not None
        assert json.loads(completion.structured_json) == expect["structured"]
    if "tool_calls" in expect:
        _check_tool_calls(completion, expect["tool_calls"])
    if heard.streamed:
        assert heard.text == completion.text, "deltas, joined, are the text"


def _check_tool_calls(completion: modelmeter.Completion, expected: list[dict[str, Any]]) -> None:
    assert [call.name for call in completion.tool_calls] == [each["name"] for each in expected]
    for call, each in zip(completion.tool_calls, expected, strict=True):
        if each["arguments_text"] is not None:
            assert call.arguments_json == each["arguments_text"]
        if each["args_canonical_sha256"] is not None:
            canonical = json.dumps(json.loads(call.arguments_json), sort_keys=True, separators=(",", ":"))
            assert hashlib.sha256(canonical.encode()).hexdigest() == each["args_canonical_sha256"]
