"""A key that a program prints: a secret store's own client, asked again before the key may be old."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Final

from modelmeter_server.drivers.authentication import CredentialsError
from modelmeter_server.drivers.renewal import Renewal

from .source import Remembered, is_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .source import Complain

TTL: Final = 300.0
"""Seconds after which the program is asked again, beside the calls, unless the configuration says otherwise."""

COMMAND_SECONDS: Final = 10.0
"""What the program gets; then it is killed, with all that it started."""

OUTPUT_BYTES: Final = 16 * 1024
"""What it may print; a key takes less."""

_READ_BYTES: Final = 4096


class KeyCommand:
    """The key that a program printed last. Run without a shell, in a thread, once for all calls that wait."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        ttl: float = TTL,
        seconds: float = COMMAND_SECONDS,
        complain: Complain | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Run nothing yet. `complain` hears of a program that fails while its last key is used on."""
        self._argv = tuple(argv)
        self._ttl = ttl
        self._seconds = seconds
        self._complain = complain
        self._clock = clock
        self._renewal = Renewal(self._fetch)
        self._key = Remembered()
        self._fetched_at = float("-inf")
        self._is_stale = True
        self._refused = ""

    @property
    def is_ready(self) -> bool:
        """Say whether there is a key that the provider has not refused since the program was last asked."""
        return not self._is_stale

    async def prepare(self) -> None:
        """Ask the program, or wait for its answer. Raises CredentialsError if there never was a key."""
        try:
            await self._renewal.wait()
        except CredentialsError:
            if not self._key.now:
                raise
            self._is_stale = False  # the last key is better than none

    def current(self) -> str:
        """Return the key; one that may be old is asked for anew beside the calls."""
        if self._clock() - self._fetched_at > self._ttl:
            self._renewal.renew()
        return self._key.now

    def refused(self, key: str) -> None:
        """Let the next request wait for the program's answer: once for a key, which it may print again."""
        if key == self._key.now and key != self._refused:
            self._refused = key
            self._is_stale = True

    @property
    def known(self) -> Sequence[str]:
        """Return the key and those before it."""
        return self._key.all

    def _fetch(self) -> str:
        """Return the key; runs in a thread. Raises CredentialsError, whose text holds nothing that was printed."""
        try:
            key = _printed(self._argv, self._seconds)
        except CredentialsError as error:
            if self._complain is not None:
                self._complain(str(error) + ("; the key before is used on" if self._key.now else ""))
            raise
        self._key.become(key)
        self._fetched_at = self._clock()
        self._is_stale = False
        return key


def _printed(argv: Sequence[str], seconds: float) -> str:
    name = os.path.basename(argv[0])
    try:
        # What it prints beside the key may be anything, so that it is not even read.
        process = subprocess.Popen(  # noqa: S603 - the deployment's own configuration, and no shell
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise _failed(name, f"cannot be run ({error.strerror or type(error).__name__})") from None
    try:
        text = _output(process, name, seconds)
    finally:
        _end(process)
    if process.returncode != 0:
        raise _failed(name, f"ended with status {process.returncode}")
    key = text.decode("utf-8", "replace").strip()
    if not is_key(key):
        raise _failed(name, "printed no key: one word of printable ASCII")
    return key


def _output(process: subprocess.Popen[bytes], name: str, seconds: float) -> bytes:
    """Return all that a program prints, within its time and its bound, once it has ended."""
    deadline = time.monotonic() + seconds
    parts, size = [], 0
    assert process.stdout is not None
    with process.stdout as pipe, selectors.DefaultSelector() as waiting:
        waiting.register(pipe, selectors.EVENT_READ)
        while True:
            if not waiting.select(max(0.0, deadline - time.monotonic())):
                raise _failed(name, f"took longer than {seconds:g} s")
            part = os.read(pipe.fileno(), _READ_BYTES)
            if not part:
                break
            parts.append(part)
            size += len(part)
            if size > OUTPUT_BYTES:
                raise _failed(name, f"printed more than {OUTPUT_BYTES:,} bytes")
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise _failed(name, f"took longer than {seconds:g} s") from None
    return b"".join(parts)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a program that still runs, and whatever it started and left behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


def _failed(name: str, why: str) -> CredentialsError:
    return CredentialsError(f"the key command {name} {why}", is_lasting=False)
