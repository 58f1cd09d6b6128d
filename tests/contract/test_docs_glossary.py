"""One word for one thing: the proto's field names are those of the core's values and of the client's.

Every difference is listed here with its reason; a new one needs another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor

import modelmeter
from modelmeter.v1 import (
    completion_pb2,
    embedding_pb2,
    error_pb2,
    ledger_service_pb2,
    message_pb2,
    model_service_pb2,
    token_count_pb2,
    usage_pb2,
)
from modelmeter_server.core import (
    answers,
    calls,
    embeddings,
    errors,
    hosted,
    models,
    outcomes,
    pricing,
    requests,
    token_count,
    usage,
)
from modelmeter_server.engine import stream
from tests.support import ROOT
from tests.support.markdown import code_words, table

ON_THE_CALL = "stands on CallOutcome, which holds the result together with its call"
FROM_THE_MODEL = "is the model's: ModelSpec says it once for all its calls"
OF_THE_EVENT = "stands beside the delta in the event that carries it"
OF_THE_STATUS = "travels in the gRPC status beside the ModelError"
OF_THE_COST = "makes the cost a lower bound, which is how a caller hears of it"
FOR_THE_RECORD = "is kept for the record and is not sent"
AS_IT_CAME = "the message itself, for fields that this client does not know yet"
CONSTANT = "is the same for every answer, so that only the wire writes it"
DERIVED = "is worked out from another field"


OF_THE_PART = {"cache_breakpoint": "stands in the part on the wire, whatever the part holds"}
# What an answer of text has, and a count and vectors inherit without a use for it.
OF_AN_ANSWER = {
    "result": "holds the answer itself",
    "model": FROM_THE_MODEL,
    "labels": "are the caller's own, for the record",
    "price_factor": OF_THE_COST,
    **dict.fromkeys(
        [
            "additional_usage",
            "continuation",
            "estimated_output_tokens",
            "finish",
            "hosted_tools",
            "service_tier",
            "stop_reason",
            "structured_json",
            "text",
            "tool_calls",
            "truncated",
        ],
        "belongs to answers of text",
    ),
}
OF_A_BILL = dict.fromkeys(
    [
        "attempts",
        "attempts_total",
        "certainty",
        "cost",
        "model_served",
        "provider_response_id",
        "replayed",
        "settled",
        "timings",
        "usage",
    ],
    "a count has no bill and no record",
)


@dataclass(frozen=True)
class Word:
    """A message, the core values that it is made of, and the client's class for it."""

    proto: Any
    core: tuple[type, ...]
    client: type | None
    only_proto: dict[str, str] = field(default_factory=dict)
    """Fields of the message that no core value has, with the reason."""
    only_core: dict[str, str] = field(default_factory=dict)
    """Fields of the core that the message does not have, with the reason."""
    only_client: dict[str, str] = field(default_factory=dict)
    """Fields of the client's class that the message does not have, with the reason."""
    renamed_by_client: dict[str, str] = field(default_factory=dict)
    """Fields that the client spells without `_json`, because it takes the value as well as the text."""


WORDS = [
    Word(usage_pb2.Usage, (usage.Usage,), modelmeter.Usage),
    Word(usage_pb2.AdditionalUsage, (usage.AdditionalUsage,), modelmeter.AdditionalUsage),
    Word(
        usage_pb2.Cost,
        (pricing.Cost,),
        modelmeter.Cost,
        only_proto={"minor_units": DERIVED},
    ),
    Word(
        completion_pb2.Completion,
        (answers.Answer, calls.CallOutcome),
        modelmeter.Completion,
        only_proto={"target": FROM_THE_MODEL, "trust": CONSTANT},
        only_core={
            "result": "holds the answer itself",
            "model": FROM_THE_MODEL,
            "labels": "are the caller's own, for the record",
            "price_factor": OF_THE_COST,
        },
        only_client={"proto": AS_IT_CAME},
    ),
    Word(
        error_pb2.ModelError,
        (errors.Failure, calls.CallOutcome),
        modelmeter.ModelmeterError,
        only_proto={"target": FROM_THE_MODEL},
        only_core={
            "result": "holds the failure itself",
            "model": FROM_THE_MODEL,
            "labels": "are the caller's own, for the record",
            "timings": "are told of answers; an error tells the time of each attempt",
            "settled": "is told of answers only",
            "replayed": "is told of answers only",
            "sensitivity": "is told of answers only",
            "code": OF_THE_STATUS,
            "violations": OF_THE_STATUS,
            "resource": OF_THE_STATUS,
            "resource_type": OF_THE_STATUS,
            "reason": OF_THE_STATUS,
            "partial_text": FOR_THE_RECORD,
            "quotas": OF_THE_STATUS,
            "provider_body": FOR_THE_RECORD,
            "price_factor": OF_THE_COST,
            "hosted_tools": "is for those who watch",
        },
        only_client={
            "proto": AS_IT_CAME,
            "raw_status": AS_IT_CAME,
            "code": OF_THE_STATUS,
            "violations": OF_THE_STATUS,
            "reason": OF_THE_STATUS,
            "recorded": "is what the ledger holds of the call, as the client found it",
            "effect_outcome": DERIVED,
        },
    ),
    Word(error_pb2.Attempt, (calls.Attempt,), modelmeter.Attempt),
    Word(
        token_count_pb2.TokenCount,
        (token_count.TokenCount, calls.CallOutcome),
        modelmeter.TokenCount,
        only_proto={"target": FROM_THE_MODEL},
        only_core=OF_AN_ANSWER
        | OF_A_BILL
        | {
            "sensitivity": "is that of the call which is counted",
            "passed_over": "is of no use where nothing is bought",
        },
        only_client={"proto": AS_IT_CAME},
    ),
    Word(
        embedding_pb2.Embeddings,
        (embeddings.Embeddings, calls.CallOutcome),
        modelmeter.Embeddings,
        only_proto={
            "target": FROM_THE_MODEL,
            "dimensions": "is the length of the vectors, a property in the core",
        },
        only_core=OF_AN_ANSWER,
        only_client={"proto": AS_IT_CAME},
    ),
    Word(completion_pb2.Timings, (calls.Timings,), modelmeter.Timings),
    Word(completion_pb2.HostedTool, (hosted.HostedTool,), modelmeter.HostedTool),
    Word(completion_pb2.CompletionStarted, (stream.Started,), modelmeter.Started),
    Word(
        completion_pb2.TextDelta,
        (answers.TextDelta,),
        modelmeter.TextDelta,
        only_client={"sequence": OF_THE_EVENT},
    ),
    Word(
        completion_pb2.ReasoningDelta,
        (answers.ReasoningDelta,),
        modelmeter.ReasoningDelta,
        only_client={"sequence": OF_THE_EVENT},
    ),
    Word(
        completion_pb2.ToolCallDelta,
        (answers.ToolCallDelta,),
        modelmeter.ToolCallDelta,
        only_client={"sequence": OF_THE_EVENT},
    ),
    Word(completion_pb2.UsageSnapshot, (stream.UsageTold,), modelmeter.UsageSnapshot),
    Word(message_pb2.ToolCall, (answers.ToolCall,), modelmeter.ToolCall),
    Word(message_pb2.ToolCall, (requests.ToolCallPart,), None, only_core=OF_THE_PART),
    Word(message_pb2.ToolResult, (requests.ToolResultPart,), modelmeter.ToolResult, only_core=OF_THE_PART),
    Word(message_pb2.Continuation, (requests.Continuation,), modelmeter.Continuation),
    Word(message_pb2.Message, (requests.Message,), modelmeter.Message),
    Word(
        message_pb2.Media,
        (requests.MediaPart,),
        modelmeter.Image,
        only_core={
            **OF_THE_PART,
            "kind": "tells image, audio and document apart, which are fields of Part on the wire",
        },
    ),
    Word(
        message_pb2.Tool,
        (requests.Tool,),
        modelmeter.Tool,
        renamed_by_client={"parameters_json": "parameters"},
    ),
    Word(message_pb2.ToolChoice, (requests.ToolChoice,), modelmeter.ToolChoice),
    Word(
        model_service_pb2.CompleteRequest,
        (requests.CompletionRequest,),
        modelmeter.CompleteOptions,
        only_core={"turn": "stands in SessionTurn, around the request"},
        only_proto=dict.fromkeys(
            ("system_trust",),
            "is refused or judged while the request is read, and goes no further",
        ),
        renamed_by_client={
            "output_schema_json": "schema",
            "provider_options_json": "provider_options",
        },
    ),
    Word(
        model_service_pb2.EmbedRequest,
        (embeddings.EmbeddingRequest,),
        modelmeter.EmbedOptions,
        renamed_by_client={"provider_options_json": "provider_options"},
    ),
    Word(
        model_service_pb2.Model,
        (models.ModelSpec,),
        modelmeter.Model,
        only_proto={
            "default_schema_mode": "is `schema_mode` in the core, as in the configuration",
            "targets": "stand in `route` in the core",
            "strategy": "stands in `route` in the core",
            "retry_policy": "is `retry` in the core, as in the configuration",
        },
        only_core={
            "schema_mode": "is `default_schema_mode` on the wire, where a call has a `schema_mode` too",
            "schema_check": "is the deployment's business",
            "route": "is `targets` and `strategy` on the wire",
            "target": "is the name of one of `targets` on the wire",
            "buffered": "is the deployment's business",
            "allow_remote_media": "is the deployment's business",
            "hosted_tools": "is the deployment's business",
            "service_tier": "is the deployment's business",
            "reasoning_dialect": "is the deployment's business",
            "embedding_dialect": "is the deployment's business",
            **dict.fromkeys(
                (
                    "abort_stops_billing",
                    "clamp_output",
                    "declared_identity",
                    "declared_reserve_factor",
                    "drain_bytes",
                    "drain_seconds",
                    "max_tokens_per_second",
                    "on_cancel",
                    "recoverable",
                ),
                "is the deployment's business",
            ),
            "retry": "is `retry_policy` on the wire, as what a call may ask for within it",
            "output_sensitivity": "is told with each answer, as its `sensitivity`",
        },
        only_client={"proto": AS_IT_CAME},
    ),
    Word(
        model_service_pb2.ModelCapabilities,
        (models.Capabilities,),
        modelmeter.ModelCapabilities,
        only_core={
            "enforces_native_schema": "decides a check of ours, and is nothing to choose by",
            "cache_marks": "is told by the refusal of a mark, with the places and times there are",
            "end_user_id": "is told by the refusal of an id",
        },
    ),
]
POSITIONAL = {
    modelmeter.CompleteOptions: {"model", "text", "messages"},
    modelmeter.EmbedOptions: {"model", "inputs"},
}
"""Fields of a request that are parameters of the client's methods and no options."""

each_word = pytest.mark.parametrize("word", WORDS, ids=lambda word: word.proto.DESCRIPTOR.name)


def of_proto(word: Word) -> set[str]:
    descriptor: Descriptor = word.proto.DESCRIPTOR
    return {each.name for each in descriptor.fields}


def of_core(word: Word) -> set[str]:
    found = {name for each in word.core for name in getattr(each, "__struct_fields__", ())}
    assert found
    return found


def of_client(word: Word) -> set[str]:
    client: Any = word.client
    if client in POSITIONAL:
        return {*client.__annotations__, *POSITIONAL[client]}
    return {each.name for each in fields(client)} - {"_"}


@each_word
def test_the_core_calls_a_thing_what_the_proto_calls_it(word):
    proto, core = of_proto(word), of_core(word)
    assert proto - core == {*word.only_proto}
    assert core - proto == {*word.only_core}


@pytest.mark.parametrize(
    "word", [word for word in WORDS if word.client], ids=lambda word: word.proto.DESCRIPTOR.name
)
def test_the_client_calls_a_thing_what_the_proto_calls_it(word):
    proto = {word.renamed_by_client.get(name, name) for name in of_proto(word)}
    assert of_client(word) - proto == {*word.only_client}
    assert proto - of_client(word) == set()


@each_word
def test_every_difference_has_a_reason(word):
    reasons = [*word.only_proto.values(), *word.only_core.values(), *word.only_client.values()]
    assert all(len(reason.split()) >= 3 for reason in reasons)


ENUMS = [
    (error_pb2.ErrorKind, "ERROR_KIND_", outcomes.Kind, modelmeter.ErrorKind),
    (error_pb2.Cause, "CAUSE_", outcomes.Cause, modelmeter.Cause),
    (error_pb2.Stage, "STAGE_", outcomes.Stage, modelmeter.Stage),
    (error_pb2.Disposition, "DISPOSITION_", outcomes.Disposition, modelmeter.Disposition),
    (usage_pb2.Certainty, "CERTAINTY_", outcomes.Certainty, modelmeter.Certainty),
    (usage_pb2.CostSource, "COST_SOURCE_", pricing.CostSource, modelmeter.CostSource),
    (completion_pb2.Finish, "FINISH_", answers.Finish, modelmeter.Finish),
    (model_service_pb2.SchemaMode, "SCHEMA_MODE_", requests.SchemaMode, modelmeter.SchemaMode),
    (
        model_service_pb2.ReasoningEffort,
        "REASONING_EFFORT_",
        requests.ReasoningEffort,
        modelmeter.ReasoningEffort,
    ),
    (model_service_pb2.ModelTask, "MODEL_TASK_", models.Task, modelmeter.ModelTask),
    (
        embedding_pb2.EmbeddingInputType,
        "EMBEDDING_INPUT_TYPE_",
        embeddings.InputType,
        modelmeter.EmbeddingInputType,
    ),
    (message_pb2.Sensitivity, "SENSITIVITY_", requests.Sensitivity, modelmeter.Sensitivity),
    (message_pb2.Role, "ROLE_", requests.Role, modelmeter.Role),
    (message_pb2.ToolChoice.Mode, "MODE_", requests.ToolMode, modelmeter.ToolMode),
]


@pytest.mark.parametrize(
    ("proto", "prefix", "core", "client"), ENUMS, ids=[each[2].__name__ for each in ENUMS]
)
def test_a_value_has_one_name_in_all_three(proto, prefix, core, client):
    names = [name.removeprefix(prefix) for name in proto.DESCRIPTOR.values_by_name]
    assert {"UNSPECIFIED", *(each.name for each in core)} == {*names}
    assert {*(each.name for each in client), "UNSPECIFIED"} == {*names}


# The page

PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = [row for part in re.split(r"^## ", PAGE, flags=re.M)[1:] for row in table(part)]


def _known_words() -> set[str]:
    words = {name for word in WORDS for name in (*of_proto(word), *of_core(word))}
    words |= {word.proto.DESCRIPTOR.name for word in WORDS}
    words |= {name for _, _, core, _ in ENUMS for name in core.__members__}
    of_the_ledger = ledger_service_pb2.DESCRIPTOR.message_types_by_name.values()
    words |= {each.name for message in of_the_ledger for each in message.fields}
    return words | {"flush_interval"}


IN_CODE = {
    "Token": "proto/modelmeter/v1/admin_service.proto",
    "admin": "proto/modelmeter/v1/admin_service.proto",
    "tenant": "proto/modelmeter/v1/admin_service.proto",
    "FORCED_TOOL": "server/src/modelmeter_server/core/requests.py",
    "Driver": "server/src/modelmeter_server/drivers/driver.py",
    "WireFormat": "server/src/modelmeter_server/drivers/http_driver.py",
    "encode": "server/src/modelmeter_server/drivers/anthropic/encode.py",
    "Accumulator": "server/src/modelmeter_server/core/accumulators/accumulator.py",
    "Snapshot": "server/src/modelmeter_server/core/accumulators/accumulator.py",
    "cut": "server/src/modelmeter_server/engine/call.py",
    "Event": "server/src/modelmeter_server/core/events.py",
    "tick": "server/src/modelmeter_server/core/events.py",
    "EventGap": "proto/modelmeter/v1/event_service.proto",
    "Sampling": "server/src/modelmeter_server/core/sampling.py",
    "Recorder": "server/src/modelmeter_server/engine/recorder.py",
    "modelmeter-call-id": "server/src/modelmeter_server/rpc/model_service.py",
    "effect_outcome": "client/src/modelmeter/errors.py",
    "session_id": "proto/modelmeter/v1/session.proto",
    "keep_transcript": "proto/modelmeter/v1/session.proto",
    "EMULATED": "client/src/modelmeter/enums.py",
    "SessionTurn": "proto/modelmeter/v1/model_service.proto",
    "limits": "server/src/modelmeter_server/config/settings.py",
    "max_queued_calls": "server/src/modelmeter_server/config/settings.py",
    "slow_reader_seconds": "server/src/modelmeter_server/config/settings.py",
}
"""Words of the glossary that are no fields, and the file that has them."""


def test_every_spelling_in_the_glossary_is_a_name_that_exists():
    spelled = {word for row in ROWS for word in code_words(row.get("Spelled") or row.get("Id") or "")}
    assert len(spelled) > 40
    assert not spelled - _known_words() - IN_CODE.keys()
    for word, file in IN_CODE.items():
        assert re.search(rf"\b{re.escape(word)}\b", (ROOT / file).read_text(encoding="utf-8"))


def test_no_word_is_explained_twice():
    words = [row.get("Word") or row["Id"] for row in ROWS]
    assert sorted(set(words)) == sorted(words)
