"""`modelmeter call` as a process, against a server that answers as each test says."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import uuid

import pytest

from modelmeter.v1 import completion_pb2, error_pb2, message_pb2, model_service_pb2, usage_pb2
from modelmeter.v1.model_service_pb2 import StreamCompleteResponse
from tests.support.command_line import COMMAND, run, run_on_terminal, started
from tests.support.scripted_service import answering, completion, failing, model_error, streaming

COMPLETION = completion_pb2.Completion(
    text="The answer.",
    usage=usage_pb2.Usage(input_tokens=12, output_tokens=3),
    certainty=usage_pb2.CERTAINTY_EXACT,
    cost=usage_pb2.Cost(
        nano_units=81_000,
        currency="USD",
        source=usage_pb2.COST_SOURCE_PRICE_TABLE,
        certainty=usage_pb2.CERTAINTY_EXACT,
    ),
    stop_reason="end_turn",
    finish=completion_pb2.FINISH_STOP,
    model_asked="m",
    call_id="id-1",
)
SNAPSHOT = completion_pb2.UsageSnapshot(
    usage=usage_pb2.Usage(input_tokens=12, output_tokens=1), certainty=usage_pb2.CERTAINTY_AT_LEAST
)
LIVE = (
    StreamCompleteResponse(started=completion_pb2.CompletionStarted(call_id="id-1", model_asked="m")),
    StreamCompleteResponse(text=completion_pb2.TextDelta(text="The ")),
    StreamCompleteResponse(usage=SNAPSHOT),
)
ANSWERED = streaming(*LIVE, StreamCompleteResponse(completion=COMPLETION))


def interrupted():
    error = model_error(
        error_pb2.ERROR_KIND_INTERRUPTED, message="the connection broke", cause=error_pb2.CAUSE_NETWORK
    )
    return streaming(*LIVE, StreamCompleteResponse(failed=error), then=failing(error))


async def test_a_pipe_gets_the_answer_alone_and_the_bill_goes_to_stderr(service, address):
    service.script("StreamComplete", ANSWERED)
    result = await run("call", "m", "Hi", "--address", address)
    assert (result.code, result.out) == (0, "The answer.\n")
    assert result.err.splitlines() == [
        "answered",
        "  model      m",
        "  finish     STOP (end_turn)",
        "  tokens     input 12, output 3",
        "  certainty  EXACT: told by the provider at the end",
        "  cost       0.000081 USD (by the deployment's price table)",
        "  call id    id-1",
    ]


async def test_a_terminal_shows_the_answer_and_the_bill_in_colour(service, address):
    service.script("StreamComplete", ANSWERED)
    result = await run_on_terminal("call", "m", "Hi", "--address", address)
    assert result.code == 0
    assert result.out.startswith("The answer.\n")
    assert "\x1b[" in result.out
    assert "0.000081 USD" in result.out


async def test_no_colour_is_shown_when_the_environment_says_so(service, address):
    service.script("StreamComplete", ANSWERED)
    result = await run_on_terminal("call", "m", "Hi", "--address", address, env={"TERM": "dumb"})
    assert "\x1b[" not in result.out


async def test_a_failure_leaves_no_half_answer_in_a_pipe(service, address):
    service.script("StreamComplete", interrupted())
    result = await run("call", "m", "Hi", "--address", address)
    assert (result.code, result.out) == (6, "")
    assert result.err.startswith("INTERRUPTED: the connection broke\n")
    assert "input 11, output 0" in result.err
    assert "AT_LEAST: a lower bound" in result.err


async def test_a_terminal_is_told_that_half_an_answer_is_none(service, address):
    service.script("StreamComplete", interrupted())
    result = await run_on_terminal("call", "m", "Hi", "--address", address)
    assert result.code == 6
    assert result.out.startswith("The \n")
    assert "the text above is not an answer" in result.out


async def test_a_pipe_gets_the_answer_live_when_asked_for(service, address):
    service.script("StreamComplete", interrupted())
    result = await run("call", "m", "Hi", "--address", address, "--stream")
    assert result.out == "The \n"


@pytest.mark.parametrize(
    ("kind", "code"),
    [("REFUSED", 3), ("RATE_LIMITED", 4), ("UNAVAILABLE", 5), ("UNUSABLE", 6), ("CEILING", 7), ("BUG", 70)],
)
async def test_the_exit_code_tells_the_outcome(service, address, kind, code):
    error = model_error(error_pb2.ErrorKind.Value(f"ERROR_KIND_{kind}"), cause=error_pb2.CAUSE_PROVIDER)
    service.script("StreamComplete", streaming(then=failing(error)))
    result = await run("call", "m", "Hi", "--address", address)
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith(f"{kind}: a sentence\n")


async def test_every_mistake_of_a_refused_request_is_told(service, address):
    from google.rpc.error_details_pb2 import BadRequest

    mistakes = [
        BadRequest.FieldViolation(field=f"tools[{n}].name", description=f"wrong {n}") for n in range(2)
    ]
    refused = failing(model_error(error_pb2.ERROR_KIND_REFUSED), BadRequest(field_violations=mistakes))
    service.script("StreamComplete", streaming(then=refused))
    result = await run("call", "m", "Hi", "--address", address)
    assert "  tools[0].name  wrong 0\n  tools[1].name  wrong 1\n" in result.err


async def test_nobody_at_the_address_is_told_as_such():
    result = await run("call", "m", "Hi", "--address", "127.0.0.1:1")
    assert result.code == 5
    assert result.err.startswith("NOT CONNECTED: ")
    assert "nothing was or will be billed" in result.err


async def test_ctrl_c_cancels_the_call_and_tells_what_is_known(service, address):
    service.script("StreamComplete", service.streaming_then_hanging(*LIVE))
    async with started("call", "m", "Hi", "--address", address, "--stream") as process:
        assert process.stdout is not None
        assert await process.stdout.read(4) == b"The "
        await service.reached.wait()
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    await service.cancelled.wait()
    assert process.returncode == 8
    assert err.decode().startswith("NO OUTCOME: the call was cancelled")
    assert "ended by CALLER" in err.decode()


async def test_ctrl_c_ends_a_call_that_is_not_streamed_too(service, address):
    service.script("Complete", service.hanging(fence=True))
    async with started("call", "m", "Hi", "--address", address, "--no-stream") as process:
        await service.reached.wait()
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    await service.cancelled.wait()
    assert (process.returncode, out) == (8, b"")
    assert b"may have generated and been billed" in err


async def test_a_reader_that_leaves_cancels_the_call_and_the_bill_is_told(service, address):
    service.script("StreamComplete", service.streaming_then_hanging(*LIVE[:2]))
    reader, writer = os.pipe()
    os.close(reader)
    process = await asyncio.create_subprocess_exec(
        *(COMMAND, "call", "m", "Hi", "--address", address, "--stream"),
        stdout=writer,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(writer)
    _, err = await process.communicate()
    assert process.returncode == 8
    assert err.decode().startswith("NO OUTCOME: ")
    assert b"Traceback" not in err
    assert b"Exception" not in err


async def test_a_deadline_ends_the_call(service, address):
    service.script("StreamComplete", service.streaming_then_hanging())
    result = await run("call", "m", "Hi", "--address", address, "--timeout", "0.2")
    assert result.code == 8
    assert result.err.startswith("NO OUTCOME: the deadline passed")


async def test_json_is_one_document_with_the_completion(service, address):
    service.script("StreamComplete", ANSWERED)
    result = await run("call", "m", "Hi", "--address", address, "--json")
    document = json.loads(result.out)
    assert (result.code, result.err, list(document)) == (0, "", ["completion"])
    completion = document["completion"]
    assert completion["text"] == "The answer."
    assert completion["usage"]["input_tokens"] == 12
    assert completion["usage"]["cache_read_tokens"] is None
    assert completion["certainty"] == "EXACT"
    assert completion["cost"]["nano_units"] == 81_000


async def test_json_is_one_document_with_the_error(service, address):
    service.script("StreamComplete", interrupted())
    result = await run("call", "m", "Hi", "--address", address, "--json")
    error = json.loads(result.out)["error"]
    assert (result.code, result.err) == (6, "")
    assert (error["type"], error["kind"], error["stage"]) == ("CallInterruptedError", "INTERRUPTED", "BODY")
    assert (error["certainty"], error["effect_outcome"], error["retry_after"]) == ("AT_LEAST", "metered", 2.5)


async def test_calls_of_tools_follow_the_text_one_a_line(service, address):
    from modelmeter.v1 import message_pb2

    tool_call = message_pb2.ToolCall(id="t1", name="clock", arguments_json='{"city": "Oslo"}')
    service.script("Complete", answering(completion(text="Let me see.", tool_calls=[tool_call])))
    result = await run("call", "m", "Hi", "--address", address, "--no-stream")
    text, line = result.out.splitlines()
    assert text == "Let me see."
    assert json.loads(line) == {
        "id": "t1",
        "name": "clock",
        "arguments_json": '{"city": "Oslo"}',
        "free_text": False,
    }


async def test_every_option_arrives_in_the_request(service, address, tmp_path):
    service.script("Complete", answering(COMPLETION))
    call_id = str(uuid.uuid4())
    (tmp_path / "schema.json").write_text('{"type": "object"}')
    (tmp_path / "one.json").write_text(
        '{"name": "a", "description": "A.", "parameters": {"z": 1, "a": 2}, "strict": true}'
    )
    (tmp_path / "two.json").write_text('[{"name": "b"}, {"name": "c"}]')
    result = await run(
        *("call", "m", "Hi", "--no-stream", "--system", "Be short.", "--schema", "schema.json"),
        *("--schema-mode", "FORCED_TOOL", "--tool", "one.json", "--tool", "two.json"),
        *("--max-output-tokens", "7", "--temperature", "0.5", "--effort", "low", "--call-id", call_id),
        *("--label", "team=a=b", "--label", "run=1", "--cache-system", "--end-user", "u1"),
        *("--provider-options", '{"tools": [{"type": "web_search"}]}', "--sensitivity", "internal"),
        env={"MODELMETER_ADDRESS": address},
        cwd=tmp_path,
    )
    assert result.code == 0, result.err
    (request,) = service.requests
    expected = model_service_pb2.CompleteRequest(
        model="m",
        text="Hi",
        system="Be short.",
        output_schema_json='{"type": "object"}',
        schema_mode=model_service_pb2.SCHEMA_MODE_FORCED_TOOL,
        max_output_tokens=7,
        temperature=0.5,
        reasoning_effort=model_service_pb2.REASONING_EFFORT_LOW,
        call_id=call_id,
        labels={"team": "a=b", "run": "1"},
        system_cache_breakpoint=message_pb2.CacheBreakpoint(),
        end_user_id="u1",
        provider_options_json='{"tools": [{"type": "web_search"}]}',
        sensitivity=message_pb2.SENSITIVITY_INTERNAL,
    )
    expected.tools.add(name="a", description="A.", parameters_json='{"z": 1, "a": 2}', strict=True)
    expected.tools.add(name="b")
    expected.tools.add(name="c")
    assert request == expected


@pytest.mark.parametrize("arguments", [["-"], []])
async def test_the_prompt_may_come_from_standard_input(service, address, arguments):
    service.script("StreamComplete", ANSWERED)
    await run("call", "m", *arguments, "--address", address, stdin="größer\n".encode())
    assert service.requests[0].request.text == "größer\n"


async def test_a_schema_may_stand_on_the_command_line(service, address):
    service.script("StreamComplete", ANSWERED)
    await run("call", "m", "Hi", "--schema", ' {"b": 1, "a": 2}', "--address", address)
    assert service.requests[0].request.output_schema_json == ' {"b": 1, "a": 2}'


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--schema", "missing.json"], "cannot read missing.json: No such file"),
        (["--tool", "missing.json"], "'missing.json' does not exist"),
        (["--tool", "text.json"], "text.json is not JSON"),
        (["--tool", "number.json"], 'must hold objects with a "name"'),
        (["--tool", "unknown.json"], "unknown key parms; known are description, name"),
        (["--tool", "array.json"], "parameters must be a JSON Schema object"),
        (["--label", "team"], '"team" is not KEY=VALUE'),
        (["--call-id", "1"], "not a valid UUID"),
        (["--effort", "huge"], "'huge' is not one of"),
        (["--timeout", "0"], "not in the range"),
        (["--max-output-tokens", "99999999999"], "99999999999"),
        (["--schema", "latin.txt"], "latin.txt is not UTF-8 at byte 0"),
    ],
)
async def test_a_wrong_command_line_is_told_and_nothing_is_sent(service, address, tmp_path, arguments, words):
    (tmp_path / "text.json").write_text("name")
    (tmp_path / "number.json").write_text("[1]")
    (tmp_path / "unknown.json").write_text('{"name": "a", "parms": {}}')
    (tmp_path / "array.json").write_text('{"name": "a", "parameters": []}')
    (tmp_path / "latin.txt").write_bytes(b"\xff")
    result = await run("call", "m", "Hi", "--address", address, *arguments, cwd=tmp_path)
    assert result.code == 2
    assert words in " ".join(result.err.split())
    assert service.requests == []


async def test_a_call_on_a_terminal_without_a_prompt_says_how_to_give_one(address):
    result = await run_on_terminal("call", "m", "--address", address)
    assert result.code == 2
    assert "give a PROMPT" in result.out
