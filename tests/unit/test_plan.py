"""From a request to a plan, or to the refusal that tells every mistake, the encoder's among them."""

from __future__ import annotations

from typing import Any

import pytest

from modelmeter_server.core.errors import FieldViolation
from modelmeter_server.core.request_checks import MAX_VIOLATIONS
from modelmeter_server.core.requests import SchemaMode, TextPart, Tool, ToolResultPart
from modelmeter_server.drivers.http import Endpoint, Limits
from modelmeter_server.drivers.http_driver import HttpDriver
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS
from modelmeter_server.engine.plan import Refused, mistaken, plan
from tests.support.completion_requests import (
    ANTHROPIC,
    KINDS,
    OPENAI,
    ask,
    ask_messages,
    ask_native,
    model_of,
    user,
)

FALSE: dict[str, Any] = {"labels": {"": "x"}}
"""A mistake that is no encoder's affair."""


def driver_of(kind: str, **limits: int) -> HttpDriver:
    return HttpDriver(kind, WIRE_FORMATS[kind], Endpoint.parse("http://127.0.0.1:9"), limits=Limits(**limits))


async def refusal(kind: str, request: Any, found: Any = (), prefix: str = "", **limits: int) -> list[str]:
    with pytest.raises(Refused) as caught:
        plan(request, model_of(kind), driver_of(kind, **limits), found, prefix)
    return [each.field for each in caught.value.verdict.violations]


@pytest.mark.parametrize(
    ("kind", "fields", "mistakes"),
    [
        (ANTHROPIC, {"temperature": 1.5}, ["temperature"]),
        (OPENAI, {"temperature": 3.0}, ["temperature"]),
        (OPENAI, {"output_schema_json": '{"type":"object"}'}, ["output_schema_json"]),
        (OPENAI, {"tools": (Tool(name="a", strict=True),)}, ["tools[0].parameters_json"]),
        (
            ANTHROPIC,
            {
                "output_schema_json": '{"type":"array"}',
                "schema_mode": SchemaMode.FORCED_TOOL,
                "temperature": 1.1,
            },
            ["output_schema_json", "temperature"],
        ),
    ],
)
async def test_what_the_encoder_refuses_is_told_together_with_all_other_mistakes(kind, fields, mistakes):
    assert await refusal(kind, ask(**fields)) == mistakes
    assert await refusal(kind, ask(**fields, **FALSE)) == ["labels", *mistakes]
    assert await refusal(kind, ask(**fields, **FALSE), prefix="request.") == [
        "request.labels",
        *(f"request.{each}" for each in mistakes),
    ]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_mistake_of_the_wire_form_hides_none_of_the_encoders(kind):
    found = [FieldViolation("request.call_id", "must be a UUID")]
    assert await refusal(kind, ask(temperature=9.0), found, "request.") == [
        "request.call_id",
        "request.temperature",
    ]


@pytest.mark.parametrize(
    ("kind", "request_", "mistakes"),
    [
        (ANTHROPIC, ask_native('[{"role":"system","content":"a"}]'), ["native_json[0].role"]),
        (OPENAI, ask_native('[{"role":"developer","content":"a"}]'), ["native_json[0].role"]),
        (ANTHROPIC, ask_native("{"), ["native_json"]),
        (OPENAI, ask(output_schema_json="{"), ["output_schema_json"]),
        (ANTHROPIC, ask(temperature=float("nan")), ["temperature"]),
        (OPENAI, ask(top_k=3), ["top_k"]),
        (ANTHROPIC, ask_messages(user(TextPart(""), ToolResultPart(call_id=""))), None),
    ],
)
async def test_no_mistake_is_told_twice(kind, request_, mistakes):
    told = await refusal(kind, request_)
    assert len(told) == len(set(told))
    assert mistakes is None or told == mistakes


async def test_an_encoder_that_stumbles_over_a_mistake_adds_nothing_to_it():
    driver = driver_of(ANTHROPIC)

    def stumble(request: Any, model: Any) -> Any:
        raise ZeroDivisionError

    driver.prepare = stumble  # type: ignore[method-assign]  # the fault under test
    with pytest.raises(Refused) as caught:
        plan(ask(**FALSE), model_of(), driver)
    assert [each.field for each in caught.value.verdict.violations] == ["labels"]
    with pytest.raises(ZeroDivisionError):
        plan(ask(), model_of(), driver)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_body_that_is_too_large_is_a_mistake_of_the_prompt(kind):
    request = ask('"' * 600)  # escaped, it takes twice the bytes
    assert await refusal(kind, request, request_bytes=1000) == ["prompt"]
    body = plan(request, model_of(kind), driver_of(kind)).prepared.body
    assert plan(request, model_of(kind), driver_of(kind, request_bytes=len(body))).prepared.body == body


def test_a_refusal_tells_a_bounded_number_of_mistakes():
    verdict = mistaken([FieldViolation(f"tools[{index}]", "wrong") for index in range(MAX_VIOLATIONS + 50)])
    assert len(verdict.violations) == MAX_VIOLATIONS
