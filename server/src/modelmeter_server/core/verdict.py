"""Whether a whole answer can be used: refusals, tool arguments, structured output, empty answers.

The order is the rule book's: what was withdrawn (R-X2), what stopped from outside (R-X4), tool arguments (R-T4),
the forced tool (R-T2, R-T3), the schema (R-X1, R-X6), an empty answer (R-X3). An answer that fails is billed.
"""

from __future__ import annotations

import msgspec

from .answers import Answer, Expectation, ToolCall
from .errors import Failure, failure
from .hosted import HostedTool, within_limits
from .json_text import NotJson, loads_strict
from .ladder import Evidence, severed
from .outcomes import Cause, End, Ending, Kind, Stage
from .requests import Continuation
from .stop_reasons import FINISHES, Stop
from .text import cut_utf8

_WORD_BYTES = 64
"""Bytes of a provider's word that a message may hold."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer before it is judged."""

    text: str
    stop: Stop
    stop_reason: str
    evidence: Evidence
    tool_calls: tuple[ToolCall, ...] = ()
    calls_need_ids: bool = True
    """A call without an id cannot be answered by it; servers that give none pair calls and results by order."""
    forced_arguments: str | None = None
    """Argument text of the forced tool; `None` when the model did not call it, empty when it gave none."""
    refusal: str | None = None
    """Why the model or a filter withdrew the answer, in a few words; the refusal's text is not repeated."""
    provider_code: str | None = None
    """The provider's word for what went wrong, where it has one besides the stop reason."""
    hosted_tools: tuple[HostedTool, ...] = ()
    continuation: Continuation | None = None
    service_tier: str | None = None

    @property
    def brief_reason(self) -> str:
        """Return the stop reason as it may stand in a message."""
        return cut_utf8(self.stop_reason, _WORD_BYTES)


def judge(draft: Draft, expectation: Expectation) -> Answer | Failure:
    """Return the answer, or the failure that keeps its bill."""
    if draft.refusal is not None or draft.stop is Stop.WITHDRAWN:
        return _unusable(draft, draft.refusal or f"the answer was withdrawn ({draft.brief_reason})")
    if draft.stop is Stop.OUTSIDE:
        ending = Ending(end=End.CLEAN, cause=Cause.PROVIDER, stage=Stage.OUTPUT)
        message = f"the generation was stopped from outside ({draft.brief_reason})"
        return severed(msgspec.structs.replace(draft.evidence, generated=True), ending, message)
    if expectation.forced_tool:
        return _judge_forced(draft, expectation)
    for call in draft.tool_calls:
        if complaint := _malformed(call, needs_id=draft.calls_need_ids):
            name = cut_utf8(call.name, _WORD_BYTES)
            return _unusable(draft, f"a call of tool `{name}` is malformed: {complaint}")
    if draft.tool_calls:
        return _answer(draft)
    if expectation.schema_check is not None:
        return _judge_native(draft, expectation)
    if expectation.may_be_empty:
        return _answer(draft)
    if not draft.text and draft.stop not in (Stop.LENGTH, Stop.SEQUENCE):
        return _unusable(draft, "the answer holds neither text nor a tool call")
    return _answer(draft)


def _judge_forced(draft: Draft, expectation: Expectation) -> Answer | Failure:
    if draft.forced_arguments is None:
        return _unusable(draft, "the model did not call the tool that was forced for the schema")
    arguments = draft.forced_arguments or "{}"
    # Without any argument text, `{}` is our reading and not the model's: only the schema can make it an answer.
    enforce = expectation.enforce or not draft.forced_arguments
    if complaint := _structure_complaint(arguments, expectation, enforce=enforce):
        return _unusable(draft, complaint)
    if draft.stop is Stop.TOOLS and not draft.tool_calls:
        # The forced tool is no call of the caller's: the model finished.
        draft = msgspec.structs.replace(draft, stop=Stop.FINISHED)
    return _answer(draft, text=arguments, structured_json=arguments)


def _judge_native(draft: Draft, expectation: Expectation) -> Answer | Failure:
    if complaint := _structure_complaint(draft.text, expectation, enforce=expectation.enforce):
        return _unusable(draft, complaint)
    return _answer(draft, structured_json=draft.text)


def _structure_complaint(text: str, expectation: Expectation, *, enforce: bool) -> str | None:
    try:
        document = loads_strict(text)
    except NotJson as error:
        return f"the structured answer is not JSON ({error})"
    if not enforce or expectation.schema_check is None:
        return None
    complaint = expectation.schema_check(document)
    return complaint and f"the structured answer does not satisfy the schema: {complaint}"


def _malformed(call: ToolCall, *, needs_id: bool) -> str | None:
    if not call.name or (needs_id and not call.id):
        return "it has no id or no name"
    if call.free_text:
        return None
    try:
        loads_strict(call.arguments_json)
    except NotJson as error:
        return f"its arguments are not JSON ({error})"
    return None


def _unusable(draft: Draft, why: str) -> Failure:
    evidence = draft.evidence
    if draft.stop is Stop.LENGTH:
        why += f"; the length limit cut it ({draft.brief_reason})"
    return failure(
        Kind.UNUSABLE,
        why,
        cause=Cause.PROVIDER,
        stage=Stage.OUTPUT,
        certainty=evidence.certainty,
        usage=evidence.usage,
        additional_usage=evidence.additional_usage,
        estimated_output_tokens=evidence.estimate,
        model_served=evidence.model_served,
        service_tier=evidence.service_tier,
        price_factor=evidence.price_factor,
        provider_code=draft.provider_code or draft.brief_reason or None,
        provider_response_id=evidence.response_id,
        partial_text=draft.text,
        cost=evidence.cost,
    )


def _answer(draft: Draft, *, text: str | None = None, structured_json: str | None = None) -> Answer:
    evidence = draft.evidence
    return Answer(
        text=draft.text if text is None else text,
        tool_calls=draft.tool_calls,
        usage=evidence.usage,
        additional_usage=evidence.additional_usage,
        certainty=evidence.certainty,
        cost=evidence.cost,
        stop_reason=draft.stop_reason,
        finish=FINISHES[draft.stop],
        truncated=draft.stop.is_truncated,
        structured_json=structured_json,
        model_served=evidence.model_served,
        provider_response_id=evidence.response_id,
        hosted_tools=within_limits(draft.hosted_tools),
        continuation=draft.continuation,
        service_tier=draft.service_tier,
        price_factor=evidence.price_factor,
        estimated_output_tokens=evidence.estimate,
    )
