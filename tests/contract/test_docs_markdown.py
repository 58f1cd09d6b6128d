"""The reader of pages that the tests of pages rely on."""

from __future__ import annotations

import pytest

from tests.support.markdown import anchors, blocks, code_words, links, prose, recipes, section, shows, table

PAGE = """# A page: of *sorts*

Words with a [link](other.md#part), `[no](link.md)` and an ![image](x.png).

<!-- recipe: exit 80 -->
```sh
false
```

<!-- output -->
```text
no
```

```python
# a comment and [no](heading.md)
```

## The `part`

| A | B |
|---|---|
| `one` two `three` | x \\| y |
| | z |
"""


@pytest.fixture
def page(tmp_path):
    file = tmp_path / "page.md"
    file.write_text(PAGE, encoding="utf-8")
    return file


def test_blocks_have_their_marks_and_lines(page):
    found = blocks(page, page.parent)
    assert [(each.language, each.mark, each.line) for each in found] == [
        ("sh", "recipe: exit 80", 7),
        ("text", "output", 12),
        ("python", "", 16),
    ]
    assert found[0].name == "page.md:7"
    assert (found[0].verb, found[0].words, found[0].exit_code) == ("recipe", ["exit", "80"], 80)
    assert (found[2].verb, found[2].words, found[2].exit_code) == ("", [], 0)


def test_a_recipe_comes_with_the_output_below_it(page):
    ((recipe, output),) = recipes(page, page.parent)
    assert (recipe.text, output and output.text) == ("false\n", "no\n")


def test_only_prose_has_links_and_headings():
    assert links(PAGE) == ["other.md#part"]
    assert anchors(PAGE) == {"a-page-of-sorts", "the-part"}
    assert "false" not in prose(PAGE)


def test_tables_are_read_by_their_columns():
    assert table(section(PAGE, "The `part`")) == [
        {"A": "`one` two `three`", "B": "x | y"},
        {"A": "", "B": "z"},
    ]
    assert code_words("`one` two `three`") == ["one", "three"]


@pytest.mark.parametrize(
    ("shown", "real"),
    [
        ("a\nb\n", "a  \nb"),
        ("a\n...\nd\n", "a\nb\nc\nd\n"),
        ("a\n...\nd\n", "a\nd\n"),
        ("...\n", ""),
        ("a\n...\n", "a\nb\n"),
        ("at 127.0.0.1:50051 in 0.001 s\n", "at 127.0.0.1:4 in 12.5 s\n"),
        ('"id": "req_0123456789abcdef"\n', '"id": "req_fedcba9876543210"\n'),
        ("b1e6f2a0-0000-4000-8000-000000000000\n", "ffffffff-1111-4111-8111-111111111111\n"),
        ("(a+b)*c\n", "(a+b)*c\n"),
    ],
)
def test_shown_output_may_leave_out_lines_and_differ_in_ids(shown, real):
    assert shows(shown, real)


@pytest.mark.parametrize(
    ("shown", "real"),
    [
        ("a\nb\n", "a\nc\n"),
        ("a\n", "a\nb\n"),
        ("a\n...\nd\n", "a\nb\n"),
        ("tokens 1\n", "tokens 2\n"),
        ("a...b\n", "a\nb\n"),
        ("a.c\n", "abc\n"),
    ],
)
def test_shown_output_may_not_differ_otherwise(shown, real):
    assert not shows(shown, real)
