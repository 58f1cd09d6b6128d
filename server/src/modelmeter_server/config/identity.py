"""The sections `[identity]` and `[tenants.NAME]`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from modelmeter_server.core.requests import Sensitivity
from modelmeter_server.core.tenants import ANY_MODEL, Tenant
from modelmeter_server.drivers.http.endpoint import check_web_address
from modelmeter_server.identity.jwt_verifier import JwtRules
from modelmeter_server.identity.key_set import KeySetError, parse_keys
from modelmeter_server.identity.token_file import TokenFile, TokenFileError
from modelmeter_server.rpc.listen import is_loopback

from .call_limits import read_limits
from .ceilings import read_ceilings
from .files import readable_file, trust_problem
from .mistakes import did_you_mean
from .sensitivity import read_sensitivity
from .settings import IdentitySettings, JwtSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from modelmeter_server.core.ceilings import Ceiling

    from .model_settings import ModelSettings, RouteSettings
    from .settings import ProviderSettings, ServerSettings
    from .tables import Table

_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_CERTIFICATE = re.compile(r"(uri|dns|cn):[!-~ ]+")
_CLAIM = re.compile(r"[!-~]{1,128}")
_KEY_SET_BYTES = 1024 * 1024
_OTHERS_MAY_WRITE = 0o022
_MOST_LEEWAY = 300.0


class KnownModels:
    """What tenants may be allowed: models by name, and whatever a provider has that allows direct names."""

    def __init__(
        self,
        models: Iterable[ModelSettings | RouteSettings],
        providers: Mapping[str, ProviderSettings | None],
    ) -> None:
        self.names = frozenset(each.name for each in models)
        # One that could not be read might allow them.
        self._direct = {name for name, each in providers.items() if each is None or each.allow_direct_models}

    def has(self, name: str) -> bool:
        """Say whether a name, or one that ends in `*`, can stand for a model."""
        if name.endswith(ANY_MODEL) or name in self.names:
            return True
        return name.partition("/")[0] in self._direct


def read_identity(
    root: Table, folder: Path, models: KnownModels, *, asks_for_certificates: bool
) -> IdentitySettings | None:
    """Read both sections; `None` without them: then nobody is asked who they are."""
    tenants: list[Tenant] = []
    ceilings: list[Ceiling] = []
    certificates: dict[str, str] = {}
    for table in root.named_tables("tenants"):
        tenants.append(_read_tenant(table, models))
        ceilings += read_ceilings(table)
        for name in _read_certificates(table, certificates, asks_for_certificates=asks_for_certificates):
            certificates[name] = table.name
        table.close()
    if "identity" not in root:
        if "tenants" in root:
            root.mistake(
                "tenants",
                "tenants need [identity]: nothing would tell one caller from another",
                'add [identity] with tokens_file = "tokens.json", or remove them',
            )
        root.table("identity")
        return None
    identity = root.table("identity")
    if not tenants:
        identity.mistake(None, "lets nobody in: there is no tenant", "add [tenants.NAME]")
    settings = _read_section(identity, folder, tuple(tenants), certificates)
    return msgspec.structs.replace(settings, ceilings=tuple(ceilings))


def check_strangers(root: Table, server: ServerSettings, identity: IdentitySettings | None) -> None:
    """Note addresses on which everybody would be an admin although nobody said that this is meant."""
    if identity is not None or "identity" in root or server.allow_anonymous:
        return
    has_tls = server.tls is not None
    listeners = [("listen", address) for address in server.listen if has_tls or server.allow_insecure]
    # One in the clear is either shielded, as `private_allow_insecure` says, or a mistake already.
    if has_tls and server.private_listen and not server.private_allow_insecure:
        listeners.append(("private_listen", server.private_listen))
    for key, address in listeners:
        if not is_loopback(address):
            root.table("server").mistake(
                key,
                f"other machines can reach {address}, and without [identity] everybody there is an admin",
                "add [identity], or allow_anonymous = true if something else decides who gets here",
            )


def _read_section(
    table: Table, folder: Path, tenants: tuple[Tenant, ...], certificates: dict[str, str]
) -> IdentitySettings:
    settings = IdentitySettings(
        tenants=tenants,
        tokens_file=_read_tokens_file(table, folder),
        jwt=_read_jwt(table.table("jwt"), folder) if "jwt" in table else None,
        certificates=certificates,
        open_health=table.flag("open_health", default=False),
        open_reflection=table.flag("open_reflection", default=False),
    )
    if "jwt" not in table:
        table.table("jwt")
    if "tokens_file" not in table and "jwt" not in table and not certificates:
        table.mistake(
            None,
            "lets nobody in: there is no way to prove who one is",
            'add tokens_file = "tokens.json", [identity.jwt], or certificates to a tenant',
        )
    table.close()
    return settings


def _read_tenant(table: Table, models: KnownModels) -> Tenant:
    if not _TENANT.fullmatch(table.name):
        fix = "use up to 64 letters, digits, dots, dashes and underscores"
        table.mistake(None, "is no name for a tenant", fix)
    highest = read_sensitivity(table, "max_sensitivity", Sensitivity.SECRET)
    usual = read_sensitivity(table, "default_sensitivity", Sensitivity.PUBLIC)
    if usual > highest:
        problem = "is above max_sensitivity: prompts that say nothing would be refused"
        table.mistake("default_sensitivity", problem, "lower it")
    return Tenant(
        name=table.name,
        models=_read_models(table, models),
        max_sensitivity=highest,
        default_sensitivity=usual,
        limits=read_limits(table.table("limits"), may_queue=True),
        is_admin=table.flag("admin", default=False),
    )


def _read_models(table: Table, models: KnownModels) -> tuple[str, ...]:
    names = table.texts("models")
    for name in names or ():
        if not models.has(name):
            meant = did_you_mean(name, models.names)
            fix = f'did you mean "{meant}"?' if meant else 'name a model of this file, or "*" for all'
            table.mistake("models", f'there is no model "{name}"', fix)
    return (ANY_MODEL,) if names is None else names


def _read_certificates(
    table: Table, taken: Mapping[str, str], *, asks_for_certificates: bool
) -> tuple[str, ...]:
    names = table.texts("certificates") or ()
    if names and not asks_for_certificates:
        fix = "add client_ca to server.tls, or remove them"
        table.mistake("certificates", "clients are not asked for certificates", fix)
    for name in names:
        if not _CERTIFICATE.fullmatch(name):
            fix = 'write "uri:spiffe://...", "dns:host.example" or "cn:common name"'
            table.mistake("certificates", f'"{name}" is no name of a certificate', fix)
        if name in taken:
            table.mistake("certificates", f'"{name}" is of tenant "{taken[name]}" already', "choose one")
    return names


def _read_tokens_file(table: Table, folder: Path) -> Path | None:
    name = table.text("tokens_file")
    if name is None:
        return None
    if "\0" in name:
        table.mistake("tokens_file", "is no path: it holds a NUL character", "correct the path")
        return None
    path = folder / name
    if not path.parent.is_dir():
        table.mistake(
            "tokens_file", f"there is no folder {path.parent}", "correct the path or make the folder"
        )
        return path
    try:
        TokenFile(path).load()
    except TokenFileError as error:
        table.mistake("tokens_file", str(error), "correct the path or its permissions")
    if path.exists() and path.stat().st_mode & _OTHERS_MAY_WRITE:
        problem = f"others may write {path}, and so make tokens"
        table.mistake("tokens_file", problem, "take their right to write away: chmod 600")
    return path


def _read_jwt(table: Table, folder: Path) -> JwtSettings:
    claim = table.text("tenant_claim") or JwtRules(issuer="", audience="").tenant_claim
    if not _CLAIM.fullmatch(claim):
        table.mistake("tenant_claim", "is no name of a claim", "write the claim that holds the tenant's name")
    leeway = table.seconds("leeway", JwtRules(issuer="", audience="").leeway, zero=True)
    if leeway > _MOST_LEEWAY:
        table.mistake("leeway", f"{leeway} is out of range", f"write {_MOST_LEEWAY:.0f} seconds at most")
    rules = JwtRules(
        issuer=table.required_text("issuer", 'write issuer = "https://..." as the tokens have it in iss')
        or "",
        audience=table.required_text("audience", "write audience as the tokens have it in aud") or "",
        tenant_claim=claim,
        leeway=leeway,
    )
    settings = JwtSettings(
        rules=rules,
        jwks_url=_read_url(table),
        jwks_file=_read_key_set(table, folder),
        ca_file=_read_ca_file(table, folder),
    )
    if ("jwks_url" in table) == ("jwks_file" in table):
        table.mistake(None, "needs the issuer's keys from one place", "give jwks_url or jwks_file")
    table.close()
    return settings


def _read_url(table: Table) -> str | None:
    url = table.text("jwks_url")
    if url is None:
        return None
    try:
        check_web_address(url)
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    host, port = parts.hostname or "", parts.port
    local = parts.scheme == "http" and is_loopback(f"{host}:{port or 80}")
    if not (parts.scheme == "https" or local) or parts.username or parts.fragment:
        problem = "is no https address: whoever can change the keys on their way can be anybody"
        table.mistake("jwks_url", problem, "write https://HOST/PATH, without a user name")
    return url


def _read_key_set(table: Table, folder: Path) -> Path | None:
    path = readable_file(table, "jwks_file", table.text("jwks_file"), folder)
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            keys = parse_keys(file.read(_KEY_SET_BYTES))
    except KeySetError:
        keys = {}
    if not keys:
        problem = "holds no key for RS256 (2,048 bits or more), ES256 or EdDSA"
        table.mistake("jwks_file", problem, 'give a JWK Set: { "keys": [...] }')
    return path


def _read_ca_file(table: Table, folder: Path) -> Path | None:
    path = readable_file(table, "ca_file", table.text("ca_file"), folder)
    problem = trust_problem(path) if path is not None else None
    if problem is not None:
        table.mistake("ca_file", problem, "give the PEM certificates of the authorities")
    return path
