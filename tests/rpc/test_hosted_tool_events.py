"""What those who watch hear of the provider's own tools: in pairs, redacted and cut, also of calls that failed."""

from __future__ import annotations

from typing import Any

import pytest

import modelmeter
from modelmeter_server.core.events import kind_of
from modelmeter_server.core.hosted import MAX_JSON
from modelmeter_server.core.redaction import PAYLOAD_BYTES
from modelmeter_server.core.sampling import Sampling
from tests.support import responses_events as responses
from tests.support.fault_server import FaultServer, Reply
from tests.support.hosted_answers import FORMS
from tests.support.provider_service import provider_service
from tests.support.watching import Observed
from tests.support.wire_bytes import sse

SSE = {"content-type": "text/event-stream"}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "rivers"}}
KINDS = ("tool.hosted_invoked", "tool.hosted_completed")


async def asked(reply: Reply, kind: str = "openai_responses", **options: Any) -> Observed:
    """Ask once and return what was told of it, whatever came of it."""
    seen = Observed(**options)
    async with (
        FaultServer(reply) as provider,
        provider_service(provider, telemetry=seen.telemetry) as service,
    ):
        try:
            await service.client.complete(kind, "Hi")
        except modelmeter.ModelmeterError:
            pass
    return seen


def tools(seen: Observed) -> list[Any]:
    return [event for event in seen.events() if kind_of(event) in KINDS]


def answered(*items: dict[str, Any], status: str = "completed") -> Reply:
    return Reply(headers=SSE, chunks=[sse(responses.created(), responses.ended(*items, status=status))])


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed"])
async def test_a_tool_is_told_however_the_answer_ended(status):
    seen = await asked(answered(SEARCH, status=status))
    assert [kind_of(event) for event in tools(seen)] == [*KINDS]
    assert {event.tool_call_id for event in tools(seen)} == {"ws_1"}


async def test_a_tool_that_ran_before_the_stream_broke_is_told():
    done = responses.event("output_item.done", output_index=0, item=SEARCH)
    seen = await asked(Reply(headers=SSE, chunks=[sse(responses.created(), done)], end="reset"))
    assert [kind_of(event) for event in tools(seen)] == [*KINDS]
    assert seen.kinds()[-1] == "prompt.failed"


async def test_payloads_are_cut_and_say_how_long_they_were():
    item = {**SEARCH, "action": {"query": "é" * PAYLOAD_BYTES}}
    seen = await asked(answered(item, responses.message("ok")), payloads=True)
    told = tools(seen)[0].arguments
    assert told.truncated
    assert len(told.text.encode()) in (PAYLOAD_BYTES - 1, PAYLOAD_BYTES)
    assert told.original_bytes == len('{"action":{"query":""}}') + 2 * PAYLOAD_BYTES


async def test_a_payload_that_was_too_long_to_be_kept_is_not_told_as_an_empty_one():
    item = {**SEARCH, "results": "x" * (MAX_JSON + 1)}
    seen = await asked(answered(item, responses.message("ok")), payloads=True)
    invoked, completed = tools(seen)
    assert (invoked.arguments.text, invoked.arguments.truncated) == ('{"action":{"query":"rivers"}}', False)
    assert (completed.result.text, completed.result.truncated, completed.result.original_bytes) == (
        "",
        True,
        0,
    )


async def test_both_ends_of_a_tool_that_failed_are_shown_whatever_is_sampled():
    form = FORMS["anthropic mcp"]
    seen = await asked(Reply(headers=SSE, chunks=[form.stream]), form.kind, sampling=Sampling(rate=0))
    assert [(kind_of(event), getattr(event, "failed", None)) for event in seen.events()] == [
        ("tool.hosted_invoked", None),
        ("tool.hosted_completed", True),
    ]
