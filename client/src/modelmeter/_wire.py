"""Enums and times between Python and the proto."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import enums
from .v1 import (
    completion_pb2,
    embedding_pb2,
    error_pb2,
    message_pb2,
    model_service_pb2,
    session_pb2,
    usage_pb2,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor import EnumDescriptor
    from google.protobuf.duration_pb2 import Duration

_Member = TypeVar("_Member", bound=Enum)


class EnumMap(Generic[_Member]):
    """One enum of the contract and its proto enum, member by member."""

    def __init__(self, members: type[_Member], descriptor: EnumDescriptor) -> None:
        prefix = descriptor.values_by_number[0].name.removesuffix("UNSPECIFIED")
        self._members = members
        self._by_number = {
            value.number: members[value.name.removeprefix(prefix)] for value in descriptor.values
        }
        self._numbers = {member: number for number, member in self._by_number.items()}

    def member(self, number: int) -> _Member:
        """Return the member for a proto number; UNSPECIFIED for one that is newer than this client."""
        return self._by_number.get(number, self._by_number[0])

    def number(self, word: str | None) -> Any:
        """Return the proto number for a member or its text in any case; None is UNSPECIFIED.

        Any: the stubs have a type of its own for the numbers of each enum.

        Raises ValueError for any other text, naming the words there are.
        """
        if word is None:
            return 0
        try:
            return self._numbers[self._members(word)]
        except ValueError:
            words = ", ".join(str(member.value) for member in self._members)
            message = f"{word!r} is no {self._members.__name__}; the words are {words}"
            raise ValueError(message) from None


CERTAINTY = EnumMap(enums.Certainty, usage_pb2.Certainty.DESCRIPTOR)
COST_SOURCE = EnumMap(enums.CostSource, usage_pb2.CostSource.DESCRIPTOR)
ERROR_KIND = EnumMap(enums.ErrorKind, error_pb2.ErrorKind.DESCRIPTOR)
CAUSE = EnumMap(enums.Cause, error_pb2.Cause.DESCRIPTOR)
STAGE = EnumMap(enums.Stage, error_pb2.Stage.DESCRIPTOR)
DISPOSITION = EnumMap(enums.Disposition, error_pb2.Disposition.DESCRIPTOR)
FINISH = EnumMap(enums.Finish, completion_pb2.Finish.DESCRIPTOR)
ROLE = EnumMap(enums.Role, message_pb2.Role.DESCRIPTOR)
SENSITIVITY = EnumMap(enums.Sensitivity, message_pb2.Sensitivity.DESCRIPTOR)
TRUST = EnumMap(enums.Trust, message_pb2.Trust.DESCRIPTOR)
TOOL_MODE = EnumMap(enums.ToolMode, message_pb2.ToolChoice.Mode.DESCRIPTOR)
SCHEMA_MODE = EnumMap(enums.SchemaMode, model_service_pb2.SchemaMode.DESCRIPTOR)
MODEL_TASK = EnumMap(enums.ModelTask, model_service_pb2.ModelTask.DESCRIPTOR)
EMBEDDING_INPUT_TYPE = EnumMap(enums.EmbeddingInputType, embedding_pb2.EmbeddingInputType.DESCRIPTOR)
BUSY_POLICY = EnumMap(enums.BusyPolicy, session_pb2.BusyPolicy.DESCRIPTOR)
SESSION_TRANSPORT = EnumMap(enums.SessionTransport, session_pb2.SessionTransport.DESCRIPTOR)
SESSION_END_REASON = EnumMap(enums.SessionEndReason, session_pb2.SessionEndReason.DESCRIPTOR)
REASONING_EFFORT = EnumMap(enums.ReasoningEffort, model_service_pb2.ReasoningEffort.DESCRIPTOR)


def seconds(duration: Duration) -> float:
    """Return a duration in seconds; unlike `ToTimedelta` it never overflows."""
    return duration.seconds + duration.nanos / 1e9
