"""From what a caller asks of the ledger to the messages of its service; the server judges them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from . import _wire
from .enums import CallState, ErrorKind, GroupBy, HaltMode, Period, Scope, WindowKind
from .records import Figure, Window
from .v1 import ledger_service_pb2 as pb
from .v1 import usage_pb2

if TYPE_CHECKING:
    from .results import Usage

CallId = str | uuid.UUID


class CallFilter(TypedDict, total=False):
    """Which calls `list_calls` returns. What is left out does not narrow; together they all must hold."""

    run_id: str
    """Calls of this run."""
    effect_key: str
    """Calls under this key; only with `run_id`."""
    model: str
    """Calls of this model, as it was asked for."""
    states: Sequence[CallState | str]
    """Calls in one of these states."""
    kinds: Sequence[ErrorKind | str]
    """Calls that failed in one of these ways."""
    answered: bool
    """Calls that answered; together with `kinds` also those."""
    labels: Mapping[str, str]
    """Calls that have all of these labels."""
    since: datetime | None
    """Calls that were reserved at this time or later."""
    until: datetime | None
    """Calls that were reserved before this time."""


def view(*, full: bool) -> Any:
    """Return how much of a call is told. Any: the stubs have a type of its own for the numbers of each enum."""
    return pb.CALL_VIEW_FULL if full else pb.CALL_VIEW_BASIC


def list_calls(*, full: bool, page_size: int, **only: Unpack[CallFilter]) -> pb.ListCallsRequest:
    """Return the request for the first page. Raises TypeError for an unknown filter, ValueError for an unknown word."""
    request = pb.ListCallsRequest(filter=_filter(**only), page_size=page_size, view=view(full=full))
    _set_times(request.filter, only.get("since"), only.get("until"))
    return request


def _filter(
    *,
    run_id: str = "",
    effect_key: str = "",
    model: str = "",
    states: Sequence[CallState | str] = (),
    kinds: Sequence[ErrorKind | str] = (),
    answered: bool = False,
    labels: Mapping[str, str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> pb.CallFilter:
    return pb.CallFilter(
        run_id=run_id,
        effect_key=effect_key,
        model=model,
        states=[_wire.CALL_STATE.number(each) for each in _words(states)],
        kinds=[_wire.ERROR_KIND.number(each) for each in _words(kinds)],
        answered=answered,
        labels=labels,
    )


def _words(words: Iterable[str]) -> Iterable[str]:
    return (words,) if isinstance(words, str) else words


def _set_times(
    message: pb.CallFilter | pb.GetSpendRequest, since: datetime | None, until: datetime | None
) -> None:
    if since is not None:
        _wire.set_time(message.start_time, since)
    if until is not None:
        _wire.set_time(message.end_time, until)


class SpendOptions(TypedDict, total=False):
    """Which sums `spend` returns, and how they are cut."""

    by: GroupBy | str | None
    """By what calls are told apart: `"run"`, `"model"`, `"kind"` or `"label"`."""
    label: str
    """Key of the label; with `by="label"`, which it implies."""
    values: Sequence[str]
    """Only these runs, models, kinds or values of the label."""
    period: Period | str | None
    """Into which stretches the time is cut: `"hour"`, `"day"` or `"month"`."""
    time_zone: str
    """IANA name of the zone in which days and months begin; empty: UTC."""
    since: datetime | None
    """Calls that were reserved at this time or later, a full quarter of an hour."""
    until: datetime | None
    """Calls that were reserved before this time, a full quarter of an hour."""


def spend(
    *,
    by: GroupBy | str | None = None,
    label: str = "",
    values: Sequence[str] = (),
    period: Period | str | None = None,
    time_zone: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
) -> pb.GetSpendRequest:
    """Return the request for the first page of sums."""
    if label and by is None:
        by = GroupBy.LABEL
    request = pb.GetSpendRequest(
        group_by=_wire.GROUP_BY.number(by),
        label=label,
        values=_words(values),
        period=_wire.PERIOD.number(period),
        time_zone=time_zone,
        page_size=1000,
    )
    _set_times(request, since, until)
    return request


def subject(scope: Scope | str, name: str) -> pb.Subject:
    """Return whom a ceiling or a halt is about."""
    return pb.Subject(scope=_wire.SCOPE.number(scope), name=name)


def set_ceiling(
    scope: Scope | str,
    name: str,
    window: Window | WindowKind | str | None,
    tokens: int | None,
    nano_units: int | None,
    currency: str,
) -> pb.SetCeilingRequest:
    """Return the request that sets a ceiling."""
    ceiling = pb.Ceiling(
        subject=subject(scope, name), tokens=tokens, nano_units=nano_units, currency=currency
    )
    if window is not None:
        chosen = window if isinstance(window, Window) else Window(window)
        ceiling.window.kind = _wire.WINDOW_KIND.number(chosen.kind)
        ceiling.window.time_zone = chosen.time_zone
        if chosen.seconds:
            ceiling.window.length.seconds = chosen.seconds
    return pb.SetCeilingRequest(ceiling=ceiling)


def reconcile(call_id: CallId, generation: int, figure: Figure | None) -> pb.ReconcileCallRequest:
    """Return the request for a truer figure."""
    request = pb.ReconcileCallRequest(call_id=str(call_id), generation=generation)
    if figure is not None:
        request.figure.CopyFrom(
            pb.OperatorFigure(
                usage=_usage(figure.usage),
                certainty=_wire.CERTAINTY.number(figure.certainty),
                nano_units=figure.nano_units,
                currency=figure.currency,
                reason=figure.reason,
            )
        )
    return request


def _usage(usage: Usage) -> usage_pb2.Usage:
    return usage_pb2.Usage(**{name: getattr(usage, name) for name in usage.__dataclass_fields__})


def set_halt(scope: Scope | str, name: str, mode: HaltMode | str | None, reason: str) -> pb.SetHaltRequest:
    """Return the request that stops a subject."""
    return pb.SetHaltRequest(
        halt=pb.Halt(subject=subject(scope, name), mode=_wire.HALT_MODE.number(mode), reason=reason)
    )


def erase(call_id: CallId | None, run_id: str | None, *, everything: bool) -> pb.EraseContentRequest:
    """Return the request that erases content. Raises TypeError unless exactly one target is named."""
    if (call_id is not None) + (run_id is not None) + everything != 1:
        message = "name one of call_id, run_id and everything=True"
        raise TypeError(message)
    if call_id is not None:
        return pb.EraseContentRequest(call_id=str(call_id))
    if run_id is not None:
        return pb.EraseContentRequest(run_id=run_id)
    return pb.EraseContentRequest(everything=True)
