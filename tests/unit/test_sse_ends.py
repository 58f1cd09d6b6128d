"""How a body may end (R-S2), and the errors that providers write outside any event (R-S3, R-E5)."""

from __future__ import annotations

import json

import pytest

from modelmeter_server.core.bare_document import DOCUMENT_LIMIT
from modelmeter_server.core.sse import SseEvent, SseSplitter

ERROR = b'{"error": {"type": "server_error", "message": "m"}}'
ARRAY = b'[{\n  "error": {\n    "code": 503,\n    "message": "m"\n  }\n}\n]'
PRETTY = b'{\n  "error": {\n    "data": "x",\n    "message": "m"\n  }\n}'


def read(text: bytes, *, clean: bool = True) -> list[SseEvent]:
    splitter = SseSplitter()
    return splitter.feed(text) + splitter.close(clean)


def test_a_clean_end_gives_the_last_event_marked_as_unterminated():
    for text in (b"event: a\ndata: 1", b"event: a\ndata: 1\n", b"event: a\r\ndata: 1\r"):
        assert read(text) == [SseEvent("a", b"1", unterminated=True)]


def test_a_terminated_event_is_not_marked():
    assert read(b"data: [DONE]\n\n") == [SseEvent("", b"[DONE]")]


def test_a_clean_end_inside_the_second_data_line_gives_both_lines():
    assert read(b"data: {\ndata: }") == [SseEvent("", b"{\n}", unterminated=True)]


def test_a_reset_drops_the_last_unterminated_event():
    for text in (b"data: 1", b"data: 1\n", b"data: 1\ndata: 2", b"event: error\ndata: {}\n"):
        assert read(text, clean=False) == []


def test_an_end_without_an_open_event_gives_nothing():
    for text in (b"", b"\xef\xbb", b"event: a\n", b"data: \n", b": x", b"id: 1\n", b"<html>"):
        assert read(text) == []


def test_an_error_line_that_is_no_field_is_an_error_event():
    line = b'error: {"detail":"x","error":{"message":"m"}}'
    assert read(b"data: 1\n\n" + line + b"\n\ndata: 2\n\n") == [
        SseEvent("", b"1"),
        SseEvent("error", line.removeprefix(b"error: ")),
        SseEvent("", b"2"),
    ]


def test_an_error_line_needs_no_known_member():
    assert read(b'error:{"detail":"x"}\n') == [SseEvent("error", b'{"detail":"x"}')]


def test_an_error_line_is_given_before_its_blank_line():
    assert SseSplitter().feed(b"error: " + ERROR + b"\n") == [SseEvent("error", ERROR)]


def test_an_error_line_printed_over_several_lines_is_one_error():
    assert read(b"error: " + PRETTY + b"\n\n") == [SseEvent("error", PRETTY)]


def test_an_error_line_that_is_not_json_is_still_an_error():
    assert read(b'error: {"detail": "x\n\ndata: 1\n\n')[0] == SseEvent("error", b'{"detail": "x')
    assert read(b'error: {"detail": "x') == [SseEvent("error", b'{"detail": "x', unterminated=True)]
    assert read(b'error: {"detail": "x', clean=False) == []


def test_other_text_after_the_word_error_is_an_unknown_field():
    assert read(b"error: null\nerror: words\nerror:\nerror\nerrors: {}\n\n") == []


@pytest.mark.parametrize(
    "document", [ERROR, PRETTY, ERROR + b" ", PRETTY.replace(b"\n", b"\r\n"), ARRAY, b"[" + ERROR + b"]"]
)
@pytest.mark.parametrize("before", [b"", b": connected\n\n", b"data: 1\n\n"])
@pytest.mark.parametrize("after", [b"", b"\n", b"\r\n\r\n"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_bare_error_document_is_an_error_event(document: bytes, before: bytes, after: bytes, clean: bool):
    *_, event = read(before + document + after, clean=clean)
    assert event.name == "error"
    assert not event.unterminated
    assert json.loads(event.data) == json.loads(document)


@pytest.mark.parametrize(
    "document",
    [
        b'{"error": "overloaded"}',
        b'{"error_type": "x"}',
        b'{"error_message": "x"}',
        b'{"type": "error", "code": "x"}',
    ],
)
def test_an_error_may_be_a_string_or_be_named_by_other_members(document: bytes):
    assert read(document) == [SseEvent("error", document)]


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b'{"error": null}',
        b'{"error": ""}',
        b'{"a": 1}',
        b'{"error": {',
        b"{error: 1}",
        b"[1]",
        b"[]",
        b"[DONE]",
        b"[{}]",
    ],
)
def test_a_document_that_tells_no_error_is_ignored(text: bytes):
    assert read(text + b"\n\ndata: 1\n\n") == [SseEvent("", b"1")]
    assert read(text) == []


def test_a_whole_one_line_document_is_given_without_waiting_for_the_end():
    assert SseSplitter().feed(ERROR + b"\n") == [SseEvent("error", ERROR)]


def test_a_whole_document_of_several_lines_is_given_at_its_closing_brace():
    assert SseSplitter().feed(PRETTY + b"\n") == [SseEvent("error", PRETTY)]


def test_a_field_ends_a_bare_document_and_is_read():
    assert read(b'{\n"error": "x"\n } \ndata: 1\n\n') == [
        SseEvent("error", b'{\n"error": "x"\n } '),
        SseEvent("", b"1"),
    ]


def test_a_comment_inside_a_bare_document_is_no_part_of_it():
    assert read(b'{"error":\n: keep-alive\n{}}') == [SseEvent("error", b'{"error":\n{}}')]


def test_a_bare_document_inside_an_event_does_not_cost_the_event():
    assert read(b"event: a\ndata: 1\n" + ERROR + b"\n\n") == [SseEvent("error", ERROR), SseEvent("a", b"1")]
    assert read(b'event: a\n{"error":\n"x" }\n\ndata: 1\n\n') == [
        SseEvent("error", b'{"error":\n"x" }'),
        SseEvent("", b"1"),
    ]


def test_text_after_a_whole_document_is_not_part_of_it():
    assert read(ERROR + b"\n" + b"</html>\n") == [SseEvent("error", ERROR)]


def test_two_documents_in_a_row_are_two_errors():
    assert read(ERROR + b"\n" + PRETTY + b"\n") == [SseEvent("error", ERROR), SseEvent("error", PRETTY)]


def test_a_document_over_its_limit_is_ignored_and_the_stream_goes_on():
    filler = b'"' + b"x" * 1000 + b'",\n'
    splitter = SseSplitter()
    assert splitter.feed(b'{"error": [\n') == []
    for _ in range(DOCUMENT_LIMIT // 1000 + 1):
        assert splitter.feed(filler) == []
    assert splitter.feed(b"1]}\n\ndata: 1\n\n") == [SseEvent("", b"1")]


def test_a_document_of_closing_braces_is_not_parsed_once_a_line():
    splitter = SseSplitter()
    assert splitter.feed(b'{"error": "x",\n' + b"}\n" * 400_000 + b"\ndata: 1\n\n") == [SseEvent("", b"1")]


def test_deep_nesting_outside_any_event_is_ignored():
    assert read(b'{"error":' * 100_000 + b"}" * 100_000 + b"\ndata: 1\n\n") == [SseEvent("", b"1")]
