"""The table in docs/testing.md: every property named there has a test, and the test exists."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.support import ROOT

_ROW = re.compile(r"^\| `(?P<property>[a-z0-9_]+)` \| (?P<tests>.*) \|$")
_TEST = re.compile(r"`(?P<file>[^`:]+)::(?P<name>test_\w+)`")

PAGE = (ROOT / "docs/testing.md").read_text()
ROWS = [match for match in map(_ROW.match, PAGE.splitlines()) if match]


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, functions))


def test_the_table_is_there():
    assert len(ROWS) > 140
    assert len(PAGE.split("| Property |")) == 15


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["property"])
def test_every_property_has_tests_that_exist(row: re.Match[str]):
    named = _TEST.findall(row["tests"])
    assert named
    assert len(named) == row["tests"].count("`") // 2
    for file, name in named:
        assert name in functions_of(file), f"tests/{file} has no {name}"


def test_every_test_file_that_the_page_names_exists():
    folder = ROOT / "tests"
    for path in re.findall(r"`((?:unit|drivers|rpc|client|contract|conformance)/[\w/]+\.py)", PAGE):
        assert (folder / path).is_file(), path
