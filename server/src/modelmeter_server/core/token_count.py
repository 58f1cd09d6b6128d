"""What a prompt comes to in tokens before it is sent: the answer, the estimate, and why failing costs nothing. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from .answers import Answer
from .counters import INT64_MAX
from .errors import Failure, failure
from .json_text import loads_lenient
from .outcomes import Cause, Certainty, Kind, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .calls import Attempt, CallOutcome

BYTES_PER_TOKEN: Final = 4
"""Rough size of a token in the UTF-8 text of European languages and in code; other scripts have smaller ones."""
TURN_TOKENS: Final = 4
"""What chat templates put around a turn; the figure that OpenAI's cookbook counts with."""
START_TOKENS: Final = 3
"""What begins the answer, by the same source."""
TURN_BOUND: Final = 64
"""Tokens around a turn that no template exceeds by far; for the upper bound."""

_LANDED: Final = frozenset((Kind.INTERRUPTED, Kind.UNACCOUNTED, Kind.UNUSABLE))
_STAYS: Final = (Cause.CALLER, Cause.BUG)
# Parts of a message by their type, and what they hold.
_MEDIA: Final = {
    "image_url": "image",
    "image": "image",
    "input_audio": "audio",
    "audio_url": "audio",
    "file": "document",
    "document": "document",
    "video_url": "video",
}
_LABELS: Final = frozenset(("id", "type", "role", "tool_call_id"))  # marks of the format, not of the prompt


class TokenCount(Answer, frozen=True, kw_only=True):
    """The input tokens of a call that was not made: an answer without a bill."""

    text: str = ""
    certainty: Certainty = Certainty.NONE
    input_tokens: int
    is_estimate: bool = False
    upper_bound: int | None = None
    """Beside an estimate: every byte of the text a token."""
    uncounted_media: tuple[str, ...] = ()
    """Beside an estimate: kinds of media that are in neither figure."""


def estimate(body: bytes, turns: str, documents: tuple[str, ...]) -> TokenCount:
    """Estimate the tokens of a provider's body from the bytes of its texts.

    `turns` names the list of turns, `documents` the members that a model reads as JSON, such as tools. Media are named
    and not counted: what they come to is each model's own business.
    """
    document = loads_lenient(body)
    members = document if isinstance(document, dict) else {}
    prompt = members.get(turns)
    listed = prompt if isinstance(prompt, list) else []
    media: dict[str, None] = {}
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in _texts(listed, media))
    raw = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    size += sum(len(memoryview(raw[name])) for name in documents if name in raw)
    return TokenCount(
        input_tokens=min(-(-size // BYTES_PER_TOKEN) + TURN_TOKENS * len(listed) + START_TOKENS, INT64_MAX),
        is_estimate=True,
        upper_bound=min(size + TURN_BOUND * (len(listed) + 1), INT64_MAX),
        uncounted_media=tuple(media),
    )


def _texts(value: Any, media: dict[str, None]) -> Iterator[str]:
    """Yield every text of a value; a part that is a medium is noted instead. Not recursive: callers nest deeply."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            kind = value.get("type")
            if isinstance(kind, str) and kind in _MEDIA:
                media[_MEDIA[kind]] = None
            else:
                waiting += [inner for name, inner in value.items() if name not in _LABELS]


def costless(failed: Failure) -> Failure:
    """Return a failure as that of a count: nothing was bought, whatever had been written or answered.

    So certainty is NONE, and what would be a lost purchase is UNAVAILABLE. Repeating is safe; it is pointless only
    where the provider's answer was whole and held no count.
    """
    kind = Kind.UNAVAILABLE if failed.kind in _LANDED else failed.kind
    retryable = failed.retryable
    if kind is Kind.UNAVAILABLE:
        retryable = failed.cause not in _STAYS and failed.kind is not Kind.UNUSABLE
    return failure(
        kind,
        failed.message,
        cause=failed.cause,
        stage=min(failed.stage, Stage.BODY),
        code=failed.code if kind is failed.kind else None,
        certainty=Certainty.NONE,
        retryable=retryable,
        http_status=failed.http_status,
        provider_code=failed.provider_code,
        provider_request_id=failed.provider_request_id,
        retry_after=failed.retry_after,
        violations=failed.violations,
        resource=failed.resource,
        quotas=failed.quotas,
    )


def costless_outcome(outcome: CallOutcome) -> CallOutcome:
    """Return the outcome of a count, with its attempts as free as itself."""
    if not isinstance(outcome.result, Failure):
        return outcome
    return msgspec.structs.replace(
        outcome,
        result=costless(outcome.result),
        attempts=tuple(map(_costless_attempt, outcome.attempts)),
    )


def _costless_attempt(attempt: Attempt) -> Attempt:
    kind = Kind.UNAVAILABLE if attempt.kind in _LANDED else attempt.kind
    stage = min(attempt.stage, Stage.BODY)
    return msgspec.structs.replace(attempt, kind=kind, stage=stage, certainty=Certainty.NONE, usage=None)
