"""Every recorded stream and every HTTP case, read by the accumulators alone: no socket, no service."""

from __future__ import annotations

import gzip
import json
from typing import Any

import jsonschema_rs
import pytest

from modelmeter_server.core.accumulators import Snapshot
from modelmeter_server.core.answers import Answer, Expectation
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Cause, End, Ending
from modelmeter_server.core.provider_errors import failure_from_http
from modelmeter_server.core.usage import Usage
from tests.conformance.recordings import (
    KEY,
    Recording,
    chunks_of,
    load_cases,
    load_recordings,
    make,
    sha256,
)
from tests.support.accumulator_laws import check_bill, figures
from tests.support.wire_bytes import joined_calls, joined_text, read

RECORDINGS = load_recordings()
ANSWERED = [recording for recording in RECORDINGS if recording.says["http_status"] == 200]
REFUSED = [recording for recording in RECORDINGS if recording.says["http_status"] != 200]
each_answered = pytest.mark.parametrize("recording", ANSWERED, ids=lambda recording: recording.file)

COUNTERS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
)


def kind_of(outcome: Answer | Failure) -> str:
    return "COMPLETION" if isinstance(outcome, Answer) else outcome.kind.name


def read_in_pieces(recording: Recording) -> tuple[Answer | Failure, Snapshot]:
    """Return outcome and snapshot, read in pieces that cut lines and characters."""
    accumulator = recording.make()
    data = recording.data
    pieces = (data[start : start + 777] for start in range(0, len(data), 777))
    outcome = read(accumulator, pieces, End.CLEAN if recording.outcome["ends"] == "clean" else End.RESET)
    return outcome, accumulator.snapshot()


@each_answered
def test_a_recording_has_its_outcome_and_its_bill(recording: Recording):
    outcome, snapshot = read_in_pieces(recording)
    check_bill(outcome)
    assert (kind_of(outcome), outcome.certainty.name) == (
        recording.outcome["kind"],
        recording.outcome["certainty"],
    )
    known = snapshot.usage or Usage()
    assert {name: getattr(known, name) for name in COUNTERS} == {
        name: recording.says[name] for name in COUNTERS
    }
    if outcome.usage is not None:
        assert figures(outcome.usage) == figures(snapshot.usage)


@each_answered
def test_a_recording_has_its_text_its_calls_and_its_stop_reason(recording: Recording):
    outcome, snapshot = read_in_pieces(recording)
    says = recording.says
    assert sha256(snapshot.text) == says["text_sha256"]
    assert sha256(snapshot.reasoning) == says["reasoning_sha256"]
    assert [name for _, name, _ in snapshot.tool_calls] == [call["name"] for call in says["tool_calls"]]
    for (id, _, _), call in zip(snapshot.tool_calls, says["tool_calls"], strict=True):
        # Where the provider gave no id, there is none, or one was made of the name.
        assert id == (call["id"] or "") or (call["id"] is None and id.startswith(f"{call['name']}-"))
    for (_, _, arguments), call in zip(snapshot.tool_calls, says["tool_calls"], strict=True):
        if call["args_form"] == "text":
            assert sha256(arguments) == call["args_sha256"]
        else:
            canonical = json.dumps(
                json.loads(arguments), sort_keys=True, separators=(",", ":"), ensure_ascii=False
            )
            assert sha256(canonical) == call["args_canonical_sha256"]
    if isinstance(outcome, Answer):
        assert outcome.stop_reason == (says["stop_reason"] or "")


@each_answered
def test_the_deltas_of_a_recording_are_its_answer(recording: Recording):
    accumulator = recording.make()
    outcome = read(accumulator, recording.data)
    deltas = accumulator.drain()
    if isinstance(outcome, Answer):
        assert joined_text(deltas) == outcome.text
        calls = [(call.id, call.name, call.arguments_json) for call in outcome.tool_calls]
        assert [(id, name, arguments or "{}") for id, name, arguments in joined_calls(deltas)] == calls


@pytest.mark.parametrize(
    "recording", [each for each in ANSWERED if each.is_stream], ids=lambda recording: recording.file
)
def test_what_is_known_after_each_event_is_the_recorded_timeline(recording: Recording):
    stream, accumulator = recording.facts(), recording.make()
    assert len(stream.spans) == recording.says["events"]
    start = 0
    for index, span in enumerate(stream.spans):
        accumulator.feed(stream.data[start : span.end])
        start = span.end
        rows = [row for told, row in stream.timeline if told <= index]
        assert figures(accumulator.snapshot().usage) == (rows[-1] if rows else None), index


@pytest.mark.parametrize("recording", REFUSED, ids=lambda recording: recording.file)
def test_a_recorded_error_answer_is_classed_by_its_status(recording: Recording):
    headers = recording.says.get("http_headers", {})
    outcome = failure_from_http(recording.says["http_status"], headers.get, recording.data, scrub=str)
    check_bill(outcome)
    assert outcome.kind.name == recording.outcome["kind"]
    assert outcome.code.name == recording.outcome["grpc_code"]


def expectation(case: dict[str, Any]) -> Expectation:
    """Return what the case's request holds an answer to, with `schema_check = auto`."""
    asked = case["request"]
    schema, forced = asked.get("schema"), asked.get("schema_mode") == "forced_tool"
    if not schema:
        return Expectation(forced_tool=forced)
    validator = jsonschema_rs.validator_for(schema)
    return Expectation(
        schema_check=lambda document: None if validator.is_valid(document) else "it does not fit",
        forced_tool=forced,
        # Compatible servers promise little, so that their native mode is checked too.
        enforce=forced or case["provider"] == "chat_completions",
    )


def outcome_of(case: dict[str, Any]) -> Answer | Failure:
    chunks, status = chunks_of(case), case["http"]["status"]
    headers = {name.lower(): value for name, value in case["http"]["headers"].items()}

    def scrub(text: str) -> str:
        return text.replace(KEY, "[redacted]")

    if headers.get("content-encoding") == "gzip":  # which the transport undoes
        chunks = [gzip.decompress(b"".join(chunks))]
    if status != 200:
        return failure_from_http(status, headers.get, b"".join(chunks), scrub=scrub)
    accumulator = make(case["provider"], case.get("dialect"), expectation(case), scrub=scrub)
    end = {"clean": End.CLEAN, "reset": End.RESET, "stall": End.CUT}[case["ends"]]
    return read(
        accumulator, chunks, Ending(end=end, cause=Cause.IDLE_TIMEOUT if end is End.CUT else Cause.NETWORK)
    )


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case["id"])
def test_a_case_has_its_outcome(case: dict[str, Any]):
    outcome, expect = outcome_of(case), case["expect"]
    check_bill(outcome)
    kind = "completion" if isinstance(outcome, Answer) else outcome.kind.name.lower()
    code = "OK" if isinstance(outcome, Answer) else outcome.code.name
    assert (kind, code, outcome.certainty.name) == (
        expect["outcome"],
        expect["grpc_code"],
        expect["certainty"],
    )
    _check_usage(outcome, expect)
    if isinstance(outcome, Answer):
        _check_answer(outcome, expect)
    else:
        _check_failure(outcome, expect)


def _check_usage(outcome: Answer | Failure, expect: dict[str, Any]) -> None:
    if expect["usage"] is None:
        assert outcome.usage is None
    else:
        told = {name: getattr(outcome.usage, name) or 0 for name in expect["usage"]}
        assert told == expect["usage"]
    for name, tokens in (expect.get("price_split") or {}).items():
        assert getattr(outcome.usage, name) == tokens
    for each, expected in zip(outcome.additional_usage, expect.get("additional_usage") or [], strict=True):
        assert (each.kind, each.model) == (expected["type"], expected["model"])
        assert each.usage.input_tokens == expected["input_tokens"]
        assert each.usage.output_tokens == expected["output_tokens"]


def _check_answer(outcome: Answer, expect: dict[str, Any]) -> None:
    for name in ("text", "truncated", "stop_reason"):
        assert expect.get(name) in (None, getattr(outcome, name))
    if expect.get("text_sha256"):
        assert (len(outcome.text), sha256(outcome.text)) == (expect["text_len"], expect["text_sha256"])
    if expect.get("structured") is not None:
        assert json.loads(outcome.structured_json or "null") == expect["structured"]
    if expect.get("tool_calls") is not None:
        _check_calls(outcome, expect["tool_calls"])


def _check_calls(outcome: Answer, expected: list[dict[str, Any]]) -> None:
    for call, each in zip(outcome.tool_calls, expected, strict=True):
        assert call.name == each["name"]
        assert each["arguments_text"] in (None, call.arguments_json)


def _check_failure(outcome: Failure, expect: dict[str, Any]) -> None:
    assert outcome.disposition.name == expect["disposition"]
    told = expect.get("retry_after_ms")
    assert outcome.retry_after == (None if told is None else pytest.approx(told / 1000))
    assert expect.get("detail_code") in (None, outcome.provider_code)
    for secret in expect.get("detail_must_not_contain") or []:
        text = secret.replace("@@API_KEY@@", KEY)
        assert text not in outcome.message
        assert text not in (outcome.provider_code or "")
