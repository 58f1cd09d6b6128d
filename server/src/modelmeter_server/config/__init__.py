"""Configuration: TOML and environment in, typed settings out."""

from __future__ import annotations

from .changes import Changes, compare
from .load import load
from .mistakes import ConfigError, Mistake
from .model_settings import ModelSettings, RouteSettings
from .secret import Secret
from .settings import (
    IdentitySettings,
    JwtSettings,
    KeySettings,
    LedgerSettings,
    ProviderSettings,
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
