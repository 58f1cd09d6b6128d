"""Who calls, as far as the rules of a call go: a tenant, and what it may do."""

from __future__ import annotations

import msgspec

from .call_limits import CallLimits
from .requests import Sensitivity

DEFAULT_TENANT = "default"
"""The tenant of every call of a deployment that asks nobody who they are."""

ANY_MODEL = "*"


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """One party that shares a deployment with others."""

    name: str = DEFAULT_TENANT
    models: tuple[str, ...] = (ANY_MODEL,)
    """What it may ask for: names as callers write them; one that ends in `*` stands for all that begin so."""
    max_sensitivity: Sensitivity = Sensitivity.SECRET
    """The most confidential prompt that it may send to any model."""
    default_sensitivity: Sensitivity = Sensitivity.PUBLIC
    """How confidential a prompt is that does not say."""
    limits: CallLimits = CallLimits()
    """What it may have under way, per minute, and waiting."""
    is_admin: bool = False
    """Whether it may manage tokens and see the other tenants."""

    def may_use(self, model: str) -> bool:
        """Say whether a model of this name is among its own; whether there is such a model is another question."""
        return any(
            model.startswith(each[:-1]) if each.endswith(ANY_MODEL) else model == each for each in self.models
        )


OPEN = Tenant(is_admin=True)
"""Whoever calls a deployment that asks nobody who they are."""
