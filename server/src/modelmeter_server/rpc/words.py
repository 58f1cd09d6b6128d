"""The words of both worlds: enum members of the core and numbers of the protos, matched by name."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from modelmeter.v1 import (
    completion_pb2,
    embedding_pb2,
    error_pb2,
    message_pb2,
    model_service_pb2,
    session_pb2,
    usage_pb2,
)
from modelmeter_server.core.answers import Finish
from modelmeter_server.core.embeddings import InputType
from modelmeter_server.core.models import Task
from modelmeter_server.core.outcomes import Cause, Certainty, Disposition, Kind, Stage
from modelmeter_server.core.pricing import CostSource
from modelmeter_server.core.requests import ReasoningEffort, Role, SchemaMode, Sensitivity, ToolMode
from modelmeter_server.engine.session import SessionEnd

if TYPE_CHECKING:
    from collections.abc import Mapping

_Word = TypeVar("_Word", bound=Enum)


def _numbers(words: type[_Word], proto: Any, prefix: str) -> Mapping[_Word, Any]:
    """Return the proto number of each member; a member without one is a KeyError when the server starts."""
    numbers = proto.DESCRIPTOR.values_by_name
    return {word: numbers[prefix + word.name].number for word in words}


def _members(numbers: Mapping[_Word, Any]) -> Mapping[int, _Word]:
    return {number: word for word, number in numbers.items()}


KINDS = _numbers(Kind, error_pb2.ErrorKind, "ERROR_KIND_")
CAUSES = _numbers(Cause, error_pb2.Cause, "CAUSE_")
STAGES = _numbers(Stage, error_pb2.Stage, "STAGE_")
DISPOSITIONS = _numbers(Disposition, error_pb2.Disposition, "DISPOSITION_")
CERTAINTIES = _numbers(Certainty, usage_pb2.Certainty, "CERTAINTY_")
COST_SOURCES = _numbers(CostSource, usage_pb2.CostSource, "COST_SOURCE_")
FINISHES = _numbers(Finish, completion_pb2.Finish, "FINISH_")
SENSITIVITIES = _numbers(Sensitivity, message_pb2.Sensitivity, "SENSITIVITY_")
SCHEMA_MODES = _numbers(SchemaMode, model_service_pb2.SchemaMode, "SCHEMA_MODE_")
REASONING_EFFORTS = _numbers(ReasoningEffort, model_service_pb2.ReasoningEffort, "REASONING_EFFORT_")
TOOL_MODES = _numbers(ToolMode, message_pb2.ToolChoice.Mode, "MODE_")
ROLES = _numbers(Role, message_pb2.Role, "ROLE_")
TASKS = _numbers(Task, model_service_pb2.ModelTask, "MODEL_TASK_")
INPUT_TYPES = _numbers(InputType, embedding_pb2.EmbeddingInputType, "EMBEDDING_INPUT_TYPE_")
SESSION_END_REASONS = _numbers(SessionEnd, session_pb2.SessionEndReason, "SESSION_END_REASON_")

SENSITIVITY_WORDS = _members(SENSITIVITIES)
SCHEMA_MODE_WORDS = _members(SCHEMA_MODES)
REASONING_EFFORT_WORDS = _members(REASONING_EFFORTS)
TOOL_MODE_WORDS = _members(TOOL_MODES)
ROLE_WORDS = _members(ROLES)
INPUT_TYPE_WORDS = _members(INPUT_TYPES)
BUSY_POLICY_WORDS: Mapping[int, bool] = {
    session_pb2.BUSY_POLICY_REFUSE: False,
    session_pb2.BUSY_POLICY_QUEUE: True,
}
"""Whether turns wait."""
