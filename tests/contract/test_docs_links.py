"""What pages point at is there: links, files, `make` targets, commands with their options, names of the client."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

import modelmeter
from modelmeter.cli.program import program
from tests.support import ROOT
from tests.support.markdown import anchors, blocks, code_words, links, pages, prose

PAGES = pages()
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
SERVER = ROOT / "server" / "src" / "modelmeter_server"
# Short paths in prose begin at one of these.
BASES = (ROOT, SERVER, ROOT / "client" / "src")
_FOLDERS = {path.name for base in BASES for path in base.iterdir() if path.is_dir()}


def _named(pages: list[Path]) -> list[str]:
    return [page.relative_to(ROOT).as_posix() for page in pages]


all_pages = pytest.mark.parametrize("page", PAGES, ids=_named(PAGES))


def test_the_pages_that_matter_are_found():
    assert {"README.md", "CHANGELOG.md", "client/README.md", "docs/errors.md", "docs/adr/README.md"} <= {
        *_named(PAGES)
    }


@all_pages
def test_every_link_leads_somewhere(page):
    broken = []
    for link in links(TEXTS[page]):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in anchors(file.read_text(encoding="utf-8"))):
            broken.append(link)
    assert not broken


def test_every_page_of_the_docs_is_in_the_index():
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / link).resolve() for link in links(TEXTS[index])}
    assert not [page for page in (ROOT / "docs").glob("*.md") if page != index and page not in listed]


@all_pages
def test_every_file_that_is_named_exists(page):
    """A word in backticks with a slash, below a folder that we have, is a path."""
    words = [word for word in code_words(prose(TEXTS[page])) if re.fullmatch(r"[\w.-]+(/[\w.-]+)+/?", word)]
    paths = [word for word in words if word.split("/")[0] in _FOLDERS and "NAME" not in word]
    assert not [path for path in paths if not any((base / path).exists() for base in BASES)]


def _targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


@all_pages
def test_every_make_target_that_is_named_exists(page):
    named = re.findall(r"(?:`|^)make ([a-z-]+(?: [a-z-]+)*)", TEXTS[page], re.M)
    assert not {target for words in named for target in words.split()} - _targets()


def test_every_target_that_make_lists_is_told_to_developers():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    listed = re.findall(r"^([a-z-]+):.*## ", makefile, re.M)
    page = TEXTS[ROOT / "docs" / "development.md"]
    assert listed
    assert not [target for target in listed if f"`make {target}`" not in page]


def _command_lines(page: Path) -> list[str]:
    """Return the calls of our command on a page: in shell blocks, after the prompt of a console, in backticks."""
    found = [word for word in code_words(prose(TEXTS[page])) if re.match(r"modelmeter [a-z]+ .*-", word)]
    for block in blocks(page):
        prompt = {"sh": "", "console": r"\$ (?:.*\| )?"}.get(block.language)
        if prompt is not None:
            found += re.findall(rf"^{prompt}(modelmeter .*)$", block.text.replace("\\\n", " "), re.M)
    return [re.sub(r"\s+[#>|].*", "", line) for line in found]


LINES = [(page, line) for page in PAGES for line in _command_lines(page)]


@pytest.mark.parametrize("line", [line for _, line in LINES], ids=lambda line: line[:60])
def test_every_command_line_on_a_page_is_understood(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clock.json").write_text("{}", encoding="utf-8")
    command: click.Command = program
    context = click.Context(program, info_name="modelmeter")
    words = shlex.split(line)[1:]
    while isinstance(command, click.Group):
        name, found, words = command.resolve_command(context, words)
        assert found is not None, name
        command = found
        context = click.Context(command, parent=context, info_name=name)
    command.make_context(line, words, parent=context.parent)


def test_command_lines_were_found():
    assert {page.name for page, _ in LINES} >= {"README.md", "cli.md", "replay.md"}


@all_pages
def test_every_name_of_the_client_exists(page):
    text = TEXTS[page]
    named = set(re.findall(r"\bmodelmeter\.([A-Z]\w+)", text)) | set(re.findall(r"`([A-Z]\w+Error)`", text))
    assert not {name for name in named if not hasattr(modelmeter, name)} - {"ModelError"}


@pytest.mark.parametrize("number", range(1, 1 + len(list((ROOT / "docs" / "adr").glob("0*.md")))))
def test_decisions_are_numbered_without_gaps_and_listed(number):
    (file,) = (ROOT / "docs" / "adr").glob(f"{number:04}-*.md")
    assert TEXTS[file].startswith(f"# {number:04} · ")
    assert f"]({file.name})" in TEXTS[ROOT / "docs" / "adr" / "README.md"]
