"""How many tokens an image, a document or a recording is at most, by provider.

Nobody tells before the call. The size of a picture is not looked at: each provider scales what is larger than its
limit down to it, so that its largest figure bounds every picture.
"""

from __future__ import annotations

import re

import msgspec

from .requests import MediaKind, MediaPart

_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_COUNT = re.compile(rb"/Count\s+(\d{1,6})")


class MediaBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The largest figures of one provider, in tokens."""

    image: int
    page: int
    """A page of a PDF, as text and as picture."""
    most_pages: int
    """Pages that the provider takes in one request."""
    audio_second: int


ANTHROPIC = MediaBounds(
    image=4_784,  # "Vision": models of high resolution scale to 2,576 pixels; others stop at about 1,600
    page=3_000 + 4_784,  # "PDF support": 1,500 to 3,000 tokens of text a page, and each page as an image
    most_pages=600,  # the same page: 600 a request, 100 with a context of 200,000
    audio_second=32,  # takes none; the figure of Gemini
)
GEMINI = MediaBounds(
    image=16
    * 258,  # "Image understanding": scaled to 3,072 pixels and cut into tiles of 768, 258 tokens each
    page=1_120 + 3_000,  # "Media resolution": 258 to 1,120 a page; its text as with the others
    most_pages=1_000,  # "Document understanding"
    audio_second=32,  # "Audio understanding": 32 tokens a second
)
OPENAI = MediaBounds(
    # "Images and vision": up to 10,000 patches in original detail. gpt-4o-mini alone counts more, 2,833 and 5,667 for
    # each of at most 8 tiles, at a price that makes up for it: give such a model a `reserve_factor`.
    image=10_000,
    page=3_000 + 10_000,  # "File inputs": the text of a page and its image
    most_pages=1_000,  # the limit is 50 MB and not pages: the largest limit of the others
    audio_second=10,  # "Realtime costs": a token for 100 ms of the caller's audio
)
UNKNOWN = MediaBounds(image=10_000, page=13_000, most_pages=1_000, audio_second=32)
"""The largest of all figures above, for a provider that tells none."""

_BOUNDS = {
    "anthropic": ANTHROPIC,
    "bedrock": MediaBounds(image=4_784, page=3_000 + 4_784, most_pages=1_000, audio_second=32),
    "gemini": GEMINI,
    "openai_responses": OPENAI,
}

LEAST_AUDIO_BYTES = 750
"""Bytes of a second of compressed audio at least: Opus at 6 kbit/s, its lowest rate."""
LEAST_PCM_BYTES = 8_000
"""Bytes of a second of plain samples at least: 8 kHz, 8 bits, one channel."""
LEAST_PAGE_BYTES = 2_048
"""Bytes of a page at least, in a PDF whose page objects are themselves compressed and cannot be counted: its content,
its object and its share of fonts and tables."""
COMPRESSED_RATIO = 8
"""Bytes of text in a byte of a zipped office document, at most."""
URL_SECONDS = 9 * 3600 + 30 * 60
"""Length of a recording that the provider fetches itself: Gemini's limit, the longest that is documented."""


def media_tokens(part: MediaPart, provider_kind: str) -> int:
    """Return a bound on the tokens of a medium."""
    bounds = _BOUNDS.get(provider_kind, UNKNOWN)
    if part.kind is MediaKind.IMAGE:
        return bounds.image
    if part.kind is MediaKind.AUDIO:
        return _seconds(part) * bounds.audio_second
    return _document_tokens(part, bounds)


def _seconds(part: MediaPart) -> int:
    if part.url is not None:
        return URL_SECONDS
    is_plain = any(word in part.media_type for word in ("wav", "pcm", "l16", "aiff"))
    return -(-len(part.data) // (LEAST_PCM_BYTES if is_plain else LEAST_AUDIO_BYTES))


def _document_tokens(part: MediaPart, bounds: MediaBounds) -> int:
    if part.url is not None:
        return bounds.page * bounds.most_pages
    if part.media_type == "application/pdf":
        return bounds.page * min(bounds.most_pages, pages_of(part.data))
    is_text = part.media_type.startswith("text/") or part.media_type.endswith("json")
    size = len(part.data) * (1 if is_text else COMPRESSED_RATIO)
    return -(-size // 2)


def pages_of(pdf: bytes) -> int:
    """Return the pages of a PDF as its objects tell them, or the most that its size allows when they tell nothing."""
    counted = max((int(count) for count in _COUNT.findall(pdf)), default=0)
    seen = max(counted, len(_PAGE.findall(pdf)))
    return seen or -(-len(pdf) // LEAST_PAGE_BYTES)
