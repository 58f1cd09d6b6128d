"""A `CompleteRequest` in the core's terms, with every mistake that only the wire form can have. Pure.

What is wrong is reported and left out of the result, so that the checks of the core can look at the rest and all
mistakes reach the caller together. Of what there is too much of, one more than allowed is taken over, for the core to
refuse.
"""

from __future__ import annotations

import re
import uuid
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar

from modelmeter.v1 import message_pb2, model_service_pb2
from modelmeter_server.core.errors import FieldViolation
from modelmeter_server.core.journal import Effect, OnLandedError
from modelmeter_server.core.ledger_checks import NEEDS_LEDGER
from modelmeter_server.core.request_checks import MAX_LABELS
from modelmeter_server.core.request_limits import MAX_STOP_SEQUENCES, MAX_TOOLS
from modelmeter_server.core.requests import (
    CallCeiling,
    CompletionRequest,
    Continuation,
    Sensitivity,
    Tool,
    ToolChoice,
    ToolMode,
)
from modelmeter_server.core.retry_policy import RetryAsk

from .convert_breakpoint import breakpoint_of
from .convert_messages import continuation_from, messages_from
from .words import REASONING_EFFORT_WORDS, SCHEMA_MODE_WORDS, SENSITIVITY_WORDS, TOOL_MODE_WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelmeter.v1.model_service_pb2 import CompleteRequest, EmbedRequest, StreamCompleteRequest

MAX_FLUSH_SECONDS = 1.0
"""The longest that deltas may be gathered."""


ON_LANDED_ERROR_WORDS: Mapping[int, OnLandedError] = {
    model_service_pb2.Effect.ON_LANDED_ERROR_REPLAY: OnLandedError.REPLAY,
    model_service_pb2.Effect.ON_LANDED_ERROR_RETRY: OnLandedError.RETRY,
}

UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NUMBERS: tuple[Literal["max_output_tokens", "temperature", "top_p", "top_k", "seed"], ...] = (
    "max_output_tokens",
    "temperature",
    "top_p",
    "top_k",
    "seed",
)

_Word = TypeVar("_Word")


class Violations(list[FieldViolation]):
    """The mistakes found so far, with their paths in the caller's message."""

    def __init__(self, prefix: str = "") -> None:
        """Begin with none; `prefix` leads to the request inside the caller's message."""
        super().__init__()
        self.prefix = prefix

    def add(self, field: str, description: str) -> None:
        """Note a mistake at a path relative to the request."""
        self.append(FieldViolation(self.prefix + field, description))

    def word(self, field: str, number: int, words: Mapping[int, _Word]) -> _Word | None:
        """Return the member of this number; `None` for UNSPECIFIED, and for an unknown one, which is noted."""
        word = words.get(number)
        if word is None and number:
            self.add(
                field, f"{number} is not a value that this server knows: update the server or choose another"
            )
        return word


def completion_request(
    message: CompleteRequest, found: Violations, default_sensitivity: Sensitivity = Sensitivity.PUBLIC
) -> CompletionRequest:
    """Return the request in the core's terms; mistakes of the wire form are added to `found`.

    `default_sensitivity` is the tenant's, for a prompt that does not say how confidential it is.
    """
    prompt = message.WhichOneof("prompt")
    if message.system_trust:
        _check_trust(message.system_trust, found)
    return CompletionRequest(
        model=message.model,
        call_id=call_id_from(message.call_id, found),
        text=message.text if prompt == "text" else None,
        messages=messages_from(message.messages.messages, found) if prompt == "messages" else None,
        native_json=message.native_json if prompt == "native_json" else None,
        system=message.system,
        tools=tuple(
            _tool(tool, f"tools[{index}]", found)
            for index, tool in enumerate(islice(message.tools, MAX_TOOLS + 1))
        ),
        tool_choice=_tool_choice(message.tool_choice, found) if message.HasField("tool_choice") else None,
        output_schema_json=message.output_schema_json,
        schema_mode=found.word("schema_mode", message.schema_mode, SCHEMA_MODE_WORDS),
        stop_sequences=tuple(islice(message.stop_sequences, MAX_STOP_SEQUENCES + 1)),
        reasoning_effort=found.word("reasoning_effort", message.reasoning_effort, REASONING_EFFORT_WORDS),
        provider_options_json=message.provider_options_json,
        continuation=_continuation(message),
        sensitivity=sensitivity_from(message.sensitivity, default_sensitivity, found),
        system_cache_breakpoint=breakpoint_of(message, "system_cache_breakpoint", found),
        end_user_id=message.end_user_id,
        affinity_key=message.affinity_key,
        labels=dict(islice(message.labels.items(), MAX_LABELS + 1)),
        **ledger_fields(message, found),
        **{name: getattr(message, name) for name in _NUMBERS if message.HasField(name)},
    )


def flush_interval(message: StreamCompleteRequest, default: float, found: Violations) -> float:
    """Return the seconds between two messages of a stream."""
    if not message.HasField("flush_interval"):
        return default
    whole, nanos = message.flush_interval.seconds, message.flush_interval.nanos
    seconds = whole + nanos / 1e9
    # Each by itself: a Duration whose parts differ in sign, or with a second of nanos, is no Duration.
    if whole >= 0 and 0 <= nanos < 1_000_000_000 and seconds <= MAX_FLUSH_SECONDS:
        return seconds
    found.append(FieldViolation("flush_interval", "must be from 0 to 1 s"))
    return default


def from_sequence(message: StreamCompleteRequest, found: Violations, *, has_ledger: bool) -> int:
    """Return the number of the delta after which a stream goes on; 0 for all of it."""
    if message.from_sequence < 0:
        found.append(FieldViolation("from_sequence", "must be 0 or more"))
    elif message.from_sequence and not has_ledger:
        found.append(FieldViolation("from_sequence", NEEDS_LEDGER))
    return max(0, message.from_sequence)


class LedgerFields(TypedDict):
    """What a request asks of the ledger and of the retries."""

    effect: Effect | None
    ceiling: CallCeiling | None
    retry_policy: RetryAsk | None
    replay_only: bool


def ledger_fields(message: CompleteRequest | EmbedRequest, found: Violations) -> LedgerFields:
    """Return what a request asks of the ledger and of the retries; mistakes are noted."""
    return LedgerFields(
        effect=_effect(message.effect, found) if message.HasField("effect") else None,
        ceiling=_ceiling(message.ceiling) if message.HasField("ceiling") else None,
        retry_policy=_retry(message.retry_policy) if message.HasField("retry_policy") else None,
        replay_only=message.replay_only,
    )


def _effect(message: model_service_pb2.Effect, found: Violations) -> Effect:
    word = found.word("effect.on_landed_error", message.on_landed_error, ON_LANDED_ERROR_WORDS)
    return Effect(run_id=message.run_id, key=message.key, on_landed_error=word or OnLandedError.REPLAY)


def _ceiling(message: model_service_pb2.CallCeiling) -> CallCeiling:
    return CallCeiling(
        tokens=message.tokens if message.HasField("tokens") else None,
        nano_units=message.nano_units if message.HasField("nano_units") else None,
        currency=message.currency,
    )


def _retry(message: model_service_pb2.RetryPolicy) -> RetryAsk:
    return RetryAsk(max_attempts=message.max_attempts, ambiguous=message.ambiguous, landed=message.landed)


def call_id_from(text: str, found: Violations) -> str:
    """Return the caller's id in the canonical lower case, or a new one."""
    if UUID.fullmatch(text):
        return text.lower()
    if text:
        found.add("call_id", "must be a UUID such as 7d3cfb0a-3a4e-4f0e-9d0b-0c6f5a1e2b3c, or empty")
    return str(uuid.uuid4())


def _check_trust(number: int, found: Violations) -> None:
    if number == message_pb2.TRUST_UNTRUSTED:
        found.add(
            "system_trust",
            "untrusted instructions are refused: send text from outside as a message and keep `system` your own",
        )
    else:
        found.word("system_trust", number, {message_pb2.TRUST_TRUSTED: True})


def sensitivity_from(number: int, default: Sensitivity, found: Violations) -> Sensitivity:
    """Return the sensitivity that a caller named, else its tenant's usual one."""
    return found.word("sensitivity", number, SENSITIVITY_WORDS) or default


def _tool(message: message_pb2.Tool, path: str, found: Violations) -> Tool:
    return Tool(
        name=message.name,
        description=message.description,
        parameters_json=message.parameters_json,
        strict=message.strict,
        cache_breakpoint=breakpoint_of(message, "cache_breakpoint", found, path),
    )


def _tool_choice(message: message_pb2.ToolChoice, found: Violations) -> ToolChoice:
    return ToolChoice(
        mode=found.word("tool_choice.mode", message.mode, TOOL_MODE_WORDS) or ToolMode.AUTO,
        name=message.name,
        disable_parallel_calls=message.disable_parallel_calls,
    )


def _continuation(message: CompleteRequest) -> Continuation | None:
    if not message.HasField("continuation"):
        return None
    return continuation_from(message.continuation)
