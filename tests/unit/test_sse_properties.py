"""What holds for every byte sequence: chunking, agreement with another decoder, bounded time and memory."""

from __future__ import annotations

import json
import time
import tracemalloc
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.sse import EventTooLarge, SseEvent, SseSplitter

if TYPE_CHECKING:
    from pathlib import Path

ENDS = [b"\n", b"\r", b"\r\n"]
LINES = [
    *(b"data: x", b"data:y", b"data", b"data: ", b"data:  ", b"data: {}", "data: é\u2028\u0085".encode()),
    *(b"event: a", b"event:b", b"event", b"event: ", b"id: 1", b"retry: 5", b": c", b":"),
    *(b"", b"", b"", b"foo: bar", b" data: z"),
]
BARE = [
    *(b"{", b'{"error": {}}', b'"error": "x"', b"}", b'error: {"a":1}', b"error: {", b"["),
    *(b"\xef\xbb\xbf", b"\xff"),
]


def streams(lines: list[bytes]) -> st.SearchStrategy[bytes]:
    pairs = st.tuples(st.sampled_from(lines), st.sampled_from(ENDS))
    return st.lists(pairs, max_size=30).map(lambda found: b"".join(line + end for line, end in found))


def chunked(text: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(edges)]


def outcome(chunks: list[bytes], limit: int, clean: bool) -> tuple[list[SseEvent], bool, bool]:
    """Return the events, whether the limit was passed, and whether the text was recognised as a stream."""
    splitter = SseSplitter(event_limit=limit)
    events: list[SseEvent] = []
    try:
        for chunk in chunks:
            events += splitter.feed(chunk)
    except EventTooLarge as error:
        return events + error.events, True, splitter.recognised
    return events + splitter.close(clean), False, splitter.recognised


@given(
    streams(LINES + BARE),
    st.lists(st.integers(0), max_size=12),
    st.sampled_from([1, 9, 30, 10**6]),
    st.booleans(),
)
def test_any_chunking_gives_the_same_events(text: bytes, cuts: list[int], limit: int, clean: bool):
    whole = outcome([text], limit, clean)
    assert outcome(chunked(text, cuts), limit, clean) == whole
    assert outcome([text[at : at + 1] for at in range(len(text))], limit, clean) == whole


@given(st.binary(max_size=200), st.lists(st.integers(0), max_size=5), st.booleans())
def test_arbitrary_bytes_never_raise_and_never_depend_on_chunking(text: bytes, cuts: list[int], clean: bool):
    whole = outcome([text], 10**6, clean)
    assert not whole[1]
    assert outcome(chunked(text, cuts), 10**6, clean) == whole


@given(streams(LINES), st.lists(st.integers(0), max_size=8))
def test_events_agree_with_another_decoder(text: bytes, cuts: list[int]):
    decoders = pytest.importorskip("httpx_sse._decoders")
    lines, decoder = decoders.SSELineDecoder(), decoders.SSEDecoder()
    # It holds a CR at the end back, and takes no empty text.
    found = [decoder.decode(line) for line in (lines.decode(text.decode()) if text else []) + lines.flush()]
    # It also gives events without data where an id was seen once, as the reconnecting client that it is.
    expected = [(event.event, event.data.encode()) for event in found if event and event.data.strip()]
    splitter = SseSplitter()
    ours = [event for chunk in chunked(text, cuts) for event in splitter.feed(chunk)]
    assert [(event.name or "message", event.data) for event in ours] == expected


@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "b_c"]), st.text(min_size=1)), max_size=10),
    st.sampled_from(ENDS),
)
def test_what_was_framed_comes_out_again(events: list[tuple[str, str]], end: bytes):
    framed = [
        (name, json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")) for name, text in events
    ]
    named = [(b"event: " + name.encode() + end if name else b"", data) for name, data in framed]
    text = b"".join(name + b"data: " + data + end + end for name, data in named)
    assert [(event.name, event.data) for event in SseSplitter().feed(text)] == framed


@given(streams(LINES + BARE), st.integers(0))
def test_a_cut_stream_gives_a_prefix_of_the_events(text: bytes, cut: int):
    before = SseSplitter().feed(text[: cut % (len(text) + 1)])
    assert before == SseSplitter().feed(text)[: len(before)]


def test_an_endless_line_costs_linear_time_and_bounded_memory():
    splitter, piece, limit = SseSplitter(), b"x" * 1024, 16 * 1024 * 1024
    tracemalloc.start()
    started = time.process_time()
    for _ in range(limit // len(piece)):
        splitter.feed(piece)
    spent = time.process_time() - started
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2.5 * limit
    assert spent < 5  # a copy of the buffer a piece would be 128 GiB of copying
    with pytest.raises(EventTooLarge):
        splitter.feed(piece)


@pytest.mark.parametrize("line", [b"data\n", b"data: x\n", b"data:\r", b": x\n", b"{\n", b"\n"])
def test_endless_short_lines_cost_bounded_memory(line: bytes):
    limit = 128 * 1024
    splitter, piece = SseSplitter(event_limit=limit), line * 1000
    tracemalloc.start()
    try:
        for _ in range(3 * limit // len(piece)):
            splitter.feed(piece)
    except EventTooLarge:
        assert line.startswith(b"data")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * limit


def test_recorded_streams_agree_with_another_decoder(shared: Path):
    decoders = pytest.importorskip("httpx_sse._decoders")
    paths = sorted((shared / "streams").rglob("*.sse"))
    assert paths
    for path in paths:
        text = path.read_bytes().replace(b"\nerror: {", b"\nunknown: {")  # ours is the only one to read it
        lines, decoder = decoders.SSELineDecoder(), decoders.SSEDecoder()
        found = [decoder.decode(line) for line in lines.decode(text.decode()) + lines.flush()]
        expected = [(event.event, event.data.encode()) for event in found if event and event.data]
        assert [(event.name or "message", event.data) for event in SseSplitter().feed(text)] == expected, path


def test_the_error_line_of_a_recorded_stream_is_its_last_event(shared: Path):
    text = (shared / "streams/gpustack/qwen3-error-line.sse").read_bytes()
    *_, last = SseSplitter().feed(text)
    assert last.name == "error"
    assert "error" in json.loads(last.data)
