"""What is known of a call, as lines of label and text. Pure; how they look is `render`'s business."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from modelmeter.enums import Certainty, CostSource, Disposition, ErrorKind, ModelTask, Reconciler, Stage
from modelmeter.errors import NotConnectedError

if TYPE_CHECKING:
    from modelmeter.enums import SchemaMode
    from modelmeter.errors import ModelmeterError
    from modelmeter.records import Amount, LedgerCall
    from modelmeter.results import (
        AdditionalUsage,
        Attempt,
        Completion,
        Cost,
        Embeddings,
        Model,
        PassedOver,
        Price,
        RetryPolicy,
        Timings,
        TokenCount,
        Usage,
    )
    from modelmeter.sessions import SessionTotals

Rows = list[tuple[str, str]]

_MISTAKEN = "bad request"

_LOWER_BOUND = "a lower bound, told before the end"
_OF_SEVERAL = "a lower bound: an attempt before may be billed as well"

_SURENESS = {
    Certainty.NONE: "nothing was or will be billed",
    Certainty.EXACT: "told by the provider at the end",
    Certainty.AT_LEAST: _LOWER_BOUND,
    Certainty.UNKNOWN: "it may have generated, and nobody said what it cost",
}
_TOLD_LATER = {
    Reconciler.PROVIDER: "told by the provider after the end",
    Reconciler.OPERATOR: "told by an operator after the end",
}
_SOURCES = {
    CostSource.PROVIDER: "the provider's own figure",
    CostSource.PRICE_TABLE: "the deployment's price table",
}
_PARTS_OF_INPUT = {
    "cache_read_tokens": "from cache",
    "cache_write_tokens": "into cache",
    "cache_write_1h_tokens": "into cache for 1 h",
    "input_audio_tokens": "audio",
    "input_image_tokens": "images",
    "tool_prompt_tokens": "for tools",
}
_PARTS_OF_OUTPUT = {
    "reasoning_tokens": "reasoning",
    "output_audio_tokens": "audio",
    "output_image_tokens": "images",
}


_ONCE_IT_LISTENS = "yes, once a server listens there: `modelmeter serve` starts one, --address names another"
_WAYS_IN = (
    (
        "CERTIFICATE_VERIFY_FAILED",
        "yes, with --ca-file: the authority of the server's certificate is not known here",
    ),
    (
        "WRONG_VERSION_NUMBER",
        "yes, without TLS, which the server does not speak: --tls, --ca-file and --client-cert ask for it",
    ),
    (
        "Socket closed",
        "yes, if it speaks TLS with --tls or --ca-file, and if it asks for a certificate with --client-cert and "
        "--client-key",
    ),
    ("Failed parsing HTTP/2", "no: what listens there does not speak gRPC, --address names another"),
    ("the session is over", "yes, in another session"),
)
"""What the words of gRPC's core say of a server that is there and does not let this client in."""

_REPLAYED = "yes: the bill is of an earlier call, and nothing new was bought"


def of_completion(completion: Completion) -> Rows:
    """Return the bill of an answer."""
    stop = completion.finish.value + (f" ({completion.stop_reason})" if completion.stop_reason else "")
    rows = [
        ("model", _served(completion.model_asked, completion.model_served, completion.target)),
        ("finish", stop + (", truncated" if completion.truncated else "")),
        *_figures(completion),
        ("replayed", _REPLAYED if completion.replayed else ""),
        *_ways(completion.passed_over, completion.attempts),
        ("time", times(completion.timings)),
        ("call id", completion.call_id),
    ]
    return _told(rows)


def of_totals(totals: SessionTotals) -> Rows:
    """Return what the turns of a session came to."""
    costs = [f"{Decimal(nanos) / 10**9:f} {currency}" for currency, nanos in totals.cost_nano_units.items()]
    rows = [
        ("turns", f"{totals.turns:,}, {totals.turns_completed:,} completed"),
        ("tokens", tokens(totals.usage)),
        ("certainty", f"{totals.certainty.value}: {_SURENESS.get(totals.certainty, 'not said')}"),
        ("cost", ", ".join(costs)),
    ]
    return _told(rows)


def of_embeddings(answer: Embeddings) -> Rows:
    """Return the bill of a batch of vectors."""
    rows = [
        ("model", _served(answer.model_asked, answer.model_served, answer.target)),
        ("vectors", f"{len(answer.vectors):,} of {answer.dimensions:,} components"),
        ("revision", answer.revision),
        ("tokens", tokens(answer.usage)),
        ("certainty", f"{answer.certainty.value}: {_sureness(answer.certainty, answer.attempts)}"),
        ("cost", money(answer.cost)),
        ("replayed", _REPLAYED if answer.replayed else ""),
        *_ways(answer.passed_over, answer.attempts),
        ("time", times(answer.timings)),
        ("call id", answer.call_id),
    ]
    return _told(rows)


def of_estimate(count: TokenCount) -> Rows:
    """Return what there is to say of an estimated count."""
    bound = "" if count.upper_bound is None else f"{count.upper_bound:,} tokens, if every byte is one"
    return _told([("at most", bound), ("not counted", ", ".join(count.uncounted_media))])


def of_error(error: ModelmeterError) -> Rows:
    """Return what is known of a call that gave no answer."""
    stage = "" if error.stage is Stage.UNSPECIFIED else f" at stage {error.stage.name}"
    rows = [
        ("model", _asked(error)),
        ("happened", f"{error.disposition.value}, ended by {error.cause.value}{stage}"),
        *_figures(error),
        *_ways(tuple(each for each in error.passed_over if each.detail != error.message), error.attempts),
        ("repeat", _advice(error)),
        ("provider", _provider_said(error)),
        ("call id", error.call_id),
    ]
    return _told(rows)


def of_call(call: LedgerCall) -> Rows:
    """Return what the ledger knows of a call."""
    stage = "" if call.stage is Stage.UNSPECIFIED else f" at stage {call.stage.name}"
    failed = call.kind is not ErrorKind.UNSPECIFIED
    named = (("run", call.run_id), ("effect", call.effect_key))
    rows = [
        ("model", _served(call.model_asked, call.model_served, call.target)),
        *((label, text) for label, text in named),
        ("message", call.message),
        ("happened", f"{call.disposition.value}, ended by {call.cause.value}{stage}" if failed else ""),
        ("finish", "" if failed else call.finish.value),
        *_figures(call, _TOLD_LATER.get(call.reconciled_by)),
        ("booked", _booked(call)),
        (
            "reconciled",
            f"{call.reconciled_by.value} {call.reconcile_reason}".removeprefix("UNSPECIFIED").strip(),
        ),
        ("reserved", "" if call.reserved_at is None else call.reserved_at.isoformat()),
        ("ended", "" if call.ended_at is None else call.ended_at.isoformat()),
        ("expires", "" if call.expires_at is None else call.expires_at.isoformat()),
        ("time", times(call.timings)),
        *((f"attempt {each.number}", _attempt(each)) for each in call.attempts),
        ("labels", ", ".join(f"{key}={value}" for key, value in call.labels.items())),
        ("content", call.content.value.removeprefix("UNSPECIFIED").lower()),
        (
            "provider",
            ", ".join(part for part in (call.provider_request_id, call.provider_response_id) if part),
        ),
        ("call id", call.call_id + (f", generation {call.generation}" if call.generation > 1 else "")),
    ]
    return _told(rows)


def _booked(call: LedgerCall) -> str:
    named = ("settled", "held", "unsettled", "written_off")
    parts = []
    for name in named:
        amount = getattr(call.booking, name)
        if amount.tokens or amount.nano_units:
            parts.append(f"{name.replace('_', ' ')} {booked(amount, call.booking.currency)}")
    if call.booking.possibly_billed:
        parts.append("possibly billed: the provider failed before it generated")
    return ", ".join(parts) or "nothing"


def booked(amount: Amount, currency: str) -> str:
    """Return tokens, and money where there is a price."""
    price = f" ({units(amount.nano_units)} {currency})" if currency else ""
    return f"{amount.tokens:,} {'token' if amount.tokens == 1 else 'tokens'}{price}"


def _ways(passed_over: tuple[PassedOver, ...], attempts: tuple[Attempt, ...]) -> Rows:
    """Return who was passed over, and every request where there were several or the last was not the first choice."""
    rows = [
        # A field of the request is named as the caller wrote it, also where the request lies inside another message.
        ("passed over", f"{each.target}: {each.reason.value}, {each.detail.replace(': request.', ': ')}")
        for each in passed_over
    ]
    if len(attempts) > 1:
        rows += [(f"attempt {each.number}", _attempt(each)) for each in attempts]
    return rows


def _attempt(attempt: Attempt) -> str:
    ended = "answered" if attempt.kind is ErrorKind.UNSPECIFIED else attempt.kind.value
    elapsed = "" if attempt.elapsed is None else f" in {attempt.elapsed:.3f} s"
    return f"{attempt.target}: {ended} at {attempt.stage.name}{elapsed}, {tokens(attempt.usage)}"


def of_mistakes(error: ModelmeterError) -> Rows:
    """Return a row for each mistake in a request, named as the caller wrote it."""
    return [
        (violation.field.removeprefix("request."), violation.description) for violation in error.violations
    ]


def sentence(error: ModelmeterError) -> str:
    """Return what happened; mistakes in the request have rows of their own."""
    return _MISTAKEN if error.violations and error.message.startswith(_MISTAKEN) else error.message


def advice_on_connecting(error: ModelmeterError) -> Rows:
    """Return what to do when nobody listens; nothing for every other failure."""
    return [("repeat", _advice(error))] if isinstance(error, NotConnectedError) else []


def title(error: ModelmeterError) -> str:
    """Return the word for how a call failed; what nobody told has the word of its exception."""
    if isinstance(error, NotConnectedError):
        return "NOT CONNECTED"
    return "NO OUTCOME" if error.kind is ErrorKind.UNSPECIFIED else error.kind.value


def of_model(model: Model) -> Rows:
    """Return what a model is, can do and costs."""
    able = model.capabilities
    if model.task is ModelTask.EMBEDDING:
        rows = [
            ("task", "embedding"),
            *_places(model),
            ("sensitivity", f"up to {model.max_sensitivity.value}"),
            *_tries(model.retry_policy),
        ]
        return [*rows, *_price(model)]
    rows = [
        *_places(model),
        ("most output", f"{model.max_output_tokens:,} tokens, unless a call says otherwise"),
        ("schema", _words(able.schema_modes, model.default_schema_mode)),
        (
            "tools",
            ("yes" if able.tools else "no") + (", also with a schema" if able.tools_with_schema else ""),
        ),
        ("media", ", ".join(able.media) or "none"),
        ("efforts", ", ".join(each.value.lower() for each in able.reasoning_efforts) or "none"),
        ("sampling", ", ".join(able.sampling) or "none"),
        ("sensitivity", f"up to {model.max_sensitivity.value}"),
        *_tries(model.retry_policy),
    ]
    return [*rows, *_price(model)]


def _price(model: Model) -> Rows:
    """Return the price; that of targets that differ in it stands with each."""
    if _differs_by_target(model):
        return [("price", "differs by target, see above")]
    return of_price(model.price)


def _differs_by_target(model: Model) -> bool:
    return model.price is None and any(each.price is not None for each in model.targets)


def _tries(policy: RetryPolicy | None) -> Rows:
    if policy is None:
        return []
    also = [word for word, is_on in (("silence", policy.ambiguous), ("landed calls", policy.landed)) if is_on]
    after = f", also after {' and '.join(also)}" if also else ""
    return [("attempts", f"{policy.max_attempts} at most{after}")]


def _places(model: Model) -> Rows:
    """Return who serves a model: its provider, or its targets, each with its price where they differ in it."""
    if not model.targets:
        return [("provider", f"{model.provider} ({model.provider_kind}), {model.provider_model}")]
    rows = [("targets", model.strategy.value.lower().replace("_", " "))]
    for each in model.targets:
        price = "" if model.price is not None or each.price is None else f", {rates(each.price)} per million"
        rows.append((f"weight {each.weight}", f"{each.name} ({each.provider_kind}){price}"))
    return rows


def _words(modes: tuple[SchemaMode, ...], default: SchemaMode) -> str:
    return ", ".join(mode.value.lower() + (" (default)" if mode is default else "") for mode in modes) or "no"


def of_price(price: Price | None) -> Rows:
    """Return every rate of a price, a row for each tier."""
    if price is None:
        return [("price", "not configured")]
    rows = [("price", f"{price.currency} per million tokens")]
    for tier in price.tiers:
        named = {
            "input": tier.input,
            "output": tier.output,
            "cache read": tier.cache_read,
            "cache write": tier.cache_write,
            "cache write 1 h": tier.cache_write_1h,
            "audio input": tier.input_audio,
            "audio output": tier.output_audio,
        }
        scope = f"above {tier.above_input_tokens:,} input tokens" if tier.above_input_tokens else ""
        served = f'tier "{tier.service_tier}"' if tier.service_tier else ""
        scope = ", ".join(part for part in (scope, served) if part)
        rows.append((scope or "base", ", ".join(f"{name} {rate}" for name, rate in named.items() if rate)))
    return [*rows, *((tool, f"{fee} for a request") for tool, fee in price.hosted_tool_requests.items())]


def tokens(usage: Usage) -> str:
    """Return the totals, each with its parts in brackets; what nobody told says so."""
    sides = [
        _side("input", usage.input_tokens, usage, _PARTS_OF_INPUT),
        _side("output", usage.output_tokens, usage, _PARTS_OF_OUTPUT),
        *(f"{tool}: {requests:,} requests" for tool, requests in usage.hosted_tool_requests.items()),
    ]
    return ", ".join(sides) if usage.told else "not told"


def money(cost: Cost | None) -> str:
    """Return a cost to its last digit, with at least two decimal places."""
    if cost is None:
        return "not known"
    source = _SOURCES.get(cost.source)
    remarks = [f"by {source}"] if source else []
    if cost.certainty is not Certainty.EXACT:
        remarks.append(cost.certainty.value)
    return amount(cost) + (f" ({', '.join(remarks)})" if remarks else "")


def amount(cost: Cost) -> str:
    """Return a cost in units of its currency, and nothing about where it is from."""
    return f"{units(cost.nano_units)} {cost.currency}"


def units(nano_units: int) -> str:
    """Return billionths of a currency unit in units."""
    exact = Decimal(nano_units).scaleb(-9).normalize()
    return f"{exact:,.2f}" if exact == exact.quantize(Decimal("0.01")) else f"{exact:,f}"


def times(timings: Timings) -> str:
    """Return where the time went."""
    named = {"queue": timings.queue, "first token": timings.first_token, "total": timings.total}
    return ", ".join(f"{name} {value:.3f} s" for name, value in named.items() if value is not None)


def rates_of(model: Model) -> str:
    """Return the base rates of a model, for one line of a list. Vectors have no output."""
    if _differs_by_target(model):
        return "by target"
    if model.task is ModelTask.EMBEDDING and model.price is not None and model.price.tiers:
        return f"{model.price.tiers[0].input} {model.price.currency}"
    return rates(model.price)


def rates(price: Price | None) -> str:
    """Return the base rates of a model, for one line of a list."""
    if price is None or not price.tiers:
        return ""
    more = " and more" if len(price.tiers) > 1 else ""
    return f"{price.tiers[0].input} / {price.tiers[0].output} {price.currency}{more}"


def _told(rows: Rows) -> Rows:
    return [(label, text) for label, text in rows if text]


def _figures(source: Completion | ModelmeterError | LedgerCall, told: str | None = None) -> Rows:
    if source.certainty is Certainty.NONE:
        return [("certainty", f"NONE: {_SURENESS[Certainty.NONE]}")]
    rows = [("tokens", tokens(source.usage))]
    rows += [("besides", _beside(extra)) for extra in source.additional_usage]
    if source.estimated_output_tokens is not None:
        rows.append(("estimate", f"{source.estimated_output_tokens:,} output tokens, counted from the text"))
    sureness = told or _sureness(source.certainty, source.attempts)
    return [*rows, ("certainty", f"{source.certainty.value}: {sureness}"), ("cost", money(source.cost))]


def _sureness(certainty: Certainty, attempts: tuple[Attempt, ...]) -> str:
    """Return what a certainty means; a bill whose last attempt told its end is in doubt for those before alone."""
    if certainty is Certainty.AT_LEAST and len(attempts) > 1 and attempts[-1].certainty is Certainty.EXACT:
        return _OF_SEVERAL
    return _SURENESS.get(certainty, "not said")


def _side(name: str, total: int | None, usage: Usage, parts: dict[str, str]) -> str:
    told = [(label, getattr(usage, field)) for field, label in parts.items()]
    inside = ", ".join(f"{count:,} {label}" for label, count in told if count)
    text = f"{name} {'not told' if total is None else f'{total:,}'}"
    return f"{text} ({inside})" if inside else text


def _beside(extra: AdditionalUsage) -> str:
    return f"{extra.kind}{f' by {extra.model}' if extra.model else ''}: {tokens(extra.usage)}"


def _served(asked: str, served: str, target: str) -> str:
    by = f", served by {target}" if target else ""
    return f"{asked}{f' as {served}' if served and served != asked else ''}{by}"


def _asked(error: ModelmeterError) -> str:
    """Return who served a failed call, or at least was asked; before dispatch it is nobody."""
    if error.disposition is Disposition.LANDED or error.model_served:
        return _served(error.model_asked, error.model_served, error.target)
    asked = f", asked of {error.target}" if error.target and error.attempts_total else ""
    return error.model_asked + asked


def _advice(error: ModelmeterError) -> str:
    if isinstance(error, NotConnectedError):
        return next((advice for sign, advice in _WAYS_IN if sign in error.message), _ONCE_IT_LISTENS)
    wait = "" if error.retry_after is None else f" after {error.retry_after:g} s"
    if not error.retryable:
        return "no" + (": it would be a second bill" if error.may_have_generated else "")
    return f"yes{wait}" + (", though it may be billed twice" if error.may_have_generated else "")


def _provider_said(error: ModelmeterError) -> str:
    status = "" if error.http_status is None else f"HTTP {error.http_status}"
    request = f"request {error.provider_request_id}" if error.provider_request_id else ""
    return ", ".join(part for part in (status, error.provider_code, request) if part)
