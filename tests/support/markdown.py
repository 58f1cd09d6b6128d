"""Markdown pages as tests see them: fenced blocks with their marks, tables, links, and output that was shown once.

A mark is an HTML comment on the line above a block:

    <!-- recipe -->                     run it against a server; it must end with 0
    <!-- recipe: exit 80 -->            the same with another exit code; further words are the test's own business
    <!-- output -->                     what the recipe above it prints, see `shows`
    <!-- not run: the reason -->        nothing is done with it
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support import ROOT

ELLIPSIS = "..."
"""A line of dots in shown output stands for any number of lines, also none."""

_FENCE = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`+[^`]*`+")
# What differs from run to run, and what stands for it.
_VOLATILE = (
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b(req|msg|resp)_[0-9a-f]{8,}\b"), r"\1_ID"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\b\d+\.\d+ ?s\b"), "SECONDS"),
    # What nobody told is bounded by the time that a call took.
    (re.compile(r"^(\w+ .* UNSETTLED .*?)[\d.]+ USD[ \t]*$", re.M), r"\1BOUND"),
    (re.compile(r"at most \d+ tokens \([\d.]+ USD\)"), "BOUND"),
)


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: str
    """Path of the page in the repository."""
    line: int
    """Number of its first line, from 1."""
    language: str
    text: str
    mark: str
    """What the comment above it says; empty without one."""

    @property
    def name(self) -> str:
        """Return where it stands, for the name of a test."""
        return f"{self.page}:{self.line}"

    @property
    def verb(self) -> str:
        """Return the mark up to its colon."""
        return self.mark.partition(":")[0]

    @property
    def words(self) -> list[str]:
        """Return the words of the mark behind its colon."""
        return self.mark.partition(":")[2].split()

    @property
    def exit_code(self) -> int:
        """Return how the recipe must end."""
        words = self.words
        return int(words[words.index("exit") + 1]) if "exit" in words else 0


def pages(root: Path = ROOT) -> list[Path]:
    """Return every page of the repository, without what tools install or leave behind."""
    found = [*root.glob("*.md"), *(page for folder in root.glob("[a-z]*") for page in folder.rglob("*.md"))]
    return sorted(page for page in found if not {"dist", "build", "node_modules"} & {*page.parts})


def blocks(page: Path, root: Path = ROOT) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page=page.relative_to(root).as_posix(),
            line=text.count("\n", 0, found.start("text")) + 1,
            language=found["language"],
            text=found["text"],
            mark=found["mark"] or "",
        )
        for found in _FENCE.finditer(text)
    ]


def recipes(page: Path, root: Path = ROOT) -> Iterator[tuple[Block, Block | None]]:
    """Yield the recipes of a page, each with the output that is shown for it, if any."""
    found = blocks(page, root)
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block.verb == "recipe":
            yield block, after if after is not None and after.mark == "output" else None


def prose(text: str) -> str:
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", text)


def links(text: str) -> list[str]:
    """Return the targets of a page's links, in order."""
    return _LINK.findall(_CODE.sub("", prose(text)))


def anchors(text: str) -> set[str]:
    """Return the anchors that the headings of a page make."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def section(text: str, heading: str) -> str:
    """Return what stands under a heading, up to the next one of any level."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.M | re.S)
    assert found is not None, f"there is no heading {heading!r}"
    return found[1]


def table(text: str) -> list[dict[str, str]]:
    """Return the rows of the first table in a text, by the names of its columns."""
    found = re.search(r"^\|.*\|\n\|[-| ]+\|\n(?:\|.*\|\n?)+", text, re.M)
    assert found is not None, "there is no table"
    lines = [_cells(line) for line in found[0].splitlines()]
    return [dict(zip(lines[0], cells, strict=True)) for cells in lines[2:]]


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]


def code_words(cell: str) -> list[str]:
    """Return what stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def shows(shown: str, real: str) -> bool:
    """Say whether output that a page shows is what a program printed.

    Ids, addresses, times and bounds that depend on them may differ, and a line of dots stands for lines that the
    page leaves out.
    """
    parts = [re.escape(part) for part in re.split(r"^[ \t]*\.\.\.\n", _settled(shown), flags=re.M)]
    return re.fullmatch("(?:.*\n)*?".join(parts), _settled(real)) is not None


def _settled(text: str) -> str:
    for pattern, name in _VOLATILE:
        text = pattern.sub(name, text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())
