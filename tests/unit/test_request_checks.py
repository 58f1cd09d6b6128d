"""Mistakes that need no provider: names, numbers, labels, tools, schemas, capabilities."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from modelmeter_server.core.models import Capabilities
from modelmeter_server.core.request_checks import check_request
from modelmeter_server.core.requests import (
    FORCED_TOOL,
    ReasoningEffort,
    SchemaMode,
    Tool,
    ToolChoice,
    ToolMode,
)
from tests.support.completion_requests import KINDS, OPENAI, ask, ask_native, model_of, thinker_of, wrong

OBJECT = (
    '{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}'
)
LOOK = Tool(name="look", parameters_json=OBJECT)
LISTEN = Tool(name="listen")


@pytest.mark.parametrize("kind", KINDS)
def test_a_plain_question_has_no_mistakes(kind):
    assert wrong(ask(), model_of(kind)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_request_has_no_mistakes(kind):
    request = ask(
        system="Be kind.",
        tools=(LOOK, LISTEN),
        tool_choice=ToolChoice(mode=ToolMode.NAMED, name="look", disable_parallel_calls=True),
        output_schema_json=OBJECT,
        max_output_tokens=1,
        temperature=0.0,
        top_p=1.0,
        reasoning_effort=ReasoningEffort.LOW,
        provider_options_json='{"metadata":{"user_id":"u"}}',
        labels={"team": "a" * 256},
    )
    assert wrong(request, thinker_of(kind)) == []


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_an_empty_prompt_is_a_mistake(text):
    assert wrong(ask(text)) == ["text"]


def test_a_request_has_exactly_one_prompt():
    assert wrong(ask(None)) == ["prompt"]
    assert wrong(ask("Hi", native_json='[{"role":"user","content":"Hi"}]')) == ["prompt"]


def test_a_request_names_its_model_and_itself():
    nameless = msgspec.structs.replace(ask(), model="", call_id="")
    assert wrong(nameless) == ["model", "call_id"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_output_tokens", 0),
        ("max_output_tokens", -1),
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_p", math.nan),
        ("top_k", 0),
    ],
)
def test_a_number_out_of_its_range_is_a_mistake(field, value):
    assert wrong(ask(**{field: value})) == [field]


def test_an_empty_stop_sequence_is_a_mistake():
    assert wrong(ask(stop_sequences=("a", "", "b"))) == ["stop_sequences[1]"]


@pytest.mark.parametrize("field", ["top_k", "seed", "stop_sequences"])
def test_a_sampling_field_that_the_provider_has_not_is_refused_with_those_it_has(field):
    value: Any = ("END",) if field == "stop_sequences" else 5
    (violation,) = check_request(ask(**{field: value}), model_of(OPENAI))
    assert violation.field == field
    assert "`temperature`, `top_p`" in violation.description


@pytest.mark.parametrize("effort", [ReasoningEffort.NONE, ReasoningEffort.MINIMAL])
def test_an_effort_that_the_provider_does_not_name_is_refused_and_never_rounded(effort):
    (violation,) = check_request(ask(reasoning_effort=effort), model_of())
    assert violation.field == "reasoning_effort"
    assert "`low`" in violation.description


@pytest.mark.parametrize(
    ("tool", "field"),
    [
        (Tool(name=""), "tools[1].name"),
        (Tool(name="two words"), "tools[1].name"),
        (Tool(name="n" * 65), "tools[1].name"),
        (Tool(name="look\n"), "tools[1].name"),
        (Tool(name="look"), "tools[1].name"),
        (Tool(name=FORCED_TOOL), "tools[1].name"),
        (Tool(name="t", parameters_json="{"), "tools[1].parameters_json"),
        (Tool(name="t", parameters_json="[]"), "tools[1].parameters_json"),
        (Tool(name="t", parameters_json='{"type":"string"}'), "tools[1].parameters_json"),
        (Tool(name="t", parameters_json='{"type":"object","a":NaN}'), "tools[1].parameters_json"),
        (Tool(name="t", parameters_json='{"type":"object","type":"object"}'), "tools[1].parameters_json"),
    ],
)
def test_a_wrong_tool_is_named_by_its_place(tool, field):
    assert wrong(ask(tools=(LOOK, tool))) == [field]


@pytest.mark.parametrize(
    ("choice", "field"),
    [
        (ToolChoice(mode=ToolMode.NAMED), "tool_choice.name"),
        (ToolChoice(mode=ToolMode.NAMED, name="smell"), "tool_choice.name"),
        (ToolChoice(mode=ToolMode.REQUIRED, name="look"), "tool_choice.name"),
        (ToolChoice(mode=ToolMode.NONE, disable_parallel_calls=True), "tool_choice.disable_parallel_calls"),
    ],
)
def test_a_tool_choice_that_cannot_be_meant_is_a_mistake(choice, field):
    assert wrong(ask(tools=(LOOK,), tool_choice=choice)) == [field]


@pytest.mark.parametrize("mode", ToolMode)
def test_a_tool_choice_needs_tools(mode):
    assert wrong(ask(tool_choice=ToolChoice(mode=mode, name="look"))) == ["tool_choice"]


def test_a_forced_schema_and_declared_tools_are_refused_together():
    forced = ask(output_schema_json=OBJECT, schema_mode=SchemaMode.FORCED_TOOL, tools=(LOOK,))
    assert wrong(forced) == ["tools"]
    by_default = ask(output_schema_json=OBJECT, tools=(LOOK,))
    assert wrong(by_default, model_of(schema_mode=SchemaMode.FORCED_TOOL)) == ["tools"]
    assert wrong(by_default) == []


def test_a_schema_mode_goes_with_a_schema_only():
    assert wrong(ask(schema_mode=SchemaMode.NATIVE)) == ["schema_mode"]


def test_what_the_model_cannot_do_is_refused():
    poor = model_of(capabilities=Capabilities(schema_modes=(SchemaMode.FORCED_TOOL,), tools=False))
    assert wrong(ask(tools=(LOOK,)), poor) == ["tools"]
    assert wrong(ask(output_schema_json=OBJECT), poor) == ["schema_mode"]
    either = model_of(capabilities=Capabilities(tools_with_schema=False))
    assert wrong(ask(tools=(LOOK,), output_schema_json=OBJECT), either) == ["tools"]


@pytest.mark.parametrize(
    "schema",
    ["{", "[]", "true", '{"$ref":"http://127.0.0.1/x"}', '{"$ref":"file:///etc/passwd"}', " " * 300_000],
)
def test_a_schema_beyond_the_limits_is_refused(schema):
    assert wrong(ask(output_schema_json=schema)) == ["output_schema_json"]


def test_labels_are_few_and_short():
    assert wrong(ask(labels={str(number): "" for number in range(17)})) == ["labels"]
    assert wrong(ask(labels={"": "", "k" * 65: "", "k" * 64: "v" * 257})) == [
        "labels",
        "labels",
        f"labels.{'k' * 64}",
    ]


def test_no_description_quotes_the_prompt():
    secret = "the-secret-word"
    prompt = f'[{{"role":"system","content":"{secret}","image_url":"http://{secret}.example/a.png"}}]'
    violations = check_request(ask_native(prompt), model_of())
    assert len(violations) == 2
    assert secret not in repr(violations)
