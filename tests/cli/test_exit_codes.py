"""Each outcome has an exit code, and docs/cli.md lists them as they are."""

from __future__ import annotations

import re

import pytest

import modelmeter
from modelmeter import errors
from modelmeter.cli.exits import EXIT_BY_KIND, Exit, exit_of
from modelmeter.enums import Cause, Disposition, ErrorKind
from tests.support import ROOT

TEXT = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
SECTION = TEXT.split("## Exit codes\n", 1)[1].split("\n#", 1)[0]
TABLE = {int(code): kinds for code, kinds in re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]*)\|", SECTION, re.M)}


def error(kind, **details):
    return errors.ModelmeterError("it failed", kind=kind, **details)


def test_every_kind_has_an_exit_code():
    assert set(ErrorKind) - {ErrorKind.UNSPECIFIED} == set(EXIT_BY_KIND)


@pytest.mark.parametrize("kind", EXIT_BY_KIND)
def test_no_failure_ends_like_an_answer_or_a_wrong_command_line(kind):
    assert exit_of(error(kind)) not in (Exit.COMPLETION, Exit.USAGE)


def test_the_document_lists_every_exit_code_and_no_other():
    assert TABLE.keys() == set(Exit)


def test_the_document_lists_every_kind_with_its_exit_code():
    documented = {
        word: code for code, kinds in TABLE.items() for word in re.findall(r"\b[A-Z]+_?[A-Z_]+\b", kinds)
    }
    del documented["CALLER"], documented["DEADLINE"]
    assert documented == {kind.value: int(code) for kind, code in EXIT_BY_KIND.items()}


@pytest.mark.parametrize("cause", [Cause.CALLER, Cause.DEADLINE])
@pytest.mark.parametrize("kind", EXIT_BY_KIND)
def test_who_ended_the_call_goes_before_its_kind(kind, cause):
    assert exit_of(error(kind, cause=cause)) is Exit.NO_OUTCOME


def test_a_call_whose_outcome_nobody_told_has_a_code_of_its_own():
    assert exit_of(errors.LostContactError("gone", disposition=Disposition.LANDED)) is Exit.NO_OUTCOME


def test_a_server_that_is_not_there_may_be_asked_again():
    assert exit_of(errors.NotConnectedError("nobody")) is Exit.UNAVAILABLE


@pytest.mark.parametrize(
    ("disposition", "code"),
    [
        (Disposition.LANDED, Exit.LANDED),
        (Disposition.DID_NOT_HAPPEN, Exit.UNAVAILABLE),
        (Disposition.IN_DOUBT, Exit.NO_OUTCOME),
        (Disposition.UNSPECIFIED, Exit.NO_OUTCOME),
    ],
)
def test_a_kind_newer_than_this_program_goes_by_whether_it_happened(disposition, code):
    assert exit_of(error(ErrorKind.UNSPECIFIED, disposition=disposition)) is code


def test_every_exception_of_the_client_has_an_exit_code():
    classes = [getattr(modelmeter, name) for name in modelmeter.__all__]
    raised = [
        each for each in classes if isinstance(each, type) and issubclass(each, modelmeter.ModelmeterError)
    ]
    assert len(raised) > len(EXIT_BY_KIND)
    assert all(isinstance(exit_of(each("it failed")), Exit) for each in raised)
