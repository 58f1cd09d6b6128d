"""The words of both worlds: enum members of the core and numbers of the protos, matched by name."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from modelmeter.v1 import (
    admin_service_pb2,
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
from modelmeter_server.core.models import Strategy, Task
from modelmeter_server.core.outcomes import Cause, Certainty, Disposition, Kind, Stage
from modelmeter_server.core.pricing import CostSource
from modelmeter_server.core.requests import ReasoningEffort, Role, SchemaMode, Sensitivity, ToolMode
from modelmeter_server.core.routing import PassReason
from modelmeter_server.core.tokens import TokenState
from modelmeter_server.engine.session import SessionEnd

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_Word = TypeVar("_Word", bound=Enum)


def numbers(
    words: type[_Word], proto: Any, prefix: str, *, without: Collection[_Word] = ()
) -> Mapping[_Word, Any]:
    """Return the proto number of each member; a member without one is a KeyError when the server starts."""
    values = proto.DESCRIPTOR.values_by_name
    return {word: values[prefix + word.name].number for word in words if word not in without}


def members(found: Mapping[_Word, Any]) -> Mapping[int, _Word]:
    """Return the member of each proto number."""
    return {number: word for word, number in found.items()}


KINDS = numbers(Kind, error_pb2.ErrorKind, "ERROR_KIND_")
CAUSES = numbers(Cause, error_pb2.Cause, "CAUSE_")
STAGES = numbers(Stage, error_pb2.Stage, "STAGE_")
DISPOSITIONS = numbers(Disposition, error_pb2.Disposition, "DISPOSITION_")
CERTAINTIES = numbers(Certainty, usage_pb2.Certainty, "CERTAINTY_")
COST_SOURCES = numbers(CostSource, usage_pb2.CostSource, "COST_SOURCE_")
FINISHES = numbers(Finish, completion_pb2.Finish, "FINISH_")
SENSITIVITIES = numbers(Sensitivity, message_pb2.Sensitivity, "SENSITIVITY_")
SCHEMA_MODES = numbers(SchemaMode, model_service_pb2.SchemaMode, "SCHEMA_MODE_")
REASONING_EFFORTS = numbers(ReasoningEffort, model_service_pb2.ReasoningEffort, "REASONING_EFFORT_")
TOOL_MODES = numbers(ToolMode, message_pb2.ToolChoice.Mode, "MODE_")
TOKEN_STATES = numbers(TokenState, admin_service_pb2.TokenState, "TOKEN_STATE_")
ROLES = numbers(Role, message_pb2.Role, "ROLE_")
STRATEGIES = numbers(Strategy, model_service_pb2.TargetStrategy, "TARGET_STRATEGY_")
PASS_REASONS = numbers(PassReason, error_pb2.PassReason, "PASS_REASON_")
TASKS = numbers(Task, model_service_pb2.ModelTask, "MODEL_TASK_")
INPUT_TYPES = numbers(InputType, embedding_pb2.EmbeddingInputType, "EMBEDDING_INPUT_TYPE_")
SESSION_END_REASONS = numbers(SessionEnd, session_pb2.SessionEndReason, "SESSION_END_REASON_")

KIND_WORDS = members(KINDS)
SENSITIVITY_WORDS = members(SENSITIVITIES)
SCHEMA_MODE_WORDS = members(SCHEMA_MODES)
REASONING_EFFORT_WORDS = members(REASONING_EFFORTS)
TOOL_MODE_WORDS = members(TOOL_MODES)
ROLE_WORDS = members(ROLES)
INPUT_TYPE_WORDS = members(INPUT_TYPES)
BUSY_POLICY_WORDS: Mapping[int, bool] = {
    session_pb2.BUSY_POLICY_REFUSE: False,
    session_pb2.BUSY_POLICY_QUEUE: True,
}
"""Whether turns wait."""
