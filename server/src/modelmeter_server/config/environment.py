"""What the environment may override.

Variables that are not listed are left alone: Kubernetes gives every container `MODELMETER_PORT`,
`MODELMETER_SERVICE_HOST` and more when a service of that name exists, so that an unknown one is no mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from modelmeter_server.core.toml_words import KeyPath

CONFIG_VARIABLE = "MODELMETER_CONFIG"
"""Names the configuration file when the command line does not."""


class Override(msgspec.Struct, frozen=True):
    """A variable that takes the place of a key."""

    variable: str
    path: KeyPath
    read: Callable[[str], Any]
    """Turns the text into what TOML would have given; what it cannot turn stays text, a mistake of type."""


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _integer(text: str) -> int | str:
    return int(text) if text.strip().isdecimal() else text


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _flag(text: str) -> bool | str:
    return {"true": True, "1": True, "false": False, "0": False}.get(text.strip().lower(), text)


OVERRIDES = (
    Override("MODELMETER_LISTEN", ("server", "listen"), _split),
    Override("MODELMETER_DRAIN_SECONDS", ("server", "drain_seconds"), _number),
    Override("MODELMETER_DRAIN_DELAY_SECONDS", ("server", "drain_delay_seconds"), _number),
    Override("MODELMETER_WORKERS", ("server", "workers"), _integer),
    Override("MODELMETER_MAX_CONCURRENT_CALLS", ("server", "max_concurrent_calls"), _integer),
    Override("MODELMETER_ALLOW_ANONYMOUS", ("server", "allow_anonymous"), _flag),
    Override("MODELMETER_ALLOW_INSECURE", ("server", "allow_insecure"), _flag),
    Override("MODELMETER_LEDGER_URL", ("ledger", "url"), str.strip),  # secrets often end with a line
    Override("MODELMETER_LOG_LEVEL", ("server", "log_level"), str.lower),
)


def overrides(environ: Mapping[str, str]) -> dict[KeyPath, tuple[Any, str]]:
    """Return what the environment overrides: key path to value and origin. Empty variables count as unset."""
    return {
        each.path: (each.read(environ[each.variable]), f"environment variable {each.variable}")
        for each in OVERRIDES
        if environ.get(each.variable, "").strip()
    }
