"""A model with targets as callers see it: what every one of its targets can do. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from .models import CacheMarks, Capabilities, ModelSpec, RouteSpec, Strategy, TargetSpec
from .retry_policy import ONCE, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .requests import SchemaMode

_Value = TypeVar("_Value")

OWN_IDENTITY = "models/"
"""What leads to a model's name in the identity of one whose targets are different models."""


def routed_model(
    name: str,
    targets: Sequence[tuple[ModelSpec, int]],
    *,
    strategy: Strategy = Strategy.ORDERED,
    sticky_runs: bool = False,
    identity: str = "",
    retry: RetryPolicy = ONCE,
) -> ModelSpec:
    """Return the model of this name whose calls go to one of these targets, each with its weight.

    It can do what the least of them can do, and has a price where all have the same. Its identity, for the digests of
    requests, is the declared one; else what all targets are; else its own name: it never depends on which target
    served a call.
    """
    specs = [spec for spec, _ in targets]
    identity = identity or _common([each.identity for each in specs], f"{OWN_IDENTITY}{name}")
    abilities = _common_abilities([each.capabilities for each in specs])
    clamps = [each.clamp_output for each in specs if each.clamp_output is not None]
    return ModelSpec(
        name=name,
        provider="",
        provider_kind=_common([each.provider_kind for each in specs], ""),
        provider_model=_common([each.provider_model for each in specs], ""),
        capabilities=abilities,
        schema_mode=_common_mode([each.schema_mode for each in specs], abilities),
        max_output_tokens=min(each.max_output_tokens for each in specs),
        max_sensitivity=min(each.max_sensitivity for each in specs),
        price=_common([each.price for each in specs], None),
        task=_common([each.task for each in specs], None),
        declared_identity=identity,
        retry=retry,
        clamp_output=max(clamps) if len(clamps) == len(specs) else None,
        route=RouteSpec(
            strategy=strategy,
            sticky_runs=sticky_runs,
            targets=tuple(
                TargetSpec(model=_as_target(spec, name, identity, retry), weight=weight)
                for spec, weight in targets
            ),
        ),
    )


def _as_target(spec: ModelSpec, name: str, identity: str, retry: RetryPolicy) -> ModelSpec:
    """Return a model as a target of another one: asked for by that one's name, and told apart by where it is."""
    return msgspec.structs.replace(
        spec,
        name=name,
        declared_identity=identity,
        retry=retry,
        target=f"{spec.provider}/{spec.provider_model}",
    )


def _common(values: Sequence[_Value], otherwise: _Value) -> _Value:
    return values[0] if all(each == values[0] for each in values) else otherwise


def _common_mode(modes: Sequence[SchemaMode], able: Capabilities) -> SchemaMode:
    """Return the first target's mode, unless another target cannot do it."""
    return modes[0] if modes[0] in able.schema_modes else able.default_schema_mode


def _common_abilities(all_of_them: Sequence[Capabilities]) -> Capabilities:
    def shared(part: Callable[[Capabilities], Iterable[_Value]]) -> tuple[_Value, ...]:
        rest = [frozenset(part(each)) for each in all_of_them[1:]]
        return tuple(value for value in part(all_of_them[0]) if all(value in each for each in rest))

    return Capabilities(
        schema_modes=shared(lambda each: each.schema_modes),
        enforces_native_schema=all(each.enforces_native_schema for each in all_of_them),
        tools=all(each.tools for each in all_of_them),
        tools_with_schema=all(each.tools_with_schema for each in all_of_them),
        media=shared(lambda each: each.media),
        reasoning_efforts=shared(lambda each: each.reasoning_efforts),
        sampling=shared(lambda each: each.sampling),
        cache_marks=CacheMarks(
            places=shared(lambda each: each.cache_marks.places),
            lifetimes=shared(lambda each: each.cache_marks.lifetimes),
            longest_first=any(each.cache_marks.longest_first for each in all_of_them),
        ),
        end_user_id=min(each.end_user_id for each in all_of_them),
    )
