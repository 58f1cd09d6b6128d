"""Gemini's `usageMetadata`: which figure replaces which, and what lies beside what (R-U2, R-U5, R-U7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from ..counters import INT64_MAX, counter, saturating_add
from ..lenient import word
from ..usage import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

_Count = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)] | None
_INPUT_DETAILS = ("promptTokensDetails", "toolUsePromptTokensDetails")
_OUTPUT_DETAILS = "candidatesTokensDetails"


class GeminiCounts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One usage object as far as it counts; what it does not tell is `None`."""

    prompt: _Count = msgspec.field(default=None, name="promptTokenCount")
    tool_prompt: _Count = msgspec.field(default=None, name="toolUsePromptTokenCount")
    cached: _Count = msgspec.field(default=None, name="cachedContentTokenCount")
    candidates: _Count = msgspec.field(default=None, name="candidatesTokenCount")
    thoughts: _Count = msgspec.field(default=None, name="thoughtsTokenCount")
    total: _Count = msgspec.field(default=None, name="totalTokenCount")


# Asked for once: msgspec evaluates the annotations anew for each call, which costs as much as forty chunks.
_COUNTERS = tuple((field.name, field.encode_name) for field in msgspec.structs.fields(GeminiCounts))


def read_counts(usage: Mapping[str, Any]) -> GeminiCounts:
    """Read a usage object counter by counter; an odd one counts as not told and never costs the others."""
    return GeminiCounts(**{name: counter(usage.get(told)) for name, told in _COUNTERS})


class GeminiTotals:
    """The figures of one answer. Every usage object is a running total: per field the last told value wins.

    Thoughts are billed beside candidates, unless the total of the same object shows that they lie inside.
    """

    __slots__ = (
        "_cached",
        "_candidates",
        "_details",
        "_is_inside",
        "_prompt",
        "_thoughts",
        "_tool_prompt",
        "_total",
        "is_final",
        "tier",
    )

    def __init__(self) -> None:
        """Start with nothing told."""
        self.is_final = False
        """The output was told with the stop reason or after."""
        self.tier = ""
        """The service tier, or what Vertex calls the type of traffic; both change the price."""
        self._prompt: int | None = None
        self._tool_prompt: int | None = None
        self._cached: int | None = None
        self._candidates: int | None = None
        self._thoughts: int | None = None
        self._total: int | None = None
        """Total of the last object, as long as all figures are as they were beside it."""
        self._is_inside = False
        """What the last total had shown when other figures came without one."""
        self._details: dict[str, list[dict[str, Any]]] = {}

    def take(self, told: GeminiCounts, *, at_stop: bool) -> None:
        """Take one usage object; `at_stop`: it was told with a stop reason or after."""
        if told.total is None and self._total is not None:
            self._is_inside, self._total = self._thoughts_inside(), None
        if told.prompt or told.tool_prompt or told.cached or not self._has_input():
            if told.prompt is not None:
                self._prompt = told.prompt
            if told.tool_prompt is not None:
                self._tool_prompt = told.tool_prompt
            if told.cached is not None:
                self._cached = told.cached
        # Zeros alone after more are a bridge's and say nothing (R-U2); so above, and so here.
        if told.candidates or told.thoughts or not (self._candidates or self._thoughts):
            if told.candidates is not None:
                self._candidates = told.candidates
            if told.thoughts is not None:
                self._thoughts = told.thoughts
            if at_stop:
                self.is_final = self.is_final or self._tells_output(told)
        if told.total is not None:
            self._total = told.total

    def take_details(self, usage: Mapping[str, Any]) -> None:
        """Take what a usage object tells beside its counters: their parts by modality, and the tier."""
        for name in (*_INPUT_DETAILS, _OUTPUT_DETAILS):
            if isinstance(usage.get(name), list):
                self._details[name] = [each for each in usage[name] if isinstance(each, dict)]
        self.tier = word(usage.get("serviceTier")) or word(usage.get("trafficType")) or self.tier

    def _has_input(self) -> bool:
        return bool(self._prompt or self._tool_prompt or self._cached)

    def _tells_output(self, told: GeminiCounts) -> bool:
        """Say whether the object tells the output. Google leaves zeros out: then the total tells that there is none."""
        if told.candidates is not None or told.thoughts is not None:
            return True
        is_untold = self._candidates is None and self._thoughts is None
        return is_untold and told.total is not None and told.total == _sum(self._prompt, self._tool_prompt)

    def _thoughts_inside(self) -> bool:
        if self._total is None:
            return self._is_inside
        if not self._thoughts or self._candidates is None or self._candidates < self._thoughts:
            return False
        return self._total == _sum(self._prompt, self._tool_prompt, self._candidates)

    def usage(self, hosted_tool_requests: dict[str, int]) -> Usage | None:
        """Return the figures; `None` when no counter was told."""
        whole_input = _sum(self._prompt, self._tool_prompt)
        output = self._candidates if self._thoughts_inside() else _sum(self._candidates, self._thoughts)
        if whole_input is None and output is None and self._cached is None and not hosted_tool_requests:
            return None
        input_details = [each for name in _INPUT_DETAILS for each in self._details.get(name, ())]
        output_details = self._details.get(_OUTPUT_DETAILS, [])
        return Usage(
            input_tokens=whole_input,
            output_tokens=output,
            cache_read_tokens=self._cached,
            reasoning_tokens=self._thoughts,
            input_audio_tokens=_modality(input_details, "AUDIO"),
            output_audio_tokens=_modality(output_details, "AUDIO"),
            input_image_tokens=_modality(input_details, "IMAGE"),
            output_image_tokens=_modality(output_details, "IMAGE"),
            tool_prompt_tokens=self._tool_prompt,
            hosted_tool_requests=hosted_tool_requests,
        )


def _modality(details: list[dict[str, Any]], modality: str) -> int | None:
    return _sum(*(counter(each.get("tokenCount")) for each in details if each.get("modality") == modality))


def _sum(*counts: int | None) -> int | None:
    told = [count for count in counts if count is not None]
    return saturating_add(*told) if told else None
