"""Everything about a request that can be judged without the provider: every mistake at once, each with its field.

Sensitivity against the model's maximum is a matter of permission and not of form: the engine judges it. That a call
id is a UUID is a rule of the wire and judged there, whether a schema compiles is the validator's to say, and what one
provider's format cannot carry is its encoder's.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Final

from .caller_json import field_path
from .capability_checks import capability_violations
from .continuations import (
    continuation_violations,
    message_answers,
    native_answers,
    results_start,
    state_calls,
)
from .errors import FieldViolation
from .json_text import loads_strict
from .message_checks import message_violations
from .native_prompt import FIELD as NATIVE
from .native_prompt import NativePrompt, NotAPrompt, native_violations, read_native_prompt
from .provider_options import option_violations
from .requests import (
    MAX_AFFINITY_KEY,
    CompletionRequest,
    Continuation,
    ReasoningEffort,
    Role,
    SchemaMode,
    ToolCallPart,
)
from .schema_document import schema_complaint
from .tool_checks import choice_violations, tool_violations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .models import ModelSpec

MAX_LABELS: Final = 16
MAX_LABEL_KEY: Final = 64
MAX_LABEL_VALUE: Final = 256
MAX_VIOLATIONS: Final = 100
"""Mistakes that are told; far more than a status has room for."""

_CONTINUATION: Final = "continuation"
# Their reasoning is signed or encrypted and goes back with the turn; rebuilt from its calls, a turn loses it.
_CARRY_REASONING: Final = frozenset(("anthropic", "bedrock", "gemini", "openai_responses"))


def check_request(request: CompletionRequest, model: ModelSpec) -> list[FieldViolation]:
    """Return every mistake in a request, up to `MAX_VIOLATIONS`; an empty list if there is none. Never raises.

    Fields are paths in the request, and go on into JSON text: `messages.messages[2].parts[0].image.url`,
    `tools[1].parameters_json`, `provider_options_json.max_tokens`. No description quotes the prompt.
    """
    return list(islice(_mistakes(request, model), MAX_VIOLATIONS))


def _mistakes(request: CompletionRequest, model: ModelSpec) -> Iterator[FieldViolation]:
    mode = request.schema_mode or model.schema_mode
    yield from identity_violations(request.model, request.call_id)
    yield from _prompt(request, model)
    yield from tool_violations(request.tools)
    if request.tool_choice is not None:
        yield from choice_violations(request.tool_choice, request.tools)
    yield from _schema(request, mode)
    yield from capability_violations(request, model.capabilities, mode)
    yield from _numbers(request)
    if request.provider_options_json:
        yield from option_violations(request, model)
    yield from label_violations(request.labels)
    if len(request.affinity_key) > MAX_AFFINITY_KEY:
        yield FieldViolation("affinity_key", f"must have at most {MAX_AFFINITY_KEY} characters")


def identity_violations(model: str, call_id: str) -> Iterator[FieldViolation]:
    """Return what is wrong with the names in a call."""
    if not model:
        yield FieldViolation("model", "must be an alias of the deployment, or `provider/model`")
    if not call_id:
        yield FieldViolation("call_id", "must be set")


def _prompt(request: CompletionRequest, model: ModelSpec) -> Iterator[FieldViolation]:
    asked = [name for name in ("text", "messages", NATIVE) if getattr(request, name) is not None]
    if len(asked) != 1:
        yield FieldViolation("prompt", "exactly one of `text`, `messages` and `native_json` must be set")
    if request.text is not None and not request.text.strip():
        yield FieldViolation("text", "must not be empty")
    if request.messages is not None:
        yield from message_violations(request.messages, model)
        if request.reasoning_effort not in (None, ReasoningEffort.NONE):
            yield from _lost_reasoning(request, model)
    native = None
    if request.native_json is not None:
        try:
            native = read_native_prompt(request.native_json, model.provider_kind)
        except NotAPrompt as error:
            yield FieldViolation(NATIVE, str(error))
        else:
            yield from native_violations(
                native, has_system=bool(request.system), allow_remote_media=model.allow_remote_media
            )
    if request.continuation is not None:
        yield from _continuation(request, request.continuation, model, native)


def _continuation(
    request: CompletionRequest, continuation: Continuation, model: ModelSpec, native: NativePrompt | None
) -> Iterator[FieldViolation]:
    mistakes = continuation_violations(
        continuation,
        _CONTINUATION,
        provider_kind=model.provider_kind,
        allow_remote_media=model.allow_remote_media,
    )
    yield from mistakes
    if mistakes:
        return
    if request.messages is not None:
        answered = message_answers(request.messages)
    elif native is not None:
        answered = native_answers(native.turns)
    elif request.text is not None:
        answered = []
    else:
        return  # no prompt, or none that could be read: said already
    start = results_start(answered, state_calls(loads_strict(continuation.state_json)))
    if start is None:
        fix = "goes before the tool results that answer its calls: end the prompt with these results"
        yield FieldViolation(_CONTINUATION, fix)
    elif request.messages is not None and start and request.messages[start - 1].role is Role.ASSISTANT:
        fix = "holds the model's turn already: leave out the assistant message before the tool results"
        yield FieldViolation(_CONTINUATION, fix)


def _lost_reasoning(request: CompletionRequest, model: ModelSpec) -> Iterator[FieldViolation]:
    messages = request.messages or ()
    if model.provider_kind not in _CARRY_REASONING or request.continuation is not None or len(messages) < 2:
        return
    start = results_start(message_answers(messages), frozenset())
    if start and any(isinstance(part, ToolCallPart) for part in messages[start - 1].parts):
        fix = (
            "would lose the model's reasoning: put the answer's `continuation` in the place of its tool calls"
        )
        yield FieldViolation("reasoning_effort", fix)


def _schema(request: CompletionRequest, mode: SchemaMode) -> Iterator[FieldViolation]:
    if not request.output_schema_json:
        if request.schema_mode is not None:
            yield FieldViolation("schema_mode", "goes with `output_schema_json` only")
        return
    complaint = schema_complaint(request.output_schema_json)
    if complaint:
        yield FieldViolation("output_schema_json", complaint)
    if mode is SchemaMode.FORCED_TOOL and request.tools:
        fix = "not together with a schema in FORCED_TOOL mode, where the one tool is the answer: use NATIVE mode"
        yield FieldViolation("tools", fix)


def _numbers(request: CompletionRequest) -> Iterator[FieldViolation]:
    if request.max_output_tokens is not None and request.max_output_tokens < 1:
        yield FieldViolation("max_output_tokens", "must be 1 or more")
    temperature = request.temperature
    if temperature is not None and not (math.isfinite(temperature) and temperature >= 0):
        yield FieldViolation("temperature", "must be a finite number, 0 or more")
    # Written so that NaN fails it too.
    if request.top_p is not None and not 0 < request.top_p <= 1:
        yield FieldViolation("top_p", "must be above 0 and at most 1")
    if request.top_k is not None and request.top_k < 1:
        yield FieldViolation("top_k", "must be 1 or more")
    for index, text in enumerate(request.stop_sequences):
        if not text:
            yield FieldViolation(f"stop_sequences[{index}]", "must not be empty")


def label_violations(labels: dict[str, str]) -> Iterator[FieldViolation]:
    """Return what is wrong with labels."""
    if len(labels) > MAX_LABELS:
        yield FieldViolation("labels", f"must be at most {MAX_LABELS}")
    for key, value in labels.items():
        if not 1 <= len(key) <= MAX_LABEL_KEY:
            yield FieldViolation("labels", f"keys must have 1 to {MAX_LABEL_KEY} characters")
        if len(value) > MAX_LABEL_VALUE:
            path = field_path("labels", key) if 1 <= len(key) <= MAX_LABEL_KEY else "labels"
            yield FieldViolation(path, f"values must have at most {MAX_LABEL_VALUE} characters")
