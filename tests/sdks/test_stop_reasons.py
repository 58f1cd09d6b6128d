"""R-X4: every stop reason that an official SDK names has a row in our tables, and no row names one that is gone."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import pytest
from anthropic.types import StopReason
from anthropic.types.beta import BetaStopReason
from google.genai.types import BlockedReason, FinishReason
from openai.types.chat import chat_completion, chat_completion_chunk
from openai.types.responses import ResponseStatus
from openai.types.responses.response import IncompleteDetails

from modelmeter_server.core.stop_reasons import (
    ANTHROPIC,
    BEDROCK,
    CHAT_COMPLETIONS,
    GEMINI,
    GEMINI_BLOCKS,
    OPENAI_RESPONSES,
)
from tests.support.sdk_types import bedrock_service

pytestmark = pytest.mark.xdist_group("sdks")

DECIDED_ELSEWHERE = {"failed", "in_progress", "incomplete", "queued"}
"""Statuses of a response that are no stop reasons: the ladder decides (R-E3, R-O1), or the reason beside it does."""

OF_OTHER_SERVERS = {"model_length", "insufficient_system_resource", "abort", "error", "cancelled"}
"""Words of servers that speak Chat Completions and are not OpenAI."""


def words(annotation: Any) -> set[str]:
    """Return the texts that a type allows."""
    if get_origin(annotation) is Literal:
        return set(get_args(annotation))
    return {word for each in get_args(annotation) for word in words(each)}


def field(model: Any, name: str) -> set[str]:
    return words(model.model_fields[name].annotation)


def _responses() -> set[str]:
    incomplete = {f"incomplete:{reason}" for reason in field(IncompleteDetails, "reason")}
    return (words(ResponseStatus) - DECIDED_ELSEWHERE) | incomplete


NAMED = {
    "anthropic": (words(StopReason) | words(BetaStopReason), ANTHROPIC),
    "bedrock": (set(bedrock_service().shape_for("StopReason").enum), BEDROCK),
    "chat_completions": (
        field(chat_completion.Choice, "finish_reason")
        | field(chat_completion_chunk.Choice, "finish_reason")
        | OF_OTHER_SERVERS,
        CHAT_COMPLETIONS,
    ),
    "gemini": ({each.value for each in FinishReason}, GEMINI),
    "gemini blocks": ({each.value for each in BlockedReason}, GEMINI_BLOCKS),
    "openai_responses": (_responses(), OPENAI_RESPONSES),
}


@pytest.mark.parametrize("table", NAMED)
def test_the_tables_have_a_row_for_every_word_of_the_sdks(table):
    named, rows = NAMED[table]
    assert len(named) > 5
    assert named - set(rows) == set()
    assert set(rows) - named == set(), "rows of words that no SDK knows any more"


def test_the_words_of_other_servers_are_not_openais():
    assert not OF_OTHER_SERVERS & field(chat_completion.Choice, "finish_reason")
