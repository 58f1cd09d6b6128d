"""What tells one configuration from another: by the names of keys, never by their values. Pure.

A section of `Settings` that is not named here is taken over by a reload; what is in `RESTART` is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from modelmeter_server.core.toml_words import KeyPath, written

from .settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .settings import ServerSettings, TelemetrySettings

RESTART: Final = frozenset(
    {
        *(
            ("server", key)
            for key in (
                "listen",
                "allow_insecure",
                "workers",
                "reflection",
                "max_connection_age_seconds",
                "private_listen",
                "private_allow_insecure",
                "admin_service",
            )
        ),
        ("ledger",),
        ("telemetry",),
    }
)
"""What is as it was at the start until the next one: a key, or a whole section."""

_TAKEN_OVER: Final = frozenset({("telemetry", "redaction")})
"""What a reload takes over of a section that otherwise waits for a restart."""

_MADE: Final = ("scripts", "wire")
"""What is made of a provider's file and of its `settings`, which are compared as such."""

_NO_KEYS: Final = frozenset({("share",), ("files",)})


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """How a new configuration differs from the one that holds."""

    settings: Settings
    """What holds once the new one is taken over: all of it but what needs a restart."""
    applied: tuple[KeyPath, ...] = ()
    """Keys, or the names of models, providers and tenants that came or went."""
    restart: tuple[KeyPath, ...] = ()
    """Keys whose new values need a restart."""

    def touch(self, *path: str) -> bool:
        """Say whether anything at or below a path is taken over anew."""
        return any(each[: len(path)] == path for each in self.applied)

    def listed(self) -> list[str]:
        """Return what is taken over, as TOML would write the keys."""
        return [written(path) for path in self.applied]

    def waiting(self) -> list[str]:
        """Return what needs a restart, as TOML would write the keys."""
        return [written(path) for path in self.restart]


def compare(old: Settings, new: Settings) -> Changes:
    """Return what becomes of `new` on a server that runs with `old`."""
    found = sorted({*_differing(old, new), *_files(old, new)}, key=lambda path: tuple(map(str, path)))
    waiting = tuple(path for path in found if _needs_restart(path, old, new))
    return Changes(
        settings=msgspec.structs.replace(
            new,
            server=_server(old.server, new.server, keeps_tls=("server", "tls") in waiting),
            ledger=old.ledger,
            telemetry=_telemetry(old.telemetry, new.telemetry),
            identity=old.identity if ("identity",) in waiting else new.identity,
            share=old.share,
        ),
        applied=tuple(path for path in found if path not in waiting),
        restart=waiting,
    )


def _needs_restart(path: KeyPath, old: Settings, new: Settings) -> bool:
    if path[:2] == ("server", "tls"):
        return _shape(old.server) != _shape(new.server)
    if path[:1] == ("identity",):
        # Whether anybody is asked at all is not left to the moment in which a file is being edited.
        return (old.identity is None) != (new.identity is None)
    return not RESTART.isdisjoint(path[:end] for end in (1, 2)) and path[:2] not in _TAKEN_OVER


def _shape(server: ServerSettings) -> tuple[bool, bool]:
    """Return what gRPC fixes when it listens: whether there is TLS, and whether clients show certificates."""
    return server.tls is not None, server.tls is not None and server.tls.client_ca is not None


def _server(old: ServerSettings, new: ServerSettings, *, keeps_tls: bool) -> ServerSettings:
    kept = {path[1]: getattr(old, path[1]) for path in RESTART if path[0] == "server"}
    if keeps_tls:
        kept["tls"] = old.tls
    return msgspec.structs.replace(new, **kept)


def _telemetry(old: TelemetrySettings, new: TelemetrySettings) -> TelemetrySettings:
    return msgspec.structs.replace(old, redaction=new.redaction)


def _differing(old: Any, new: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the keys at which two settings differ: one level below sections, and below what has a name."""
    for field in old.__struct_fields__:
        here: KeyPath = (*path, field)
        before, after = getattr(old, field), getattr(new, field)
        if here in _NO_KEYS or before == after:
            continue
        if _is_named(before) or _is_named(after):
            yield from _named(before, after, here)
        elif len(path) == 0 and _is_struct(before) and _is_struct(after):
            yield from _differing(before, after, here)
        else:
            yield here


def _named(old: Iterable[Any], new: Iterable[Any], path: KeyPath) -> Iterator[KeyPath]:
    before, after = ({each.name: each for each in side} for side in (old, new))
    section = "models" if path == ("routes",) else path[-1]
    for name in sorted(before.keys() ^ after.keys()):
        yield section, name
    for name in sorted(before.keys() & after.keys()):
        for field in before[name].__struct_fields__:
            if field not in _MADE and getattr(before[name], field) != getattr(after[name], field):
                yield section, name, field


def _files(old: Settings, new: Settings) -> Iterator[KeyPath]:
    """Yield the keys that name another file, or one that holds something else. Of the document its keys tell."""
    before, after = ({each.key: (each.path, each.digest) for each in side.files} for side in (old, new))
    for key in before.keys() | after.keys():
        if key and before.get(key) != after.get(key):
            yield key


def _is_named(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and all(hasattr(each, "name") for each in value)


def _is_struct(value: object) -> bool:
    return isinstance(value, msgspec.Struct)
