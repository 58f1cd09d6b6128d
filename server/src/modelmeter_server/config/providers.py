"""The sections `[providers.NAME]`."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from modelmeter_server.core.toml_words import choices
from modelmeter_server.drivers import google_credentials
from modelmeter_server.drivers.bedrock import EXTRA, can_sign
from modelmeter_server.drivers.http.endpoint import Endpoint, Proxy
from modelmeter_server.drivers.http.limits import Limits, Timeouts
from modelmeter_server.drivers.instance import CONNECTION_AGE
from modelmeter_server.drivers.plugin import DriverPlugin, SettingError

from .breaker import read_breaker
from .call_limits import MOST_CALLS
from .dialects import default_dialect, read_dialect
from .files import readable_file, trust_problem
from .keys import KeyReader, has_key, refuse_key
from .kinds import SUPPORTED, ProviderKind, foreign_kind
from .mistakes import did_you_mean
from .plugins import PluginRefused, distributions, installed_kinds, load_plugin, wire_format_of
from .scripts import read_scripts
from .secret import Secret
from .settings import ProviderSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import EntryPoint
    from pathlib import Path

    from modelmeter_server.core.dialects import Dialect
    from modelmeter_server.drivers.http_driver import WireFormat

    from .tables import Table

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d{1,2}")
_MOST = 2**31 - 1

_Bounds = TypeVar("_Bounds", Timeouts, Limits)


class ProviderReader:
    """Read provider instances; one reader serves a whole document."""

    def __init__(self, environ: Mapping[str, str] | None, folder: Path) -> None:
        """Relative paths start at `folder`. With `environ` of `None` keys are left unread and unchecked."""
        self._environ = environ
        self._folder = folder
        self._keys = KeyReader(environ, folder)

    def read(self, table: Table) -> ProviderSettings | None:
        """Return one instance, or `None` when it has no usable kind; its mistakes are noted."""
        if not _NAME.fullmatch(table.name):
            table.mistake(
                None,
                "the name cannot stand before the slash of provider/model",
                "use up to 64 letters, digits, dots, dashes and underscores, a letter or digit first",
            )
        kind, meant = _read_kind(table)
        if kind is not None:
            return self._read_instance(table, kind)
        if meant is not None:
            self._read_instance(table, meant)
        else:
            self._judge_without_kind(table)
        return None

    def _judge_without_kind(self, table: Table) -> None:
        # What else may stand here depends on the kind; a key in the file and an address that is none never do.
        refuse_key(table, "PROVIDER_API_KEY")
        if "base_url" in table:
            self._read_base_url(table, default="")

    def _read_instance(self, table: Table, kind: ProviderKind) -> ProviderSettings:
        settings = ProviderSettings(
            name=table.name,
            kind=kind.name,
            timeouts=_read_bounds(table.table("timeouts"), Timeouts()),
            breaker=read_breaker(table.table("breaker")),
            max_concurrent_calls=table.optional_integer("max_concurrent_calls", most=MOST_CALLS),
            allow_direct_models=table.flag("allow_direct_models", default=False),
            **(self._read_remote(table, kind) if kind.is_remote else self._read_scripts(table)),
        )
        table.close()
        return settings

    def _read_scripts(self, table: Table) -> dict[str, Any]:
        return {"scripts": read_scripts(table, self._folder)}

    def _read_remote(self, table: Table, kind: ProviderKind) -> dict[str, Any]:
        proxy = table.text("proxy")
        dialect = _read_dialect(table, kind)
        region = self._read_region(table) if kind.is_regional else None
        address = kind.base_url if dialect is None else dialect.base_url
        return {
            "dialect": dialect,
            "wire": None if kind.plugin is None else _read_settings(table, kind.plugin),
            "settings": {} if kind.plugin is None else table.peek("settings") or {},
            "base_url": self._read_base_url(table, address).replace("{region}", region or ""),
            "keys": self._keys.read(table, kind, needed=not _needs_no_key(table, kind)),
            **(self._read_credentials(table, kind) if kind.credentials else {}),
            "region": region,
            "limits": _read_bounds(table.table("limits"), Limits()),
            "resend_on_stale_connection": table.flag("resend_on_stale_connection", default=True),
            **(_read_socket_age(table) if kind.has_sockets else {}),
            "proxy": Secret(proxy) if proxy and table.checked("proxy", proxy, Proxy.parse) else None,
            "ca_file": self._read_trust(table),
        }

    def _read_region(self, table: Table) -> str | None:
        """Return the region of the file: the environment's could be another one than the base URL's."""
        region = table.text("region")
        if region is not None and not _REGION.fullmatch(region):
            table.mistake("region", "is not the name of a region", 'write one such as "eu-central-1"')
            return None
        if region is None and not (has_key(table) and "base_url" in table):
            table.mistake(None, 'lacks "region"', 'write one such as region = "eu-central-1"')
        if not has_key(table) and self._environ is not None and not can_sign():
            table.mistake(None, "signs with AWS credentials, which need botocore", f'pip install "{EXTRA}"')
        return region

    def _read_base_url(self, table: Table, default: str) -> str:
        url = table.text("base_url")
        allow_insecure = table.flag("allow_insecure", default=False)
        if url is None and not default and "base_url" not in table:
            fix = "write base_url = the address of your server"
            table.mistake(None, "has no base_url, and servers of this sort have none in common", fix)
        if url is None or not table.checked("base_url", url, Endpoint.parse):
            return default
        if not allow_insecure and url.lower().startswith("http:") and not _is_loopback(url):
            table.mistake(
                "base_url",
                "keys and prompts would travel unencrypted",
                "begin it with https://, or set allow_insecure = true if something else shields the way",
            )
        return url

    def _read_trust(self, table: Table) -> Path | None:
        path = readable_file(table, "ca_file", table.text("ca_file"), self._folder)
        problem = trust_problem(path) if path else None
        if problem:
            table.mistake("ca_file", problem, "give a PEM file of certificates")
        return path

    def _read_credentials(self, table: Table, kind: ProviderKind) -> dict[str, Any]:
        """Return what takes the place of a key."""
        name = table.choice("credentials", kind.credentials, "")
        path = readable_file(table, "credentials_file", table.text("credentials_file"), self._folder)
        if not name:
            if "credentials_file" in table and "credentials" not in table:
                fix = f'write credentials = "{kind.credentials[0]}", or remove it'
                table.mistake("credentials_file", "goes with credentials", fix)
            return {}
        if has_key(table):
            table.mistake("credentials", "there are two ways to authenticate", "remove this or the key")
        if self._environ is not None and not google_credentials.can_fetch():
            fix = f'pip install "{google_credentials.EXTRA}"'
            table.mistake("credentials", "needs google-auth, which is not installed", fix)
        elif self._environ is not None and path and (problem := google_credentials.file_problem(path)):
            fix = "give the JSON file of a service account's key; other kinds belong to the environment"
            table.mistake("credentials_file", problem, fix)
        return {"credentials": name, "credentials_file": path}


def _needs_no_key(table: Table, kind: ProviderKind) -> bool:
    # A server of one's own may need no key; the provider's own address always does.
    return "base_url" in table or kind.is_regional or (bool(kind.credentials) and "credentials" in table)


def _read_dialect(table: Table, kind: ProviderKind) -> Dialect | None:
    if not kind.has_dialects:
        return None
    return read_dialect(table) or default_dialect(has_base_url="base_url" in table)


def _read_kind(table: Table) -> tuple[ProviderKind | None, ProviderKind | None]:
    """Return the kind, or `None` and the kind that was probably meant; the mistake is noted."""
    foreign = installed_kinds()
    known = [*SUPPORTED, *(name for name in foreign if name not in SUPPORTED)]
    name = table.required_text("kind", f"write kind = {choices(known)}")
    if name is None:
        return None, None
    try:
        if name in SUPPORTED:
            _refuse_shadow(foreign.get(name, ()))
            return SUPPORTED[name], None
        if name in foreign:
            return foreign_kind(load_plugin(foreign[name])), None
    except PluginRefused as error:
        table.mistake("kind", error.problem, error.fix)
        return None, SUPPORTED.get(name)
    meant = did_you_mean(name, known)
    fix = f'did you mean "{meant}"?' if meant else f"write {choices(known)}, or install the driver of it"
    table.mistake("kind", f'"{name}" is not a kind of provider', fix)
    return None, SUPPORTED.get(meant or "")


def _refuse_shadow(entries: tuple[EntryPoint, ...]) -> None:
    """Raise PluginRefused if another distribution claims this built-in kind: which one runs must be beyond doubt."""
    if entries:
        problem = f"{distributions(entries)} claims this built-in kind"
        raise PluginRefused(problem, "uninstall it: a driver of another distribution needs a kind of its own")


def _read_socket_age(table: Table) -> dict[str, Any]:
    return {"socket_seconds": table.seconds("socket_seconds", CONNECTION_AGE, zero=True) or None}


def _read_settings(table: Table, plugin: DriverPlugin) -> WireFormat | None:
    """Return the row that a foreign driver makes of its table; what it complains of is noted."""
    settings = table.get("settings", dict, "a table") or {}
    try:
        return wire_format_of(plugin, settings)
    except SettingError as error:
        table.table("settings").mistake(error.key, error.problem, error.fix)
    except PluginRefused as error:
        table.mistake("settings", error.problem, error.fix)
    return None


def _read_bounds(table: Table, defaults: _Bounds) -> _Bounds:
    values: dict[str, Any] = {}
    for field in fields(defaults):
        default = getattr(defaults, field.name)
        if isinstance(default, float):
            values[field.name] = table.seconds(field.name, default)
        else:
            values[field.name] = table.integer(field.name, default, least=1, most=_MOST)
    table.close()
    return type(defaults)(**values)


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
