"""The load of the ledger's bench: calls that reserve, dispatch and settle, many at a time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING
from uuid import uuid4

from modelmeter_server.core.journal import CallKey, Effect
from modelmeter_server.ledger.commands import CallRef, Dispatch, Reserve, Settle
from modelmeter_server.ledger.replies import Admitted
from modelmeter_server.ledger.rows import AttemptRow, Figures, Hold

if TYPE_CHECKING:
    from modelmeter_server.ledger.ledger import Ledger

CONCURRENCY = 64

_FIELDS = dict.fromkeys(("model", "prompt", "system", "tools", "sampling", "schema"), "0123456789abcdef")
_HOLD = Hold(
    input_tokens=1_000,
    output_tokens=500,
    nano_units=4_500_000,
    input_nano_units=3_000_000,
    output_rate=3_000_000_000,
    currency="USD",
    tokens_per_second=500,
)
_FIGURES = Figures(
    usage_json=b'{"input_tokens":900,"output_tokens":200,"cache_read_tokens":100}',
    certainty="EXACT",
    input_tokens=900,
    output_tokens=200,
    tokens=1_100,
    nano_units=3_300_000,
    currency="USD",
    cost_source="PRICE_TABLE",
    cost_certainty="EXACT",
)


async def one_call(ledger: Ledger, tenant: str = "default", run: str = "") -> None:
    """Buy one answer."""
    call = CallKey(tenant, str(uuid4()))
    now = time.time_ns() // 1_000
    order = Reserve(
        call=call,
        owner=ledger.owner,
        at=now,
        operation="COMPLETE",
        model="provider/model",
        identity="model-1",
        target="provider",
        digest="0" * 64,
        field_digests=_FIELDS,
        effect=Effect(run_id=run, key=call.call_id) if run else None,
        hold=_HOLD,
        labels={"team": "search"},
    )
    admitted = await ledger.reserve(order)
    assert isinstance(admitted, Admitted), admitted
    ref = CallRef(call=call, generation=admitted.generation, dispatch=admitted.dispatch, owner=ledger.owner)
    assert await ledger.dispatch(Dispatch(ref=ref, at=now + 10, number=1, target="provider"))
    assert await ledger.settle(_outcome(ref, now))


def _outcome(ref: CallRef, now: int) -> Settle:
    attempt = AttemptRow(
        tenant=ref.call.tenant,
        call_id=ref.call.call_id,
        generation=ref.generation,
        dispatch=ref.dispatch,
        number=1,
        target="provider",
        started_at=now,
        elapsed=1.0,
        stage="OUTPUT",
        figures=_FIGURES,
        http_status=200,
    )
    return Settle(
        ref=ref,
        at=now + 1_000,
        kind="",
        disposition="LANDED",
        finish="STOP",
        generated=True,
        written=True,
        figures=_FIGURES,
        model_served="model-1",
        http_status=200,
        attempts=(attempt,),
        attempts_total=1,
        total_seconds=1.0,
        outcome_json=b'{"v":1,"answer":{"text":"%s"}}' % (b"word " * 100),
        content_seconds=86_400,
    )


async def load(ledger: Ledger, calls: int, *, run: str = "", concurrency: int = CONCURRENCY) -> float:
    """Make calls and return the processor time that each took in this process, in microseconds."""
    left = iter(range(calls))

    async def caller() -> None:
        for _ in left:
            await one_call(ledger, run=run)

    began = time.process_time()
    await asyncio.gather(*(caller() for _ in range(concurrency)))
    return (time.process_time() - began) / calls * 1e6
