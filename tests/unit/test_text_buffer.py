"""Text that arrives in pieces: the same text however it was cut, and always valid Unicode."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.text import well_formed
from modelmeter_server.core.text_buffer import TextBuffer

PIECES = st.lists(st.text(st.sampled_from(["\ud83d", "\ude00", "a", "é", "😀"]), max_size=4))


@given(PIECES)
def test_the_text_is_all_pieces_joined_and_well_formed(pieces: list[str]):
    buffer = TextBuffer()
    told = [buffer.append(piece) for piece in pieces]
    assert str(buffer) == "".join(told)
    told.append(buffer.close())
    assert str(buffer) == "".join(told) == well_formed("".join(pieces))


@given(PIECES)
def test_a_buffer_is_true_once_anything_arrived(pieces: list[str]):
    buffer = TextBuffer()
    for piece in pieces:
        buffer.append(piece)
    assert bool(buffer) == any(pieces)


def test_closing_twice_adds_nothing():
    buffer = TextBuffer()
    buffer.append("a\ud83d")
    assert (buffer.close(), buffer.close(), str(buffer)) == ("\ufffd", "", "a\ufffd")
