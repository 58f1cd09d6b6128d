"""From a file, the environment and the command line to `Settings`, or to every mistake at once."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from modelmeter_server.core.shares import Share

from .addresses import HIGHEST_PORT, last_port
from .builtin import with_replay
from .egress import check_addresses, read_egress
from .environment import CONFIG_VARIABLE, overrides
from .files import digest
from .identity import KnownModels, check_strangers, read_identity
from .ledger import read_ledger
from .mistakes import ConfigError, Mistake, Mistakes
from .models import ModelReader
from .positions import SourceLines
from .providers import ProviderReader
from .server import read_server
from .settings import NO_LEDGER, NamedFile, Settings
from .tables import Table
from .targets import TARGETS, RouteReader
from .telemetry import read_telemetry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modelmeter_server.core.toml_words import KeyPath

_POSITION = re.compile(r" \(at line (\d+), column \d+\)$")
_AT_END = " (at end of document)"
_NO_FILE = "built-in configuration"


def load(
    file: Path | None,
    environ: Mapping[str, str],
    *,
    listen: Sequence[str] = (),
    workers: int | None = None,
    share: Share | None = None,
    read_keys: bool = True,
) -> Settings:
    """Read the configuration once, keys included.

    Each of these wins over what follows it: `listen` and `workers` from the command line, the environment, the
    file, the defaults. `share` says which of the workers this process is. Without a file the variable
    MODELMETER_CONFIG may name one; without either the embedded replay provider is served. `read_keys=False` checks a
    file on a machine that does not hold the keys.

    Raises:
        ConfigError: with every mistake, in the order of the file; or the one that keeps it from being read.
    """
    if file is None and environ.get(CONFIG_VARIABLE):
        file = Path(environ[CONFIG_VARIABLE])
    values: dict[str, Any] = {}
    if file is None:
        mistakes, folder = Mistakes(_NO_FILE), Path.cwd()
    else:
        text = _read(file)
        values = _parse(text, str(file))
        mistakes, folder = Mistakes(str(file), SourceLines(text)), file.absolute().parent
    replaced = overrides(environ)
    if listen:
        replaced[("server", "listen")] = (list(listen), "option --listen")
    if workers is not None:
        replaced[("server", "workers")] = (workers, "option --workers")
    _override(values, replaced, mistakes)
    reader = ProviderReader(environ if read_keys else None, folder)
    settings = _settings(
        Table(values, (), mistakes),
        reader,
        folder,
        environ if read_keys else None,
        from_file=file is not None,
    )
    mistakes.raise_if_any()
    settings = msgspec.structs.replace(settings, share=share or Share(0, settings.server.workers))
    if file is None:
        return with_replay(settings)
    named = {(): file, **mistakes.files}
    return msgspec.structs.replace(
        settings, files=tuple(NamedFile(*each, digest(each[1])) for each in named.items())
    )


def _settings(
    root: Table,
    provider_reader: ProviderReader,
    folder: Path,
    environ: Mapping[str, str] | None,
    *,
    from_file: bool,
) -> Settings:
    server = read_server(root.table("server"), folder)
    ledger = read_ledger(root.table("ledger"), folder)
    providers = {table.name: provider_reader.read(table) for table in root.named_tables("providers")}
    model_reader = ModelReader(providers)
    sections = list(root.named_tables("models"))
    models = tuple(model_reader.read(table) for table in sections if TARGETS not in table)
    routed = [table for table in sections if TARGETS in table]
    route_reader = RouteReader(
        providers, model_reader, {each.name: each for each in models}, frozenset(each.name for each in routed)
    )
    routes = tuple(map(route_reader.read, routed))
    usable = tuple(provider for provider in providers.values() if provider is not None)
    # A provider that could not be read might allow direct models.
    if from_file and not sections and not any(p is None or p.allow_direct_models for p in providers.values()):
        root.mistake(
            "models",
            "nothing could be called: there is no model, and no provider has allow_direct_models",
            'add [models."NAME"] with provider and model',
        )
    identity = read_identity(
        root,
        folder,
        KnownModels((*models, *routes), providers),
        asks_for_certificates=server.tls is not None and server.tls.client_ca is not None,
    )
    telemetry = read_telemetry(root.table("telemetry"), environ)
    if last_port(telemetry.prometheus.listen, server.workers) > HIGHEST_PORT:
        problem = f"{server.workers} workers need as many ports from {telemetry.prometheus.listen} on"
        root.table("telemetry").table("prometheus").mistake("listen", problem, "choose a lower port")
    settings = Settings(
        server=server,
        ledger=ledger,
        providers=usable,
        models=models,
        routes=routes,
        telemetry=telemetry,
        identity=identity,
        egress=read_egress(root),
    )
    check_addresses(root, settings)
    if from_file:  # without one it is the embedded provider, which costs nothing
        check_strangers(root, server, identity)
    if identity is not None and identity.ceilings and ledger.url == NO_LEDGER:
        fix = "remove the ceilings, or let [ledger] keep a ledger"
        root.mistake("tenants", "ceilings need a ledger, and this deployment keeps none", fix)
    root.close()
    return settings


def _read(file: Path) -> str:
    try:
        # Editors on Windows put a byte order mark in front.
        return file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        problem, fix = f"cannot be read: {error.strerror}", "correct the path or its permissions"
    except UnicodeDecodeError as error:
        problem, fix = f"is not UTF-8 at byte {error.start}", "save it as UTF-8"
    raise ConfigError([Mistake(str(file), "", problem, fix)])


def _parse(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        position = _POSITION.search(message)
        line = position[1] if position else _last_line(text) if message.endswith(_AT_END) else None
        where = source if line is None else f"{source}:{line}"
        problem = f"is not TOML: {message.removesuffix(position[0]) if position else message}"
        fix = "correct the syntax; further mistakes show only then"
    except RecursionError:
        where, problem, fix = source, "is nested too deeply", "write flatter tables"
    raise ConfigError([Mistake(where, "", problem, fix)]) from None


def _last_line(text: str) -> int:
    """Return the last line with anything on it: where a file that was cut off ends."""
    return 1 + text.rstrip().count("\n")


def _override(
    values: dict[str, Any], replaced: Mapping[KeyPath, tuple[Any, str]], mistakes: Mistakes
) -> None:
    for (section, key), (value, origin) in replaced.items():
        table = values.setdefault(str(section), {})
        # A section of the wrong type is a mistake of its own; nothing can be put into it.
        if isinstance(table, dict):
            table[str(key)] = value
            mistakes.set_origin((section, key), origin)
