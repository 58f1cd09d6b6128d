"""From a request to a provider request that is ready to be sent, or the refusal that names every mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.answers import FREE_TEXT, Expectation
from modelmeter_server.core.digest import Digest, digest
from modelmeter_server.core.errors import Failure, FieldViolation, failure
from modelmeter_server.core.models import ModelSpec, Task
from modelmeter_server.core.outcomes import Cause, Code, Kind
from modelmeter_server.core.request_checks import MAX_VIOLATIONS, check_request
from modelmeter_server.core.request_limits import limit_violations
from modelmeter_server.core.reservation import Hold, dearest_hold, hold_for
from modelmeter_server.core.tenants import OPEN, Tenant
from modelmeter_server.core.text import cut_utf8
from modelmeter_server.drivers.driver import BodyRefused, PreparedRequest, RequestRefused

from .schema_check import SchemaInvalid, expectation_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelmeter_server.core.requests import CompletionRequest, Sensitivity
    from modelmeter_server.drivers.driver import Driver

    from .catalog import Catalog

RESOURCE_NAME_BYTES = 256
"""Bytes of a name that nobody has, as it is repeated to the caller."""

_SCHEMA = "output_schema_json"

_Prepare = Callable[["CompletionRequest", ModelSpec], PreparedRequest]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be sent, to whom, and what the answer is held to."""

    model: ModelSpec
    prepared: PreparedRequest
    expectation: Expectation
    digest: Digest | None = None
    """What tells the request from others; with a ledger only, as what follows."""
    hold: Hold | None = None
    """What has to be held for it."""


class Refused(Exception):
    """The request is wrong; carries the failure that says how."""

    def __init__(self, verdict: Failure) -> None:
        super().__init__(verdict.message)
        self.verdict = verdict


def find_model(
    catalog: Catalog,
    name: str,
    found: Sequence[FieldViolation] = (),
    field: str = "model",
    tenant: Tenant = OPEN,
) -> ModelSpec:
    """Return the model of this name; raises Refused, with what else was `found`, when the deployment has none.

    `field` is where the caller named it. A name that is not among the tenant's own is refused before it is looked up:
    whether there is such a model is none of its business.
    """
    if not name:
        missing = FieldViolation(field, "must be an alias of the deployment, or `provider/model`")
        raise Refused(mistaken([*found, missing]))
    if not tenant.may_use(name):
        raise Refused(_not_allowed(name, tenant))
    model = catalog.find(name)
    if model is None:
        raise Refused(
            failure(
                Kind.REFUSED,
                "this deployment serves no such model; ListModels names those that it serves",
                cause=Cause.LIMIT,
                code=Code.NOT_FOUND,
                resource=cut_utf8(name, RESOURCE_NAME_BYTES),
                violations=tuple(found),
            )
        )
    return model


def check_tenant(sensitivity: Sensitivity, tenant: Tenant) -> None:
    """Raise Refused for a prompt that is more confidential than the tenant may send anywhere."""
    if sensitivity > tenant.max_sensitivity:
        limit = f'the tenant "{tenant.name}" may send {tenant.max_sensitivity.name} at most'
        raise Refused(too_sensitive(sensitivity, limit))


def plan(
    request: CompletionRequest,
    model: ModelSpec,
    driver: Driver,
    found: Sequence[FieldViolation] = (),
    prefix: str = "",
    prepare: _Prepare | None = None,
) -> Plan:
    """Check a request as a whole and encode it for its provider.

    `found` are mistakes seen before, with their paths as the caller knows them; `prefix` leads to the request's own
    fields in the caller's message; `prepare` encodes in place of the driver's own `prepare`. Raises Refused with all
    mistakes together.
    """
    prepare = prepare or driver.prepare
    if model.task is Task.EMBEDDING:
        fix = "is an embedding model: ask it with `Embed`"
        raise Refused(mistaken([*found, FieldViolation(f"{prefix}model", fix)]))
    if request.sensitivity > model.max_sensitivity:
        raise Refused(too_sensitive(request.sensitivity, seen_by(model)))
    excess = limit_violations(request)
    if excess:
        raise Refused(mistaken([*within(prefix, excess), *found]))
    mistakes = check_request(request, model)
    expectation = _expectation(request, model, mistakes)
    if found or mistakes:
        mistakes += _encoding_mistakes(request, model, prepare, [*found, *within(prefix, mistakes)], prefix)
        raise Refused(mistaken([*found, *within(prefix, mistakes)]))
    try:
        prepared = prepare(request, model)
    except RequestRefused as refusal:
        raise Refused(mistaken(within(prefix, refusal.violations))) from None
    return Plan(model=model, prepared=prepared, expectation=expectation)


def with_terms(planned: Plan, request: CompletionRequest, places: Sequence[ModelSpec] = ()) -> Plan:
    """Return a plan with what the ledger asks of it; `places` are the targets that the call may be sent to, if many."""
    return msgspec.structs.replace(
        planned,
        digest=digest(request, planned.model.identity),
        hold=dearest_hold([completion_hold(request, each) for each in places or (planned.model,)]),
    )


def completion_hold(request: CompletionRequest, model: ModelSpec) -> Hold:
    """Return what is held for a completion of this model."""
    asked = request.max_output_tokens
    return hold_for(
        request,
        provider_kind=model.provider_kind,
        output_tokens=model.max_output_tokens if asked is None else asked,
        price=model.price,
        reserve_factor=model.reserve_factor,
        tokens_per_second=model.max_tokens_per_second,
        abort_stops_billing=model.abort_stops_billing,
        context_tokens=0 if request.turn is None else request.turn.context_tokens,
    )


def _expectation(request: CompletionRequest, model: ModelSpec, mistakes: list[FieldViolation]) -> Expectation:
    if any(each.field.startswith(_SCHEMA) for each in mistakes):
        return FREE_TEXT
    try:
        return expectation_for(request, model)
    except SchemaInvalid as error:
        mistakes.append(FieldViolation(_SCHEMA, str(error)))
        return FREE_TEXT


def _encoding_mistakes(
    request: CompletionRequest,
    model: ModelSpec,
    prepare: _Prepare,
    told: Sequence[FieldViolation],
    prefix: str,
) -> list[FieldViolation]:
    """Ask the encoder about a request that is refused anyway, so that the caller hears of everything at once."""
    try:
        prepare(request, model)
    except BodyRefused:
        return []  # said already, by the request's own fields
    except RequestRefused as refusal:
        fields = {each.field for each in told}
        return [each for each in refusal.violations if prefix + each.field not in fields]
    except Exception:  # noqa: BLE001 - encoders are for checked requests: this one may stumble over a known mistake
        return []
    return []


def within(prefix: str, mistakes: Sequence[FieldViolation]) -> list[FieldViolation]:
    """Return mistakes with their paths as the caller knows them."""
    return [FieldViolation(prefix + each.field, each.description) for each in mistakes]


def seen_by(model: ModelSpec) -> str:
    """Say what a model may see at most."""
    return f"the model may see {model.max_sensitivity.name} at most"


def too_sensitive(sensitivity: Sensitivity, limit: str) -> Failure:
    """Return the refusal of a prompt that is above a limit, which the message tells."""
    return failure(
        Kind.REFUSED,
        f"the prompt is {sensitivity.name} and {limit}",
        cause=Cause.LIMIT,
        code=Code.PERMISSION_DENIED,
    )


def _not_allowed(name: str, tenant: Tenant) -> Failure:
    return failure(
        Kind.REFUSED,
        f'the tenant "{tenant.name}" may not ask for this model; ListModels names those that it may',
        cause=Cause.LIMIT,
        code=Code.PERMISSION_DENIED,
        resource=cut_utf8(name, RESOURCE_NAME_BYTES),
    )


def mistaken(mistakes: Sequence[FieldViolation]) -> Failure:
    """Return the refusal of a request with these mistakes, at least one; the first `MAX_VIOLATIONS` are told."""
    mistakes = mistakes[:MAX_VIOLATIONS]
    first = f"{mistakes[0].field}: {mistakes[0].description}"
    rest = len(mistakes) - 1
    more = f" (and {rest} more {'mistake' if rest == 1 else 'mistakes'})" if rest else ""
    return failure(
        Kind.REFUSED,
        f"bad request: {first}{more}",
        cause=Cause.LIMIT,
        code=Code.INVALID_ARGUMENT,
        violations=tuple(mistakes),
    )
