"""What is settled of a call when it starts: who may be asked, and how its request becomes a plan for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from modelmeter_server.core.errors import Failure, FieldViolation
from modelmeter_server.core.ledger_checks import ledger_violations
from modelmeter_server.core.models import ModelSpec
from modelmeter_server.core.retry_policy import ONCE, RetryPolicy, policy_for, retry_violations
from modelmeter_server.core.tenants import Tenant
from modelmeter_server.drivers.driver import Driver

from .choosing import route_of
from .offers import Offer
from .plan import Plan, Refused, check_tenant, find_model
from .routing import Route, Target
from .targets import Targets

if TYPE_CHECKING:
    from modelmeter_server.core.embeddings import EmbeddingRequest
    from modelmeter_server.core.requests import CompletionRequest

    from .retrying import Retries

Make = Callable[[Any, ModelSpec, Driver, Sequence[FieldViolation], str], Plan]
"""Makes the plan of a request for a model and its driver, of the mistakes found before, with the path to its fields."""

Terms = Callable[[Plan, Any, Sequence[ModelSpec]], Plan]
"""Adds to a plan what the ledger asks of it; the models are the targets that the call may be sent to, if many."""


class Preparation(msgspec.Struct, kw_only=True):
    """One request, before anything is asked. Its methods raise Refused for what cannot be sent.

    `model` and `route` run on the event loop; `plan` may run in a thread, after these two.
    """

    request: Any
    """A `CompletionRequest` or an `EmbeddingRequest`."""
    make: Make
    offer: Offer
    """The models and drivers that hold for the call, whatever a reload brings meanwhile."""
    tenant: Tenant
    terms: Terms | None
    """What the ledger asks; None for a call that is not booked."""
    has_ledger: bool
    states: Targets
    """How the targets of models with targets fare."""
    refusal: Failure | None = None
    """Why the call cannot be sent at all."""
    found: Sequence[FieldViolation] = ()
    """Mistakes found before, with their paths as the caller knows them."""
    prefix: str = ""
    """Leads to the request's fields in the caller's message."""
    via: Callable[[Driver], Driver] | None = None
    """Puts another driver in the place of the model's own, as for a turn of a session."""
    place: ModelSpec | None = None
    """The target of the model that alone may be asked."""
    watches: bool = True
    """Whether the ends of the call's requests say something about its targets."""
    takes: Callable[[str], bool] = lambda _: True
    """Gives the call its place at a provider instance; false where there is no room."""
    mistakes: list[FieldViolation] | None = None
    """What was found before, with what concerns the ledger; worked out once, when it is first needed."""

    def model(self) -> ModelSpec:
        """Return the model that is asked for."""
        if self.refusal is not None:
            raise Refused(self.refusal)
        model = find_model(
            self.offer.catalog,
            self.request.model,
            self._mistakes(),
            f"{self.prefix}model",
            tenant=self.tenant,
        )
        check_tenant(self.request.sensitivity, self.tenant)
        return model

    def policy(self, model: ModelSpec) -> RetryPolicy:
        """Return how often a call of this model asks.

        A turn of a session is asked once: its socket has a memory, and the session itself sends anew what it can.
        """
        return ONCE if self.via is not None else policy_for(self.request.retry_policy, model.retry)

    def route(self, model: ModelSpec, retries: Retries) -> Route:
        """Return who can be asked, one after another."""
        return route_of(
            self.request,
            model if self.place is None else self.place,
            self._target,
            self.states,
            retries,
            found=self._mistakes(),
            prefix=self.prefix,
            watches=self.watches,
            takes=self.takes,
        )

    def plan(self, target: Target, request: CompletionRequest | EmbeddingRequest) -> Plan:
        """Return what a target would be sent of the request, which may allow less output than the original."""
        path = f"{self.prefix}retry_policy"
        found = [*self._mistakes(), *retry_violations(request.retry_policy, target.model.retry, path=path)]
        planned = self.make(request, target.model, target.driver, found, self.prefix)
        return planned if self.terms is None else self.terms(planned, request, self._places(target.model))

    def _places(self, model: ModelSpec) -> list[ModelSpec]:
        """Return all targets of the model that this one is a target of: what is held covers the dearest."""
        asked = self.offer.catalog.find(model.name) if model.target else None
        return [] if asked is None else asked.places

    def _mistakes(self) -> list[FieldViolation]:
        if self.mistakes is None:
            asked = ledger_violations(self.request, has_ledger=self.has_ledger)
            named = (FieldViolation(self.prefix + each.field, each.description) for each in asked)
            self.mistakes = [*self.found, *named]
        return self.mistakes

    def _target(self, model: ModelSpec) -> Target:
        driver = self.offer.drivers[model.provider]
        return Target(
            name=model.target_name,
            model=model,
            driver=driver if self.via is None else self.via(driver),
            tables=self.offer.catalog.price_tables(model.provider),
        )
