"""A key in a file that somebody replaces: a mounted secret, or what a rotation wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from modelmeter_server.drivers.file_watch import FileWatch

from .source import Remembered, is_key

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .source import Complain

FILE_BYTES: Final = 64 * 1024
"""What is read of a file; a key takes less."""


def read_key_file(path: Path) -> str:
    """Return the text of a file that holds one key, without the white space around it. Raises OSError."""
    with path.open("rb") as file:
        return file.read(FILE_BYTES).decode("utf-8", "replace").strip()


class KeyFile:
    """The key that a file holds now: looked at with each request, and kept while the file holds none."""

    is_ready = True

    def __init__(self, path: Path, key: str, complain: Complain | None = None) -> None:
        """`key` is what the file was found to hold; `complain` hears, once each time, of a file that holds none."""
        self._path = path
        self._key = Remembered(key)
        self._watch = FileWatch([path])
        self._complain = complain
        self._complaint = ""

    async def prepare(self) -> None:
        """Do nothing: there is a key."""

    def current(self) -> str:
        """Return the key. A file that is away, empty or broken for a moment fails no call."""
        if self._watch.changed():
            self._read()
        return self._key.now

    def refused(self, key: str) -> None:
        """Look into the file at the next request, whatever its time stamp says."""
        self._watch.forget()

    @property
    def known(self) -> Sequence[str]:
        """Return the key and those before it."""
        return self._key.all

    def _read(self) -> None:
        try:
            text = read_key_file(self._path)
        except OSError as error:
            self._keep(f"cannot be read ({error.strerror or type(error).__name__})")
            return
        if not is_key(text):
            self._keep("is empty" if not text else "holds no key: one word of printable ASCII")
            return
        self._complaint = ""
        self._key.become(text)

    def _keep(self, why: str) -> None:
        # Another look at the next request: what replaces the file may bear the same time stamp.
        self._watch.forget()
        if self._complain is not None and why != self._complaint:
            self._complain(f"the key file {self._path} {why}; the key before it is used on")
        self._complaint = why
