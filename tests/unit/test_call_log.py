"""What the log says of a call, and what it never says."""

from __future__ import annotations

import io
import json
import logging
import re

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.errors import failure
from modelmeter_server.core.outcomes import Cause, Kind, Stage
from modelmeter_server.telemetry import log
from modelmeter_server.telemetry.calls import CallRecorder, SilentRecorder, call_line, call_recorder
from tests.support.domain_values import answers, failures, outcomes


@pytest.fixture
def stream():
    """Collect the log; puts the logging of the process back afterwards."""
    handlers = logging.root.handlers[:]
    level = logging.root.level
    yield io.BytesIO()
    structlog.reset_defaults()
    log._outputs.clear()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def lines(stream: io.BytesIO) -> list[dict]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None, max_examples=40
)
@given(outcomes(answers | failures()))
async def test_every_outcome_leaves_one_short_line_of_json(outcome):
    target = io.BytesIO()
    assert await CallRecorder(target).record(outcome) is False
    (line,) = lines(target)
    assert len(target.getvalue()) < 4096
    assert list(line)[:3] == ["timestamp", "level", "event"]
    assert re.fullmatch(r"[-0-9]{10}T[:0-9]{8}\.\d{6}Z", line["timestamp"])
    assert (line["event"], line["call_id"]) == ("call", outcome.call_id)
    assert line["certainty"] == outcome.result.certainty.value
    assert ("finish" in line) != ("kind" in line)


@given(st.uuids())
async def test_neither_prompt_nor_answer_nor_detail_is_logged(mark):
    secret = str(mark)
    failed = failure(
        Kind.INTERRUPTED,
        f"it said {secret}",
        stage=Stage.OUTPUT,
        cause=Cause.NETWORK,
        certainty=None,
        partial_text=secret,
        provider_body=secret.encode(),
    )
    target = io.BytesIO()
    await CallRecorder(target).record(CallOutcome(call_id="c", model_asked="m", result=failed))
    assert secret not in target.getvalue().decode()


def test_the_recorder_goes_by_the_configured_level(stream):
    assert isinstance(call_recorder(), SilentRecorder)
    log.configure_logging("warning", stream)
    assert isinstance(call_recorder(), SilentRecorder)
    log.configure_logging("info", stream)
    assert isinstance(call_recorder(), CallRecorder)


def test_lines_are_json_with_time_level_and_module(stream):
    log.configure_logging("info", stream)
    log.get_logger("here").info("something", call_id="c", count=3)
    log.get_logger("here").debug("nothing")
    (line,) = lines(stream)
    assert {key: line[key] for key in ("event", "level", "module", "call_id", "count")} == {
        "event": "something",
        "level": "info",
        "module": "here",
        "call_id": "c",
        "count": 3,
    }
    assert line["timestamp"].endswith("Z")
    assert list(line)[:3] == ["timestamp", "level", "event"]


def test_exceptions_stand_in_one_line(stream):
    log.configure_logging("info", stream)
    try:
        raise ValueError("boom")
    except ValueError as error:
        log.get_logger("here").error("failed", exc_info=error)
    (line,) = lines(stream)
    assert "ValueError: boom" in line["exception"]


def test_warnings_of_libraries_come_as_json_too(stream):
    log.configure_logging("info", stream)
    logging.getLogger("grpc").warning("it is %s", "late")
    logging.getLogger("grpc").info("chatter")
    (line,) = lines(stream)
    assert (line["event"], line["module"], line["level"]) == ("it is late", "grpc", "warning")


def test_what_cannot_be_written_costs_a_line_and_no_exception(stream):
    log.configure_logging("info", stream)
    log.get_logger("here").info("odd", text="\ud800")
    (line,) = lines(stream)
    assert line["level"] == "error"


def test_names_of_any_length_are_cut():
    failed = failure(Kind.UNAVAILABLE, "no", provider_code="c" * 10_000, provider_request_id="r" * 10_000)
    line = call_line(CallOutcome(call_id="c", model_asked="m" * 10_000, result=failed))
    assert [len(text or "") for text in (line.model, line.provider_code, line.provider_request_id)] == [
        256
    ] * 3
