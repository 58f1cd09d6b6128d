"""The replay driver keeps the driver's contract, and the laws of a provider double that agent hosts rely on."""

from __future__ import annotations

import json
import math

import pytest

from modelmeter_server.core.answers import Answer
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Cause, Certainty, Kind, Stage
from modelmeter_server.core.requests import (
    MediaKind,
    MediaPart,
    Message,
    ReasoningEffort,
    Role,
    SchemaMode,
    TextPart,
    Tool,
    ToolChoice,
    ToolMode,
    ToolResultPart,
)
from modelmeter_server.drivers.driver import RequestRefused
from modelmeter_server.drivers.http import Timeouts
from modelmeter_server.drivers.replay import ReplayDriver, Wire, builtin_scripts
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS
from tests.support.replay import (
    SCHEMA,
    Witness,
    driver_of,
    model_of,
    played,
    refusals_of,
    request_of,
    started,
)

LOOK = Tool(name="look", parameters_json='{"type":"object","properties":{"where":{"type":"string"}}}')
LISTEN = Tool(name="listen")
NEVER = Timeouts(
    pool=math.inf, connect=math.inf, write=math.inf, first_byte=math.inf, idle=math.inf, total=math.inf
)


async def answered(driver, script="answer", request=None, **options) -> Answer:
    result = await played(driver, script, request, **options)
    assert isinstance(result, Answer)
    return result


async def failed(driver, script, request=None, **options) -> Failure:
    result = await played(driver, script, request, **options)
    assert isinstance(result, Failure)
    return result


# The laws of the double


@pytest.mark.parametrize("mode", SchemaMode)
async def test_a_declared_schema_binds_the_fake_the_way_it_binds_a_driver(mode):
    driver = driver_of(prose={"text": "Just words."}, other={"structured": {"answer": 7}})
    for script in ("prose", "other"):
        result = await failed(driver, script, request_of(output_schema_json=SCHEMA, schema_mode=mode))
        assert (result.kind, result.certainty) == (Kind.UNUSABLE, Certainty.EXACT)


@pytest.mark.parametrize("script", ["answer", "quota"])
def test_the_fake_refuses_a_provider_side_media_url_like_every_driver(script):
    picture = MediaPart(kind=MediaKind.IMAGE, media_type="image/png", url="https://example.com/a.png")
    request = request_of(None, messages=(Message(Role.USER, (TextPart("Look:"), picture)),))
    (field,) = refusals_of(ReplayDriver(), script, request)
    assert "parts[1]" in field


def test_a_request_is_refused_that_the_provider_of_its_wire_would_refuse():
    thinking = request_of(
        output_schema_json=SCHEMA, schema_mode=SchemaMode.FORCED_TOOL, reasoning_effort=ReasoningEffort.HIGH
    )
    assert refusals_of(ReplayDriver(), "answer", thinking) == ["reasoning_effort"]
    assert refusals_of(ReplayDriver(), "quota", thinking) == []
    sampled = request_of(top_k=5, stop_sequences=("END",))
    assert refusals_of(ReplayDriver(), "answer", sampled) == []
    assert refusals_of(ReplayDriver(), "quota", sampled) == ["top_k", "stop_sequences"]
    optional = request_of(output_schema_json='{"type":"object","properties":{"a":{"type":"string"}}}')
    assert refusals_of(ReplayDriver(), "answer", optional) == []
    assert refusals_of(ReplayDriver(), "quota", optional) == ["output_schema_json"]


async def test_the_same_question_gets_the_same_answer():
    first, again = await answered(ReplayDriver()), await answered(ReplayDriver())
    other = await answered(ReplayDriver(), request=request_of("Something else"))
    assert first == again
    assert first.text != other.text
    assert first.provider_response_id != other.provider_response_id


@pytest.mark.parametrize("wire", [wire.value for wire in Wire])
async def test_an_answer_is_never_free(wire):
    answer = await answered(driver_of(own={"wire": wire, "text": "a"}), "own", request_of("a"))
    assert answer.usage is not None
    assert (answer.usage.input_tokens or 0) >= 1
    assert (answer.usage.output_tokens or 0) >= 1


@pytest.mark.parametrize("wire", [wire.value for wire in Wire])
async def test_usage_grows_with_the_prompt(wire):
    driver = driver_of(own={"wire": wire})
    prompts = ["word " * count for count in (1, 10, 100, 1000)]
    answers = [await answered(driver, "own", request_of(prompt)) for prompt in prompts]
    inputs = [answer.usage.input_tokens or 0 for answer in answers if answer.usage]
    assert inputs == sorted(set(inputs))
    assert inputs[-1] >= len(prompts[-1]) // 4


async def test_scripted_answers_come_back_in_order_then_the_default_takes_over():
    driver = driver_of(own={"calls": [{"text": "first"}, {"text": "second"}]})
    texts = [(await answered(driver, "own")).text for _ in range(4)]
    assert texts[:2] == ["first", "second"]
    assert texts[2] == texts[3] == (await answered(ReplayDriver())).text


async def test_what_a_script_says_beside_its_calls_holds_after_the_last_of_them():
    driver = driver_of(own={"text": "at last", "calls": [{"status": 503}]})
    assert (await failed(driver, "own")).kind is Kind.UNAVAILABLE
    assert [(await answered(driver, "own")).text for _ in range(2)] == ["at last", "at last"]


async def test_a_scripted_failure_can_carry_usage():
    usage = {"input": 900, "output": 70, "cache_read": 500, "cache_write": 100, "reasoning": 20}
    result = await failed(driver_of(own={"usage": usage, "cut_after": -1}), "own")
    assert (result.kind, result.certainty) == (Kind.INTERRUPTED, Certainty.EXACT)
    assert result.usage is not None
    figures = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
    assert [getattr(result.usage, name) for name in figures] == list(usage.values())


@pytest.mark.parametrize("mode", SchemaMode)
@pytest.mark.parametrize("wire", [wire.value for wire in Wire])
async def test_a_schema_gets_json_shaped_like_it(wire, mode):
    driver = driver_of(own={"wire": wire})
    answer = await answered(driver, "own", request_of(output_schema_json=SCHEMA, schema_mode=mode))
    assert answer.structured_json == answer.text == '{"answer":"sample"}'
    assert answer.tool_calls == ()


async def test_a_scripted_value_answers_a_schema_as_it_stands():
    driver = driver_of(
        own={"structured": {"answer": "42"}}, raw={"structured_text": '{ "answer": "4\\u0032" }'}
    )
    asked = request_of(output_schema_json=SCHEMA)
    assert (await answered(driver, "own", asked)).structured_json == '{"answer":"42"}'
    assert (await answered(driver, "raw", asked)).structured_json == '{ "answer": "4\\u0032" }'


async def test_no_schema_means_no_structured_value():
    answer = await answered(driver_of(own={"structured": {"answer": "42"}}), "own")
    assert answer.structured_json is None
    assert "Hello there" in answer.text


async def test_it_records_what_it_was_asked():
    driver = driver_of(one={}, two={"wire": "openai_responses"})
    for script in ("one", "two", "one"):
        await played(driver, script, request_of("Remember me"))
    assert [(each.script, each.wire, each.call) for each in driver.requests] == [
        ("one", Wire.ANTHROPIC, 0),
        ("two", Wire.OPENAI_RESPONSES, 0),
        ("one", Wire.ANTHROPIC, 1),
    ]
    assert all(b"Remember me" in each.body and each.target.startswith("/") for each in driver.requests)


async def test_it_remembers_as_many_requests_as_it_was_told_and_none_unless_told():
    forgetful, short = ReplayDriver(), ReplayDriver(remember=2)
    for _ in range(3):
        await played(forgetful, "answer")
        await played(short, "answer")
    assert list(forgetful.requests) == []
    assert [each.call for each in short.requests] == [1, 2]


# Requests


async def test_an_answer_says_what_was_said():
    answer = await answered(ReplayDriver(), request=request_of("  What is\nthe capital of France?  "))
    assert '"What is the capital of France?"' in answer.text
    long = await answered(ReplayDriver(), request=request_of("word " * 100_000))
    assert len(long.text) < 200


@pytest.mark.parametrize("wire", [wire.value for wire in Wire])
@pytest.mark.parametrize(
    ("choice", "called"),
    [
        (None, []),
        (ToolChoice(mode=ToolMode.NONE), []),
        (ToolChoice(mode=ToolMode.REQUIRED), ["look"]),
        (ToolChoice(mode=ToolMode.NAMED, name="listen"), ["listen"]),
    ],
)
async def test_a_tool_is_called_when_the_request_demands_it(wire, choice, called):
    request = request_of(tools=(LOOK, LISTEN), tool_choice=choice)
    if wire == Wire.BEDROCK.value and choice is not None and choice.mode is ToolMode.NONE:
        assert refusals_of(driver_of(own={"wire": wire}), "own", request) == ["tool_choice.mode"]
        return
    answer = await answered(driver_of(own={"wire": wire}), "own", request)
    assert [call.name for call in answer.tool_calls] == called


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize("wire", [wire.value for wire in Wire])
async def test_every_wire_tells_the_scripted_figures_in_its_own_arithmetic(wire, buffered):
    usage = {"input": 900, "output": 70, "cache_read": 500, "reasoning": 20}
    driver = driver_of(own={"wire": wire, "text": "One.", "usage": usage})
    answer = await started(driver, "own", buffered=buffered).run()
    assert isinstance(answer, Answer)
    assert answer.usage is not None
    told = answer.usage
    assert (told.input_tokens, told.output_tokens, told.cache_read_tokens) == (900, 70, 500)
    assert told.reasoning_tokens == (None if wire == "bedrock" else 20)


@pytest.mark.parametrize("wire", [wire.value for wire in Wire])
async def test_scripted_tool_calls_are_made_as_the_script_says(wire):
    calls = [{"name": "look", "arguments": {"where": "up"}, "id": "call_a"}, {"name": "listen"}]
    request = request_of(tools=(LOOK, LISTEN))
    answer = await answered(
        driver_of(own={"wire": wire, "text": "Wait.", "tool_calls": calls}), "own", request
    )
    first, second = answer.tool_calls
    assert (first.id, first.arguments_json) == ("call_a", '{"where":"up"}')
    assert (second.name, json.loads(second.arguments_json)) == ("listen", {})
    assert second.id
    assert answer.text == "Wait."


async def test_arguments_given_as_text_are_sent_as_they_stand():
    script = {"tool_calls": [{"name": "look", "arguments": '{"where": "u'}]}
    result = await failed(driver_of(own=script), "own", request_of(tools=(LOOK,)))
    assert (result.kind, result.certainty) == (Kind.UNUSABLE, Certainty.EXACT)


@pytest.mark.parametrize("wire", [wire.value for wire in Wire])
async def test_an_answer_ends_at_the_output_limit_and_says_so(wire):
    driver = driver_of(own={"wire": wire, "text": "word " * 100})
    answer = await answered(driver, "own", request_of(max_output_tokens=16))
    assert answer.truncated
    assert answer.usage is not None
    assert answer.usage.output_tokens == 16
    assert answer.text == ("word " * 100)[:64]


@pytest.mark.parametrize("wire", [wire.value for wire in Wire])
async def test_a_turn_with_tool_results_goes_on_where_the_call_was_made(wire):
    driver = driver_of(
        own={"wire": wire, "reasoning": "Hm.", "calls": [{"tool_calls": [{}], "reasoning": "Hm."}]}
    )
    asking = await answered(driver, "own", request_of(tools=(LOOK,)))
    result = ToolResultPart(call_id=asking.tool_calls[0].id, output="a view")
    turns = (Message(Role.USER, (TextPart("Look!"),)), Message(Role.USER, (result,)))
    request = request_of(None, messages=turns, tools=(LOOK,), continuation=asking.continuation)
    assert refusals_of(driver, "own", request) == []
    going_on = await answered(driver, "own", request)
    assert '"Look!"' in going_on.text
    assert b"a view" in driver.requests[-1].body
    assert asking.tool_calls[0].id.encode() in driver.requests[-1].body.replace(b"a view", b"")


async def test_a_continuation_says_that_it_was_made_here():
    asking = await answered(ReplayDriver(), "tool_call", request_of(tools=(LOOK,)))
    assert asking.continuation is not None
    assert asking.continuation.provider == "replay"


def test_an_unknown_script_is_refused_with_those_that_there_are():
    with pytest.raises(RequestRefused) as refusal:
        ReplayDriver().prepare(request_of(), model_of("anser"))
    (violation,) = refusal.value.violations
    assert violation.field == "model"
    assert all(name in violation.description for name in builtin_scripts().names)


@pytest.mark.parametrize("wire", Wire)
def test_a_request_is_encoded_as_for_the_provider_of_its_wire(wire):
    driver, model = driver_of(own={"wire": wire.value}), model_of("own")
    assert driver.prepare(request_of(), model) == WIRE_FORMATS[wire.value].encode(request_of(), model)


def test_its_abilities_are_those_of_both_wires_but_that_nobody_enforces_a_schema():
    ours = ReplayDriver.capabilities
    for wire in Wire:
        theirs = WIRE_FORMATS[wire.value].capabilities
        for name in ("schema_modes", "media", "reasoning_efforts", "sampling"):
            assert set(getattr(theirs, name)) <= set(getattr(ours, name))
    assert not ours.enforces_native_schema


# Running


async def test_a_plain_answer_is_one_read_and_is_over_without_waiting():
    witness = Witness()
    call = started(ReplayDriver(), "answer", observer=witness)
    with pytest.raises(StopIteration) as ended:
        call.run().send(None)
    assert isinstance(ended.value.value, Answer)
    assert witness.heard == ["written", "progressed"]


async def test_the_attempt_says_how_far_it_got():
    for script, stage, kind in (
        ("answer", Stage.OUTPUT, None),
        ("cut", Stage.OUTPUT, Kind.INTERRUPTED),
        ("unreachable", Stage.NOT_WRITTEN, Kind.UNREACHABLE),
    ):
        call = started(ReplayDriver("mine"), script)
        await call.run()
        (attempt,) = call.attempts
        assert (attempt.target, attempt.number, attempt.stage, attempt.kind) == ("mine", 1, stage, kind)


async def test_the_request_counts_as_written_unless_the_script_loses_it():
    heard = {}
    for script in ("unreachable", "no_answer", "refused"):
        witness = Witness()
        await played(ReplayDriver(), script, observer=witness)
        heard[script] = witness.heard
    assert heard == {"unreachable": [], "no_answer": ["written"], "refused": ["written"]}


@pytest.mark.parametrize(
    ("script", "timeouts", "cause", "stage"),
    [
        ({"delay": 9}, Timeouts(first_byte=0.02), Cause.IDLE_TIMEOUT, Stage.WRITTEN),
        ({"pause": 9}, Timeouts(idle=0.02), Cause.IDLE_TIMEOUT, Stage.OUTPUT),
        ({"pause": 9}, Timeouts(total=0.02), Cause.TOTAL_TIMEOUT, Stage.OUTPUT),
        ({"cut_after": 0, "end": "stall"}, Timeouts(idle=0.02), Cause.IDLE_TIMEOUT, Stage.HEADERS),
        ({"stops_at": "written", "end": "stall"}, Timeouts(total=0.02), Cause.TOTAL_TIMEOUT, Stage.WRITTEN),
    ],
)
async def test_silence_ends_by_the_timeout_of_its_phase(script, timeouts, cause, stage):
    result = await failed(driver_of(timeouts, own=script), "own")
    assert (result.cause, result.stage) == (cause, stage)


async def test_a_pause_within_the_timeouts_changes_nothing():
    driver = driver_of(Timeouts(first_byte=5, idle=5), slow={"delay": 0.005, "pause": 0.001}, fast={})
    slow, fast = await answered(driver, "slow"), await answered(driver, "fast")
    assert (slow.text, slow.usage) == (fast.text, fast.usage)


async def test_an_answer_whose_end_was_read_does_not_wait_for_the_connection():
    answer = await answered(driver_of(NEVER, own={"end": "stall"}), "own")
    assert answer.certainty is Certainty.EXACT
