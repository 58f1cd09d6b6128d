"""The event stream encoding: frames in any chunking, wrong bytes found out, and agreement with botocore's decoder."""

from __future__ import annotations

import struct
from binascii import crc32
from itertools import pairwise

import pytest
from botocore.eventstream import EventStreamBuffer, ParserError
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.event_stream import MAX_HEADERS, BadFrame, Frame, FrameDecoder, FrameTooLarge
from tests.support.bedrock_events import raw_frame

HEADERS = st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3)
FRAMES = st.lists(st.tuples(HEADERS, st.binary(max_size=40)), max_size=5)
ONE = raw_frame({":event-type": "x"}, b"{}")

OTHER_TYPES = [
    b"\x00",
    b"\x01",
    b"\x02\xff",
    b"\x03\x00\x01",
    b"\x04" + bytes(4),
    b"\x05" + bytes(8),
    b"\x06\x00\x02ab",
    b"\x08" + bytes(8),
    b"\x09" + bytes(16),
]


def sealed(prelude: tuple[int, int], rest: bytes) -> bytes:
    """Return a frame with these lengths and right checksums, whatever else is wrong."""
    lengths = struct.pack(">II", *prelude)
    start = lengths + struct.pack(">I", crc32(lengths)) + rest
    return start + struct.pack(">I", crc32(start))


def with_block(block: bytes, payload: bytes = b"") -> bytes:
    return sealed((16 + len(block) + len(payload), len(block)), block + payload)


def decoded(chunks: list[bytes], limit: int = 10_000) -> tuple[list[Frame], str]:
    """Return the frames and what was wrong after them."""
    decoder = FrameDecoder(frame_limit=limit)
    found: list[Frame] = []
    try:
        for chunk in chunks:
            found += decoder.feed(chunk)
    except BadFrame as error:
        assert decoder.feed(ONE) == []
        return found + error.frames, str(error)
    return found, ""


def chunked(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(edges)]


def botocores(data: bytes) -> tuple[list[Frame], bool]:
    """Return the frames as botocore reads them, and whether it found something wrong."""
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    found: list[Frame] = []
    try:
        for event in buffer:
            headers = {name: value for name, value in event.headers.items() if isinstance(value, str)}
            found.append(Frame(headers, event.payload))
    except (ParserError, ValueError, KeyError, struct.error):  # it reads the headers before it checks the sum
        return found, True
    return found, False


@given(FRAMES, st.lists(st.integers(0), max_size=12))
def test_any_chunking_gives_the_frames_that_were_made(made, cuts: list[int]):
    data = b"".join(raw_frame(headers, payload) for headers, payload in made)
    expected = ([Frame(headers, payload) for headers, payload in made], "")
    assert decoded(chunked(data, cuts)) == decoded([data[i : i + 1] for i in range(len(data))]) == expected


@given(FRAMES, st.integers(0), st.integers(1, 255), st.lists(st.integers(0), max_size=5))
def test_damaged_frames_are_read_as_botocore_reads_them_in_any_chunking(made, where, change, cuts):
    data = bytearray(b"".join(raw_frame(headers, payload) for headers, payload in made) + ONE)
    data[where % len(data)] ^= change
    frames, wrong = decoded([bytes(data)])
    assert (frames, bool(wrong)) == botocores(bytes(data))
    assert wrong, "one changed byte is always found out"
    assert decoded(chunked(bytes(data), cuts)) == (frames, wrong)


@given(st.binary(max_size=120), st.lists(st.integers(0), max_size=5))
def test_any_bytes_are_frames_or_a_bad_frame_and_nothing_else(data: bytes, cuts: list[int]):
    assert decoded(chunked(ONE + data, cuts)) == decoded([ONE + data])


def test_frames_before_a_bad_one_count():
    assert decoded([ONE + ONE + b"\x00" * 16])[0] == [Frame({":event-type": "x"}, b"{}")] * 2


def test_a_frame_that_is_not_whole_is_none():
    assert all(decoded([ONE + ONE[:cut]]) == decoded([ONE]) for cut in range(len(ONE)))


@pytest.mark.parametrize("value", OTHER_TYPES, ids=[str(value[0]) for value in OTHER_TYPES])
def test_headers_of_other_types_are_passed_over(value: bytes):
    data = with_block(b"\x01a" + value + b"\x01b\x07\x00\x01x", b"{}")
    frames, wrong = decoded([data])
    assert (frames, wrong) == ([Frame({"b": "x"}, b"{}")], "")
    assert botocores(data)[0][0].headers["b"] == "x"


@pytest.mark.parametrize(
    "block",
    [
        b"\x05ab",
        b"\x01a",
        b"\x01a\x07",
        b"\x01a\x07\x00\x05x",
        b"\x01a\x0a",
        b"\x01a\x04\x00",
        b"\x01a\x00" * 2,
    ],
    ids=["name", "no type", "no length", "value", "unknown type", "number", "twice"],
)
def test_damaged_headers_are_a_bad_frame(block: bytes):
    assert "headers" in decoded([with_block(block)])[1]


@pytest.mark.parametrize(
    "lengths", [(15, 0), (0, 0), (16, 1), (20, 5), (MAX_HEADERS + 32, MAX_HEADERS + 1)], ids=str
)
def test_impossible_lengths_are_a_bad_frame_at_once(lengths: tuple[int, int]):
    assert "lengths" in decoded([sealed(lengths, b"")[:12]])[1]


def test_a_frame_over_the_limit_is_told_before_its_bytes_are_kept():
    decoder = FrameDecoder(frame_limit=len(ONE))
    assert len(decoder.feed(ONE)) == 1
    larger = raw_frame({":event-type": "x"}, b"{}\n")
    with pytest.raises(FrameTooLarge, match=str(len(ONE))):
        decoder.feed(larger[:12])


def test_a_frame_in_a_hundred_thousand_reads_costs_linear_time():
    # Quadratic time would be minutes, and the time limit of a test is seconds.
    large = raw_frame({":event-type": "x"}, b"x" * 5_000_000)
    decoder = FrameDecoder()
    frames = [
        frame for start in range(0, len(large), 50) for frame in decoder.feed(large[start : start + 50])
    ]
    assert len(frames) == 1
