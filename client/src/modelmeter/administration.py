"""What operators read of a deployment: its tokens and its tenants. All values are immutable."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from .enums import Sensitivity, TokenState


@dataclass(frozen=True)
class Token:
    """What is known of a bearer token; the token itself is not."""

    token_id: str
    tenant: str
    """The tenant that it stands for."""
    name: str
    """What it is for, in the words of whoever made it."""
    state: TokenState
    created_at: datetime
    expires_at: datetime | None = None
    """From when on it opens nothing; None for no end."""
    revoked_at: datetime | None = None
    """Since when it opens nothing, for good."""


@dataclass(frozen=True)
class NewToken:
    """A token that was made just now."""

    token: Token
    secret: str = field(repr=False)
    """The token itself, which nobody can tell a second time. Not in `repr`."""
    previous: Token | None = None
    """The one that it follows, if it was made by `rotate_token`."""


@dataclass(frozen=True)
class Tenant:
    """One party that shares a deployment with others, as configured."""

    name: str
    models: tuple[str, ...]
    """What it may ask for; a name that ends in `*` stands for all that begin so."""
    max_sensitivity: Sensitivity
    default_sensitivity: Sensitivity
    admin: bool
