"""How values become columns: what queries need stands in columns of its own, the rest is packed as MessagePack.

A packed field that equals its default is left out, so a newer version may add fields with defaults without a migration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from modelmeter_server.core.ceilings import Ceiling, Halt, HaltMode, Subject, Window, WindowKind
from modelmeter_server.core.journal import CallState

from .rows import AttemptRow, Booking, CallRow, Carried, CeilingWindowRow, Figures, Hold, SpendRow

if TYPE_CHECKING:
    from collections.abc import Sequence

INT64_MAX = 2**63 - 1

AMOUNTS = (
    "settled_tokens",
    "settled_nanos",
    "held_tokens",
    "held_nanos",
    "unsettled_tokens",
    "unsettled_nanos",
    "written_off_tokens",
    "written_off_nanos",
)

KEY_COLUMNS = ("tenant", "call_id", "generation", "run_id", "effect_key", "request")
"""Written once."""

ADMISSION_COLUMNS = ("operation", "model", "reserved_at", "labels", "dispatch")
"""Written when a call is reserved, also when it is dispatched again."""

PROGRESS_COLUMNS = (
    "state",
    "target",
    "owner",
    "ended_at",
    "expires_at",
    "kind",
    "certainty",
    "currency",
    "input_tokens",
    "output_tokens",
    *AMOUNTS,
    "possibly_billed",
    "content_expires_at",
    "content_gone",
    "detail",
)
"""Written whenever a call changes."""

CALL_COLUMNS = ("id", *KEY_COLUMNS, *ADMISSION_COLUMNS, *PROGRESS_COLUMNS)

CALL_SELECTION = ", ".join(f"calls.{name}" for name in CALL_COLUMNS)
SPEND_KEY = ("tenant", "dimension", "name", "value", "quarter", "currency")
SPEND_SUMS = ("calls", "input_tokens", "output_tokens", *AMOUNTS, "possibly_billed_calls")
WINDOW_KEY = ("ceiling_id", "name", "starts_at")
WINDOW_COLUMNS = (*WINDOW_KEY, *AMOUNTS[:6], "soft_limit")
CEILING_COLUMNS = (
    "tenant",
    "ceiling_id",
    "scope",
    "name",
    "window_kind",
    "time_zone",
    "seconds",
    "tokens",
    "nano_units",
    "currency",
    "created_at",
    "by_admin",
)
HALT_COLUMNS = ("tenant", "scope", "name", "mode", "reason", "since", "by_admin")


class _Request(msgspec.Struct, omit_defaults=True):
    identity: str = ""
    digest: str = ""
    field_digests: dict[str, str] = {}


class _Detail(msgspec.Struct, kw_only=True, omit_defaults=True):
    hold: Hold
    figures: Figures
    carried: Carried | None = None
    dispatched_at: int | None = None
    generated: bool = False
    cause: str = ""
    stage: str = ""
    disposition: str = ""
    code: int = 0
    message: str = ""
    finish: str = ""
    model_served: str = ""
    http_status: int | None = None
    provider_code: str = ""
    provider_request_id: str = ""
    provider_response_id: str = ""
    attempts_total: int = 0
    queue_seconds: float = 0.0
    first_token_seconds: float | None = None
    total_seconds: float = 0.0
    landing: str = ""
    reconciled_by: str = ""
    reconcile_reason: str = ""


_DETAIL_FIELDS = tuple(name for name in _Detail.__struct_fields__)


class _AttemptDetail(msgspec.Struct, kw_only=True, omit_defaults=True):
    target: str
    started_at: int
    figures: Figures
    elapsed: float | None = None
    stage: str = ""
    kind: str = ""
    cause: str = ""
    http_status: int | None = None
    provider_code: str = ""
    provider_request_id: str = ""
    wait: float = 0.0


_ATTEMPT_FIELDS = tuple(_AttemptDetail.__struct_fields__)

_pack = msgspec.msgpack.Encoder().encode
_unpack_request = msgspec.msgpack.Decoder(_Request).decode
_unpack_detail = msgspec.msgpack.Decoder(_Detail).decode
_unpack_attempt = msgspec.msgpack.Decoder(_AttemptDetail).decode
_labels_text = msgspec.json.Encoder().encode
_labels_of = msgspec.json.Decoder(dict[str, str]).decode


def _capped(number: int | None) -> int | None:
    return number if number is None or number <= INT64_MAX else INT64_MAX


def key_values(row: CallRow) -> tuple[Any, ...]:
    """Return the `KEY_COLUMNS`."""
    request = _pack(_Request(row.identity, row.digest, row.field_digests))
    return (row.tenant, row.call_id, row.generation, row.run_id, row.effect_key, request)


def admission_values(row: CallRow) -> tuple[Any, ...]:
    """Return the `ADMISSION_COLUMNS`; labels as JSON text."""
    labels = _labels_text(row.labels).decode() if row.labels else "{}"
    return (
        row.operation,
        row.model,
        row.reserved_at,
        labels,
        row.dispatch,
    )


def progress_values(row: CallRow) -> tuple[Any, ...]:
    """Return the `PROGRESS_COLUMNS`."""
    figures, booking = row.figures, row.booking
    return (
        int(row.state),
        row.target,
        row.owner,
        row.ended_at,
        row.expires_at,
        row.kind,
        figures.certainty,
        row.hold.currency,
        _capped(figures.input_tokens),
        _capped(figures.output_tokens),
        booking.settled_tokens,
        booking.settled_nanos,
        booking.held_tokens,
        booking.held_nanos,
        booking.unsettled_tokens,
        booking.unsettled_nanos,
        booking.written_off_tokens,
        booking.written_off_nanos,
        booking.possibly_billed,
        row.content_expires_at,
        row.content_gone,
        _pack_detail(row),
    )


def _pack_detail(row: CallRow) -> bytes:
    return _pack(
        _Detail(
            hold=row.hold,
            figures=row.figures,
            carried=row.carried,
            dispatched_at=row.dispatched_at,
            generated=row.generated,
            cause=row.cause,
            stage=row.stage,
            disposition=row.disposition,
            code=row.code,
            message=row.message,
            finish=row.finish,
            model_served=row.model_served,
            http_status=row.http_status,
            provider_code=row.provider_code,
            provider_request_id=row.provider_request_id,
            provider_response_id=row.provider_response_id,
            attempts_total=row.attempts_total,
            queue_seconds=row.queue_seconds,
            first_token_seconds=row.first_token_seconds,
            total_seconds=row.total_seconds,
            landing=row.landing,
            reconciled_by=row.reconciled_by,
            reconcile_reason=row.reconcile_reason,
        )
    )


def call_of(record: Sequence[Any]) -> CallRow:
    """Return the call of a row of `CALL_COLUMNS`, as either driver returns it."""
    columns = dict(zip(CALL_COLUMNS, record, strict=True))
    request = _unpack_request(columns["request"])
    detail = _unpack_detail(columns["detail"])
    labels = columns["labels"]
    return CallRow(
        tenant=columns["tenant"],
        call_id=columns["call_id"],
        generation=columns["generation"],
        dispatch=columns["dispatch"],
        run_id=columns["run_id"],
        effect_key=columns["effect_key"],
        state=CallState(columns["state"]),
        owner=columns["owner"],
        operation=columns["operation"],
        model=columns["model"],
        identity=request.identity,
        target=columns["target"],
        reserved_at=columns["reserved_at"],
        ended_at=columns["ended_at"],
        expires_at=columns["expires_at"],
        digest=request.digest,
        field_digests=request.field_digests,
        labels=labels if isinstance(labels, dict) else _labels_of(labels),
        booking=Booking(
            **{name: columns[name] for name in AMOUNTS}, possibly_billed=columns["possibly_billed"]
        ),
        kind=columns["kind"],
        content_expires_at=columns["content_expires_at"],
        content_gone=columns["content_gone"],
        **{name: getattr(detail, name) for name in _DETAIL_FIELDS},
    )


def attempt_values(call: int, row: AttemptRow) -> tuple[Any, ...]:
    """Return (call, dispatch, number, detail)."""
    detail = _AttemptDetail(
        target=row.target,
        started_at=row.started_at,
        figures=row.figures,
        elapsed=row.elapsed,
        stage=row.stage,
        kind=row.kind,
        cause=row.cause,
        http_status=row.http_status,
        provider_code=row.provider_code,
        provider_request_id=row.provider_request_id,
        wait=row.wait,
    )
    return (call, row.dispatch, row.number, _pack(detail))


def attempt_of(call: CallRow, dispatch: int, number: int, detail: bytes) -> AttemptRow:
    """Return the attempt of a call from the columns of its row."""
    unpacked = _unpack_attempt(detail)
    return AttemptRow(
        tenant=call.tenant,
        call_id=call.call_id,
        generation=call.generation,
        dispatch=dispatch,
        number=number,
        **{name: getattr(unpacked, name) for name in _ATTEMPT_FIELDS},
    )


def spend_values(row: SpendRow) -> tuple[Any, ...]:
    """Return `SPEND_KEY` and `SPEND_SUMS`."""
    return tuple(map(row.__getattribute__, _SPEND_FIELDS))


_SPEND_FIELDS = (*SPEND_KEY, *SPEND_SUMS)


def window_values(row: CeilingWindowRow) -> tuple[Any, ...]:
    """Return `WINDOW_COLUMNS`."""
    return tuple(map(row.__getattribute__, WINDOW_COLUMNS))


def window_of(record: Sequence[Any]) -> CeilingWindowRow:
    """Return the window of a row of `WINDOW_COLUMNS`."""
    return CeilingWindowRow(**dict(zip(WINDOW_COLUMNS, record, strict=True)))


def ceiling_values(ceiling: Ceiling) -> tuple[Any, ...]:
    """Return `CEILING_COLUMNS`."""
    subject, window = ceiling.subject, ceiling.window
    return (
        subject.tenant,
        ceiling.ceiling_id,
        subject.scope,
        subject.name,
        window.kind.value,
        window.time_zone,
        window.seconds,
        ceiling.tokens,
        ceiling.nano_units,
        ceiling.currency,
        ceiling.created_at,
        ceiling.by_admin,
    )


def ceiling_of(record: Sequence[Any]) -> Ceiling:
    """Return the ceiling of a row of `CEILING_COLUMNS`."""
    tenant, ceiling_id, scope, name, kind, time_zone, seconds, *bounds, created_at, by_admin = record
    tokens, nano_units, currency = bounds
    return Ceiling(
        ceiling_id=ceiling_id,
        subject=Subject(tenant, scope, name),
        window=Window(kind=WindowKind(kind), time_zone=time_zone, seconds=seconds),
        tokens=tokens,
        nano_units=nano_units,
        currency=currency,
        created_at=created_at,
        by_admin=bool(by_admin),
    )


def halt_values(halt: Halt) -> tuple[Any, ...]:
    """Return `HALT_COLUMNS`."""
    subject = halt.subject
    mode = halt.mode.value
    return (subject.tenant, subject.scope, subject.name, mode, halt.reason, halt.since, halt.by_admin)


def halt_of(record: Sequence[Any]) -> Halt:
    """Return the halt of a row of `HALT_COLUMNS`."""
    tenant, scope, name, mode, reason, since, by_admin = record
    return Halt(
        subject=Subject(tenant, scope, name),
        mode=HaltMode(mode),
        reason=reason,
        since=since,
        by_admin=bool(by_admin),
    )
