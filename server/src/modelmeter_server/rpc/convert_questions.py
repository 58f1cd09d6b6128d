"""What callers ask of the ledger, in the ledger's terms. Pure; every mistake is noted with its path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from modelmeter.v1 import ledger_service_pb2
from modelmeter_server.core.outcomes import Certainty
from modelmeter_server.core.request_checks import MAX_LABELS
from modelmeter_server.core.usage import Usage
from modelmeter_server.core.windows import LAST_SECOND
from modelmeter_server.ledger.commands import Erase
from modelmeter_server.ledger.questions import (
    CallPosition,
    CallsAsked,
    Dimension,
    Period,
    SpendAsked,
    SpendPosition,
)

from .convert_ceilings import MAX_REASON, check_currency, check_zone
from .convert_request import UUID
from .convert_usage import COUNTERS
from .ledger_words import CALL_STATE_WORDS, DIMENSION_WORDS, OPERATION_WORDS, PERIOD_WORDS
from .paging import page_size, position_as
from .words import CERTAINTIES, KIND_WORDS, members

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from modelmeter.v1 import usage_pb2

    from .convert_request import Violations

FULL_PAGE: Final = 10
"""Most calls of a page with their content."""

MAX_VALUES: Final = 100
MAX_LABEL: Final = 64
QUARTER: Final = 15 * 60
"""Seconds; what sums are kept by."""

ANSWERED: Final = "ANSWERED"
"""Stands for an answer among the kinds of failures."""

_CERTAINTY_WORDS = members(CERTAINTIES)


def call_id_from(text: str, found: Violations, path: str = "call_id") -> str:
    """Return the id of a call in lower case."""
    if not UUID.fullmatch(text):
        found.add(path, "must be a UUID such as 7d3cfb0a-3a4e-4f0e-9d0b-0c6f5a1e2b3c")
    return text.lower()


def generation_from(number: int, found: Violations) -> int | None:
    """Return which generation; `None` for the newest."""
    if number < 0:
        found.add("generation", "must be 1 or more, or 0 for the newest")
    return number or None


def is_full(view: int, found: Violations) -> bool:
    """Say whether a view of calls asks for their attempts and their content."""
    basic, full = ledger_service_pb2.CALL_VIEW_BASIC, ledger_service_pb2.CALL_VIEW_FULL
    return found.word("view", view, {basic: False, full: True}) or False


def calls_asked(
    message: ledger_service_pb2.ListCallsRequest, tenant: str, found: Violations, *, full: bool
) -> CallsAsked:
    """Return which calls are asked for, with room for one more than a page, which says that there is a next one."""
    size = page_size(message.page_size, found)
    only = message.filter
    if only.effect_key and not only.run_id:
        found.add("filter.effect_key", "goes with `run_id`: a key is unique in its run")
    if len(only.labels) > MAX_LABELS:
        found.add("filter.labels", f"must be at most {MAX_LABELS}: a call has no more")
    states = [found.word("filter.states", number, CALL_STATE_WORDS) for number in only.states]
    operations = [found.word("filter.operations", number, OPERATION_WORDS) for number in only.operations]
    kinds = [found.word("filter.kinds", number, KIND_WORDS) for number in only.kinds]
    named = {kind.value for kind in kinds if kind is not None}
    return CallsAsked(
        tenant=tenant,
        run_id=only.run_id,
        effect_key=only.effect_key,
        model=only.model,
        states=frozenset(int(state) for state in states if state is not None),
        kinds=frozenset((*named, ANSWERED) if only.answered else named),
        operations=frozenset(each.value for each in operations if each is not None),
        labels=dict(only.labels),
        reserved_from=time_from(only, "start_time", found, "filter."),
        reserved_before=time_from(only, "end_time", found, "filter."),
        after=position_as(CallPosition, message.page_token, found),
        limit=1 + (min(size, FULL_PAGE) if full else size),
    )


def erasure_from(message: ledger_service_pb2.EraseContentRequest, found: Violations, tenant: str) -> Erase:
    """Return the order to delete content of a call, a run or the tenant."""
    target = message.WhichOneof("target")
    call_id = call_id_from(message.call_id, found) if target == "call_id" else ""
    if target is None or (target == "everything" and not message.everything):
        found.add("target", "must be call_id, run_id or everything = true")
    elif target == "run_id" and not message.run_id:
        found.add("run_id", "must be the id of a run")
    return Erase(tenant=tenant, call_id=call_id, run_id=message.run_id if target == "run_id" else "")


def spend_asked(message: ledger_service_pb2.GetSpendRequest, tenant: str, found: Violations) -> SpendAsked:
    """Return which sums are asked for, with room for one more than a page."""
    dimension = found.word("group_by", message.group_by, DIMENSION_WORDS) or Dimension.TENANT
    if (dimension is Dimension.LABEL) != bool(message.label):
        fix = (
            "must be the label's key"
            if dimension is Dimension.LABEL
            else "goes with GROUP_BY_LABEL: leave it out"
        )
        found.add("label", fix)
    if len(message.label) > MAX_LABEL:
        found.add("label", f"must have at most {MAX_LABEL} characters")
    if message.values and dimension is Dimension.TENANT:
        found.add("values", "goes with `group_by`: leave it out")
    if len(message.values) > MAX_VALUES:
        found.add("values", f"must be at most {MAX_VALUES}")
    if message.time_zone:
        check_zone(message.time_zone, found, "time_zone")
    return SpendAsked(
        tenant=tenant,
        dimension=dimension,
        label=message.label,
        values=frozenset(message.values[:MAX_VALUES]),
        period=found.word("period", message.period, PERIOD_WORDS) or Period.ALL,
        time_zone=message.time_zone or "UTC",
        starts_at=_quarter(message, "start_time", found),
        ends_at=_quarter(message, "end_time", found),
        after=position_as(SpendPosition, message.page_token, found),
        limit=1 + page_size(message.page_size, found),
    )


def _quarter(message: ledger_service_pb2.GetSpendRequest, field: str, found: Violations) -> int | None:
    at = time_from(message, field, found)
    if at is not None and at % (QUARTER * 1_000_000):
        found.add(field, "must be a full quarter of an hour: sums are kept by them")
    return at


def time_from(message: object, field: str, found: Violations, path: str = "") -> int | None:
    """Return a time in microseconds since the epoch; `None` when it is absent."""
    if not message.HasField(field):  # type: ignore[attr-defined]
        return None
    time: Timestamp = getattr(message, field)
    if time.seconds < 0 or not 0 <= time.nanos < 1_000_000_000 or time.seconds > LAST_SECOND:
        found.add(path + field, "must be a time from 1970 to 9999")
        return None
    return time.seconds * 1_000_000 + time.nanos // 1000


class FigureAsked(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator says of a call."""

    usage: Usage
    certainty: Certainty
    nano_units: int | None
    currency: str
    reason: str


def figure_from(message: ledger_service_pb2.OperatorFigure, found: Violations) -> FigureAsked:
    """Return an operator's figure."""
    certainty = _CERTAINTY_WORDS.get(message.certainty)
    if certainty not in (Certainty.EXACT, Certainty.AT_LEAST):
        found.add("figure.certainty", "must be CERTAINTY_EXACT or CERTAINTY_AT_LEAST")
    if not 0 < len(message.reason.strip()) <= MAX_REASON:
        found.add("figure.reason", f"must say where the figure is from, in 1 to {MAX_REASON} characters")
    nanos = message.nano_units if message.HasField("nano_units") else None
    if nanos is not None and nanos < 0:
        found.add("figure.nano_units", "must not be negative")
    check_currency(message.currency, found, "figure.currency", needed=nanos is not None)
    return FigureAsked(
        usage=_usage(message.usage, found),
        certainty=certainty or Certainty.AT_LEAST,
        nano_units=nanos,
        currency=message.currency,
        reason=message.reason.strip(),
    )


def _usage(message: usage_pb2.Usage, found: Violations) -> Usage:
    told = {name: getattr(message, name) for name in COUNTERS if message.HasField(name)}  # type: ignore[arg-type]
    tools = dict(message.hosted_tool_requests)
    for name, value in (*told.items(), *((f"hosted_tool_requests[{tool}]", n) for tool, n in tools.items())):
        if value < 0:
            found.add(f"figure.usage.{name}", "must not be negative")
    if "input_tokens" not in told and "output_tokens" not in told:
        found.add("figure.usage", "must tell input_tokens, output_tokens or both")
    return Usage(**told, hosted_tool_requests=tools)
