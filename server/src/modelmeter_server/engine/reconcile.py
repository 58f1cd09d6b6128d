"""Truer figures for ended calls: from the provider where it can tell, or from an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.core.answers import Answer
from modelmeter_server.core.errors import FieldViolation, failure
from modelmeter_server.core.outcomes import Cause, Certainty, Code, Kind
from modelmeter_server.core.pricing import Cost, CostSource
from modelmeter_server.drivers.lookup import (
    EndedCall,
    LookupFailed,
    NotReconcilable,
    ReconcilingDriver,
    cannot_tell,
)

from .bill import priced
from .booking import figures as figures_of
from .plan import Refused, mistaken

if TYPE_CHECKING:
    from modelmeter_server.core.errors import Failure
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.usage import AdditionalUsage, Usage
    from modelmeter_server.ledger.rows import CallRow, Figures

    from .catalog import Catalog
    from .offers import Offers

NOT_RECONCILABLE = "NOT_RECONCILABLE"
"""The reason of a refusal to ask a provider that cannot tell."""

_PROVIDERS_CURRENCY = "USD"
"""In which OpenRouter, the one provider that tells money, tells it."""


class Reconciliation:
    """Work out figures for calls of this deployment's models."""

    def __init__(self, offers: Offers) -> None:
        """Ask the providers of whatever offer is current."""
        self._offers = offers

    async def ask(self, row: CallRow) -> Figures:
        """Ask the provider what an ended call consumed. Raises Refused; NOT_RECONCILABLE when it cannot tell."""
        offer = self._offers.take()
        instance = _instance(row)
        driver = offer.drivers.get(instance)
        model = _served(row, offer.catalog)
        try:
            if driver is None:
                raise NotReconcilable(_no_instance(instance))
            if not isinstance(driver, ReconcilingDriver):
                raise NotReconcilable(cannot_tell(driver.kind))
            told = await driver.reconcile(
                EndedCall(
                    model=row.model,
                    response_id=row.provider_response_id,
                    recoverable=model is not None and model.recoverable,
                )
            )
        except NotReconcilable as error:
            raise Refused(not_reconcilable(str(error))) from None
        except LookupFailed as error:
            raise Refused(error.verdict) from error
        finally:
            self._offers.give_back(offer)
        cost = None
        if told.nano_units is not None:
            cost = Cost(
                nano_units=told.nano_units,
                currency=_PROVIDERS_CURRENCY,
                source=CostSource.PROVIDER,
                certainty=told.certainty,
            )
        return self._figures(
            row, told.usage, told.certainty, cost, additional=told.additional_usage, tier=told.service_tier
        )

    def figures(
        self, row: CallRow, usage: Usage, certainty: Certainty, nano_units: int | None, currency: str
    ) -> Figures:
        """Return an operator's figures for a call, priced by the table unless money is told. Raises Refused."""
        cost = None
        if nano_units is not None:
            known = row.hold.currency or row.figures.currency
            if known and currency != known:
                fix = f"must be {known}, the currency of the call: sums of two currencies are no sums"
                raise Refused(mistaken([FieldViolation("figure.currency", fix)]))
            cost = Cost(
                nano_units=nano_units, currency=currency, source=CostSource.PROVIDER, certainty=certainty
            )
        return self._figures(row, usage, certainty, cost)

    def _figures(
        self,
        row: CallRow,
        usage: Usage,
        certainty: Certainty,
        cost: Cost | None,
        *,
        additional: tuple[AdditionalUsage, ...] = (),
        tier: str | None = None,
    ) -> Figures:
        known = row.hold.currency
        if cost is not None and known and cost.currency != known:
            cost = None  # the sums of the call are in its model's currency
        told = Answer(
            text="",
            usage=usage,
            additional_usage=additional,
            certainty=certainty,
            cost=cost,
            service_tier=tier,
        )
        catalog = self._offers.current.catalog
        return figures_of(priced(told, _served(row, catalog), catalog.price_tables(_instance(row))))


def _served(row: CallRow, catalog: Catalog) -> ModelSpec | None:
    """Return the model at the target that served a call; `None` if the deployment has it no more."""
    model = catalog.find(row.model)
    if model is None or model.route is None:
        return model
    return next((each.model for each in model.route.targets if each.name == row.target), None)


def _instance(row: CallRow) -> str:
    """Return the provider instance that served a call: all of its target's name, or what stands before the model."""
    return row.target.partition("/")[0]


def not_reconcilable(message: str) -> Failure:
    """Return the refusal to ask; the message names what would help."""
    return failure(
        Kind.REFUSED, message, cause=Cause.LIMIT, code=Code.FAILED_PRECONDITION, reason=NOT_RECONCILABLE
    )


def _no_instance(name: str) -> str:
    if not name:
        return "no provider was asked for this call"
    return f'the provider instance "{name}" is no longer configured: configure it, or book a figure with a reason'
