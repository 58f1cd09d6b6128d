"""Calls of the replay provider without a server: what an engine would do, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from modelmeter_server.core.answers import FREE_TEXT, Answer, Expectation
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.models import ModelSpec
from modelmeter_server.core.request_checks import check_request
from modelmeter_server.core.requests import CompletionRequest, SchemaMode
from modelmeter_server.drivers.driver import RequestRefused
from modelmeter_server.drivers.http import Timeouts
from modelmeter_server.drivers.http_driver import HttpCall
from modelmeter_server.drivers.replay import ReplayDriver, ScriptBook, parse_scripts

SCHEMA = (
    '{"type":"object","properties":{"answer":{"type":"string"}},'
    '"required":["answer"],"additionalProperties":false}'
)


class Witness:
    """Hear what happens to a call; `on_progress` may act on it."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.call: HttpCall | None = None

    def dispatching(self, number: int, target: str) -> None: ...

    def written(self) -> None:
        self.heard.append("written")

    def progressed(self) -> None:
        self.heard.append("progressed")


def book(scripts: Mapping[str, Mapping[str, Any]]) -> ScriptBook:
    """Return a book of these scripts alone, given as a file would give them."""
    return ScriptBook(parse_scripts({"scripts": scripts}))


def driver_of(timeouts: Timeouts | None = None, **scripts: Mapping[str, Any]) -> ReplayDriver:
    """Return a driver that plays these scripts and remembers what it was asked."""
    return ReplayDriver("replay", book(scripts), timeouts, remember=100)


def model_of(script: str, **fields: Any) -> ModelSpec:
    """Return the model that this script is."""
    return ModelSpec(
        name=f"replay/{script}",
        provider="replay",
        provider_kind="replay",
        provider_model=script,
        capabilities=ReplayDriver.capabilities,
        **fields,
    )


def request_of(text: str | None = "Hello there", **fields: Any) -> CompletionRequest:
    """Return a request with this prompt."""
    return CompletionRequest(
        model="replay/any", call_id="00000000-0000-4000-8000-000000000000", text=text, **fields
    )


def refusals_of(driver: ReplayDriver, script: str, request: CompletionRequest) -> list[str]:
    """Return the fields that are refused before anything is sent, by the checks for all or by the driver."""
    model = model_of(script)
    mistakes = list(check_request(request, model))
    if not mistakes:
        try:
            driver.prepare(request, model)
        except RequestRefused as refusal:
            mistakes = list(refusal.violations)
    return [mistake.field for mistake in mistakes]


def expectation_of(request: CompletionRequest, model: ModelSpec) -> Expectation:
    """Return what the answer is held to."""
    if not request.output_schema_json:
        return FREE_TEXT
    validator = jsonschema_rs.validator_for(request.output_schema_json)
    mode = request.schema_mode or model.schema_mode
    return Expectation(
        schema_check=lambda document: None if validator.is_valid(document) else "it does not fit",
        forced_tool=mode is SchemaMode.FORCED_TOOL,
    )


def started(
    driver: ReplayDriver,
    script: str,
    request: CompletionRequest | None = None,
    *,
    observer: Witness | None = None,
    **model_fields: Any,
) -> HttpCall:
    """Return a call that is ready to run."""
    request = request or request_of()
    model = model_of(script, **model_fields)
    witness = observer or Witness()
    prepared = driver.prepare(request, model)
    call = driver.start(prepared, model, expectation_of(request, model), witness, deltas=True)
    assert isinstance(call, HttpCall)
    witness.call = call
    return call


async def played(
    driver: ReplayDriver, script: str, request: CompletionRequest | None = None, **options: Any
) -> Answer | Failure:
    """Call a script and return how it ended."""
    return await started(driver, script, request, **options).run()


def summary(result: Answer | Failure) -> str:
    """Return kind, certainty and cause in the words of docs/replay.md."""
    if isinstance(result, Answer):
        return f"answer {result.certainty.name}"
    return f"{result.kind.name} {result.certainty.name} {result.cause.name}"
