"""The client's error table and the documentation's are the server's."""

from __future__ import annotations

import re
import shutil

import pytest

from modelmeter import ErrorKind
from modelmeter._error_table import ERROR_ROWS
from modelmeter_server.core.errors import TABLE
from modelmeter_server.core.outcomes import Kind
from tests.support import ROOT
from tools import generate_error_table as generator


@pytest.fixture
def copied(tmp_path):
    """Return a folder with the two generated files."""
    for path in (generator.MODULE, generator.PAGE):
        (tmp_path / path).parent.mkdir(parents=True)
        shutil.copy(ROOT / path, tmp_path / path)
    return tmp_path


def test_the_committed_tables_are_fresh(capsys):
    assert generator.main(["--check"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
def test_a_row_says_what_the_servers_table_says(kind):
    ours, row = ERROR_ROWS[ErrorKind(kind.name)], TABLE[kind]
    assert ours.error.__name__ == row.client_class
    assert ours.code.name == row.code.name
    assert ours.disposition == (row.disposition.name if row.disposition else "UNSPECIFIED")
    assert [each.value for each in ours.certainties] == [each.value for each in row.certainties]
    assert (ours.retryable, ours.effect_outcome) == (row.retryable, row.effect_outcome)


@pytest.mark.parametrize("path", [generator.MODULE, generator.PAGE], ids=str)
def test_a_stale_file_is_named_and_renewed(copied, capsys, path):
    text = (copied / path).read_text(encoding="utf-8")
    (copied / path).write_text(text.replace("UNACCOUNTED", "FORGOTTEN"), encoding="utf-8")
    assert generator.main(["--check", "--root", str(copied)]) == 1
    assert capsys.readouterr().err == f"stale: {path}\n"
    assert generator.main(["--root", str(copied)]) == 0
    assert (copied / path).read_text(encoding="utf-8") == text
    assert generator.main(["--check", "--root", str(copied)]) == 0


def test_what_stands_outside_the_markers_is_kept(copied):
    page = copied / generator.PAGE
    page.write_text(f"before\n{generator.BEGIN}\nold\n{generator.END}\nafter\n", encoding="utf-8")
    generator.main(["--root", str(copied)])
    lines = page.read_text(encoding="utf-8").splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert "old" not in lines
    assert len([line for line in lines if line.startswith("| `")]) == len(TABLE)


def test_a_page_without_its_markers_is_not_touched(copied, capsys):
    (copied / generator.PAGE).write_text("no markers", encoding="utf-8")
    assert generator.main(["--root", str(copied)]) == 2
    assert "has no lines" in capsys.readouterr().err
    assert (copied / generator.PAGE).read_text(encoding="utf-8") == "no markers"
    (copied / generator.PAGE).unlink()
    assert generator.main(["--root", str(copied)]) == 2


def test_every_kind_has_its_line_in_the_page():
    page = (ROOT / generator.PAGE).read_text(encoding="utf-8")
    assert re.findall(r"^\| `([A-Z_]+)` \| [^|]*\| (?:DID|LANDED|as told)", page, re.MULTILINE) == [
        kind.name for kind in TABLE
    ]
