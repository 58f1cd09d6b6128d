"""What is held for a call: a bound on its input, its output limit, and both at the dearest rates."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.embeddings import EmbeddingRequest
from modelmeter_server.core.media_bounds import (
    ANTHROPIC,
    GEMINI,
    LEAST_PAGE_BYTES,
    OPENAI,
    UNKNOWN,
    MediaBounds,
    media_tokens,
    pages_of,
)
from modelmeter_server.core.outcomes import Certainty
from modelmeter_server.core.pricing import PriceTable, Tier, price
from modelmeter_server.core.requests import (
    CompletionRequest,
    Continuation,
    MediaKind,
    MediaPart,
    Message,
    Role,
    TextPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)
from modelmeter_server.core.reservation import (
    FRAME_TOKENS,
    MESSAGE_TOKENS,
    MOST_NANOS,
    MOST_TOKENS,
    TOOLS_TOKENS,
    Hold,
    clamp,
    embedding_hold_for,
    hold_for,
    input_bound,
)
from modelmeter_server.core.usage import Usage

TABLE = PriceTable(
    currency="USD",
    tiers=(
        Tier(
            input=3_000,
            output=15_000,
            cache_read=300,
            cache_write=3_750,
            cache_write_1h=6_000,
            input_audio=9_000,
        ),
        Tier(input=6_000, output=22_000, above_input_tokens=200_000),
        Tier(input=3_500, output=30_000, service_tier="priority"),
    ),
)


def asking(**fields: Any) -> CompletionRequest:
    return CompletionRequest(**{"model": "large", "call_id": "call", **fields})


def saying(*parts: Any) -> CompletionRequest:
    return asking(messages=(Message(Role.USER, parts),))


def held(request: CompletionRequest, table: PriceTable | None = TABLE, **more: Any) -> Hold:
    return hold_for(request, **{"provider_kind": "anthropic", "output_tokens": 100, "price": table, **more})


# Input


@pytest.mark.parametrize(
    ("request_", "size"),
    [
        (asking(text="12345678"), 8),
        (asking(text="1234567"), 8),
        (asking(text="héé"), 6),
        (asking(text="語"), 4),
        (asking(text="\ud800"), 4),
        (asking(text="1234", system="5678"), 8),
        (asking(native_json='[{"role": 1}]'), 14),
        (asking(text="1234", provider_options_json='{"a": 1}'), 12),
        (asking(text="", continuation=Continuation("anthropic", "[1, 2]")), 6),
    ],
)
def test_text_is_bounded_by_half_its_bytes(request_: CompletionRequest, size: int):
    assert input_bound(request_, "anthropic") == size // 2 + FRAME_TOKENS


@pytest.mark.parametrize(
    ("part", "size"),
    [
        (TextPart("12345678"), 8),
        (ToolCallPart(id="12", name="34", arguments_json="5678"), 8),
        (ToolResultPart(call_id="1234", output="5678"), 8),
        (Continuation("anthropic", "[12345678]"), 10),
    ],
)
def test_every_part_of_a_message_counts(part: Any, size: int):
    assert input_bound(saying(part), "anthropic") == size // 2 + FRAME_TOKENS + 2 * MESSAGE_TOKENS
    assert input_bound(saying(part, part), "anthropic") == size + FRAME_TOKENS + 3 * MESSAGE_TOKENS


def test_tools_and_schemas_count_with_what_explains_them():
    bare = input_bound(asking(text="hi"), "anthropic")
    tool = Tool(name="ab", description="cd", parameters_json="{    }")
    assert input_bound(asking(text="hi", tools=(tool,)), "anthropic") == bare + TOOLS_TOKENS + 5
    assert input_bound(asking(text="hi", output_schema_json="{}"), "anthropic") == bare + TOOLS_TOKENS + 1


@given(st.text(max_size=200), st.text(max_size=200))
def test_more_text_never_has_a_smaller_bound(one: str, other: str):
    assert input_bound(asking(text=one + other), "x") >= input_bound(asking(text=one), "x")


def test_hosted_tools_multiply_the_bound():
    once = held(asking(text="hello")).input_tokens
    assert held(asking(text="hello"), reserve_factor=20).input_tokens == 20 * once


# Media


def medium(kind: MediaKind, media_type: str, data: bytes = b"", url: str | None = None) -> MediaPart:
    return MediaPart(kind=kind, media_type=media_type, data=data, url=url)


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [
        ("anthropic", ANTHROPIC),
        ("gemini", GEMINI),
        ("openai_responses", OPENAI),
        ("chat_completions", UNKNOWN),
    ],
)
def test_an_image_costs_what_its_provider_takes_at_most(kind: str, bounds: MediaBounds):
    image = medium(MediaKind.IMAGE, "image/png", b"x" * 100_000)
    assert media_tokens(image, kind) == bounds.image
    assert input_bound(saying(image), kind) == bounds.image + FRAME_TOKENS + 2 * MESSAGE_TOKENS


def test_an_unknown_provider_has_the_largest_figures_of_all():
    for name in ("image", "page", "most_pages", "audio_second"):
        assert getattr(UNKNOWN, name) == max(getattr(each, name) for each in (ANTHROPIC, GEMINI, OPENAI))


@pytest.mark.parametrize(
    ("media_type", "size", "seconds"),
    [("audio/wav", 80_000, 10), ("audio/mpeg", 7_500, 10), ("audio/ogg", 1, 1)],
)
def test_audio_is_as_long_as_its_bytes_allow(media_type: str, size: int, seconds: int):
    audio = medium(MediaKind.AUDIO, media_type, b"x" * size)
    assert media_tokens(audio, "gemini") == 32 * seconds
    assert media_tokens(audio, "openai_responses") == 10 * seconds


@pytest.mark.parametrize(
    ("pdf", "pages"),
    [
        (b"1 0 obj <</Type /Page>> 2 0 obj <</Type/Page /Parent 3 0 R>> <</Type /Pages /Count 2>>", 2),
        (b"<</Type /Pages /Count 31>>", 31),
        (b"<</Type /Page>>", 1),
        (b"%PDF" + b"x" * LEAST_PAGE_BYTES, 2),
    ],
)
def test_pages_are_counted_or_bounded_by_size(pdf: bytes, pages: int):
    assert pages_of(pdf) == pages
    assert (
        media_tokens(medium(MediaKind.DOCUMENT, "application/pdf", pdf), "anthropic")
        == pages * ANTHROPIC.page
    )


def test_no_document_has_more_pages_than_its_provider_takes():
    huge = medium(MediaKind.DOCUMENT, "application/pdf", b"<</Type /Pages /Count 99999>>")
    assert media_tokens(huge, "anthropic") == ANTHROPIC.most_pages * ANTHROPIC.page
    remote = medium(MediaKind.DOCUMENT, "application/pdf", url="https://example.com/a.pdf")
    assert media_tokens(remote, "anthropic") == ANTHROPIC.most_pages * ANTHROPIC.page


@pytest.mark.parametrize(("media_type", "tokens"), [("text/csv", 50), ("application/vnd.ms-word", 400)])
def test_other_documents_are_text_packed_or_not(media_type: str, tokens: int):
    assert media_tokens(medium(MediaKind.DOCUMENT, media_type, b"x" * 100), "gemini") == tokens


# Money


def test_a_model_without_a_price_holds_tokens_alone():
    hold = held(asking(text="hi"), None)
    assert (hold.nano_units, hold.input_nano_units, hold.output_rate, hold.currency) == (0, 0, 0, "")
    assert hold.tokens == hold.input_tokens + 100


@pytest.mark.parametrize(
    ("request_", "rate"),
    [
        (asking(text="hi"), 3_750),
        (asking(text="x" * 20_000), 3_750),
        (asking(native_json='[{"cache_control": {"ttl": "1h"}}]'), 6_000),
        (saying(medium(MediaKind.AUDIO, "audio/wav", b"x")), 9_000),
        (asking(text="x" * 400_002), 6_000),
    ],
)
def test_input_is_held_at_the_dearest_rate_that_can_apply(request_: CompletionRequest, rate: int):
    hold = held(request_)
    assert hold.input_nano_units == -(-hold.input_tokens * rate // 10**6)
    assert hold.output_rate == 30_000
    assert hold.nano_units == hold.input_nano_units + 3


@given(
    st.integers(0, 10**6),
    st.integers(0, 100),
    st.integers(0, 100),
    st.integers(0, 100),
    st.sampled_from([None, "priority"]),
)
def test_no_usage_within_the_bounds_costs_more_than_was_held(
    size: int, read: int, write: int, output: int, tier
):
    hold = held(asking(text="x" * size))
    whole = hold.input_tokens
    written = whole * write // 100
    usage = Usage(
        input_tokens=whole,
        output_tokens=output,
        cache_read_tokens=(whole - written) * read // 100,
        cache_write_tokens=written,
        cache_write_5m_tokens=written,
    )
    assert price(TABLE, usage, Certainty.EXACT, service_tier=tier).nano_units <= hold.nano_units


def test_absurd_figures_stay_within_what_a_call_can_be_booked_with():
    dear = PriceTable(currency="USD", tiers=(Tier(input=2**62, output=2**62),))
    hold = held(asking(text="x"), dear, output_tokens=2**31, reserve_factor=10**12)
    assert hold.input_tokens == MOST_TOKENS
    assert hold.nano_units == 2 * MOST_NANOS


# Clamping

HOLD = Hold(
    input_tokens=100,
    output_tokens=50,
    nano_units=2_500,
    input_nano_units=1_000,
    output_rate=30_000_000,
    currency="USD",
    tokens_per_second=10,
)


@pytest.mark.parametrize(
    ("least", "tokens", "nanos", "output"),
    [
        (1, None, None, 50),
        (1, 150, None, 50),
        (1, 120, None, 20),
        (20, 120, None, 20),
        (21, 120, None, None),
        (1, 101, None, 1),
        (0, 100, None, None),
        (1, 99, None, None),
        (1, None, 1_600, 20),
        (1, None, 1_629, 20),
        (1, None, 1_029, None),
        (1, None, 999, None),
        (1, 110, 1_600, 10),
        (1, 130, 1_600, 20),
    ],
)
def test_output_is_clamped_to_the_least_room(
    least: int, tokens: int | None, nanos: int | None, output: int | None
):
    clamped = clamp(HOLD, least, tokens=tokens, nano_units=nanos)
    assert (clamped and clamped.output_tokens) == output
    if clamped is not None:
        assert clamped.nano_units == 1_000 + 30 * clamped.output_tokens


@given(st.integers(0, 10**9), st.integers(1, 200), st.integers(-10, 3_000), st.integers(-10, 9_000))
def test_what_was_clamped_fits(rate: int, least: int, tokens: int, nanos: int):
    hold = Hold(input_tokens=9, output_tokens=99, input_nano_units=70, output_rate=rate, tokens_per_second=1)
    clamped = clamp(hold, least, tokens=tokens, nano_units=nanos)
    if clamped is not None:
        assert clamped.tokens <= tokens
        assert clamped.nano_units <= nanos
        assert clamped.output_tokens >= least


# Batches of texts

BATCH_PRICE = PriceTable(
    currency="USD",
    tiers=(Tier(input=20, output=0), Tier(input=50, output=0, above_input_tokens=1000)),
)


@given(st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=5).map(tuple), st.integers(1, 20))
def test_a_batch_is_held_by_its_input_alone(inputs: tuple[str, ...], factor: int):
    batch = EmbeddingRequest(model="m", call_id="c", inputs=inputs)
    hold = embedding_hold_for(batch, price=BATCH_PRICE, reserve_factor=factor)
    assert hold.output_tokens == hold.output_rate == 0
    assert hold.tokens >= factor * sum(len(text.encode("utf-8", "surrogatepass")) for text in inputs) / 2
    assert hold.nano_units == hold.input_nano_units == -(-hold.tokens * 20 // 10**6)


def test_a_long_batch_is_held_at_the_dearer_rate():
    batch = EmbeddingRequest(model="m", call_id="c", inputs=("x" * 4000,))
    hold = embedding_hold_for(batch, price=BATCH_PRICE)
    assert hold.nano_units == -(-hold.tokens * 50 // 10**6)


def test_a_batch_without_a_price_holds_tokens_alone():
    hold = embedding_hold_for(EmbeddingRequest(model="m", call_id="c", inputs=("a",)), price=None)
    assert (hold.nano_units, hold.currency) == (0, "")
    assert hold.tokens > 0
