"""The grammar of event streams, one law a test. The property tests stand in `test_sse_properties.py`."""

from __future__ import annotations

import pytest

from modelmeter_server.core.sse import EventTooLarge, SseEvent, SseSplitter


def split(*chunks: bytes) -> list[SseEvent]:
    """Feed the chunks in turn and return all events; the body is not closed."""
    splitter = SseSplitter()
    return [event for chunk in chunks for event in splitter.feed(chunk)]


def data_of(*chunks: bytes) -> list[bytes]:
    return [event.data for event in split(*chunks)]


def test_a_codepoint_split_across_chunks_survives():
    text = "data: grün €\n\n".encode()
    for cut in range(len(text)):
        assert data_of(text[:cut], text[cut:]) == ["grün €".encode()]


def test_a_leading_bom_is_stripped_and_only_the_leading_one():
    assert data_of(b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n") == [b"a"]
    assert data_of(b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n") == [b"b"]
    assert data_of(b"data: \xef\xbb\xbfa\n\n") == [b"\xef\xbb\xbfa"]


def test_a_bom_split_over_reads_is_stripped_too():
    assert data_of(b"\xef", b"", b"\xbb", b"\xbfdata: a\n\n") == [b"a"]


def test_half_a_bom_is_part_of_the_first_line():
    assert data_of(b"\xef\xbb", b"data: a\ndata: b\n\n") == [b"b"]


def test_a_named_event_with_data_dispatches_on_the_blank_line():
    splitter = SseSplitter()
    assert splitter.feed(b"event: ping\ndata: {}\n") == []
    assert splitter.feed(b"\n") == [SseEvent("ping", b"{}")]


def test_an_unnamed_event_still_carries_its_data():
    assert split(b"data: x\n\n") == [SseEvent("", b"x")]


def test_a_name_ends_with_its_event():
    assert split(b"event: a\ndata: 1\n\ndata: 2\n\n") == [SseEvent("a", b"1"), SseEvent("", b"2")]


def test_an_event_without_data_dispatches_nothing_and_forgets_its_name():
    assert split(b"event: a\n\ndata: 1\n\n") == [SseEvent("", b"1")]


def test_the_last_of_two_names_wins():
    text = b"event: a\nevent: b\ndata: 1\n\n"
    assert split(text + text) == [SseEvent("b", b"1")] * 2
    assert split(b"event: a\nevent:\ndata: 1\n\n") == [SseEvent("", b"1")]


def test_more_names_than_a_provider_has_are_all_read():
    names = [f"name-{n}" for n in range(200)] + ["x" * 500]
    text = "".join(f"event: {name}\ndata: 1\n\n" for name in names).encode()
    assert [event.name for event in split(text, text)] == names * 2


def test_an_event_split_across_chunks_is_reassembled():
    text = b"event: message\ndata: hello\n\n"
    for cut in range(len(text)):
        assert split(text[:cut], text[cut:]) == [SseEvent("message", b"hello")]


def test_a_boundary_inside_the_terminator_still_dispatches_once():
    assert data_of(b"data: a\n", b"\n", b"data: b\n\n") == [b"a", b"b"]
    assert data_of(b"data: a\r", b"\n", b"\r", b"\n", b"data: b\r\n\r\n") == [b"a", b"b"]


def test_multi_line_data_is_joined_with_newlines():
    assert data_of(b"data: a\ndata: b\n", b"data: c\n\ndata: d\n\n") == [b"a\nb\nc", b"d"]


def test_an_empty_data_line_is_a_line_of_its_own():
    assert data_of(b"data\ndata: b\ndata:\ndata: d\n\n") == [b"\nb\n\nd"]


def test_comments_are_ignored():
    assert split(b": hi\nevent: a\n:\ndata: 1\n:data: 2\n\n") == [SseEvent("a", b"1")]


def test_a_comment_alone_dispatches_nothing():
    assert split(b": keep-alive\n\n:\n\n") == []


@pytest.mark.parametrize("blank", [b"data:\n\n", b"data\n\n", b"data:   \n\n", b"data: \ndata: \n\n"])
def test_blank_data_yields_nothing_and_hides_nothing(blank: bytes):
    assert data_of(blank, b"data: a\n\n", blank, b"data: b\n\n") == [b"a", b"b"]


def test_crlf_and_bare_cr_terminate_lines():
    assert split(b"event: a\r\ndata: 1\r\n\r\n", b"event: b\rdata: 2\r\r") == [
        SseEvent("a", b"1"),
        SseEvent("b", b"2"),
    ]


def test_line_ends_may_be_mixed():
    assert data_of(b"data: a\n\r\ndata: b\r\r\ndata: c\r\n\ndata: d\n\r") == [b"a", b"b", b"c", b"d"]


def test_crlf_is_one_terminator_not_two():
    assert data_of(b"data: a\r\ndata: b\r\n\r\n") == [b"a\nb"]


def test_a_crlf_split_across_chunks_is_still_one_terminator():
    assert data_of(b"data: a\r", b"\ndata: b\r", b"\n\r\n") == [b"a\nb"]


def test_a_split_crlf_is_not_read_as_two_terminators():
    assert split(b"event: a\r", b"\ndata: 1\r\n\r\n") == [SseEvent("a", b"1")]
    assert split(b"event: a\r", b"", b"\ndata: 1\r\n\r\n") == [SseEvent("a", b"1")]


def test_a_stream_ending_on_a_bare_cr_holds_it_back():
    """What waits is the question whether an LF follows; the event itself is given at once."""
    splitter = SseSplitter()
    assert splitter.feed(b"data: a\r\r") == [SseEvent("", b"a")]
    assert splitter.feed(b"\ndata: b\r") == []
    assert splitter.feed(b"\r") == [SseEvent("", b"b")]


def test_no_other_character_ends_a_line():
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei".encode()
    assert data_of(b"data: " + text + b"\n\n") == [text]


def test_only_one_leading_space_is_stripped():
    assert data_of(b"data:a\n\ndata: b\n\ndata:  c\n\ndata:\td\n\n") == [b"a", b"b", b" c", b"\td"]


def test_a_field_with_no_colon_has_an_empty_value():
    assert split(b"event: a\nevent\ndata\ndata: 1\n\n") == [SseEvent("", b"\n1")]


def test_field_names_are_exact():
    assert split(b"Data: 1\n data: 2\ndata : 3\ndatax: 4\nevents: e\n\n") == []


def test_reconnection_fields_are_ignored_but_do_not_break_the_event():
    assert split(b"id: 7\nevent: a\nretry: 10\ndata: 1\nid\nfoo: bar\n\n") == [SseEvent("a", b"1")]


def test_an_incomplete_trailing_line_is_not_dispatched():
    assert data_of(b"data: a\n\ndata: b") == [b"a"]


def test_invalid_utf8_degrades_rather_than_aborting():
    assert split(b"event: a\xff\ndata: \xff\xfe\n\n") == [SseEvent("a\ufffd", b"\xff\xfe")]


def feed_repeatedly(splitter: SseSplitter, chunk: bytes, times: int = 200) -> None:
    for _ in range(times):
        splitter.feed(chunk)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_unterminated_line_cannot_grow_without_bound(size: int):
    splitter = SseSplitter(event_limit=100)
    with pytest.raises(EventTooLarge, match="100 bytes"):
        feed_repeatedly(splitter, b"x" * size)
    with pytest.raises(EventTooLarge):
        splitter.feed(b"data: a\n\n")
    assert splitter.close(True) == []


@pytest.mark.parametrize("line", [b"data: 1234567\n", b"data\n", b"data: 1234567\r\n"])
def test_multi_line_event_data_cannot_grow_without_bound(line: bytes):
    with pytest.raises(EventTooLarge):
        feed_repeatedly(SseSplitter(event_limit=100), line)


def test_events_before_a_too_large_one_in_the_same_chunk_are_not_lost():
    splitter = SseSplitter(event_limit=100)
    with pytest.raises(EventTooLarge) as caught:
        splitter.feed(b"data: a\n\nevent: b\ndata: 2\n\ndata: " + b"x" * 100 + b"\n\n")
    assert caught.value.events == [SseEvent("", b"a"), SseEvent("b", b"2")]
    assert caught.value.limit == 100


def test_an_event_of_exactly_the_limit_is_given_in_any_chunking():
    text = b"data: " + b"x" * 94 + b"\n\n"
    for size in (1, 3, 102):
        splitter = SseSplitter(event_limit=100)
        chunks = [text[at : at + size] for at in range(0, len(text), size)]
        assert [event.data for chunk in chunks for event in splitter.feed(chunk)] == [b"x" * 94]


def test_comments_and_small_events_never_add_up_to_the_limit():
    splitter = SseSplitter(event_limit=100)
    events = [event for _ in range(300) for event in splitter.feed(b": keep-alive\ndata: 12345\n\n: x\n")]
    assert len(events) == 300


def test_a_line_of_more_than_a_mebibyte_is_one_event():
    text = b"data: " + b"x" * 3_000_000 + b"\n\n"
    assert [len(data) for data in data_of(text, text[:9], text[9:])] == [3_000_000, 3_000_000]


def test_only_a_stream_with_a_field_or_a_comment_is_recognised():
    page = SseSplitter()
    assert page.feed(b"<!doctype html>\n<title>Bad gateway</title>\n\n") == []
    assert not page.recognised
    for text in (b"data: x\n", b": comment\n", b"id: 1\n", b"retry: 1\n", b"event: a\r", b"error: {\n"):
        stream = SseSplitter()
        stream.feed(text)
        assert stream.recognised
