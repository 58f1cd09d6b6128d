"""The list of hand-made faults fits the code as it is, and the tool that tries them tells the truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import ROOT
from tools import try_faults

pytestmark = pytest.mark.timeout(120)  # each run of the tool starts pytest three times or more

FAULTS = try_faults.load(ROOT / try_faults.LIST)

_HONEST = "def double(number):\n    return number + number\n"
_TEST = """
from modelmeter_server.sums import double

def test_it_doubles():
    assert double(3) == 6

def test_it_doubles_nothing():
    assert double(0) == 0
"""
_ENTRY = """
[[fault]]
name = "{name}"
file = "server/src/modelmeter_server/sums.py"
find = "number + number"
replace = "{replace}"
tests = ["tests/test_sums.py{function}"]
"""


def test_there_are_faults_enough_on_both_sides():
    assert len(FAULTS) >= 25
    assert {fault.file.split("/")[0] for fault in FAULTS} == {"client", "server"}


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_fault_can_be_made_and_its_tests_are_there(fault: try_faults.Fault):
    assert try_faults.mistakes(fault, ROOT) == []


@pytest.fixture
def repository(tmp_path) -> Path:
    """Return a repository of one function and two tests of it."""
    for package in ("client/src/modelmeter", "server/src/modelmeter_server", "tests/faults"):
        (tmp_path / package).mkdir(parents=True)
    (tmp_path / "client/src/modelmeter/__init__.py").touch()
    (tmp_path / "server/src/modelmeter_server/__init__.py").touch()
    (tmp_path / "server/src/modelmeter_server/sums.py").write_text(_HONEST)
    (tmp_path / "tests/test_sums.py").write_text(_TEST)
    return tmp_path


def _run(repository: Path, *entries: str, arguments: tuple[str, ...] = ()) -> int:
    (repository / try_faults.LIST).write_text("".join(entries))
    return try_faults.main(["--root", str(repository), *arguments])


def _entry(name: str = "It squares", replace: str = "number * number", function: str = "") -> str:
    return _ENTRY.format(name=name, replace=replace, function=function)


@pytest.mark.slow
def test_a_fault_that_a_test_notices_is_killed_and_the_working_tree_is_untouched(repository, capsys):
    assert _run(repository, _entry()) == 0
    assert "1 faults, 1 killed, 0 left" in capsys.readouterr().out
    assert (repository / "server/src/modelmeter_server/sums.py").read_text() == _HONEST
    assert not list(repository.rglob("*.pyc"))


@pytest.mark.slow
def test_a_fault_that_its_tests_let_pass_survives_and_is_named(repository, capsys):
    entries = (_entry(), _entry("It squares unseen", function="::test_it_doubles_nothing"))
    assert _run(repository, *entries) == 1
    told = capsys.readouterr()
    assert "2 faults, 1 killed, 1 left" in told.out
    assert told.err.strip().startswith("SURVIVED: It squares unseen (server/src/modelmeter_server/sums.py)")


@pytest.mark.slow
def test_a_fault_that_keeps_the_tests_from_running_proves_nothing(repository, capsys):
    (repository / "tests/test_sums.py").write_text(_TEST + "assert double(3) == 6\n")
    assert _run(repository, _entry()) == 1
    assert "BROKEN: It squares" in capsys.readouterr().err


@pytest.mark.slow
def test_tests_that_fail_without_a_fault_prove_nothing(repository, capsys):
    (repository / "tests/test_sums.py").write_text(_TEST.replace("== 6", "== 7"))
    assert _run(repository, _entry()) == 2
    assert "fail without any fault" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        (_entry(replace="number + (number)"), "changes nothing"),
        (_entry(replace="number +"), "invalid syntax"),
        (_entry(function="::test_nobody_wrote"), "has no test_nobody_wrote"),
        (_entry().replace("test_sums", "test_nothing"), "tests/test_nothing.py is missing"),
        (_entry().replace("number + number", "number"), "stands 3 times"),
        (_entry().replace("number + number", "nothing"), "stands 0 times"),
        (_entry().replace("server/src", "tests"), "is not below server/src or client/src"),
        (_entry().replace("sums.py", "products.py"), "products.py is missing"),
        (_entry().replace('"tests/test_sums.py"', ""), "names no test"),
        (_entry().replace("tests =", "test ="), "wanted"),
        (_entry() * 2, "named twice"),
    ],
)
def test_a_mistake_in_the_list_is_told_before_anything_runs(repository, capsys, entry, complaint):
    assert _run(repository, entry) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.slow
def test_faults_are_listed_and_chosen_by_a_part_of_their_name(repository, capsys):
    entries = (_entry(), _entry("It halves", "number / 2"))
    assert _run(repository, *entries, arguments=("--list",)) == 0
    assert capsys.readouterr().out == "It squares\nIt halves\n"
    assert _run(repository, *entries, arguments=("--only", "HALVES")) == 0
    assert "1 faults, 1 killed" in capsys.readouterr().out
    assert _run(repository, *entries, arguments=("--only", "thirds")) == 2
