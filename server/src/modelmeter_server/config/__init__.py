"""Configuration: TOML and environment in, typed settings out."""

from __future__ import annotations

from .changes import Changes, compare
from .load import load
from .mistakes import ConfigError, Mistake
from .secret import Secret
from .settings import (
    IdentitySettings,
    JwtSettings,
    KeySettings,
    LedgerSettings,
    ModelSettings,
    ProviderSettings,
    RouteSettings,
    ServerSettings,
    Settings,
)

__all__ = [
    "Changes",
    "ConfigError",
    "IdentitySettings",
    "JwtSettings",
    "KeySettings",
    "LedgerSettings",
    "Mistake",
    "ModelSettings",
    "ProviderSettings",
    "RouteSettings",
    "Secret",
    "ServerSettings",
    "Settings",
    "compare",
    "load",
]
