"""The ledger's words in both worlds, matched by name."""

from __future__ import annotations

from modelmeter.v1 import ledger_service_pb2
from modelmeter_server.core.ceilings import HaltMode, Scope, WindowKind
from modelmeter_server.core.journal import CallState, Operation
from modelmeter_server.ledger.questions import Dimension, Period

from .words import members, numbers

CALL_STATES = numbers(CallState, ledger_service_pb2.CallState, "CALL_STATE_")
OPERATIONS = numbers(Operation, ledger_service_pb2.Operation, "OPERATION_")
WINDOW_KINDS = numbers(WindowKind, ledger_service_pb2.Window.Kind, "KIND_")
HALT_MODES = numbers(HaltMode, ledger_service_pb2.HaltMode, "HALT_MODE_")
SCOPES = numbers(
    Scope, ledger_service_pb2.Subject.Scope, "SCOPE_", without=(Scope.CALL,)
)  # a call's own ceiling stands in its request
DIMENSIONS = numbers(
    Dimension, ledger_service_pb2.GetSpendRequest.GroupBy, "GROUP_BY_", without=(Dimension.TENANT,)
)
PERIODS = numbers(Period, ledger_service_pb2.GetSpendRequest.Period, "PERIOD_", without=(Period.ALL,))

CALL_STATE_WORDS = members(CALL_STATES)
WINDOW_KIND_WORDS = members(WINDOW_KINDS)
HALT_MODE_WORDS = members(HALT_MODES)
SCOPE_WORDS = members(SCOPES)
DIMENSION_WORDS = members(DIMENSIONS)
PERIOD_WORDS = members(PERIODS)

LANDINGS = {
    "aborted": ledger_service_pb2.LANDING_ABORTED,
    "drained": ledger_service_pb2.LANDING_DRAINED,
    "drain_cut": ledger_service_pb2.LANDING_DRAIN_CUT,
}
RECONCILERS = {
    "provider": ledger_service_pb2.RECONCILER_PROVIDER,
    "operator": ledger_service_pb2.RECONCILER_OPERATOR,
    "late": ledger_service_pb2.RECONCILER_LATE,
}
CONTENT_STATES = {
    "": ledger_service_pb2.CONTENT_STATE_KEPT,
    "erased": ledger_service_pb2.CONTENT_STATE_ERASED,
    "expired": ledger_service_pb2.CONTENT_STATE_EXPIRED,
}
