"""How output looks on a terminal and in a pipe."""

from __future__ import annotations

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter.cli import render

ESCAPES = "a\x1b[2Jb\rc\x07\x9bd\u202ee"


class Terminal(io.TextIOWrapper):
    """Standard output as a terminal has it."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding)

    def isatty(self) -> bool:
        return True


class Pipe(Terminal):
    """Standard output as a pipe has it."""

    def isatty(self) -> bool:
        return False


@pytest.fixture
def stdout_of(monkeypatch):
    """Return a function that runs a function with another standard output, and returns what was written."""

    def run(stream, action):
        monkeypatch.setattr(sys, "stdout", stream)
        action()
        stream.flush()
        return stream.buffer.getvalue()

    return run


def pieces(*texts, whole):
    def write():
        answer = render.Answer()
        for text in texts:
            answer.write(text)
        answer.finish(whole)

    return write


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_visible_text_holds_no_control_characters_and_loses_nothing_else(text):
    shown = render.visible(text)
    assert len(shown) == len(text)
    assert all(
        char in "\t\n" or char.isprintable() or char == old for char, old in zip(shown, text, strict=True)
    )
    assert not set(shown) & {"\x1b", "\r", "\x07", "\x9b", "\u202e", "\x7f"}


def test_a_terminal_gets_no_escape_sequence_of_a_model(stdout_of):
    written = stdout_of(Terminal(), pieces(ESCAPES, whole=ESCAPES)).decode()
    assert not set(written) & set("\x1b\r\x07\x9b\u202e")


def test_a_pipe_gets_the_answer_untouched(stdout_of):
    assert stdout_of(Pipe(), pieces(whole=ESCAPES)).decode() == ESCAPES + "\n"


def test_a_pipe_gets_utf_8_whatever_the_locale_says(stdout_of):
    assert stdout_of(Pipe("ascii"), pieces(whole="größer")).decode() == "größer\n"


def test_a_terminal_that_cannot_show_a_character_gets_a_substitute(stdout_of):
    assert stdout_of(Terminal("ascii"), pieces(whole="größer")) == b"gr??er\n"


@pytest.mark.parametrize("texts", [(), ("one ",), ("one ", "two"), ("one two\n",)])
def test_what_was_not_shown_live_is_shown_at_the_end_and_the_line_is_ended_once(stdout_of, texts):
    whole = "one two\n" if texts == ("one two\n",) else "one two"
    assert stdout_of(Pipe(), pieces(*texts, whole=whole)) == b"one two\n"


def test_an_answer_that_is_not_what_was_shown_begins_on_a_new_line(stdout_of):
    assert stdout_of(Pipe(), pieces("draft", whole="final")) == b"draft\nfinal\n"


def test_an_empty_answer_writes_nothing(stdout_of):
    assert stdout_of(Pipe(), pieces(whole="")) == b""


def test_the_rows_of_a_bill_are_plain_lines_in_a_pipe(capsys):
    render.show_rows("answered", [("model", "m"), ("call id", "x\ny\x1b[31m")])
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "answered\n  model    m\n  call id  x y\ufffd[31m\n"


def test_a_table_is_tab_separated_in_a_pipe_and_has_no_header(capsys):
    render.show_table(["a", "b"], [["1", "x\ty"], ["2", ""]])
    assert capsys.readouterr().out == "1\tx y\n2\t\n"


def test_a_table_on_a_terminal_keeps_its_words_whole_and_leaves_empty_columns_out(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("TERM", "dumb")
    render.show_table(["call_id", "model", "cost"], [["x" * 36, "y" * 36, ""]])
    out = capsys.readouterr().out
    assert f"{'x' * 36}  {'y' * 36}" in out
    assert "cost" not in out


def test_an_empty_table_says_so_on_a_terminal_and_nothing_in_a_pipe(monkeypatch, capsys):
    render.show_table(["a"], [])
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    render.show_table(["a"], [])
    assert capsys.readouterr() == ("", "none\n")
