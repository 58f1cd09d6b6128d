"""Text that must be encodable, fit a limit and hold no keys."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.text import SurrogateJoiner, cut_utf8, scrub, well_formed

ANY = st.text(st.characters(exclude_categories=()))  # surrogates too
HALVES = st.text(st.sampled_from(["\ud83d", "\ude00", "a", "é", "😀", "\ufeff"]))
LETTERS = st.text(st.sampled_from("abc"), max_size=12)


def joined(deltas: list[str]) -> str:
    joiner = SurrogateJoiner()
    return "".join([*map(joiner.push, deltas), joiner.flush()])


@given(st.text())
def test_well_formed_text_is_untouched(text: str):
    assert well_formed(text) == text
    assert joined(list(text)) == text


@given(ANY | HALVES)
def test_every_text_becomes_encodable(text: str):
    json.dumps(well_formed(text), ensure_ascii=False).encode()
    assert well_formed(well_formed(text)) == well_formed(text)


@given(st.lists(ANY | HALVES))
def test_any_split_over_deltas_gives_the_same_text(deltas: list[str]):
    assert joined(deltas) == joined(["".join(deltas)]) == well_formed("".join(deltas))


@given(st.lists(HALVES))
def test_every_pushed_part_is_encodable_by_itself(deltas: list[str]):
    joiner = SurrogateJoiner()
    for delta in deltas:
        joiner.push(delta).encode()


def test_a_pair_over_two_deltas_is_one_character():
    joiner = SurrogateJoiner()
    assert joiner.push("a\ud83d") == "a"
    assert joiner.push("") == ""
    assert joiner.push("\ude00b") == "😀b"
    assert joiner.flush() == ""


def test_a_half_character_becomes_a_replacement_character():
    assert joined(["\ud83d", "a"]) == "\ufffda"
    assert joined(["\ud83d", "\ud83d\ude00"]) == "\ufffd😀"
    assert joined(["a", "\ude00"]) == "a\ufffd"
    assert joined(["\ud83d"]) == "\ufffd"


def test_a_flushed_joiner_starts_anew():
    joiner = SurrogateJoiner()
    joiner.push("\ud83d")
    assert joiner.flush() == "\ufffd"
    assert joiner.push("\ude00") == "\ufffd"


@given(ANY, st.integers(-1, 50))
def test_a_cut_text_is_the_longest_start_that_fits(text: str, limit: int):
    cut = cut_utf8(text, limit)
    whole = well_formed(text)
    assert len(cut.encode()) <= max(limit, 0)
    assert whole.startswith(cut)
    if cut != whole:
        assert len((cut + whole[len(cut)]).encode()) > max(limit, 0)


def test_a_cut_falls_between_characters():
    assert cut_utf8("grün", 3) == "gr"
    assert cut_utf8("grün", 4) == "grü"
    assert cut_utf8("😀😀", 7) == "😀"
    assert cut_utf8("x" * 1000, 200) == "x" * 200


@given(LETTERS, st.lists(st.text(st.sampled_from("abc"), max_size=4), max_size=4))
def test_no_key_is_left_in_a_scrubbed_text(text: str, secrets: list[str]):
    # Letters of the replacement itself are not part of the text.
    left = scrub(text, secrets).replace("[redacted]", "|")
    assert not any(secret in left for secret in secrets if secret)


@given(st.text(), st.text(min_size=1), st.text())
def test_only_the_key_is_replaced(before: str, secret: str, after: str):
    scrubbed = scrub(f"{before}\0{secret}\0{after}", [secret, ""])
    if secret not in before + "\0" + after:
        assert scrubbed == f"{before}\0[redacted]\0{after}"


def test_a_key_that_contains_another_goes_whole():
    assert scrub("sk-live-1 and sk-live-12", ["sk-live-1", "sk-live-12"]) == "[redacted] and [redacted]"
    assert scrub("a.c abc", ["a.c"]) == "[redacted] abc"
    assert scrub("key redacted", ["key", "redacted"]) == "[redacted] [redacted]"
