"""The arithmetic of a Chat Completions usage object: what lies inside the totals and what beside them (R-U3, R-U4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from .counters import counter, saturating_add
from .lenient import word
from .usage import Usage
from .usage_meter import RunningTotals, are_odd, part_of, reported_nanos

if TYPE_CHECKING:
    from .dialects import Dialect

_INPUT: Final = "input"
_OUTPUT: Final = "output"
_COUNTS: Final = ("prompt_tokens", "completion_tokens")
_IN_PROMPT: Final = "prompt_tokens_details"
_IN_COMPLETION: Final = "completion_tokens_details"
_INPUT_PARTS: Final = ("read", "write", "input_audio", "input_image")
_OUTPUT_PARTS: Final = ("reasoning", "output_audio", "output_image")
_HOSTED: Final = ("server_tool_use_details", "server_tool_use")  # OpenRouter, by the age of the answer
_HOSTED_BESIDE: Final = {
    "num_search_queries": "web_search",  # Perplexity
    "num_sources_used": "live_search",  # xAI, which bills each source that a search used
}


class ChatUsage:
    """The running usage of one answer: the last object with both counts wins."""

    def __init__(self, dialect: Dialect) -> None:
        """`dialect` says whether the total hides output."""
        self._dialect = dialect
        self._totals = RunningTotals((_INPUT, *_INPUT_PARTS), _OUTPUT)
        self.hosted: dict[str, int] = {}
        """Requests to the server's own tools, as far as the usage tells them."""
        self.raw: Mapping[str, Any] = {}
        """The object as it was told last."""

    @property
    def has_both(self) -> bool:
        """Say whether input and output were told."""
        return self._totals.get(_INPUT) is not None and self._totals.get(_OUTPUT) is not None

    @property
    def is_final(self) -> bool:
        """Say whether the output was told together with the stop reason or after it."""
        return self._totals.output_is_final

    def take(self, *places: object, at_stop: bool, source: bytes | bytearray = b"") -> bool:
        """Take the first usage object with both counts; return whether a figure became another one.

        `source` is the JSON text that told them, where a number in it may read as null.
        """
        usage = next((each for each in places if _is_whole(each, source)), None)
        if not isinstance(usage, Mapping):
            return False
        self.raw = usage
        before = self._totals.changes
        figures = billed(usage, hidden_output=self._dialect.hidden_output)
        counted = self._totals.take(figures, at_stop=at_stop)
        if counted.output:
            for name in _OUTPUT_PARTS:
                self._totals.remember(name, figures[name])
        hosted = _hosted_requests(usage)
        changed = bool(hosted) and hosted != self.hosted
        self.hosted = hosted or self.hosted
        return changed or before != self._totals.changes

    def usage(self, hosted_tool_requests: dict[str, int]) -> Usage | None:
        """Return the figures told so far, zeros included, with these requests beside them."""
        get = self._totals.get
        if get(_INPUT) is None and get(_OUTPUT) is None:
            return None
        return Usage(
            input_tokens=get(_INPUT),
            output_tokens=get(_OUTPUT),
            cache_read_tokens=get("read"),
            cache_write_tokens=get("write"),
            reasoning_tokens=get("reasoning"),
            input_audio_tokens=get("input_audio"),
            output_audio_tokens=get("output_audio"),
            input_image_tokens=get("input_image"),
            output_image_tokens=get("output_image"),
            hosted_tool_requests=hosted_tool_requests,
        )

    def reported_nanos(self) -> int | None:
        """Return the money that the provider reports: a number, or an object with a sum (Perplexity)."""
        cost = self.raw.get("cost")
        return reported_nanos({"cost": cost.get("total_cost")} if isinstance(cost, Mapping) else self.raw)


def billed(usage: Mapping[str, Any], *, hidden_output: bool) -> dict[str, int | None]:
    """Return the counters of one object by our names.

    The total decides what lies beside the counts: reasoning (xAI), audio (Mistral's Voxtral), or, for a dialect that
    hides it, output that nothing names (Gemini's compatible endpoint).
    """
    prompt, completion = counter(usage.get("prompt_tokens")), counter(usage.get("completion_tokens"))
    reasoning = part_of(usage, _IN_COMPLETION, "reasoning_tokens")
    audio = part_of(usage, _IN_PROMPT, "audio_tokens")
    total = counter(usage.get("total_tokens"))
    beside_input, beside_output = 0, 0
    if prompt is not None and completion is not None and total is not None:
        rest = total - prompt - completion
        if rest > 0 and rest == reasoning:
            beside_output = rest
        elif rest > 0 and rest == audio:
            beside_input = rest
        elif rest > 0 and hidden_output and not reasoning:
            beside_output = rest
    return {
        _INPUT: None if prompt is None else saturating_add(prompt, beside_input),
        _OUTPUT: None if completion is None else saturating_add(completion, beside_output),
        "read": _cache_read(usage),
        "write": _cache_write(usage),
        "input_audio": audio,
        "input_image": part_of(usage, _IN_PROMPT, "image_tokens"),
        "reasoning": reasoning,
        "output_audio": part_of(usage, _IN_COMPLETION, "audio_tokens"),
        "output_image": part_of(usage, _IN_COMPLETION, "image_tokens"),
    }


def _is_whole(usage: object, source: bytes | bytearray) -> bool:
    """Say whether both counts are there; an odd one is, and must not cost the other (R-U7)."""
    if not isinstance(usage, Mapping):
        return False
    silent = [name for name in _COUNTS if usage.get(name) is None]
    if silent and not (source and are_odd(silent, source)):
        return False
    return any(counter(usage.get(name)) is not None for name in _COUNTS)


def _cache_read(usage: Mapping[str, Any]) -> int | None:
    """Read cached input: where OpenAI tells it, DeepSeek's hits, the top level (Together), or by Anthropic's name."""
    places = (
        part_of(usage, _IN_PROMPT, "cached_tokens"),
        counter(usage.get("prompt_cache_hit_tokens")),
        counter(usage.get("cached_tokens")),
        counter(usage.get("cache_read_input_tokens")),
    )
    return next((told for told in places if told is not None), None)


def _cache_write(usage: Mapping[str, Any]) -> int | None:
    """Read what was written to a cache: where OpenAI tells it, or where LiteLLM does for Anthropic's models."""
    places = (
        part_of(usage, _IN_PROMPT, "cache_write_tokens"),
        part_of(usage, _IN_PROMPT, "cache_creation_tokens"),
        counter(usage.get("cache_creation_input_tokens")),
    )
    return next((told for told in places if told is not None), None)


def _hosted_requests(usage: Mapping[str, Any]) -> dict[str, int]:
    """Read `{"web_search_requests": 2}` as two requests to `web_search`, and counters beside the tokens."""
    beside = {
        tool: requests for name, tool in _HOSTED_BESIDE.items() if (requests := counter(usage.get(name)))
    }
    for place in _HOSTED:
        told = usage.get(place)
        if isinstance(told, Mapping):
            return beside | {
                word(name).removesuffix("_requests"): requests
                for name, value in told.items()
                if (requests := counter(value))
            }
    return beside
