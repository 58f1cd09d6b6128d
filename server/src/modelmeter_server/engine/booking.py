"""From what a call asks and how it ended to what the ledger is told. Pure but for the clock it is handed."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import msgspec

from modelmeter_server.core.answers import Answer
from modelmeter_server.core.calls import Attempt
from modelmeter_server.core.ceilings import Amount
from modelmeter_server.core.counters import INT64_MAX
from modelmeter_server.core.embeddings import EmbeddingRequest
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.journal import CallKey, Operation
from modelmeter_server.core.outcomes import Disposition, Stage
from modelmeter_server.core.text import cut_utf8, well_formed
from modelmeter_server.core.usage import total_spend_tokens
from modelmeter_server.core.windows import SECOND
from modelmeter_server.ledger import contents
from modelmeter_server.ledger.commands import Again, CallRef, Reserve, Settle
from modelmeter_server.ledger.rows import AttemptRow, End, Figures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modelmeter_server.core.calls import CallOutcome
    from modelmeter_server.core.digest import Digest
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.requests import CompletionRequest
    from modelmeter_server.core.reservation import Hold
    from modelmeter_server.core.usage import Usage

MESSAGE_BYTES = 1_024
"""UTF-8 bytes of a failure's message that are kept for ever."""

WORD_BYTES = 256
"""UTF-8 bytes of a provider's word or id that are kept for ever."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the newest attempt of a call came to."""

    number: int
    """Of its last provider request; where none was sent, the one that it would have had."""
    result: Answer | Failure | None = None
    """Its own, not the call's; `None` for a call that never asked, or that a fault of ours ended."""
    attempts: tuple[Attempt, ...] = ()
    written: bool = False
    """Whether the provider had the whole request."""
    generating_seconds: float = 0.0
    """From its last byte to the end."""


_encode = msgspec.json.Encoder().encode


def _operation(request: CompletionRequest | EmbeddingRequest) -> Operation:
    return Operation.EMBED if isinstance(request, EmbeddingRequest) else Operation.COMPLETE


def reservation(
    request: CompletionRequest | EmbeddingRequest,
    model: ModelSpec,
    digest: Digest,
    hold: Hold,
    *,
    tenant: str,
    owner: int,
    at: int,
) -> Reserve:
    """Return the order that asks for room for a call."""
    least = model.clamp_output
    return Reserve(
        call=CallKey(tenant, request.call_id),
        owner=owner,
        at=at,
        operation=_operation(request).value,
        model=request.model,
        identity=model.identity,
        target=model.target_name,
        digest=digest.request,
        field_digests=digest.fields,
        effect=request.effect,
        replay_only=request.replay_only,
        hold=hold,
        least_output=None if least is None else min(least, hold.output_tokens),
        labels=request.labels,
        **own_ceiling(request),
    )


def figures(result: Answer | Failure) -> Figures:
    """Return what a result tells about consumption, its price included."""
    usage, cost = result.usage, result.cost
    return Figures(
        usage_json=_encode(usage) if usage is not None else b"",
        additional_json=_encode(result.additional_usage) if result.additional_usage else b"",
        certainty=result.certainty.value,
        input_tokens=None if usage is None else usage.input_tokens,
        output_tokens=None if usage is None else usage.output_tokens,
        tokens=total_spend_tokens(usage, result.additional_usage),
        nano_units=None if cost is None else cost.nano_units,
        currency="" if cost is None else cost.currency,
        cost_source="" if cost is None else cost.source.value,
        cost_certainty="" if cost is None else cost.certainty.value,
        estimated_output_tokens=result.estimated_output_tokens,
    )


def settlement(
    outcome: CallOutcome,
    ref: CallRef,
    *,
    at: int,
    asked: Asked,
    started: Mapping[int, int],
    earlier: int = 0,
    landing: str,
    content_seconds: int,
) -> Settle:
    """Return the order that books an outcome.

    `asked` is what the newest attempt came to. `started` says when each attempt was dispatched, by its number; the
    ledger counts on from `earlier` dispatches.
    """
    result = outcome.result
    own = asked.result or result
    told = figures(own)
    order = Settle(
        ref=ref,
        at=at,
        kind="",
        disposition=Disposition.LANDED.value,
        generated=True,
        written=asked.written,
        figures=told,
        number=earlier + asked.number,
        end=end_of(own, asked),
        model_served=_word(result.model_served),
        provider_request_id=_word(result.provider_request_id),
        provider_response_id=_word(result.provider_response_id),
        attempts=attempt_rows(asked.attempts, told, ref, at, started, earlier),
        attempts_total=earlier + outcome.attempts_total,
        queue_seconds=outcome.timings.queue,
        first_token_seconds=outcome.timings.first_token,
        total_seconds=outcome.timings.total,
        generating_seconds=asked.generating_seconds,
        landing=landing,
    )
    if isinstance(result, Answer):
        order = msgspec.structs.replace(order, stage=Stage.OUTPUT.name, finish=result.finish.value)
    else:
        order = _failed(order, result)
    if content_seconds and order.disposition != Disposition.DID_NOT_HAPPEN.value:
        order = msgspec.structs.replace(
            order, outcome_json=contents.encode(outcome), content_seconds=content_seconds
        )
    elif order.provider_body:
        order = msgspec.structs.replace(order, content_seconds=content_seconds)
    return order


def _failed(order: Settle, failed: Failure) -> Settle:
    return msgspec.structs.replace(
        order,
        kind=failed.kind.value,
        cause=failed.cause.value,
        stage=failed.stage.name,
        disposition=failed.disposition.value,
        code=int(failed.code),
        message=cut_utf8(_plain(failed.message), MESSAGE_BYTES),
        generated=failed.disposition is not Disposition.DID_NOT_HAPPEN,
        refused_by_provider=failed.is_refused_by_provider,
        http_status=failed.http_status,
        provider_code=_word(failed.provider_code),
        provider_body=failed.provider_body,
    )


def end_of(result: Answer | Failure, asked: Asked) -> End:
    """Return how an attempt ended, as far as its bill depends on it."""
    failed = None if isinstance(result, Answer) else result
    return End(
        kind="" if failed is None else failed.kind.value,
        generated=failed is None or failed.disposition is not Disposition.DID_NOT_HAPPEN,
        written=asked.written,
        refused_by_provider=failed is not None and failed.is_refused_by_provider,
        generating_seconds=asked.generating_seconds,
    )


def another(
    so_far: Failure,
    failed: Failure,
    ref: CallRef,
    request: CompletionRequest | EmbeddingRequest,
    *,
    at: int,
    asked: Asked,
    started: Mapping[int, int],
    earlier: int = 0,
) -> Again:
    """Return the order that books an attempt which `failed` and asks for another one.

    `so_far` is what the call has come to with it.
    """
    told = figures(failed)
    return Again(
        ref=ref,
        at=at,
        number=earlier + asked.number,
        attempts=attempt_rows(asked.attempts, told, ref, at, started, earlier),
        figures=told,
        end=end_of(failed, asked),
        generated=failed.disposition is not Disposition.DID_NOT_HAPPEN,
        kind=so_far.kind.value,
        cause=so_far.cause.value,
        stage=so_far.stage.name,
        disposition=so_far.disposition.value,
        code=int(so_far.code),
        message=cut_utf8(_plain(so_far.message), MESSAGE_BYTES),
        **own_ceiling(request),
    )


class _OwnCeiling(TypedDict):
    ceiling: Amount | None
    bounds_tokens: bool
    bounds_money: bool


def own_ceiling(request: CompletionRequest | EmbeddingRequest) -> _OwnCeiling:
    """Return the call's own ceiling as orders carry it."""
    own = request.ceiling
    if own is None:
        return _OwnCeiling(ceiling=None, bounds_tokens=False, bounds_money=False)
    amount = Amount(tokens=own.tokens or 0, nano_units=own.nano_units or 0, currency=own.currency)
    return _OwnCeiling(
        ceiling=amount, bounds_tokens=own.tokens is not None, bounds_money=own.nano_units is not None
    )


def attempt_rows(
    attempts: Sequence[Attempt],
    told: Figures,
    ref: CallRef,
    at: int,
    started: Mapping[int, int],
    earlier: int,
) -> tuple[AttemptRow, ...]:
    """Return one row for each provider request; the last one has the call's own figures `told`, so that they add up."""
    last = len(attempts) - 1
    return tuple(
        AttemptRow(
            tenant=ref.call.tenant,
            call_id=ref.call.call_id,
            generation=ref.generation,
            dispatch=ref.dispatch,
            number=earlier + attempt.number,
            target=attempt.target,
            started_at=started.get(attempt.number, at - int(attempt.elapsed * SECOND)),
            elapsed=attempt.elapsed,
            stage=attempt.stage.name,
            kind=attempt.kind.value if attempt.kind is not None else "",
            cause=attempt.cause.value if attempt.cause is not None else "",
            figures=told if index == last else _told(attempt.usage, attempt.certainty.value),
            http_status=attempt.http_status,
            provider_code=_word(attempt.provider_code),
            provider_request_id=_word(attempt.provider_request_id),
            wait=attempt.wait,
        )
        for index, attempt in enumerate(attempts)
    )


def _told(usage: Usage | None, certainty: str) -> Figures:
    if usage is None:
        return Figures(certainty=certainty)
    return Figures(
        usage_json=_encode(usage),
        certainty=certainty,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        tokens=min(usage.spend_tokens, INT64_MAX),
    )


def _word(text: str | None) -> str:
    return cut_utf8(_plain(text), WORD_BYTES) if text else ""


def _plain(text: str) -> str:
    # PostgreSQL keeps no U+0000 in a text.
    return well_formed(text).replace("\0", "\N{REPLACEMENT CHARACTER}")
