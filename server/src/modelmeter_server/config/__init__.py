"""Configuration: TOML and environment in, typed settings out."""

from __future__ import annotations

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
    ServerSettings,
    Settings,
)

__all__ = [
    "ConfigError",
    "IdentitySettings",
    "JwtSettings",
    "KeySettings",
    "LedgerSettings",
    "Mistake",
    "ModelSettings",
    "ProviderSettings",
    "Secret",
    "ServerSettings",
    "Settings",
    "load",
]
