"""Short spellings of what a server tells its ledger."""

from __future__ import annotations

from typing import Any

from modelmeter_server.core.ceilings import Ceiling, Subject, Window
from modelmeter_server.core.journal import CallKey, Effect
from modelmeter_server.core.reservation import Hold
from modelmeter_server.core.settlement import Figures
from modelmeter_server.ledger.commands import Again, CallRef, Checkpoint, Dispatch, Resend, Reserve, Settle
from modelmeter_server.ledger.replies import Admitted
from modelmeter_server.ledger.rows import AttemptRow, End

SECOND = 1_000_000
NOW = 1_900_000_000 * SECOND
"""17 March 2030, 17:46:40 UTC."""

HOLD = Hold(
    input_tokens=100,
    output_tokens=50,
    nano_units=2_500,
    input_nano_units=1_000,
    output_rate=30_000_000,
    currency="USD",
    tokens_per_second=10,
)
"""A token in costs 10 nano units, one out 30."""

TOTAL = Window()

NOTHING_TOLD = Figures()
NOTHING_BILLED = Figures(certainty="NONE")


def told(read: int | None, written: int | None, certainty: str = "EXACT", currency: str = "USD") -> Figures:
    """Return figures with what they cost at the rates of `HOLD`."""
    return Figures(
        certainty=certainty,
        input_tokens=read,
        output_tokens=written,
        tokens=(read or 0) + (written or 0),
        nano_units=(read or 0) * 10 + (written or 0) * 30,
        currency=currency,
    )


def reserving(
    call_id: str = "call", *, owner: int = 1, at: int = NOW, tenant: str = "acme", **more: Any
) -> Reserve:
    """Return an order to let a call out; `run` and `key` make it an effect's."""
    if "key" in more:
        more["effect"] = Effect(run_id=more.pop("run", "run"), key=more.pop("key"), **more.pop("on", {}))
    fields = {
        "operation": "COMPLETE",
        "model": "large",
        "identity": "large-1",
        "target": "main",
        "digest": "d1",
        "field_digests": {"model": "m1", "prompt": "p1"},
        "hold": HOLD,
    }
    return Reserve(call=CallKey(tenant, call_id), owner=owner, at=at, **{**fields, **more})


def ref_of(order: Reserve, admitted: Admitted) -> CallRef:
    """Return the call that was admitted."""
    key = CallKey(order.call.tenant, admitted.call_id or order.call.call_id)
    return CallRef(call=key, generation=admitted.generation, dispatch=admitted.dispatch, owner=order.owner)


def first_ref(order: Reserve) -> CallRef:
    """Return the call that an order admits when it is new."""
    return CallRef(call=order.call, generation=1, dispatch=1, owner=order.owner)


def dispatching(ref: CallRef, *, at: int = NOW, number: int = 1) -> Dispatch:
    """Return the word that a request leaves."""
    return Dispatch(ref=ref, at=at, number=number, target="main")


def resending(ref: CallRef, *, at: int = NOW, number: int = 2, **more: Any) -> Resend:
    """Return the word that a request leaves once more, over another connection."""
    return Resend(ref=ref, at=at, number=number, target="main", **more)


def noting(ref: CallRef, figures: Figures, *, at: int = NOW, generated: bool = True) -> Checkpoint:
    """Return a checkpoint."""
    return Checkpoint(ref=ref, at=at, generated=generated, figures=figures)


def attempt_of(ref: CallRef, figures: Figures, *, number: int = 1, **more: Any) -> AttemptRow:
    """Return an attempt that has ended."""
    return AttemptRow(
        tenant=ref.call.tenant,
        call_id=ref.call.call_id,
        generation=ref.generation,
        dispatch=ref.dispatch,
        number=number,
        target="main",
        started_at=NOW,
        figures=figures,
        **{"elapsed": 1.0, **more},
    )


def answering(
    ref: CallRef, figures: Figures, *, at: int = NOW, content: bytes = b"{}", **more: Any
) -> Settle:
    """Return the outcome of a call that was answered, with content that is kept for an hour."""
    return Settle(
        ref=ref,
        at=at,
        figures=figures,
        attempts=(attempt_of(ref, figures),),
        outcome_json=content,
        content_seconds=3600,
        **{"kind": "", "disposition": "LANDED", "generated": True, "written": True, **more},
    )


def failing(
    ref: CallRef, kind: str, figures: Figures = NOTHING_TOLD, *, at: int = NOW, landed: bool, **more: Any
) -> Settle:
    """Return the outcome of a call that failed, without content."""
    return Settle(
        ref=ref,
        at=at,
        kind=kind,
        cause="PROVIDER",
        figures=figures,
        attempts=(attempt_of(ref, figures, kind=kind),),
        disposition="LANDED" if landed else "DID_NOT_HAPPEN",
        **{"generated": landed, "written": True, "code": 10, "message": "it failed", **more},
    )


def trying(
    ref: CallRef,
    kind: str,
    figures: Figures,
    row: AttemptRow | None = None,
    *,
    at: int = NOW,
    number: int | None = None,
    landed: bool = False,
    seconds: float = 0.0,
    refused: bool = False,
    **more: Any,
) -> Again:
    """Return the word that an attempt ended so, and that another one is wanted."""
    row = row or attempt_of(ref, figures, number=number or 1, kind=kind)
    return Again(
        ref=ref,
        at=at,
        number=row.number,
        attempts=(row,),
        figures=figures,
        end=End(
            kind=kind,
            generated=landed,
            written=True,
            refused_by_provider=refused,
            generating_seconds=seconds,
        ),
        generated=landed,
        kind=kind,
        cause="PROVIDER",
        stage="OUTPUT" if landed else "HEADERS",
        disposition="LANDED" if landed else "DID_NOT_HAPPEN",
        code=10,
        message="it failed",
        **more,
    )


def ceiling(
    scope: str = "TENANT",
    name: str = "",
    *,
    tokens: int | None = None,
    nano_units: int | None = None,
    window: Window = TOTAL,
    ceiling_id: str = "c1",
    tenant: str = "acme",
) -> Ceiling:
    """Return a ceiling; money is in US dollars."""
    return Ceiling(
        ceiling_id=ceiling_id,
        subject=Subject(tenant, scope, name),
        window=window,
        tokens=tokens,
        nano_units=nano_units,
        currency="" if nano_units is None else "USD",
        created_at=NOW,
    )
