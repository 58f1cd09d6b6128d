"""Make the mistakes that a tired developer would, one by one, and see that a test notices each.

`tests/faults/faults.toml` lists them. Each is applied to a temporary copy of `server/src` and `client/src` that
stands first on PYTHONPATH: the working tree is never touched. The tests that must notice it run against the copy; a
fault that they let pass is a survivor, and means that a test is missing.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import os
import py_compile
import queue
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
LIST = Path("tests/faults/faults.toml")
SOURCES = ("server/src", "client/src")
PROCESSES = 2
SECONDS = 300
"""The longest that the tests of one fault may take; each test has a limit of its own, far below."""

_TESTS_FAILED = 1  # pytest's exit code; a broken import or an unknown test has another, and proves nothing
_ORIGIN = (
    "import modelmeter, modelmeter_server; print(modelmeter.__file__); print(modelmeter_server.__file__)"
)


class ListError(ValueError):
    """The list of faults cannot be used."""


@dataclass(frozen=True)
class Fault:
    """One mistake, and the tests that must notice it."""

    name: str
    """What was done wrong, as a sentence."""
    file: str
    """The file in the repository."""
    find: str
    """Text that stands in the file exactly once."""
    replace: str
    """What the mistake makes of it."""
    tests: tuple[str, ...]
    """Files, or `file::function`."""

    def applied(self, text: str) -> str:
        """Return the file's text with the mistake in it. Raises ListError unless `find` stands there once."""
        if text.count(self.find) != 1:
            message = f"{self.name}: the text to find stands {text.count(self.find)} times in {self.file}"
            raise ListError(message)
        return text.replace(self.find, self.replace)


def load(path: Path) -> list[Fault]:
    """Read the list. Raises ListError for an entry that lacks a member, has an unknown one, or repeats a name."""
    wanted = {field.name for field in fields(Fault)}
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("fault", [])
    for entry in entries:
        if set(entry) != wanted:
            message = f"{entry.get('name', 'an entry')}: has {sorted(entry)}, wanted {sorted(wanted)}"
            raise ListError(message)
    faults = [Fault(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]
    names = [fault.name for fault in faults]
    if len(names) != len(set(names)):
        message = f"named twice: {sorted({name for name in names if names.count(name) > 1})}"
        raise ListError(message)
    return faults


def mistakes(fault: Fault, root: Path) -> list[str]:
    """Return what is wrong with an entry, given the repository as it is now."""
    if not fault.file.startswith(SOURCES):
        return [f"{fault.file} is not below {' or '.join(SOURCES)}"]
    if not (root / fault.file).is_file():
        return [f"{fault.file} is missing"]
    found = [] if fault.tests else ["names no test"]
    found += [complaint for test in fault.tests for complaint in _test_mistakes(test, root)]
    try:
        before = (root / fault.file).read_text(encoding="utf-8")
        after = fault.applied(before)
        if ast.dump(ast.parse(after)) == ast.dump(ast.parse(before)):
            found.append("changes nothing")
    except (ListError, SyntaxError) as error:
        found.append(str(error))
    return found


def _test_mistakes(test: str, root: Path) -> list[str]:
    name, _, function = test.partition("::")
    file = root / name
    if not file.is_file():
        return [f"{name} is missing"]
    if function and f"def {function}(" not in file.read_text(encoding="utf-8"):
        return [f"{name} has no {function}"]
    return []


class Copy:
    """A copy of the sources, for one run of tests after another."""

    def __init__(self, root: Path, folder: Path) -> None:
        """Copy and compile. The byte code goes by content: by date, a change within a second would not be seen."""
        self._root = root
        self._folder = folder
        for source in SOURCES:
            copytree(root / source, folder / source, ignore=ignore_patterns("__pycache__"))
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(folder, quiet=1, invalidation_mode=mode)
        self._env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(folder / source) for source in SOURCES),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / ".hypothesis"),
        }

    def check_origin(self) -> None:
        """Raise ListError unless it is the copy that tests import."""
        result = self._run("-c", _ORIGIN)
        for line in result.stdout.splitlines():
            if not Path(line).is_relative_to(self._folder):
                message = f"the tests would import {line}, not the copy"
                raise ListError(message)
        if result.returncode != 0:
            raise ListError(result.stderr)

    def test(self, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run the tests against the copy, up to the first failure."""
        return self._run("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", *tests)

    def test_with(self, fault: Fault) -> subprocess.CompletedProcess[str]:
        """Run a fault's tests with the fault in place."""
        file = self._folder / fault.file
        text = file.read_text(encoding="utf-8")
        file.write_text(fault.applied(text), encoding="utf-8")
        try:
            return self.test(fault.tests)
        finally:
            file.write_text(text, encoding="utf-8")

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        try:
            return subprocess.run(
                command,
                cwd=self._root,
                env=self._env,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, -1, "", f"no end within {SECONDS} s")


@dataclass(frozen=True)
class Trial:
    """What the tests made of one fault."""

    fault: Fault
    code: int
    output: str
    seconds: float

    @property
    def verdict(self) -> str:
        """Return `killed`, `SURVIVED`, or `BROKEN` when the tests could not run at all."""
        if self.code == _TESTS_FAILED:
            return "killed"
        return "SURVIVED" if self.code == 0 else "BROKEN"


def _try(fault: Fault, copies: queue.Queue[Copy]) -> Trial:
    copy = copies.get()
    begun = time.monotonic()
    try:
        result = copy.test_with(fault)
    finally:
        copies.put(copy)
    return Trial(fault, result.returncode, result.stdout + result.stderr, time.monotonic() - begun)


def _sound_tests(faults: Sequence[Fault], copies: queue.Queue[Copy], pool: ThreadPoolExecutor) -> str:
    """Run every named test without any fault; return what failed, nothing when all pass."""
    tests = sorted({test for fault in faults for test in fault.tests})
    shares = [tests[start::PROCESSES] for start in range(PROCESSES)]

    def run(share: Sequence[str]) -> subprocess.CompletedProcess[str]:
        copy = copies.get()
        try:
            return copy.test(share)
        finally:
            copies.put(copy)

    results = pool.map(run, filter(None, shares))
    return "\n".join(result.stdout + result.stderr for result in results if result.returncode != 0)


def try_all(faults: Sequence[Fault], root: Path) -> list[Trial]:
    """Try every fault; print a line for each as it ends. Raises ListError if a test fails without any fault."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(PROCESSES) as pool:
        copies: queue.Queue[Copy] = queue.Queue()
        for number in range(PROCESSES):
            copies.put(Copy(root, Path(folder).resolve() / str(number)))
        copies.queue[0].check_origin()
        if complaint := _sound_tests(faults, copies, pool):
            message = f"tests fail without any fault:\n{complaint}"
            raise ListError(message)
        trials = []
        for trial in pool.map(lambda fault: _try(fault, copies), faults):
            trials.append(trial)
            print(f"{trial.verdict:8} {trial.seconds:5.1f} s  {trial.fault.name}", flush=True)
        return trials


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, 1 when a fault survived, 2 when the list or its tests are at fault."""
    parser = argparse.ArgumentParser(
        description="Apply hand-made faults one by one; each must fail its tests."
    )
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--only", metavar="TEXT", default="", help="try the faults whose name has this text")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args(argv)
    begun = time.monotonic()
    try:
        faults = [fault for fault in load(options.root / LIST) if options.only.lower() in fault.name.lower()]
        if options.list:
            print("\n".join(fault.name for fault in faults))
            return 0
        _check(faults, options.root)
        trials = try_all(faults, options.root)
    except ListError as error:
        print(f"try_faults: {error}", file=sys.stderr)
        return 2
    return _report(trials, time.monotonic() - begun)


def _check(faults: Sequence[Fault], root: Path) -> None:
    if not faults:
        message = "no fault has such a name"
        raise ListError(message)
    found = [f"{fault.name}: {each}" for fault in faults for each in mistakes(fault, root)]
    if found:
        raise ListError("\n".join(found))


def _report(trials: Sequence[Trial], seconds: float) -> int:
    alive = [trial for trial in trials if trial.verdict != "killed"]
    for trial in alive:
        tail = "" if trial.code == 0 else "\n" + trial.output[-2000:]
        print(f"\n{trial.verdict}: {trial.fault.name} ({trial.fault.file}){tail}", file=sys.stderr)
    print(f"{len(trials)} faults, {len(trials) - len(alive)} killed, {len(alive)} left, {seconds:.0f} s")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
