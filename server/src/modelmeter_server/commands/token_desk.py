"""Where `modelmeter tokens` works: on the file of tokens itself, or through a server that runs."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from modelmeter import NewToken, Token, TokenState
from modelmeter_server.core.tokens import token_id_of
from modelmeter_server.identity.token_file import NoSuchToken, TokenEnded, TokenFile, TokenFileError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TypeVar

    from modelmeter import Client
    from modelmeter_server.core.tokens import TokenRecord

    _Done = TypeVar("_Done")


class Unchanged(Exception):
    """Nothing was done; the message says why."""


class TokenDesk(Protocol):
    """What the commands do. Raises Unchanged, or what the client raises."""

    def create(self, tenant: str, name: str, lifetime: timedelta | None) -> NewToken: ...
    def rotate(self, token_id: str, overlap: timedelta, lifetime: timedelta | None) -> NewToken: ...
    def expire(self, token_id: str, at: datetime) -> Token: ...
    def revoke(self, token_id: str) -> Token: ...
    def tokens(self, tenant: str) -> list[Token]: ...


class FileDesk:
    """Work on the file, whether or not a server runs."""

    def __init__(self, path: Path, tenants: frozenset[str] | None = None) -> None:
        """`tenants` are those there are, where a configuration says so. Raises Unchanged for a file that is none."""
        self._file = TokenFile(path)
        self._tenants = tenants
        _done(self._file.load)

    def create(self, tenant: str, name: str, lifetime: timedelta | None) -> NewToken:
        if self._tenants is not None and tenant not in self._tenants:
            message = (
                f'there is no tenant "{tenant}"; the configuration has {", ".join(sorted(self._tenants))}'
            )
            raise Unchanged(message)
        record, secret = _done(lambda: self._file.create(tenant, name=name, expires_at=_end(lifetime)))
        return NewToken(_token(record), secret)

    def rotate(self, token_id: str, overlap: timedelta, lifetime: timedelta | None) -> NewToken:
        record, secret, old = _done(
            lambda: self._file.rotate(token_id, overlap=overlap.total_seconds(), expires_at=_end(lifetime))
        )
        return NewToken(_token(record), secret, _token(old))

    def expire(self, token_id: str, at: datetime) -> Token:
        return _token(_done(lambda: self._file.expire(token_id, int(at.timestamp()))))

    def revoke(self, token_id: str) -> Token:
        return _token(_done(lambda: self._file.revoke(token_id)))

    def tokens(self, tenant: str) -> list[Token]:
        return [_token(each) for each in self._file.records() if tenant in ("", each.tenant)]


class ServerDesk:
    """Ask a server, as an admin."""

    def __init__(self, client: Client) -> None:
        self._admin = client.admin

    def create(self, tenant: str, name: str, lifetime: timedelta | None) -> NewToken:
        return self._admin.create_token(tenant, name=name, lifetime=lifetime)

    def rotate(self, token_id: str, overlap: timedelta, lifetime: timedelta | None) -> NewToken:
        return self._admin.rotate_token(token_id, overlap=overlap, lifetime=lifetime)

    def expire(self, token_id: str, at: datetime) -> Token:
        return self._admin.expire_token(token_id, at)

    def revoke(self, token_id: str) -> Token:
        return self._admin.revoke_token(token_id)

    def tokens(self, tenant: str) -> list[Token]:
        return self._admin.tokens(tenant=tenant)


def configured_desk(config: Path) -> FileDesk:
    """Return the desk at the file that a configuration names. Raises Unchanged and ConfigError."""
    from modelmeter_server.config import load

    identity = load(config, os.environ, read_keys=False).identity
    if identity is None or identity.tokens_file is None:
        message = f"{config} has no identity.tokens_file"
        raise Unchanged(message)
    return FileDesk(identity.tokens_file, frozenset(tenant.name for tenant in identity.tenants))


def named_id(text: str) -> str:
    """Return the id of a token; a whole token, which was copied where its id was meant, is cut to that."""
    return token_id_of(text) or text


def _done(work: Callable[[], _Done]) -> _Done:
    try:
        return work()
    except NoSuchToken as error:
        message = f"there is no token {error}"
        raise Unchanged(message) from None
    except TokenEnded as error:
        message = f"token {error} has expired or is revoked already"
        raise Unchanged(message) from None
    except TokenFileError as error:
        raise Unchanged(str(error)) from None


def _end(lifetime: timedelta | None) -> int | None:
    return None if lifetime is None else int(time.time() + lifetime.total_seconds())


def _token(record: TokenRecord) -> Token:
    return Token(
        token_id=record.token_id,
        tenant=record.tenant,
        name=record.name,
        state=TokenState(record.state(time.time()).value),
        created_at=datetime.fromtimestamp(record.created_at, UTC),
        expires_at=_moment(record.expires_at),
        revoked_at=_moment(record.revoked_at),
    )


def _moment(seconds: int | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
