"""From a model and a request to the route that the call takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.core.embeddings import EmbeddingRequest
from modelmeter_server.core.route_checks import bound_to, route_violations
from modelmeter_server.core.routing import preferred

from .many_targets import ManyTargets
from .plan import Refused, mistaken, within
from .routing import OneTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from modelmeter_server.core.errors import FieldViolation
    from modelmeter_server.core.models import ModelSpec, RouteSpec
    from modelmeter_server.core.requests import CompletionRequest

    from .retrying import Retries
    from .routing import Route, Target
    from .targets import Targets


def route_of(
    request: CompletionRequest | EmbeddingRequest,
    model: ModelSpec,
    target_of: Callable[[ModelSpec], Target],
    states: Targets,
    retries: Retries,
    *,
    found: Sequence[FieldViolation] = (),
    prefix: str = "",
    watches: bool = True,
    takes: Callable[[str], bool] = lambda _: True,
) -> Route:
    """Return the route of one call; raises Refused, with what else was `found`, when no target could read it.

    `takes` gives the call its place at a provider instance, and is false where there is none.

    Without `watches` the ends of its requests say nothing about the targets, as those of a count do: a server that
    cannot count can answer.
    """
    if model.route is None:
        return OneTarget(target_of(model), retries)
    mistakes = within(prefix, route_violations(request, model))
    if mistakes:
        raise Refused(mistaken([*found, *mistakes]))
    ordered = preferred(
        model.route,
        request.call_id,
        affinity_of(request, model.route),
        lambda name: states.find(name).running,
    )
    return ManyTargets(
        [target_of(each.model) for each in ordered],
        states,
        retries,
        instance=bound_to(request, model),
        watches=watches,
        tries_all=not found,
        takes=takes,
    )


def instances_of(request: CompletionRequest | EmbeddingRequest, model: ModelSpec) -> tuple[str, ...]:
    """Return the provider instances that may serve a request, each once."""
    if model.route is None:
        return (model.provider,)
    able = tuple(dict.fromkeys(each.model.provider for each in model.route.targets))
    bound = bound_to(request, model)
    return (bound,) if bound in able else able


def affinity_of(request: CompletionRequest | EmbeddingRequest, route: RouteSpec) -> str:
    """Return what a call has in common with those that should meet the same prompt cache; empty for nothing."""
    if not isinstance(request, EmbeddingRequest) and request.affinity_key:
        return request.affinity_key
    return request.effect.run_id if route.sticky_runs and request.effect is not None else ""


def place_of(model: ModelSpec, key: str, states: Targets) -> ModelSpec:
    """Return where a session stays: the model itself, or the target that it would ask first, by its key."""
    if model.route is None:
        return model
    ordered = preferred(model.route, key, key, lambda name: states.find(name).running)
    free = [each for each in ordered if states.find(each.name).is_free]
    return (free or ordered)[0].model
