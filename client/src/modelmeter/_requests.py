"""From what a caller says to the request on the wire.

Nothing is judged here that the server judges: it reports every mistake at once, with the path of the field.
Only what cannot be put into a request at all raises here, before anything is sent.
"""

from __future__ import annotations

import difflib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict, Unpack

from google.protobuf.duration_pb2 import Duration

from . import _wire
from .enums import EmbeddingInputType, ReasoningEffort, SchemaMode, Sensitivity, ToolMode, Trust
from .messages import (
    Audio,
    CacheBreakpoint,
    Cached,
    Continuation,
    Document,
    Image,
    Message,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from .records import CallCeiling, Effect
from .results import RetryPolicy
from .v1 import message_pb2, model_service_pb2
from .v1.model_service_pb2 import CompleteRequest, CountTokensRequest, EmbedRequest

_MOST_SECONDS = 315_576_000_000
"""Most that a `google.protobuf.Duration` holds, by its own definition."""

Prompt: TypeAlias = str | Sequence[Message]
"""What to answer: the text of one user message, or the turns of a conversation, oldest first."""


class CompleteOptions(TypedDict, total=False):
    """What `complete` and `stream` take beside the model and the prompt. Everything is optional.

    What is left out or None is not sent: the server, the model's configuration or the provider decides.
    """

    native_json: str | Sequence[Any] | Mapping[str, Any] | None
    """In place of the prompt: turns in the provider's own format, as JSON text or as the value."""
    system: str | None
    """Instructions for the model."""
    tools: Sequence[Tool] | None
    """Tools that the model may call. Not together with a schema in FORCED_TOOL mode."""
    tool_choice: ToolChoice | ToolMode | str | None
    """Whether and which tool must be called: `"auto"`, `"none"`, `"required"`, or a `ToolChoice`."""
    schema: Mapping[str, Any] | str | None
    """JSON Schema that the answer must satisfy, as a mapping or as JSON text; its key order is kept."""
    schema_mode: SchemaMode | str | None
    """How the answer is held to the schema."""
    max_output_tokens: int | None
    """Most tokens to generate, reasoning included; 1 or more."""
    temperature: float | None
    """Sampling temperature, 0 or more."""
    top_p: float | None
    """Nucleus sampling, above 0 and at most 1."""
    top_k: int | None
    """Sample from this many candidates, 1 or more."""
    seed: int | None
    """Seed for repeatable sampling."""
    stop_sequences: Sequence[str] | str | None
    """Texts that end the generation."""
    reasoning_effort: ReasoningEffort | str | None
    """How hard the model should think."""
    provider_options: Mapping[str, Any] | str | None
    """Further options in the provider's own format, as a mapping or as JSON text."""
    continuation: Continuation | None
    """The provider's state from the turn before."""
    sensitivity: Sensitivity | str | None
    """How confidential the prompt is."""
    effect: Effect | model_service_pb2.Effect | None
    """How the call stands in a run of an effect runtime. Refused by a server without a ledger."""
    call_id: str | uuid.UUID | None
    """The caller's id for the call, a UUID. Left out: a new one."""
    ceiling: CallCeiling | model_service_pb2.CallCeiling | None
    """A limit on what this call may consume. Refused by a server without a ledger."""
    retry_policy: RetryPolicy | model_service_pb2.RetryPolicy | None
    """How often the server may ask the provider, within what is configured for the model. Left out: as configured."""
    labels: Mapping[str, str] | None
    """Labels for the record and for sums of spend."""
    replay_only: bool
    """Answer from the journal or not at all: a call that it does not hold is a `ReplayMissError`."""
    system_trust: Trust | str | None
    """How far the instructions in `system` can be trusted."""
    system_cache_breakpoint: CacheBreakpoint | None
    """The provider is to keep the prompt up to the end of `system` in its cache."""
    affinity_key: str | None
    """What the call has in common with those that should meet the same prompt cache, such as a conversation's id."""
    end_user_id: str | None
    """The person for whom the caller asks, as an id that names nobody, such as a hash."""


class EmbedOptions(TypedDict, total=False):
    """What `embed` takes beside the model and the inputs. Everything is optional."""

    dimensions: int | None
    """Components of each vector; left out: as many as the model gives by itself."""
    input_type: EmbeddingInputType | str | None
    """What the vectors are for."""
    provider_options: Mapping[str, Any] | str | None
    """Further options in the provider's own format, as a mapping or as JSON text."""
    sensitivity: Sensitivity | str | None
    """How confidential the texts are."""
    effect: Effect | model_service_pb2.Effect | None
    """How the call stands in a run of an effect runtime. Refused by a server without a ledger."""
    call_id: str | uuid.UUID | None
    """The caller's id for the call, a UUID. Left out: a new one."""
    ceiling: CallCeiling | model_service_pb2.CallCeiling | None
    """A limit on what this call may consume. Refused by a server without a ledger."""
    retry_policy: RetryPolicy | model_service_pb2.RetryPolicy | None
    """How often the server may ask the provider, within what is configured for the model. Left out: as configured."""
    labels: Mapping[str, str] | None
    """Labels for the record and for sums of spend."""
    replay_only: bool
    """Answer from the journal or not at all: a call that it does not hold is a `ReplayMissError`."""


def complete_request(
    model: str | CompleteRequest, prompt: Prompt | None = None, **options: Unpack[CompleteOptions]
) -> CompleteRequest:
    """Return the request for a call, always with a call id.

    A ready request is copied, not changed. Raises TypeError when a ready request comes with anything else,
    when both a prompt and `native_json` are given, or for an unknown option or a part of the wrong type;
    ValueError for an unknown word or a number out of the field's range.
    """
    _check_known(options, CompleteOptions)
    if not isinstance(model, CompleteRequest):
        request = _request(model, prompt, **options)
    elif prompt is None and not options:
        request = CompleteRequest()
        request.CopyFrom(model)
    else:
        message = "give a CompleteRequest or a model with prompt and options, not both"
        raise TypeError(message)
    # Without an id of ours, a repetition by a proxy or an interceptor would be a new call and a second bill.
    request.call_id = request.call_id or str(uuid.uuid4())
    return request


def _check_known(options: Mapping[str, object], known: type) -> None:
    """Raise a TypeError that names an unknown option as its caller wrote it, and what may have been meant."""
    for name in options:
        if name not in known.__annotations__:
            near = difflib.get_close_matches(name, known.__annotations__, 1)
            message = f'there is no option "{name}"' + (f'; did you mean "{near[0]}"?' if near else "")
            raise TypeError(message)


def stream_request(
    request: CompleteRequest, flush_interval: float | None, from_sequence: int = 0
) -> model_service_pb2.StreamCompleteRequest:
    """Return the request for a streamed call; `flush_interval` is in seconds.

    Raises ValueError for an interval that is not a number of at most 10,000 years, which is all a Duration holds.
    """
    if flush_interval is None:
        return model_service_pb2.StreamCompleteRequest(request=request, from_sequence=from_sequence)
    duration = seconds_to_duration(flush_interval, "flush_interval")
    return model_service_pb2.StreamCompleteRequest(
        request=request, flush_interval=duration, from_sequence=from_sequence
    )


def seconds_to_duration(interval: float, name: str) -> Duration:
    """Return a Duration; raises ValueError, which names what it was for, for no number that one can hold."""
    if not abs(interval) <= _MOST_SECONDS:
        message = f"{name} is a number of seconds, not {interval}"
        raise ValueError(message)
    # Both parts of a Duration have one sign; a negative interval is the server's to refuse.
    sign = -1 if interval < 0 else 1
    seconds, nanos = divmod(round(abs(interval) * 1e9), 1_000_000_000)
    return Duration(seconds=sign * seconds, nanos=sign * nanos)


def count_request(
    model: str | CompleteRequest, prompt: Prompt | None = None, **options: Unpack[CompleteOptions]
) -> CountTokensRequest:
    """Return the request for a count; takes and raises what `complete_request` does."""
    return CountTokensRequest(request=complete_request(model, prompt, **options))


def embed_request(
    model: str | EmbedRequest, inputs: str | Sequence[str] | None = None, **options: Unpack[EmbedOptions]
) -> EmbedRequest:
    """Return the request for a batch, always with a call id; one text stands for a batch of one.

    A ready request is copied, not changed. Raises TypeError when a ready request comes with anything else, or for
    inputs that are no texts; ValueError for an unknown word or a number out of the field's range.
    """
    _check_known(options, EmbedOptions)
    if not isinstance(model, EmbedRequest):
        request = _embed_request(model, inputs, **options)
    elif inputs is None and not options:
        request = EmbedRequest()
        request.CopyFrom(model)
    else:
        message = "give an EmbedRequest or a model with inputs and options, not both"
        raise TypeError(message)
    if not request.call_id:
        request.call_id = str(uuid.uuid4())
    return request


def _embed_request(
    model: str,
    inputs: str | Sequence[str] | None,
    *,
    dimensions: int | None = None,
    input_type: EmbeddingInputType | str | None = None,
    provider_options: Mapping[str, Any] | str | None = None,
    sensitivity: Sensitivity | str | None = None,
    effect: Effect | model_service_pb2.Effect | None = None,
    call_id: str | uuid.UUID | None = None,
    ceiling: CallCeiling | model_service_pb2.CallCeiling | None = None,
    retry_policy: RetryPolicy | model_service_pb2.RetryPolicy | None = None,
    labels: Mapping[str, str] | None = None,
    replay_only: bool = False,
) -> EmbedRequest:
    return EmbedRequest(
        model=model,
        inputs=[inputs] if isinstance(inputs, str) else inputs,
        dimensions=dimensions,
        input_type=_wire.EMBEDDING_INPUT_TYPE.number(input_type),
        provider_options_json=_json_text(provider_options),
        sensitivity=_wire.SENSITIVITY.number(sensitivity),
        effect=_effect(effect),
        call_id=str(call_id or ""),
        ceiling=_call_ceiling(ceiling),
        retry_policy=_retry_policy(retry_policy),
        labels=labels,
        replay_only=replay_only,
    )


def _request(
    model: str,
    prompt: Prompt | None,
    *,
    native_json: str | Sequence[Any] | Mapping[str, Any] | None = None,
    system: str | None = None,
    tools: Sequence[Tool] | None = None,
    tool_choice: ToolChoice | ToolMode | str | None = None,
    schema: Mapping[str, Any] | str | None = None,
    schema_mode: SchemaMode | str | None = None,
    max_output_tokens: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    seed: int | None = None,
    stop_sequences: Sequence[str] | str | None = None,
    reasoning_effort: ReasoningEffort | str | None = None,
    provider_options: Mapping[str, Any] | str | None = None,
    continuation: Continuation | None = None,
    sensitivity: Sensitivity | str | None = None,
    effect: Effect | model_service_pb2.Effect | None = None,
    call_id: str | uuid.UUID | None = None,
    ceiling: CallCeiling | model_service_pb2.CallCeiling | None = None,
    retry_policy: RetryPolicy | model_service_pb2.RetryPolicy | None = None,
    labels: Mapping[str, str] | None = None,
    replay_only: bool = False,
    system_trust: Trust | str | None = None,
    system_cache_breakpoint: CacheBreakpoint | None = None,
    end_user_id: str | None = None,
    affinity_key: str | None = None,
) -> CompleteRequest:
    if prompt is not None and native_json is not None:
        message = "give a prompt or native_json, not both"
        raise TypeError(message)
    request = CompleteRequest(
        model=model,
        system=system or "",
        tools=[_tool(each) for each in tools or ()],
        tool_choice=_tool_choice(tool_choice),
        output_schema_json=_json_text(schema),
        schema_mode=_wire.SCHEMA_MODE.number(schema_mode),
        max_output_tokens=max_output_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        stop_sequences=[stop_sequences] if isinstance(stop_sequences, str) else stop_sequences,
        reasoning_effort=_wire.REASONING_EFFORT.number(reasoning_effort),
        provider_options_json=_json_text(provider_options),
        continuation=None if continuation is None else _continuation(continuation),
        sensitivity=_wire.SENSITIVITY.number(sensitivity),
        effect=_effect(effect),
        call_id=str(call_id or ""),
        ceiling=_call_ceiling(ceiling),
        retry_policy=_retry_policy(retry_policy),
        labels=labels,
        replay_only=replay_only,
        system_trust=_wire.TRUST.number(system_trust),
        system_cache_breakpoint=_breakpoint(system_cache_breakpoint),
        end_user_id=end_user_id or "",
        affinity_key=affinity_key or "",
    )
    if native_json is not None:
        request.native_json = _json_text(native_json)
    elif isinstance(prompt, str):
        request.text = prompt
    elif prompt is not None:
        # Also when there is no message: an empty conversation is the server's to refuse.
        request.messages.CopyFrom(model_service_pb2.Messages(messages=_messages(prompt)))
    return request


def _effect(effect: Effect | model_service_pb2.Effect | None) -> model_service_pb2.Effect | None:
    if not isinstance(effect, Effect):
        return effect
    return model_service_pb2.Effect(
        run_id=effect.run_id,
        key=effect.key,
        on_landed_error=_wire.ON_LANDED_ERROR.number(effect.on_landed_error),
    )


def _retry_policy(
    policy: RetryPolicy | model_service_pb2.RetryPolicy | None,
) -> model_service_pb2.RetryPolicy | None:
    if not isinstance(policy, RetryPolicy):
        return policy
    return model_service_pb2.RetryPolicy(
        max_attempts=policy.max_attempts, ambiguous=policy.ambiguous, landed=policy.landed
    )


def _call_ceiling(
    ceiling: CallCeiling | model_service_pb2.CallCeiling | None,
) -> model_service_pb2.CallCeiling | None:
    if not isinstance(ceiling, CallCeiling):
        return ceiling
    return model_service_pb2.CallCeiling(
        tokens=ceiling.tokens, nano_units=ceiling.nano_units, currency=ceiling.currency
    )


def _messages(prompt: object) -> list[message_pb2.Message]:
    # Bytes and mappings can be iterated too, and would be complained of as what their items are.
    if not isinstance(prompt, Iterable) or isinstance(prompt, bytes | bytearray | memoryview | Mapping):
        wrong = f"a prompt is text or a list of Message, not {type(prompt).__name__}"
        raise TypeError(wrong)
    return [_message(each) for each in prompt]


def _json_text(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    document = dict(value) if isinstance(value, Mapping) else value
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def _tool(tool: Tool) -> message_pb2.Tool:
    return message_pb2.Tool(
        name=tool.name,
        description=tool.description,
        parameters_json=_json_text(tool.parameters),
        strict=tool.strict,
        cache_breakpoint=_breakpoint(tool.cache_breakpoint),
    )


def _breakpoint(mark: CacheBreakpoint | None) -> message_pb2.CacheBreakpoint | None:
    if mark is None:
        return None
    return message_pb2.CacheBreakpoint(ttl=None if mark.ttl is None else seconds_to_duration(mark.ttl, "ttl"))


def _tool_choice(choice: ToolChoice | ToolMode | str | None) -> message_pb2.ToolChoice | None:
    if choice is None:
        return None
    if not isinstance(choice, ToolChoice):
        choice = ToolChoice(choice)
    return message_pb2.ToolChoice(
        mode=_wire.TOOL_MODE.number(choice.mode),
        name=choice.name,
        disable_parallel_calls=choice.disable_parallel_calls,
    )


def _message(message: object) -> message_pb2.Message:
    if not isinstance(message, Message):
        wrong = f"a prompt is text or a list of Message, not of {type(message).__name__}"
        raise TypeError(wrong)
    return message_pb2.Message(
        role=_wire.ROLE.number(message.role),
        parts=[_part(each) for each in message.parts],
    )


def _part(part: object) -> message_pb2.Part:
    match part:
        case str():
            return message_pb2.Part(text=part)
        case Image():
            return message_pb2.Part(image=_media(part))
        case Audio():
            return message_pb2.Part(audio=_media(part))
        case Document():
            return message_pb2.Part(document=_media(part))
        case ToolCall():
            return message_pb2.Part(tool_call=_tool_call(part))
        case ToolResult():
            result = message_pb2.ToolResult(call_id=part.call_id, output=part.output, failed=part.failed)
            return message_pb2.Part(tool_result=result)
        case Continuation():
            return message_pb2.Part(continuation=_continuation(part))
        case Cached():
            proto = _part(part.part)
            # Also when it says nothing: that it is there is the mark.
            proto.cache_breakpoint.SetInParent()
            if part.ttl is not None:
                proto.cache_breakpoint.ttl.CopyFrom(seconds_to_duration(part.ttl, "ttl"))
            return proto
    wrong = f"{type(part).__name__} is no part of a message"
    raise TypeError(wrong)


def _media(media: Image | Audio | Document) -> message_pb2.Media:
    proto = message_pb2.Media(media_type=media.media_type, name=media.name)
    if media.data is not None:
        proto.data = media.data
    if media.url is not None:
        proto.url = media.url
    return proto


def _tool_call(call: ToolCall) -> message_pb2.ToolCall:
    return message_pb2.ToolCall(
        id=call.id, name=call.name, arguments_json=call.arguments_json, free_text=call.free_text
    )


def _continuation(continuation: Continuation) -> message_pb2.Continuation:
    return message_pb2.Continuation(
        provider=continuation.provider, state_json=continuation.state_json, target=continuation.target
    )
