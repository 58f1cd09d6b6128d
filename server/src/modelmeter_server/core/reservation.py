"""What is held for a call before it is sent: a bound on its tokens, and what those cost at the dearest.

Input is bounded by what is counted without a tokenizer: half the UTF-8 bytes of all text, a constant for each medium
(see `core.media_bounds`), and a constant for what providers wrap around messages and tools. Output is bounded by the
limit that is sent along. Both are estimates in the sense that a provider could break them; then the settlement books
the truth, and that is the only way in which a ceiling is overshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from .embeddings import EmbeddingRequest, total_bytes
from .media_bounds import media_tokens
from .pricing import TOKENS_PER_RATE, PriceTable, Tier
from .requests import (
    CompletionRequest,
    Continuation,
    MediaKind,
    MediaPart,
    Part,
    TextPart,
    ToolCallPart,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_TOKENS = 10**12
"""The most that one call is booked with. What is told beyond is absurd, and a few such figures would overflow sums."""
MOST_NANOS = 10**15
"""The same for money: a million units of the currency."""

BYTES_PER_TOKEN = 2
"""English has about 4 bytes a token, other scripts 2 to 3; text of single-byte tokens is rare in any prompt."""
FRAME_TOKENS = 32
"""What a chat template adds once: start, system and answer marks. OpenAI's cookbook counts 3."""
MESSAGE_TOKENS = 8
"""What it adds for each message or part; OpenAI's cookbook counts 3, and 1 for a name."""
TOOLS_TOKENS = 1024
"""What a provider adds to explain tools. Anthropic's table of tool use system prompts ends at 804."""

MAX_TOKENS_PER_SECOND = 500
"""How fast a model generates at most, unless configured: several times what public benchmarks show for the large
models; fast small models and special hardware need a higher figure."""


class Hold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is held for a call before it is sent, and what bounds it when it ends in the dark."""

    input_tokens: int
    """The bound on its input."""
    output_tokens: int
    """The most it may generate, after a clamp."""
    nano_units: int = 0
    """Price of both, at the dearest rates that can apply."""
    input_nano_units: int = 0
    """The input's share of `nano_units`."""
    output_rate: int = 0
    """Nano units per million output tokens, the dearest that can apply."""
    currency: str = ""
    """Empty when the model has no price; once such a call has ended, the currency in which its provider told a cost."""
    tokens_per_second: int
    """How fast the model generates at most."""
    abort_stops_billing: bool = True
    """Whether the provider bills no more once its connection is closed."""

    @property
    def tokens(self) -> int:
        """Return input and output together."""
        return self.input_tokens + self.output_tokens


def dearest_hold(holds: Sequence[Hold]) -> Hold:
    """Return what covers each of these, at least one and all in one currency: the most of everything."""
    first, *others = holds
    if not others:
        return first
    output = max(each.output_tokens for each in holds)
    rate = max(each.output_rate for each in holds)
    input_nanos = max(each.input_nano_units for each in holds)
    return Hold(
        input_tokens=max(each.input_tokens for each in holds),
        output_tokens=output,
        nano_units=input_nanos + min(MOST_NANOS, cost_of(output, rate)),
        input_nano_units=input_nanos,
        output_rate=rate,
        currency=first.currency,
        tokens_per_second=max(each.tokens_per_second for each in holds),
        abort_stops_billing=all(each.abort_stops_billing for each in holds),
    )


class Rates(msgspec.Struct, frozen=True):
    """Nano units per million tokens."""

    input: int
    output: int


def hold_for(
    request: CompletionRequest,
    *,
    provider_kind: str,
    output_tokens: int,
    price: PriceTable | None,
    reserve_factor: int = 1,
    tokens_per_second: int = MAX_TOKENS_PER_SECOND,
    abort_stops_billing: bool = True,
    context_tokens: int = 0,
) -> Hold:
    """Return what to hold for a request whose output is limited to `output_tokens`.

    `reserve_factor` multiplies the bound on the input: with the provider's own tools a call reads its prompt again
    with every result. `context_tokens` are what a session's provider remembers, and reads and bills again.
    """
    read = min(MOST_TOKENS, (input_bound(request, provider_kind) + context_tokens) * reserve_factor)
    output = min(MOST_TOKENS, output_tokens)
    rates = dearest(price, read, request) if price is not None else Rates(0, 0)
    return _hold(read, output, rates, price, tokens_per_second, abort_stops_billing)


def embedding_hold_for(
    request: EmbeddingRequest,
    *,
    price: PriceTable | None,
    reserve_factor: int = 1,
    abort_stops_billing: bool = True,
) -> Hold:
    """Return what to hold for a batch of texts: a bound on its input, and no output, for vectors are not billed."""
    read = min(MOST_TOKENS, batch_bound(request) * reserve_factor)
    rate = 0 if price is None else max(tier.input for tier in _reachable(price, read))
    return _hold(read, 0, Rates(rate, 0), price, MAX_TOKENS_PER_SECOND, abort_stops_billing)


def _hold(
    read: int,
    output: int,
    rates: Rates,
    price: PriceTable | None,
    tokens_per_second: int,
    abort_stops_billing: bool,
) -> Hold:
    input_nanos = min(MOST_NANOS, cost_of(read, rates.input))
    return Hold(
        input_tokens=read,
        output_tokens=output,
        nano_units=input_nanos + min(MOST_NANOS, cost_of(output, rates.output)),
        input_nano_units=input_nanos,
        output_rate=rates.output,
        currency=price.currency if price is not None else "",
        tokens_per_second=tokens_per_second,
        abort_stops_billing=abort_stops_billing,
    )


def cost_of(tokens: int, rate: int) -> int:
    """Return what tokens cost at a rate, rounded up."""
    return -(-tokens * rate // TOKENS_PER_RATE)


def clamp(hold: Hold, least_output: int, *, tokens: int | None, nano_units: int | None) -> Hold | None:
    """Return the hold with as much output as there is room for, `None` if that is less than `least_output`.

    `tokens` and `nano_units` are the room for the whole call; `None` is not bounded. At least one token of output must
    fit. A hold that fits is returned as it is.
    """
    output = hold.output_tokens
    if tokens is not None:
        output = min(output, tokens - hold.input_tokens)
    if nano_units is not None:
        rest = nano_units - hold.input_nano_units
        if rest < 0:
            return None
        if hold.output_rate:
            output = min(output, rest * TOKENS_PER_RATE // hold.output_rate)
    if output < max(1, least_output):
        return None
    return msgspec.structs.replace(
        hold,
        output_tokens=output,
        nano_units=hold.input_nano_units + cost_of(output, hold.output_rate),
    )


def input_bound(request: CompletionRequest, provider_kind: str) -> int:
    """Return a bound on the tokens of everything that the request makes a model read."""
    size, pieces, media = 0, 0, 0
    for part in _parts(request):
        pieces += 1
        if isinstance(part, MediaPart):
            media += media_tokens(part, provider_kind)
            size += _size(part.url or "") + _size(part.name)
        else:
            size += _part_size(part)
    for tool in request.tools:
        size += _size(tool.name) + _size(tool.description) + _size(tool.parameters_json)
    for text in (
        request.system,
        request.text or "",
        request.native_json or "",
        request.output_schema_json,
        request.provider_options_json,
        request.continuation.state_json if request.continuation else "",
    ):
        size += _size(text)
    frame = FRAME_TOKENS + MESSAGE_TOKENS * (pieces + len(request.messages or ()))
    tools = TOOLS_TOKENS if request.tools or request.output_schema_json else 0
    return -(-size // BYTES_PER_TOKEN) + media + frame + tools


def batch_bound(request: EmbeddingRequest) -> int:
    """Return a bound on the tokens of a batch of texts; each gets its marks of start and end."""
    size = total_bytes(request) + _size(request.provider_options_json)
    return -(-size // BYTES_PER_TOKEN) + FRAME_TOKENS + MESSAGE_TOKENS * len(request.inputs)


def _parts(request: CompletionRequest) -> Iterator[Part]:
    for message in request.messages or ():
        yield from message.parts


def _part_size(part: Part) -> int:
    if isinstance(part, TextPart):
        return _size(part.text)
    if isinstance(part, ToolCallPart):
        return _size(part.id) + _size(part.name) + _size(part.arguments_json)
    if isinstance(part, Continuation):
        return _size(part.state_json)
    assert not isinstance(part, MediaPart)
    return _size(part.call_id) + _size(part.output)


def _size(text: str) -> int:
    """Return the UTF-8 bytes of a text, without encoding what has one byte for each character."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def dearest(price: PriceTable, input_tokens: int, request: CompletionRequest) -> Rates:
    """Return the dearest rates that can apply to a prompt of at most so many tokens.

    Every service tier can, as the provider chooses it; a tier for longer prompts cannot. Every input token may be
    written to a cache. What is kept there for an hour, and audio, cost more only where the request speaks of it.
    """
    native = (request.native_json or "") + request.provider_options_json
    may_speak = "audio" in native
    may_hear = may_speak or any(
        isinstance(part, MediaPart) and part.kind is MediaKind.AUDIO for part in _parts(request)
    )
    tiers = _reachable(price, input_tokens)
    return Rates(
        input=max(_dearest_input(tier, hour="1h" in native, audio=may_hear) for tier in tiers),
        output=max(max(tier.output, (tier.output_audio or 0) if may_speak else 0) for tier in tiers),
    )


def _reachable(price: PriceTable, input_tokens: int) -> list[Tier]:
    tiers = [
        tier for tier in price.tiers if input_tokens > tier.above_input_tokens or not tier.above_input_tokens
    ]
    return tiers or list(price.tiers[:1])


def _dearest_input(tier: Tier, *, hour: bool, audio: bool) -> int:
    rates = [tier.input, tier.cache_read, tier.cache_write]
    if hour:
        rates.append(tier.cache_write_1h)
    if audio:
        rates.append(tier.input_audio)
    return max(rate or 0 for rate in rates)
