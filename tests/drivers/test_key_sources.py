"""Keys that change while the server runs: files that are replaced, programs that print them."""

from __future__ import annotations

import asyncio
import os
import select
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from modelmeter_server.config import Secret
from modelmeter_server.drivers.authentication import CredentialsError
from modelmeter_server.drivers.keys import FixedKey, KeyCommand, KeyFile
from modelmeter_server.drivers.keys import command as commands


def replace(path: Path, text: str) -> None:
    """Put another file in the place of this one, as rotations do."""
    draft = path.with_suffix(".new")
    draft.write_text(text)
    draft.replace(path)


@pytest.fixture
def kept(tmp_path):
    """Return a key in a file, the file, and what was complained of."""
    path = tmp_path / "key"
    told: list[str] = []
    path.write_text("sk-one\n")
    return KeyFile(path, "sk-one", told.append), path, told


async def test_a_key_file_that_is_replaced_counts_from_the_next_request_on(kept):
    source, path, told = kept
    assert (source.is_ready, source.current()) == (True, "sk-one")
    replace(path, "  sk-two \n")
    assert (source.current(), source.known, told) == ("sk-two", ("sk-two", "sk-one"), [])


@pytest.mark.parametrize(
    ("broken", "words"),
    [("", "is empty"), (" \n", "is empty"), ("two words", "holds no key"), ("kéy", "holds no key")],
)
async def test_a_broken_file_keeps_the_key_before_and_is_told_once(kept, broken, words):
    source, path, told = kept
    replace(path, broken)
    assert [source.current() for _ in range(3)] == ["sk-one"] * 3
    (complaint,) = told
    assert words in complaint
    assert "is used on" in complaint
    replace(path, "sk-two")
    assert source.current() == "sk-two"


async def test_a_file_that_is_away_for_a_moment_fails_nothing(kept):
    source, path, told = kept
    path.unlink()
    assert source.current() == "sk-one"
    path.write_text("sk-two")
    assert source.current() == "sk-two"
    assert len(told) == 1


async def test_a_file_that_broke_is_read_again_even_if_its_repair_bears_the_same_time(kept):
    source, path, _ = kept
    source.current()
    old = time.time_ns() - 60_000_000_000
    replace(path, "")
    os.utime(path, ns=(old, old))
    assert source.current() == "sk-one"
    path.write_text("")
    with path.open("r+b") as file:
        file.write(b"sk-two")
    os.utime(path, ns=(old, old))
    assert source.current() == "sk-two"


async def test_an_unchanged_file_is_not_read_again(kept, monkeypatch):
    source, path, _ = kept
    old = time.time_ns() - 60_000_000_000
    os.utime(path, ns=(old, old))
    source.current()
    reads: list[Path] = []
    monkeypatch.setattr("modelmeter_server.drivers.keys.file.read_key_file", reads.append)
    assert source.current() == "sk-one"
    assert reads == []
    source.refused("sk-one")
    monkeypatch.setattr("modelmeter_server.drivers.keys.file.read_key_file", lambda _: "sk-two")
    assert source.current() == "sk-two"


async def test_a_long_line_of_keys_is_remembered_only_so_far(kept):
    source, path, _ = kept
    for number in range(20):
        replace(path, f"sk-{number}")
        source.current()
    assert source.known == tuple(f"sk-{number}" for number in range(19, 10, -1))


async def test_two_keys_that_take_turns_push_out_none_before_them(kept):
    source, path, _ = kept
    for number in range(20):
        replace(path, f"sk-{number % 2}")
        source.current()
    assert source.known == ("sk-1", "sk-0", "sk-one")


async def test_a_fixed_key_stays():
    source = FixedKey(Secret("sk"))
    await source.prepare()
    source.refused("sk")
    assert (source.is_ready, source.current(), source.known) == (True, "sk", ("sk",))


# Commands


def script(folder: Path, body: str) -> tuple[str, ...]:
    """Return a program that is a Python script, and counts in a file how often it was run."""
    file = folder / "key.py"
    count = folder / "runs"
    file.write_text(
        f"#!{sys.executable} -S\nimport os, sys, time\nopen({str(count)!r}, 'a').write('x')\n{body}\n"
    )
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return (str(file), "argument")


def runs(folder: Path) -> int:
    file = folder / "runs"
    return len(file.read_text()) if file.exists() else 0


async def test_the_key_is_what_a_program_prints_and_is_asked_for_once_for_all_who_wait(tmp_path):
    source: Any = KeyCommand(script(tmp_path, "print(' sk-' + sys.argv[1] + ' ')"))
    assert not source.is_ready
    assert source.known == ()
    await asyncio.gather(*(source.prepare() for _ in range(5)))
    assert (source.is_ready, source.current(), runs(tmp_path)) == (True, "sk-argument", 1)
    assert source.known == ("sk-argument",)


async def test_no_shell_reads_the_arguments(tmp_path):
    argv = (*script(tmp_path, "print(sys.argv[1] + sys.argv[2])")[:1], "$HOME", "`id`;")
    source = KeyCommand(argv)
    await source.prepare()
    assert source.current() == "$HOME`id`;"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("sys.exit(3)", "ended with status 3"),
        ("print('sk-printed'); sys.exit(1)", "ended with status 1"),
        ("print('')", "printed no key"),
        ("print('two words')", "printed no key"),
        ("sys.stdout.write('k' * 20_000)", "printed more than"),
        ("os.close(1); time.sleep(60)", "took longer than 0.5 s"),
        ("time.sleep(60)", "took longer than 0.5 s"),
        ("print('sk-secret', file=sys.stderr); sys.exit(2)", "ended with status 2"),
    ],
)
async def test_a_program_that_fails_gives_no_key_and_shows_nothing_that_it_printed(tmp_path, body, words):
    told: list[str] = []
    source = KeyCommand(script(tmp_path, body), seconds=0.5, complain=told.append)
    with pytest.raises(CredentialsError) as caught:
        await source.prepare()
    for text in (str(caught.value), *told):
        assert words in text
        assert "sk-" not in text
        assert "argument" not in text
    assert not source.is_ready


async def test_a_program_that_is_not_there_is_told_by_its_name(tmp_path):
    with pytest.raises(CredentialsError, match="no-such-program cannot be run"):
        await KeyCommand((str(tmp_path / "no-such-program"),)).prepare()


async def test_a_program_that_is_killed_takes_along_what_it_started(tmp_path):
    """Its child would hold the pipe open, and the thread with it."""
    child = "if os.fork() == 0:\n    open('{}', 'w').write(str(os.getpid()))\ntime.sleep(60)"
    source = KeyCommand(script(tmp_path, child.format(tmp_path / "pid")), seconds=1.0)
    with pytest.raises(CredentialsError):
        await source.prepare()
    pid = int((tmp_path / "pid").read_text())
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([handle], [], [], 5.0)[0], "what it started still runs"
    os.close(handle)


async def test_an_old_key_is_used_on_while_a_new_one_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("modelmeter_server.drivers.renewal.BETWEEN_RENEWALS", -1.0)
    now = [0.0]
    source = KeyCommand(script(tmp_path, "print('sk-' + str(os.getpid()))"), ttl=10, clock=lambda: now[0])
    await source.prepare()
    first = source.current()
    now[0] = 9.0
    assert source.current() == first
    now[0] = 11.0
    assert (source.is_ready, source.current()) == (True, first)
    await source.prepare()  # joins what runs beside the calls
    assert source.current() != first
    assert source.known[1:] == (first,)
    assert runs(tmp_path) == 2


async def test_a_refused_key_is_asked_for_anew_once_and_the_calls_wait(tmp_path):
    source: Any = KeyCommand(script(tmp_path, "print('sk-same')"))
    await source.prepare()
    source.refused("sk-another")
    assert source.is_ready
    source.refused("sk-same")
    assert not source.is_ready
    await source.prepare()
    assert (source.is_ready, runs(tmp_path)) == (True, 2)
    source.refused("sk-same")
    assert source.is_ready


async def test_the_last_key_is_used_on_when_the_program_fails_later(tmp_path):
    told: list[str] = []
    source = KeyCommand(script(tmp_path, "print('sk-one')"), complain=told.append)
    await source.prepare()
    script(tmp_path, "sys.exit(1)")
    source.refused("sk-one")
    await source.prepare()
    assert (source.is_ready, source.current()) == (True, "sk-one")
    assert "the key before is used on" in told[0]


def test_the_bounds_of_a_program_are_what_the_documentation_says():
    assert (commands.TTL, commands.COMMAND_SECONDS, commands.OUTPUT_BYTES) == (300.0, 10.0, 16 * 1024)
