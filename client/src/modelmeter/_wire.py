"""Enums and times between Python and the proto."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import enums
from .v1 import (
    admin_service_pb2,
    completion_pb2,
    embedding_pb2,
    error_pb2,
    event_pb2,
    ledger_service_pb2,
    message_pb2,
    model_service_pb2,
    session_pb2,
    usage_pb2,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor import EnumDescriptor
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.timestamp_pb2 import Timestamp

_Member = TypeVar("_Member", bound=Enum)


class EnumMap(Generic[_Member]):
    """One enum of the contract and its proto enum, member by member."""

    def __init__(self, members: type[_Member], descriptor: EnumDescriptor) -> None:
        prefix = descriptor.values_by_number[0].name.removesuffix("UNSPECIFIED")
        self.descriptor = descriptor
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


EVENT_SEVERITY = EnumMap(enums.EventSeverity, event_pb2.EventSeverity.DESCRIPTOR)
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
TARGET_STRATEGY = EnumMap(enums.TargetStrategy, model_service_pb2.TargetStrategy.DESCRIPTOR)
PASS_REASON = EnumMap(enums.PassReason, error_pb2.PassReason.DESCRIPTOR)
MODEL_TASK = EnumMap(enums.ModelTask, model_service_pb2.ModelTask.DESCRIPTOR)
EMBEDDING_INPUT_TYPE = EnumMap(enums.EmbeddingInputType, embedding_pb2.EmbeddingInputType.DESCRIPTOR)
TOKEN_STATE = EnumMap(enums.TokenState, admin_service_pb2.TokenState.DESCRIPTOR)
BUSY_POLICY = EnumMap(enums.BusyPolicy, session_pb2.BusyPolicy.DESCRIPTOR)
SESSION_TRANSPORT = EnumMap(enums.SessionTransport, session_pb2.SessionTransport.DESCRIPTOR)
SESSION_END_REASON = EnumMap(enums.SessionEndReason, session_pb2.SessionEndReason.DESCRIPTOR)
REASONING_EFFORT = EnumMap(enums.ReasoningEffort, model_service_pb2.ReasoningEffort.DESCRIPTOR)
ON_LANDED_ERROR = EnumMap(enums.OnLandedError, model_service_pb2.Effect.OnLandedError.DESCRIPTOR)
CALL_STATE = EnumMap(enums.CallState, ledger_service_pb2.CallState.DESCRIPTOR)
OPERATION = EnumMap(enums.Operation, ledger_service_pb2.Operation.DESCRIPTOR)
LANDING = EnumMap(enums.Landing, ledger_service_pb2.Landing.DESCRIPTOR)
RECONCILER = EnumMap(enums.Reconciler, ledger_service_pb2.Reconciler.DESCRIPTOR)
CONTENT_STATE = EnumMap(enums.ContentState, ledger_service_pb2.ContentState.DESCRIPTOR)
SCOPE = EnumMap(enums.Scope, ledger_service_pb2.Subject.Scope.DESCRIPTOR)
WINDOW_KIND = EnumMap(enums.WindowKind, ledger_service_pb2.Window.Kind.DESCRIPTOR)
HALT_MODE = EnumMap(enums.HaltMode, ledger_service_pb2.HaltMode.DESCRIPTOR)
GROUP_BY = EnumMap(enums.GroupBy, ledger_service_pb2.GetSpendRequest.GroupBy.DESCRIPTOR)
PERIOD = EnumMap(enums.Period, ledger_service_pb2.GetSpendRequest.Period.DESCRIPTOR)


def seconds(duration: Duration) -> float:
    """Return a duration in seconds; unlike `ToTimedelta` it never overflows."""
    return duration.seconds + duration.nanos / 1e9


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time(timestamp: Timestamp) -> datetime:
    """Return a point in time, in UTC; what no datetime holds is cut to the first or last one."""
    try:
        return _EPOCH + timedelta(seconds=timestamp.seconds, microseconds=timestamp.nanos // 1000)
    except OverflowError:
        return (datetime.max if timestamp.seconds > 0 else datetime.min).replace(tzinfo=UTC)


def set_time(timestamp: Timestamp, moment: datetime) -> None:
    """Write a point in time. Raises ValueError for one without a time zone."""
    if moment.tzinfo is None:
        message = f"{moment.isoformat()} has no time zone: give one, such as datetime.UTC"
        raise ValueError(message)
    since = moment - _EPOCH
    timestamp.seconds = since.days * 86_400 + since.seconds
    timestamp.nanos = since.microseconds * 1000
    timestamp.SetInParent()
