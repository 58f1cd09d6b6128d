"""Compressed bodies decode the same however their bytes were cut, in bounded pieces."""

from __future__ import annotations

import gzip
import itertools
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.drivers.http.decoding import (
    PIECE_BYTES,
    DecodingError,
    DeflateDecoder,
    GzipDecoder,
    UnknownDecoder,
    decoder_for,
)

parts = st.lists(st.binary(max_size=300), max_size=6)
cuts = st.lists(st.integers(0, 2000), max_size=12)


def _cut(data: bytes, at: list[int]) -> list[bytes]:
    bounds = [0, *sorted(min(cut, len(data)) for cut in at), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(bounds)]


def _compress(plain: list[bytes], wbits: int) -> bytes:
    packer = zlib.compressobj(wbits=wbits)
    return (
        b"".join(packer.compress(part) + packer.flush(zlib.Z_SYNC_FLUSH) for part in plain) + packer.flush()
    )


def _decode(decoder: GzipDecoder | DeflateDecoder, chunks: list[bytes]) -> bytes:
    return b"".join(piece for chunk in chunks for piece in decoder.feed(chunk))


@given(parts, cuts)
def test_gzip_decodes_however_it_was_cut(plain: list[bytes], at: list[int]) -> None:
    decoder = GzipDecoder()
    assert _decode(decoder, _cut(_compress(plain, 31), at)) == b"".join(plain)
    assert decoder.is_whole


@given(parts, cuts)
def test_gzip_members_are_one_body(plain: list[bytes], at: list[int]) -> None:
    decoder = GzipDecoder()
    members = b"".join(gzip.compress(part) for part in plain) or gzip.compress(b"")
    assert _decode(decoder, _cut(members, at)) == b"".join(plain)
    assert decoder.is_whole


@given(parts, cuts, st.sampled_from([zlib.MAX_WBITS, -zlib.MAX_WBITS]))
def test_deflate_decodes_in_both_readings(plain: list[bytes], at: list[int], wbits: int) -> None:
    decoder = DeflateDecoder()
    assert _decode(decoder, _cut(_compress(plain, wbits), at)) == b"".join(plain)
    assert decoder.is_whole


@given(parts, cuts, st.sampled_from([b"\x00" * 40, b"\x1f", b"\x1fx\x8b\x08", b"padding"]))
def test_padding_after_gzip_is_ignored(plain: list[bytes], at: list[int], padding: bytes) -> None:
    decoder = GzipDecoder()
    assert _decode(decoder, _cut(_compress(plain, 31) + padding, at)) == b"".join(plain)
    assert decoder.is_whole


@given(st.binary(min_size=1, max_size=200), st.integers(0, 400))
def test_gzip_cut_short_is_never_whole(plain: bytes, keep: int) -> None:
    packed = gzip.compress(plain)
    decoder = GzipDecoder()
    got = _decode(decoder, [packed[: min(keep, len(packed) - 1)]])
    assert not decoder.is_whole
    assert plain.startswith(got)


@given(st.binary(min_size=3, max_size=100))
def test_bytes_that_are_no_gzip_are_an_error(data: bytes) -> None:
    if not data.startswith(b"\x1f\x8b\x08"):
        with pytest.raises(DecodingError):
            _decode(GzipDecoder(), [data])


def test_a_flushed_part_is_out_before_the_next_arrives() -> None:
    packer = zlib.compressobj(wbits=31)
    decoder = GzipDecoder()
    for event in (b"data: one\n\n", b"data: two\n\n"):
        assert _decode(decoder, [packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)]) == event


@pytest.mark.parametrize("size", [PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
def test_a_bomb_comes_in_pieces_of_bounded_size(size: int) -> None:
    pieces = list(GzipDecoder().feed(gzip.compress(bytes(size))))
    assert sum(map(len, pieces)) == size
    assert max(map(len, pieces)) <= PIECE_BYTES


def test_nothing_is_held_back_when_a_piece_fills_up_with_the_last_byte() -> None:
    packed = _compress([bytes(2 * PIECE_BYTES)], 31)
    reference, plain = zlib.decompressobj(31), 0
    tried = 0
    for end in range(1, len(packed) + 1):
        plain += len(reference.decompress(packed[end - 1 : end]))
        if PIECE_BYTES < plain < PIECE_BYTES + 3000:
            assert len(_decode(GzipDecoder(), [packed[:end]])) == plain
            tried += 1
    assert tried


def test_members_without_end_are_an_error() -> None:
    with pytest.raises(DecodingError, match="members"):
        _decode(GzipDecoder(), [gzip.compress(b"") * 2000])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ((), type(None)),
        (("identity",), type(None)),
        (("",), type(None)),
        (("gzip",), GzipDecoder),
        (("X-GZip ",), GzipDecoder),
        (("deflate",), DeflateDecoder),
        (("br",), UnknownDecoder),
        (("gzip, gzip",), UnknownDecoder),
        (("gzip", "deflate"), UnknownDecoder),
    ],
)
def test_the_coding_chooses_the_decoder(values: tuple[str, ...], kind: type) -> None:
    assert type(decoder_for(values)) is kind


def test_an_unknown_coding_of_an_empty_body_is_no_fault() -> None:
    assert list(UnknownDecoder().feed(b"")) == []
