"""The reader of answers: any cutting of the bytes means the same, and nothing grows without bound."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.drivers.http import Fault, Limits
from modelmeter_server.drivers.http.answer import AnswerReader

CHUNKED = (
    b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-request-id: r1\r\ntransfer-encoding: chunked\r\n\r\n"
    b"5;ext=1\r\nhello\r\n1\r\n \r\n5\r\nworld\r\n0\r\nx-trailer: t\r\n\r\n"
)
COUNTED = b"HTTP/1.1 429 Too Many\r\ncontent-length: 11\r\nretry-after: 3\r\n\r\nhello world"
UNCOUNTED = b"HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\nhello world"

cuts = st.lists(st.integers(0, 320), max_size=20)


def _feed(data: bytes, at: list[int], limits: Limits | None = None) -> tuple[AnswerReader, bytes]:
    reader, body = AnswerReader(limits or Limits()), b""
    bounds = [0, *sorted(min(cut, len(data)) for cut in at), len(data)]
    for start, end in itertools.pairwise(bounds):
        if start < end:
            reader.feed(data[start:end])
            body += reader.take()
    return reader, body


@given(st.sampled_from([CHUNKED, COUNTED]), cuts)
def test_any_cutting_reads_the_same(data: bytes, at: list[int]) -> None:
    reader, body = _feed(data, at)
    assert body == b"hello world"
    assert (reader.complete, reader.keep_alive, reader.excess, reader.failure) == (True, True, False, None)
    assert reader.head is not None
    assert "x-trailer" not in reader.head.headers
    assert "link" not in reader.head.headers


@given(cuts)
def test_the_status_of_a_refusal_is_known_however_long_its_headers_are(at: list[int]) -> None:
    head = b"HTTP/1.1 401 No\r\nx: " + b"a" * 300 + b"\r\nrequest-id: r\r\n\r\n"
    reader, _ = _feed(head + b"body", at if len(at) < 2 else [], Limits(header_bytes=200))
    assert reader.failure is not None
    assert reader.failure[0] is Fault.HEADER_LIMIT
    assert reader.head is None or reader.head.status == 401


@pytest.mark.parametrize(
    ("status", "known"), [(200, False), (204, False), (100, False), (302, True), (500, True)]
)
def test_an_answer_whose_headers_are_too_long_is_not_begun(status: int, known: bool) -> None:
    head = b"HTTP/1.1 %d X\r\nx: %s\r\n\r\n" % (status, b"a" * 300)
    reader, _ = _feed(head + b"body", [], Limits(header_bytes=200))
    assert reader.failure is not None
    assert (reader.failure[0], reader.head is not None) == (Fault.HEADER_LIMIT, known)


@given(cuts, st.binary(min_size=1, max_size=30).filter(lambda after: after.strip(b"\r\n")))
def test_bytes_after_the_message_are_noticed_and_never_delivered(at: list[int], after: bytes) -> None:
    reader, body = _feed(COUNTED + after, at)
    assert (body, reader.complete, reader.failure) == (b"hello world", True, None)
    assert reader.excess


@given(cuts)
def test_a_second_answer_is_no_body_of_the_first(at: list[int]) -> None:
    reader, body = _feed(COUNTED + CHUNKED, at)
    assert (body, reader.complete, reader.excess) == (b"hello world", True, True)
    assert reader.head is not None
    assert reader.head.status == 429


@given(cuts)
def test_a_body_without_a_length_is_complete_at_the_end_of_the_stream(at: list[int]) -> None:
    reader, body = _feed(UNCOUNTED, at)
    assert (body, reader.complete) == (b"hello world", False)
    reader.end_of_stream()
    assert (reader.complete, reader.keep_alive) == (True, False)


@given(st.sampled_from([CHUNKED, COUNTED]), st.data())
def test_an_end_before_the_announced_end_completes_nothing(data: bytes, draw: st.DataObject) -> None:
    reader, _ = _feed(data[: draw.draw(st.integers(0, len(data) - 1))], [])
    reader.end_of_stream()
    assert not reader.complete


@given(st.binary(max_size=400), cuts)
def test_any_bytes_at_all_raise_nothing(data: bytes, at: list[int]) -> None:
    reader, _ = _feed(data, at)
    assert reader.complete is False or reader.head is not None


@pytest.mark.parametrize(
    "endless",
    [
        (b"HTTP/1.1 200 " + b"r" * 99, b"r" * 99),
        (b"HTTP/1.1 200 OK\r\nx: ", b"v" * 99),
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 9),
        (b"HTTP/1.1 200 OK\r\n", b"n" * 99),
        (b"HTTP/1.1 103 Hints\r\n\r\n", b"HTTP/1.1 103 Hints\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"x: y\r\n" * 9),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;", b"e" * 99),
    ],
    ids=["reason", "value", "headers", "name", "interim answers", "trailers", "chunk extension"],
)
def test_whatever_goes_on_without_head_or_body_is_stopped(endless: tuple[bytes, bytes]) -> None:
    start, block = endless
    reader = AnswerReader(Limits(header_bytes=10_000))
    reader.feed(start)
    fed = 0
    while reader.failure is None:
        reader.feed(block)
        fed += len(block)
        assert fed < 20_000
    # Some of these llhttp itself refuses; what counts is that nothing is read for ever.
    assert reader.failure[0] in (Fault.HEADER_LIMIT, Fault.MALFORMED)


def test_headers_just_under_the_limit_pass_and_one_byte_more_does_not() -> None:
    def head(padding: int) -> bytes:
        return b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx: " + b"p" * padding + b"\r\n\r\n"

    limits = Limits(header_bytes=1000)
    taken = len("content-length") + 1 + 4 + len("x") + 4
    assert _feed(head(1000 - taken), [], limits)[0].complete
    failure = _feed(head(1000 - taken + 1), [], limits)[0].failure
    assert failure is not None
    assert failure[0] is Fault.HEADER_LIMIT


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551616\r\n\r\n",
        b"HTTP/1.1 099 Low\r\n\r\n",
        b"HTTP/3 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbroken header\r\n\r\n",
    ],
)
def test_framing_that_can_be_read_two_ways_is_malformed(data: bytes) -> None:
    reader, _ = _feed(data, [])
    assert reader.failure is not None
    assert reader.failure[0] is Fault.MALFORMED
