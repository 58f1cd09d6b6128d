"""What each fault of the wire is: stage, fault and cause, what still arrived, and what it means for the call.

One row per fault, run on both loops and both faces. `kind` is the ladder's word for it when the call was a
stream of Anthropic messages (None: a completion, as far as the wire goes).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from modelmeter_server.core.outcomes import Cause, Stage
from modelmeter_server.drivers.http import Fault, Limits, Timeouts
from tests.support import wire_faults as wire
from tests.support.fault_server import Reply

START = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","model":"m",'
    b'"usage":{"input_tokens":65,"output_tokens":1}}}\n\n'
)
DELTA = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"\xc3\xa4\xe2\x82\xac"}}\n\n'
)
STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
WHOLE = START + DELTA + STOP
ERROR = b'{"type":"error","error":{"type":"request_too_large","message":"too large"}}'
CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LARGE = 16 * 1024 * 1024
MIB = 1024 * 1024
BRIEF = 0.25
"""Seconds of the timer under test: long for the loopback, short for the test."""
TOTAL = 0.5
"""Seconds of a total that must leave time to get as far as the row says."""


@dataclass(frozen=True)
class Landing:
    """One fault and everything that must be true of it."""

    name: str
    stage: Stage
    fault: Fault
    cause: Cause | None
    kind: str | None
    raises: type[httpx.RequestError] | None
    reply: Callable[[], Reply] = Reply
    status: int | None = None
    """Status the sink was told; `None`: no head arrived."""
    body: bytes = b""
    """Decoded bytes the sink was given."""
    written: bool = True
    attempts: int = 1
    reused: bool = False
    setting: str = "plain"
    """How client and server are set up; see `arrange` in test_landing."""
    request_size: int = 2
    timeouts: Timeouts = field(default_factory=Timeouts)
    limits: Limits = field(default_factory=Limits)
    resend: bool = True


def row(
    name: str,
    landing: str,
    raises: type[httpx.RequestError] | None,
    reply: Callable[[], Reply] = Reply,
    **more: Any,
) -> Landing:
    """Read "STAGE FAULT CAUSE kind"; a dash stands for none. Written goes by the stage unless said otherwise."""
    stage, fault, cause, kind = landing.split()
    more.setdefault("written", Stage[stage] >= Stage.WRITTEN)
    return Landing(
        name,
        Stage[stage],
        Fault[fault],
        None if cause == "-" else Cause[cause],
        None if kind == "-" else kind,
        raises,
        reply,
        **more,
    )


# fmt: off
NOTHING_SENT = [
    row("nobody listens", "NOT_WRITTEN REFUSED NETWORK UNREACHABLE", httpx.ConnectError, setting="refused"),
    row("the name does not resolve", "NOT_WRITTEN DNS NETWORK UNREACHABLE", httpx.ConnectError,
        setting="unresolvable"),
    row("an unknown authority signed the certificate", "NOT_WRITTEN CERTIFICATE NETWORK UNREACHABLE",
        httpx.ConnectError, setting="untrusted"),
    row("the certificate is another host's", "NOT_WRITTEN CERTIFICATE NETWORK UNREACHABLE", httpx.ConnectError,
        setting="wrong host"),
    row("plain text on the TLS port", "NOT_WRITTEN TLS NETWORK UNREACHABLE", httpx.ConnectError,
        lambda: Reply(on_accept=True, raw=[b"HTTP/1.1 400 Bad Request\r\n\r\n"], end="stall"),
        setting="tls on plain"),
    row("closed during the TLS handshake", "NOT_WRITTEN TLS NETWORK UNREACHABLE", httpx.ConnectError,
        wire.close_on_accept, setting="tls on plain"),
    row("reset during the TLS handshake", "NOT_WRITTEN TLS NETWORK UNREACHABLE", httpx.ConnectError,
        lambda: wire.close_on_accept("reset"), setting="tls on plain"),
    row("silence during the TLS handshake", "NOT_WRITTEN CONNECT_TIMEOUT NETWORK UNREACHABLE",
        httpx.ConnectTimeout, wire.never_read, setting="tls on plain", timeouts=Timeouts(connect=BRIEF)),
    row("the total runs out while connecting", "NOT_WRITTEN TOTAL_TIMEOUT TOTAL_TIMEOUT UNREACHABLE",
        httpx.ConnectTimeout, wire.never_read, setting="tls on plain", timeouts=Timeouts(total=BRIEF)),
    row("the pool stays full", "NOT_WRITTEN POOL_TIMEOUT LIMIT OVERLOADED", httpx.PoolTimeout,
        setting="full pool", timeouts=Timeouts(pool=BRIEF), limits=Limits(connections=1)),
    row("the request is over our own limit", "NOT_WRITTEN REQUEST_LIMIT LIMIT REFUSED",
        httpx.LocalProtocolError, request_size=101, limits=Limits(request_bytes=100)),
    row("the proxy refuses connections", "NOT_WRITTEN PROXY NETWORK UNREACHABLE", httpx.ProxyError,
        setting="proxy refused"),
    row("the proxy wants credentials", "NOT_WRITTEN PROXY_CREDENTIALS NETWORK UNREACHABLE", httpx.ProxyError,
        lambda: Reply(407, chunks=[b"<html>"], framing="length", joined=True), setting="proxy"),
    row("the proxy cannot reach the provider", "NOT_WRITTEN PROXY NETWORK UNREACHABLE", httpx.ProxyError,
        lambda: Reply(502, framing="length"), setting="proxy"),
    row("the proxy speaks into its tunnel", "NOT_WRITTEN PROXY NETWORK UNREACHABLE", httpx.ProxyError,
        lambda: Reply(raw=[b"HTTP/1.1 200 OK\r\n\r\nSSH-2.0"], end="stall"), setting="proxy"),
    row("the proxy closes", "NOT_WRITTEN PROXY NETWORK UNREACHABLE", httpx.ProxyError, wire.close_after_written,
        setting="proxy"),
    row("the proxy speaks something else", "NOT_WRITTEN PROXY NETWORK UNREACHABLE", httpx.ProxyError,
        wire.garbage, setting="proxy"),
]

PARTLY_WRITTEN = [
    row("closed while the request is written", "WRITING WRITE_LOST NETWORK UNREACHABLE", httpx.WriteError,
        lambda: wire.close_while_written(end="truncate"), request_size=LARGE, setting="narrow"),
    row("reset while the request is written", "WRITING WRITE_LOST NETWORK UNREACHABLE", httpx.WriteError,
        wire.close_while_written, request_size=LARGE, setting="narrow"),
    row("reset before the body is read", "WRITING WRITE_LOST NETWORK UNREACHABLE", httpx.WriteError,
        lambda: wire.close_while_written(0), request_size=LARGE, setting="narrow"),
    row("reset while the request is written under TLS", "WRITING WRITE_LOST NETWORK UNREACHABLE",
        httpx.WriteError, wire.close_while_written, request_size=LARGE, setting="narrow tls"),
    row("the peer stops reading", "WRITING WRITE_TIMEOUT NETWORK UNREACHABLE", httpx.WriteTimeout,
        wire.never_read, request_size=LARGE, setting="narrow", timeouts=Timeouts(write=BRIEF)),
    row("the peer stops reading under TLS", "WRITING WRITE_TIMEOUT NETWORK UNREACHABLE", httpx.WriteTimeout,
        lambda: Reply(read_body=1, silent=True, end="stall"), request_size=LARGE, setting="narrow tls",
        timeouts=Timeouts(write=BRIEF)),
    row("the total runs out while writing", "WRITING TOTAL_TIMEOUT TOTAL_TIMEOUT UNREACHABLE",
        httpx.WriteTimeout, wire.never_read, request_size=LARGE, setting="narrow",
        timeouts=Timeouts(total=TOTAL)),
]

UNANSWERED = [
    row("closed after the request", "WRITTEN RESET NETWORK UNAVAILABLE", httpx.RemoteProtocolError,
        wire.close_after_written),
    row("reset after the request", "WRITTEN RESET NETWORK UNAVAILABLE", httpx.ReadError,
        lambda: wire.close_after_written("reset")),
    row("reset after the request under TLS", "WRITTEN RESET NETWORK UNAVAILABLE", httpx.ReadError,
        lambda: wire.close_after_written("reset"), setting="tls"),
    row("no answer", "WRITTEN FIRST_BYTE_TIMEOUT IDLE_TIMEOUT UNAVAILABLE", httpx.ReadTimeout,
        wire.never_answer, timeouts=Timeouts(first_byte=BRIEF)),
    row("the total runs out before an answer", "WRITTEN TOTAL_TIMEOUT TOTAL_TIMEOUT UNAVAILABLE",
        httpx.ReadTimeout, wire.never_answer, timeouts=Timeouts(total=TOTAL)),
    row("a kept connection is reset, no re-send", "WRITTEN RESET NETWORK UNAVAILABLE", httpx.ReadError,
        lambda: wire.close_after_written("reset"), setting="kept", reused=True, resend=False),
    row("a kept connection is closed, no re-send", "WRITTEN RESET NETWORK UNAVAILABLE",
        httpx.RemoteProtocolError, wire.close_after_written, setting="kept", reused=True, resend=False),
    row("the re-send over a fresh connection is reset too", "WRITTEN RESET NETWORK UNAVAILABLE",
        httpx.ReadError, lambda: wire.close_after_written("reset"), setting="kept, twice", attempts=2),
    row("garbage", "WRITTEN MALFORMED NETWORK UNAVAILABLE", httpx.RemoteProtocolError, wire.garbage),
    row("a protocol nobody asked for", "WRITTEN MALFORMED NETWORK UNAVAILABLE", httpx.RemoteProtocolError,
        lambda: wire.garbage(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n")),
    row("closed within the head", "WRITTEN TRUNCATED NETWORK UNAVAILABLE", httpx.RemoteProtocolError,
        lambda: Reply(raw=[b"HTTP/1.1 200 OK\r\ncontent-"], end="truncate")),
    row("reset within the head", "WRITTEN RESET NETWORK UNAVAILABLE", httpx.ReadError,
        lambda: Reply(raw=[b"HTTP/1.1 200 OK\r\ncontent-"], end="reset")),
    row("closed after an interim answer", "WRITTEN TRUNCATED NETWORK UNAVAILABLE", httpx.RemoteProtocolError,
        lambda: Reply(raw=[b"HTTP/1.1 100 Continue\r\n\r\n"], end="truncate")),
    row("a huge header", "WRITTEN HEADER_LIMIT LIMIT UNAVAILABLE", httpx.RemoteProtocolError,
        lambda: wire.huge_header(65536)),
    row("a huge header in one read", "WRITTEN HEADER_LIMIT LIMIT UNAVAILABLE", httpx.RemoteProtocolError,
        lambda: Reply(raw=[b"HTTP/1.1 200 OK\r\nx: %b\r\n\r\n%b" % (b"p" * 70_000, WHOLE)], end="truncate")),
    row("an endless header", "WRITTEN HEADER_LIMIT LIMIT UNAVAILABLE", httpx.RemoteProtocolError,
        wire.endless_header),
    row("endless headers", "WRITTEN HEADER_LIMIT LIMIT UNAVAILABLE", httpx.RemoteProtocolError,
        wire.endless_headers),
]

HEAD_ALONE = [
    row("reset after the head", "HEADERS RESET NETWORK UNAVAILABLE", httpx.ReadError,
        lambda: Reply(end="reset"), status=200),
    row("closed after the head", "HEADERS TRUNCATED NETWORK UNAVAILABLE", httpx.RemoteProtocolError,
        lambda: Reply(end="truncate"), status=200),
    row("silence after the head", "HEADERS IDLE_TIMEOUT IDLE_TIMEOUT UNAVAILABLE", httpx.ReadTimeout,
        lambda: Reply(end="stall"), status=200, timeouts=Timeouts(first_byte=5, idle=BRIEF)),
    row("more announced than we take", "HEADERS ANSWER_LIMIT LIMIT UNAVAILABLE", httpx.ReadError,
        lambda: Reply(chunks=[START], framing="length", announce=2**40, end="stall"), status=200),
    row("a transfer coding nobody asked for", "HEADERS ENCODING NETWORK UNACCOUNTED", httpx.DecodingError,
        lambda: Reply(raw=[b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n"], end="stall"), status=200),
]

IN_THE_BODY = [
    row("half a body, closed", "BODY TRUNCATED NETWORK INTERRUPTED", httpx.RemoteProtocolError,
        lambda: wire.half_body(START), status=200, body=START),
    row("half a body, reset", "BODY RESET NETWORK INTERRUPTED", httpx.ReadError,
        lambda: wire.half_body(START, "reset"), status=200, body=START),
    row("no last chunk, closed", "BODY TRUNCATED NETWORK INTERRUPTED", httpx.RemoteProtocolError,
        lambda: wire.event_stream([START, DELTA], "truncate"), status=200, body=START + DELTA),
    row("no last chunk, reset", "BODY RESET NETWORK INTERRUPTED", httpx.ReadError,
        lambda: wire.event_stream([START, DELTA], "reset"), status=200, body=START + DELTA),
    row("no last chunk, closed, under TLS", "BODY TRUNCATED NETWORK INTERRUPTED", httpx.RemoteProtocolError,
        lambda: wire.event_stream([START], "truncate"), status=200, body=START, setting="tls"),
    row("no last chunk, reset, under TLS", "BODY RESET NETWORK INTERRUPTED", httpx.ReadError,
        lambda: wire.event_stream([START], "reset"), status=200, body=START, setting="tls"),
    row("only a comment, then reset", "BODY RESET NETWORK UNAVAILABLE", httpx.ReadError,
        lambda: wire.event_stream([b": keep-alive\n\n"], "reset"), status=200, body=b": keep-alive\n\n"),
    row("silence in the body", "BODY IDLE_TIMEOUT IDLE_TIMEOUT INTERRUPTED", httpx.ReadTimeout,
        lambda: wire.event_stream([START], "stall"), status=200, body=START, timeouts=Timeouts(idle=BRIEF)),
    row("the total runs out in the body", "BODY TOTAL_TIMEOUT TOTAL_TIMEOUT INTERRUPTED", httpx.ReadTimeout,
        lambda: wire.event_stream([START], "stall"), status=200, body=START, timeouts=Timeouts(total=TOTAL)),
    row("a body without a length, reset", "BODY RESET NETWORK INTERRUPTED", httpx.ReadError,
        lambda: Reply(chunks=[START], framing="close", end="reset"), status=200, body=START),
    row("a body without a length under TLS, closed without goodbye", "BODY TRUNCATED NETWORK INTERRUPTED",
        httpx.RemoteProtocolError, lambda: Reply(chunks=[START], framing="close", end="abort"), status=200,
        body=START, setting="tls"),
    row("a chunk size that is none", "BODY MALFORMED NETWORK INTERRUPTED", httpx.RemoteProtocolError,
        lambda: Reply(raw=[CHUNKED_HEAD + b"%x\r\n%b\r\nzz\r\n" % (len(START), START)], end="stall"),
        status=200, body=START),
    row("a coding nobody asked for", "BODY ENCODING NETWORK UNACCOUNTED", httpx.DecodingError,
        lambda: Reply(headers={"content-encoding": "br"}, chunks=[b"\x0b\x02\x80"]), status=200),
    row("gzip that is none", "BODY ENCODING NETWORK UNACCOUNTED", httpx.DecodingError,
        lambda: Reply(headers={"content-encoding": "gzip"}, chunks=[START]), status=200),
    row("gzip cut short in a whole message", "BODY TRUNCATED NETWORK INTERRUPTED", httpx.RemoteProtocolError,
        lambda: wire.gzipped([START, DELTA], keep=-8), status=200, body=START + DELTA),
    row("gzip, reset", "BODY RESET NETWORK INTERRUPTED", httpx.ReadError,
        lambda: wire.gzipped([START], "reset"), status=200, body=START),
    row("a gzip bomb", "BODY ANSWER_LIMIT LIMIT UNACCOUNTED", httpx.ReadError, lambda: wire.gzip_bomb(64),
        status=200, body=bytes(4 * MIB), limits=Limits(answer_bytes=4 * MIB)),
    row("an endless line", "BODY ANSWER_LIMIT LIMIT UNAVAILABLE", httpx.ReadError, wire.endless_line,
        status=200, body=(b"data: " + b"x" * MIB)[:MIB], limits=Limits(answer_bytes=MIB)),
    row("endless trailers", "BODY HEADER_LIMIT LIMIT UNACCOUNTED", httpx.RemoteProtocolError,
        wire.endless_trailers, status=200, body=b"{}"),
    row("an endless explanation of an error", "BODY ANSWER_LIMIT LIMIT UNAVAILABLE", httpx.ReadError,
        lambda: Reply(500, chunks=[b"e" * 2048]), status=500, body=b"e" * 1024,
        limits=Limits(error_body_bytes=1024)),
]

ANSWERED = [
    row("a whole stream", "BODY NONE - -", None, lambda: wire.event_stream([START, DELTA, STOP]), status=200,
        body=WHOLE),
    row("a whole stream under TLS", "BODY NONE - -", None, lambda: wire.event_stream([START, DELTA, STOP]),
        status=200, body=WHOLE, setting="tls"),
    row("a whole stream through a proxy", "BODY NONE - -", None,
        lambda: wire.event_stream([START, DELTA, STOP]), status=200, body=WHOLE, setting="tunnel"),
    row("split in every place", "BODY NONE - -", None, lambda: wire.split_everywhere(WHOLE), status=200,
        body=WHOLE),
    row("interim answers first", "BODY NONE - -", None, lambda: wire.interim_first(WHOLE), status=200,
        body=WHOLE),
    row("gzip", "BODY NONE - -", None, lambda: wire.gzipped([START, DELTA, STOP]), status=200, body=WHOLE),
    row("a body without a length", "BODY NONE - -", None, lambda: Reply(chunks=[WHOLE], framing="close"),
        status=200, body=WHOLE),
    row("a body without a length under TLS", "BODY NONE - -", None,
        lambda: Reply(chunks=[WHOLE], framing="close"), status=200, body=WHOLE, setting="tls"),
    row("bytes after the message", "BODY NONE - -", None, wire.bytes_after_message, status=200, body=b"{}"),
    row("an empty answer", "HEADERS NONE - UNAVAILABLE", None, Reply, status=200),
    row("a stale connection, sent again", "BODY NONE - -", None,
        lambda: wire.event_stream([START, DELTA, STOP]), status=200, body=WHOLE, setting="stale", attempts=2),
    row("a large request", "BODY NONE - -", None, lambda: wire.event_stream([START, DELTA, STOP]), status=200,
        body=WHOLE, request_size=LARGE, setting="narrow"),
    row("a large request under TLS", "BODY NONE - -", None, lambda: wire.event_stream([START, DELTA, STOP]),
        status=200, body=WHOLE, request_size=LARGE, setting="narrow tls"),
    row("an early 413, then closed upon the unread rest", "BODY NONE - REFUSED", None,
        lambda: wire.early(413, ERROR), status=413, body=ERROR, request_size=LARGE, written=False,
        setting="narrow"),
    row("an early 401 under TLS", "BODY NONE - REFUSED", None, lambda: wire.early(401, ERROR), status=401,
        body=ERROR, request_size=LARGE, written=False, setting="narrow tls"),
    row("an early 429 from a server that reads on", "BODY NONE - RATE_LIMITED", None,
        lambda: wire.early(429, ERROR, polite=True), status=429, body=ERROR, request_size=LARGE, written=False,
        setting="narrow"),
    row("an HTML error", "BODY NONE - UNAVAILABLE", None, wire.html_error, status=502,
        body=b"<html><head><title>Bad Gateway</title></head></html>"),
    row("a redirect", "HEADERS NONE - REFUSED", None, wire.redirect, status=307),
    row("an error cut short", "BODY TRUNCATED NETWORK RATE_LIMITED", httpx.RemoteProtocolError,
        lambda: Reply(429, chunks=[b"{"], framing="length", announce=100, end="truncate"), status=429,
        body=b"{"),
]
# fmt: on

LANDINGS = [*NOTHING_SENT, *PARTLY_WRITTEN, *UNANSWERED, *HEAD_ALONE, *IN_THE_BODY, *ANSWERED]
