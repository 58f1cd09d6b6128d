"""What opens a session and what is said in it, in the core's terms, and how turns and sessions end, as protos. Pure."""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from modelmeter.v1 import model_service_pb2, session_pb2
from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.counters import INT64_MAX
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.text import well_formed
from modelmeter_server.core.usage import Usage
from modelmeter_server.engine.session import TurnOrder

from .convert_answer import INT32_MAX, event_from, fill_completion
from .convert_request import Violations, completion_request
from .convert_usage import fill_usage
from .delivery import delivered
from .status import fill_in_band, status_of
from .words import BUSY_POLICY_WORDS, CERTAINTIES, SESSION_END_REASONS

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration

    from modelmeter_server.core.session_events import SessionTotals
    from modelmeter_server.engine.session import Session, SessionEnd, TurnEnd
    from modelmeter_server.engine.stream import LiveEvent

MAX_CONVERSATION: Final = 256
MAX_SESSION_ID: Final = 128
MAX_REASON: Final = 256
"""Characters of what a caller names."""

TURN: Final = "turn.request."
"""What leads to the fields of a turn's request."""


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is opened with."""

    model: str
    session_id: str
    conversation_id: str
    queues: bool
    keeps_transcript: bool
    ends_on_failure: bool


def opening(message: session_pb2.SessionOpen, found: Violations) -> Opening:
    """Return what a session is opened with; mistakes are added to `found`."""
    for field, most in (("conversation_id", MAX_CONVERSATION), ("session_id", MAX_SESSION_ID)):
        if len(getattr(message, field)) > most:
            found.add(field, f"must have {most} characters at most")
    return Opening(
        model=message.model,
        session_id=message.session_id or str(uuid.uuid4()),
        conversation_id=message.conversation_id,
        queues=found.word("when_busy", message.when_busy, BUSY_POLICY_WORDS) or False,
        keeps_transcript=message.keep_transcript,
        ends_on_failure=message.end_on_failure,
    )


def turn_order(message: model_service_pb2.SessionTurn, session: Session) -> tuple[TurnOrder, float | None]:
    """Return a turn in the core's terms with its mistakes, and the seconds that it may take."""
    found = Violations(TURN)
    request = completion_request(message.request, found, session.tenant.default_sensitivity)
    if request.model not in ("", session.model.name):
        found.add("model", "must be the session's own, or empty: one session has one model")
    if request.retry_policy is not None:
        found.add("retry_policy", "a turn of a session is asked once: leave it out")
    if request.continuation is not None:
        found.add("continuation", "is kept by the session: leave it out")
    if session.is_emulated:
        _judge_emulated(message, found)
    timeout = _seconds(message.timeout, found) if message.HasField("timeout") else None
    previous = message.previous_response_id if message.HasField("previous_response_id") else None
    order = TurnOrder(
        request=msgspec.structs.replace(
            request, model=session.model.name, continuation=None, retry_policy=None
        ),
        previous_response_id=previous,
        generate=message.generate if message.HasField("generate") else True,
        violations=found,
        prefix=TURN,
    )
    return order, timeout


def _judge_emulated(message: model_service_pb2.SessionTurn, found: Violations) -> None:
    fix = "needs a WebSocket, and this model has none: "
    if message.request.HasField("native_json"):
        found.add("native_json", fix + "send `text` or `messages`")
    found.prefix = "turn."
    if message.previous_response_id:
        found.add("previous_response_id", fix + "leave it out, or empty to begin anew")
    if message.HasField("generate") and not message.generate:
        found.add("generate", fix + "leave it out")
    found.prefix = TURN


def _seconds(duration: Duration, found: Violations) -> float:
    seconds = duration.seconds + duration.nanos / 1e9
    if seconds <= 0:
        found.prefix = "turn."
        found.add("timeout", "must be above 0")
        found.prefix = TURN
    return seconds


def live_event(call_id: str, event: LiveEvent) -> model_service_pb2.SessionResponse:
    """Return one event of a turn under way."""
    assert not isinstance(event, CallOutcome)
    told = event_from(event)
    name = told.WhichOneof("event")
    response = model_service_pb2.SessionResponse(call_id=call_id)
    getattr(response, str(name)).CopyFrom(getattr(told, str(name)))
    return response


def turn_ended(end: TurnEnd, session: Session) -> model_service_pb2.SessionResponse:
    """Return the end of a turn."""
    response = unsent(end.outcome)
    message = response.turn_ended
    message.turn = end.event.turn
    message.status = well_formed(end.event.status)
    if end.event.previous_response_id is not None:
        message.previous_response_id = well_formed(end.event.previous_response_id)
    if session.previous_response_id is not None:
        message.next_previous_response_id = well_formed(session.previous_response_id)
    message.connection = min(end.event.connection, INT32_MAX)
    fill_totals(message.totals, session.totals)
    return response


def unsent(outcome: CallOutcome) -> model_service_pb2.SessionResponse:
    """Return the end of a turn that was never begun: only its outcome."""
    response = model_service_pb2.SessionResponse(call_id=outcome.call_id)
    message = response.turn_ended
    message.status = "send_error"
    outcome = delivered(partial(fill_completion, message.completion), outcome)
    if isinstance(outcome.result, Failure):
        fill_in_band(message.failed, outcome, outcome.result)
        message.error.CopyFrom(status_of(outcome, outcome.result))
    return response


def opened(session: Session) -> model_service_pb2.SessionResponse:
    """Return the server's first message."""
    response = model_service_pb2.SessionResponse()
    message = response.opened
    message.session_id = session.session_id
    message.conversation_id = session.conversation_id
    message.model = session.model.name
    message.target = session.model.target_name
    message.transport = (
        session_pb2.SESSION_TRANSPORT_EMULATED
        if session.is_emulated
        else session_pb2.SESSION_TRANSPORT_WEBSOCKET
    )
    return response


def ended(session: Session, reason: SessionEnd, detail: str) -> model_service_pb2.SessionResponse:
    """Return the server's last message."""
    response = model_service_pb2.SessionResponse()
    message = response.ended
    message.session_id = session.session_id
    message.reason = SESSION_END_REASONS[reason]
    message.detail = detail[:MAX_REASON]
    fill_totals(message.totals, session.totals)
    return response


def fill_totals(message: session_pb2.SessionTotals, totals: SessionTotals) -> None:
    """Write what the turns of a session came to."""
    message.turns = totals.turns
    message.turns_completed = totals.completed
    message.certainty = CERTAINTIES[totals.certainty]
    message.cost_certainty = CERTAINTIES[totals.cost_certainty]
    usage = Usage(
        input_tokens=totals.tokens_in,
        output_tokens=totals.tokens_out,
        cache_read_tokens=totals.cached_tokens_in,
        reasoning_tokens=totals.reasoning_tokens,
    )
    fill_usage(message.usage, usage)
    for currency, nano_units in totals.nano_units.items():
        message.cost_nano_units[well_formed(currency)] = min(nano_units, INT64_MAX)
