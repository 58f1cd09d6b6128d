"""Script files are read strictly: every mistake is told at once, with its place and the way to mend it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.config import load
from modelmeter_server.core.outcomes import Stage
from modelmeter_server.drivers.replay import (
    Play,
    PlayEnd,
    ScriptMistake,
    ScriptMistakes,
    Wire,
    builtin_scripts,
    load_scripts,
    parse_scripts,
)
from modelmeter_server.drivers.replay.script import ANSWER, Figures
from tests.support import ROOT

TEXT = (ROOT / "docs" / "replay.md").read_text(encoding="utf-8")


@pytest.fixture
def loaded(tmp_path: Path):
    """Return a function that loads a file with this text."""

    def write_and_load(text: str | bytes):
        file = tmp_path / "scripts.toml"
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return load_scripts(file)

    return write_and_load


def play_of(**keys) -> Play:
    (script,) = parse_scripts({"scripts": {"own": keys}})
    return script.play


def mistakes_of(document) -> list[str]:
    with pytest.raises(ScriptMistakes) as found:
        parse_scripts(document)
    return [str(mistake) for mistake in found.value.mistakes]


def mistakes_in(**keys) -> list[str]:
    return [mistake.removeprefix("scripts.own") for mistake in mistakes_of({"scripts": {"own": keys}})]


def test_a_script_without_keys_is_the_plain_answer():
    (script,) = parse_scripts({"scripts": {"own": {}}})
    assert (script.wire, script.play, script.calls) == (Wire.ANTHROPIC, ANSWER, ())


def test_own_scripts_stand_beside_the_built_in_ones(loaded):
    book = loaded('[scripts.mine]\ntext = "Hi"\n')
    assert book.names == (*builtin_scripts().names, "mine")
    assert [script.name for script in book] == list(book.names)
    assert book.find("mine").play.text == "Hi"
    assert book.find("answer") is builtin_scripts().find("answer")
    assert book.find("yours") is None


def test_a_name_of_a_built_in_script_cannot_be_taken(loaded):
    with pytest.raises(
        ScriptMistakes, match=r"^scripts.cut: is the name of a built-in script; choose another"
    ):
        loaded("[scripts.cut]\n[scripts.mine]\n")


@pytest.mark.parametrize(
    ("keys", "field", "value"),
    [
        ({"text": ""}, "text", ""),
        ({"structured": [1, {"é": 2.5}]}, "structured", '[1,{"é":2.5}]'),
        ({"structured": 0}, "structured", "0"),
        ({"structured_text": "{"}, "structured", "{"),
        ({"usage": False}, "usage", None),
        ({"usage": {"input": 5, "cache_read": 5}}, "usage", Figures(input=5, cache_read=5)),
        ({"cut_after": 0}, "end", PlayEnd.RESET),
        ({"cut_after": 0, "end": "clean"}, "end", PlayEnd.CLEAN),
        ({"stops_at": "written"}, "end", PlayEnd.RESET),
        ({"stops_at": "writing"}, "stops_at", Stage.WRITING),
        ({"headers": {"Retry-After": 2, "x": "y"}}, "headers", (("retry-after", "2"), ("x", "y"))),
        ({"pause": 1}, "pause", 1.0),
        ({"body": ""}, "body", ""),
    ],
)
def test_a_key_becomes_what_it_says(keys, field, value):
    assert getattr(play_of(**keys), field) == value


@pytest.mark.parametrize(
    ("keys", "mistake"),
    [
        ({"text": 1}, ".text: has the wrong type; write a string in quotes"),
        ({"pieces": True}, ".pieces: has the wrong type; write an integer from 1 to 10,000"),
        ({"pieces": 0}, ".pieces: is out of range; write an integer from 1 to 10,000"),
        ({"pause": -0.5}, ".pause: is out of range; write a number of seconds from 0 to 1,000,000"),
        ({"delay": float("inf")}, ".delay: is out of range; write a number of seconds from 0 to 1,000,000"),
        ({"end": "close"}, '.end: "close" is not known; write "clean", "reset" or "stall"'),
        ({"wire": ""}, ".wire: is empty; give it a value or remove it"),
        ({"paus": 1}, '.paus: unknown key; did you mean "pause"?'),
        (
            {"usage": True},
            ".usage: has the wrong type; write a table of tokens, or false for an answer without usage",
        ),
        ({"usage": {"final": 1}}, ".usage.final: has the wrong type; write true or false"),
        ({"usage": {"input": 1, "cache_read": 2}}, ".usage.input: is less than its cached part"),
        ({"usage": {"output": 1, "reasoning": 2}}, ".usage.output: is less than its reasoning"),
        (
            {"wire": "openai_responses", "usage": {"final": False}},
            ".usage.final: this wire tells usage in its last",
        ),
        (
            {"wire": "bedrock", "usage": {"final": False}},
            ".usage.final: this wire tells usage in its last",
        ),
        (
            {"wire": "gemini", "usage": {"input": 9, "cache_write": 2}},
            ".usage.cache_write: this wire tells no cache writes",
        ),
        ({"tool_calls": [1]}, ".tool_calls[0]: is not a table; write { key = value, ... }"),
        ({"tool_calls": [{"arguments": 1}]}, ".tool_calls[0].arguments: has the wrong type"),
        ({"structured": float("nan")}, ".structured: holds a value that JSON does not have"),
        ({"error": {}}, '.error: lacks "type"'),
        ({"headers": 1}, ".headers: has the wrong type"),
        ({"headers": {"a b": "c"}}, '.headers: "a b" is no header'),
        ({"cut_after": 1 << 99_999}, ".cut_after: is out of range"),
        ({"pause": 1 << 99_999}, ".pause: is out of range"),
        ({"structured": 1 << 99_999}, ".structured: holds a value that JSON does not have"),
        ({"headers": {"a": 1 << 99_999}}, '.headers: "a" is no header'),
        ({"headers": {"a": "c\nd"}}, '.headers: "a" is no header'),
        ({"status": 100}, ".status: is out of range"),
        ({"calls": [{"wire": "anthropic"}]}, ".calls[0].wire: unknown key"),
        ({"calls": [{}, {"end": 1}]}, ".calls[1].end: has the wrong type"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_the_way_to_mend_it(keys, mistake):
    (found,) = mistakes_in(**keys)
    assert found.startswith(mistake)


@pytest.mark.parametrize(
    ("keys", "where"),
    [
        ({"refusal": "No.", "text": "Yes."}, ".text"),
        ({"structured": 1, "structured_text": "1"}, ".structured_text"),
        ({"error": {"type": "x"}, "cut_after": 1}, ".cut_after"),
        ({"body": "x", "usage": False}, ".usage"),
        ({"status": 500, "text": "x"}, ".text"),
        ({"status": 500, "error": {"type": "x", "after": 1}}, ".error"),
        ({"stops_at": "written", "status": 500}, ".status"),
        ({"stops_at": "not_written", "end": "stall"}, ".end"),
        ({"stops_at": "writing", "delay": 1}, ".delay"),
    ],
)
def test_keys_that_cannot_stand_together_are_a_mistake_and_none_is_left_out(keys, where):
    (found,) = mistakes_in(**keys)
    assert found.startswith(f"{where}: ")
    assert "remove" in found


def test_every_mistake_is_told_at_once():
    document = {
        "script": 1,
        "scripts": {"a b": {"text": 1}, "c": {"end": "x", "calls": [{"pause": "y"}]}, "d": 7},
    }
    paths = [mistake.split(": ")[0] for mistake in mistakes_of(document)]
    assert sorted(paths) == sorted(
        [
            'scripts."a b"',
            'scripts."a b".text',
            "scripts.c.end",
            "scripts.c.calls[0].pause",
            "scripts.d",
            "script",
        ]
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[scripts", "is not TOML: "),
        (b"\xff", "is not UTF-8 at byte 0"),
        ("", 'has no table "scripts"'),
        ("x = " + "[" * 5000, "is n"),
        ("x = " + "9" * 5000, "is not TOML: "),
    ],
)
def test_a_file_that_cannot_be_read_says_why(loaded, text, problem):
    with pytest.raises(ScriptMistakes) as found:
        loaded(text)
    (mistake,) = found.value.mistakes
    assert mistake.path == ()
    assert str(mistake).startswith(problem)


def test_a_missing_file_says_so(tmp_path):
    with pytest.raises(ScriptMistakes, match=r"^cannot be read: No such file"):
        load_scripts(tmp_path / "gone.toml")


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(loaded):
    assert loaded(b'\xef\xbb\xbf[scripts.mine]\r\ntext = """a\r\nb"""\r\n').find("mine").play.text == "a\nb"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FORMAT = TEXT.split("## Scripts of your own", 1)[1]
KEYS = [*re.findall(r"^\| `(\w+)` \|", FORMAT, re.MULTILINE), "calls"]


@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=5))
def test_whatever_a_script_holds_it_is_read_or_its_mistakes_are_told(keys):
    told: tuple[ScriptMistake, ...] | None = None
    try:
        parse_scripts({"scripts": {"own": keys}})
    except ScriptMistakes as error:
        told = error.mistakes
    assert told is None or told
    assert all(mistake.path[:1] == ("scripts",) and mistake.fix for mistake in told or ())


def test_every_key_is_documented_and_no_other():
    (mistake,) = mistakes_in(zzz=1)
    known = set(mistake.split("known here are ")[1].split(", "))
    assert known == set(KEYS)


def test_the_configuration_of_the_document_loads(tmp_path):
    (block,) = (block for block in re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL) if "[providers" in block)
    examples = ROOT / "examples" / "replay-scripts.toml"
    (tmp_path / examples.name).write_bytes(examples.read_bytes())
    (tmp_path / "modelmeter.toml").write_text(block)
    settings = load(tmp_path / "modelmeter.toml", {})
    assert [model.model for model in settings.models] == ["cut"]
