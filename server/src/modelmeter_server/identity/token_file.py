"""The file that keeps what is known of every token: JSON, replaced as a whole, readable by its owner alone.

Several processes may change it at once (servers on one machine, the command line): each takes a lock beside the file,
reads, changes and replaces. Readers need no lock and see a change within a second.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from modelmeter_server.core.tokens import (
    ID_CHARACTERS,
    ID_LENGTH,
    RANDOM_CHARACTERS,
    RANDOM_LENGTH,
    TokenRecord,
    TokenState,
    digest_of,
    token_text,
)
from modelmeter_server.core.windows import LAST_SECOND
from modelmeter_server.drivers.file_watch import FileWatch
from modelmeter_server.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOST_TOKENS: Final = 10_000
"""Records of a file; one that is full is cleaned by hand."""

LOOK_SECONDS: Final = 1.0
"""How often the file is looked at, at most: a token that is revoked elsewhere opens doors for this long."""

_MOST_BYTES: Final = 16 * 1024 * 1024
_MODE: Final = 0o600

_log = get_logger(__name__)


class TokenFileError(Exception):
    """The file cannot be read or written, or holds something else; the message says which and what to do."""


class NoSuchToken(Exception):
    """There is no token of this id."""


class TokenEnded(Exception):
    """The token is revoked, or has expired where one that has not is needed."""


class _Document(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    version: int = 1
    tokens: list[TokenRecord] = []


class TokenFile:
    """The tokens of one file. Methods that change it do file I/O and may wait for the lock."""

    def __init__(self, path: Path) -> None:
        """Read nothing yet. A file that is not there holds no tokens, and is made with the first."""
        self.path = path
        self._watch = FileWatch([path])
        self._looked_at = float("-inf")
        self._records: dict[str, TokenRecord] = {}
        self._complaint = ""
        self._changes = 0
        self._taking = threading.Lock()

    def load(self) -> None:
        """Read the file now. Raises TokenFileError."""
        self._watch.changed()
        self._records = {record.token_id: record for record in _read(self.path)}

    def find(self, token_id: str) -> TokenRecord | None:
        """Return what is known of a token; a file that can no longer be read is logged, and what was known holds."""
        self._refresh()
        return self._records.get(token_id)

    def records(self) -> list[TokenRecord]:
        """Return all records, the oldest first."""
        self._refresh()
        return sorted(self._records.values(), key=lambda each: (each.created_at, each.token_id))

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        if not self._watch.changed():
            return
        changes = self._changes
        try:
            self._must_be_there()
            records = {record.token_id: record for record in _read(self.path)}
            with self._taking:
                # A change in another thread may have replaced the file since it was read.
                if self._changes == changes:
                    self._records = records
        except TokenFileError as error:
            self._watch.forget()
            self._complain(str(error))
        else:
            self._complaint = ""

    def _must_be_there(self) -> None:
        # Nobody is locked out by a file that is away for a moment, nor by a new one with a single token in it;
        # whoever means it empties the file.
        if self._records and not self.path.exists():
            message = f"{self.path} is gone: put it back"
            raise TokenFileError(message)

    def _complain(self, reason: str) -> None:
        if reason != self._complaint:
            _log.error("the tokens are not read anew; those known before still hold", reason=reason)
        self._complaint = reason

    def create(
        self, tenant: str, *, name: str = "", expires_at: int | None = None
    ) -> tuple[TokenRecord, str]:
        """Make a token; return its record, and the token, which nobody can tell a second time.

        Raises TokenFileError.
        """
        with self._changing() as records:
            return _add(records, tenant, name, expires_at)

    def rotate(
        self, token_id: str, *, overlap: float = 0.0, expires_at: int | None = None
    ) -> tuple[TokenRecord, str, TokenRecord]:
        """Make a successor of the same tenant and name; the old token still opens for `overlap` seconds.

        Without `expires_at` the successor lives from now on as long as the old one did from its making to its end,
        and has no end only if the old one had none. Return the new record, the new token and the old record. Raises
        NoSuchToken, TokenEnded for one that opens nothing any more, and TokenFileError.
        """
        now = time.time()
        with self._changing() as records:
            old = _known(records, token_id)
            if old.state(now) is not TokenState.ACTIVE:
                raise TokenEnded(token_id)
            if expires_at is None:
                expires_at = _end_of_as_long_a_life(old, now)
            record, token = _add(records, old.tenant, old.name, expires_at)
            end = int(now + overlap)
            sooner = end if old.expires_at is None else min(end, old.expires_at)
            records[token_id] = old = msgspec.structs.replace(old, expires_at=sooner)
            return record, token, old

    def expire(self, token_id: str, at: int) -> TokenRecord:
        """Let a token end at a time. Raises NoSuchToken, TokenEnded for a revoked one, and TokenFileError."""
        with self._changing() as records:
            record = _known(records, token_id)
            if record.revoked_at is not None:
                raise TokenEnded(token_id)
            records[token_id] = record = msgspec.structs.replace(record, expires_at=at)
            return record

    def revoke(self, token_id: str) -> TokenRecord:
        """End a token now and for good; harmless the second time. Raises NoSuchToken and TokenFileError."""
        with self._changing() as records:
            record = _known(records, token_id)
            if record.revoked_at is None:
                record = msgspec.structs.replace(record, revoked_at=int(time.time()))
                records[token_id] = record
            return record

    @contextmanager
    def _changing(self) -> Iterator[dict[str, TokenRecord]]:
        """Hold the lock while a change is made to what the file holds now, and replace the file by it."""
        try:
            with self._locked():
                self._must_be_there()
                records = {record.token_id: record for record in _read(self.path)}
                yield records
                _write(self.path, records)
                # Still under the lock: of two changes the later one must be taken over last.
                with self._taking:
                    self._changes += 1
                    self._watch.changed()
                    self._records = records
        except OSError as error:
            message = f"cannot change {self.path}: {error.strerror or error}"
            raise TokenFileError(message) from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Beside the file: the file itself is replaced, and a lock on what was replaced keeps nobody out.
        lock = self.path.with_name(self.path.name + ".lock")
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _known(records: dict[str, TokenRecord], token_id: str) -> TokenRecord:
    try:
        return records[token_id]
    except KeyError:
        raise NoSuchToken(token_id) from None


def _add(
    records: dict[str, TokenRecord], tenant: str, name: str, expires_at: int | None
) -> tuple[TokenRecord, str]:
    if len(records) >= MOST_TOKENS:
        message = f"the file holds {MOST_TOKENS:,} tokens, as many as it may: take old ones out"
        raise TokenFileError(message)
    token_id = _random(ID_CHARACTERS, ID_LENGTH)
    token = token_text(token_id, _random(RANDOM_CHARACTERS, RANDOM_LENGTH))
    record = TokenRecord(
        token_id=token_id,
        tenant=tenant,
        sha256=digest_of(token),
        created_at=int(time.time()),
        name=name,
        expires_at=expires_at,
    )
    records[token_id] = record
    return record, token


def _end_of_as_long_a_life(old: TokenRecord, now: float) -> int | None:
    if old.expires_at is None:
        return None
    return min(int(now) + old.expires_at - old.created_at, LAST_SECOND)


def _random(characters: str, length: int) -> str:
    return "".join(secrets.choice(characters) for _ in range(length))


def _read(path: Path) -> list[TokenRecord]:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise TokenFileError(message) from None
    try:
        document = msgspec.json.decode(data, type=_Document)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        # Without the reason, which could quote what the file holds.
        message = f"{path} is no file of tokens: restore it, or let `modelmeter tokens create` make a new one"
        raise TokenFileError(message) from None
    if document.version != 1 or len({each.token_id for each in document.tokens}) < len(document.tokens):
        message = f"{path} is of another version or holds a token twice"
        raise TokenFileError(message)
    return document.tokens


def _write(path: Path, records: dict[str, TokenRecord]) -> None:
    """Replace the file: whoever reads sees the old one or the new one, also after a crash."""
    data = msgspec.json.format(msgspec.json.encode(_Document(tokens=list(records.values()))), indent=1)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{_random(ID_CHARACTERS, 6)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
