"""Kinds of providers that other distributions bring: which are installed, and what keeps one from being used.

Finding them reads metadata only. A driver is imported when the configuration names its kind, so that a broken one
stops nobody who does not use it.
"""

from __future__ import annotations

import importlib.metadata
import re
from typing import TYPE_CHECKING, Any

from modelmeter_server.drivers.http_driver import WireFormat
from modelmeter_server.drivers.plugin import GROUP, PROTOCOL, DriverPlugin, SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import EntryPoint

_KIND = re.compile(r"[a-z][a-z0-9_]{0,63}")
_REASON_CHARACTERS = 200


class PluginRefused(Exception):
    """Report a driver that cannot be used; the message names its distribution."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.fix = fix


def installed_kinds() -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points of installed drivers by the kind they announce; more than one is a conflict."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in importlib.metadata.entry_points(group=GROUP):
        found[entry.name] = (*found.get(entry.name, ()), entry)
    return dict(sorted(found.items()))


def distributions(entries: tuple[EntryPoint, ...]) -> str:
    """Name the distributions of these entry points, with their versions."""
    return " and ".join(f'"{_distribution(entry)}"' for entry in entries)


def _distribution(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value


def load_plugin(entries: tuple[EntryPoint, ...]) -> DriverPlugin:
    """Return the one driver of a kind. Raises PluginRefused, whatever its import does."""
    entry, name = entries[0], distributions(entries)
    if len(entries) > 1:
        problem = f"{name} both bring a driver of this kind"
        raise PluginRefused(problem, "uninstall all but one of them")
    try:
        plugin = entry.load()
    except Exception as error:
        problem = f"the driver of {name} cannot be loaded ({_reason(error)})"
        raise PluginRefused(problem, "install it anew, in a version for this server") from error
    return _checked(plugin, entry, name)


def _checked(plugin: object, entry: EntryPoint, name: str) -> DriverPlugin:
    if not isinstance(plugin, DriverPlugin):
        problem = f"the entry point of {name} is no DriverPlugin but a {type(plugin).__name__}"
        raise PluginRefused(problem, "let it name one, or install another version")
    if plugin.protocol != PROTOCOL:
        problem = (
            f"the driver of {name} was written for protocol {plugin.protocol}, and this server has {PROTOCOL}"
        )
        raise PluginRefused(problem, "install a version of it for this server")
    if plugin.kind != entry.name or not _KIND.fullmatch(plugin.kind):
        problem = f'the driver of {name} says that its kind is "{plugin.kind}"'
        raise PluginRefused(problem, "its entry point must have that name: letters, digits, underscores")
    return plugin


def wire_format_of(plugin: DriverPlugin, settings: Mapping[str, Any]) -> WireFormat:
    """Return the row of an instance. Raises SettingError, and PluginRefused for anything else the driver does."""
    try:
        wire: object = plugin.wire_format(settings)
    except SettingError:
        raise
    except Exception as error:
        problem = f'the driver of kind "{plugin.kind}" failed on these settings ({_reason(error)})'
        raise PluginRefused(problem, "correct them, or report this to its authors") from error
    if not isinstance(wire, WireFormat) or wire.kind != plugin.kind:
        problem = f'the driver of kind "{plugin.kind}" made no wire format of its kind'
        raise PluginRefused(problem, "report this to its authors")
    return wire


def _reason(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}"[:_REASON_CHARACTERS] if lines else type(error).__name__
