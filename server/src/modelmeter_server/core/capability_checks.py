"""What a request asks of its model, against what the model can do. Nothing is ever dropped, rounded or reordered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cache_marks import cache_violations
from .errors import FieldViolation
from .message_checks import part_field
from .requests import CompletionRequest, MediaPart, SchemaMode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .models import Capabilities

SAMPLING_FIELDS = ("temperature", "top_p", "top_k", "seed", "stop_sequences")


def capability_violations(
    request: CompletionRequest, capabilities: Capabilities, schema_mode: SchemaMode
) -> Iterator[FieldViolation]:
    """Return what the request asks for and the model cannot do; `schema_mode` is the mode in force."""
    yield from _media(request, capabilities)
    yield from _sampling(request, capabilities)
    if request.tools and not capabilities.tools:
        yield FieldViolation("tools", "this model takes no tools")
    effort = request.reasoning_effort
    if effort is not None and effort not in capabilities.reasoning_efforts:
        known = _listed([each.value for each in capabilities.reasoning_efforts])
        yield FieldViolation("reasoning_effort", f"this model has no effort `{effort.value}`; it has {known}")
    if request.output_schema_json:
        yield from _schema(request, capabilities, schema_mode)
    yield from cache_violations(request, capabilities.cache_marks)
    yield from _end_user(request.end_user_id, capabilities.end_user_id)


def _media(request: CompletionRequest, capabilities: Capabilities) -> Iterator[FieldViolation]:
    for index, message in enumerate(request.messages or ()):
        for number, part in enumerate(message.parts):
            if isinstance(part, MediaPart) and part.kind.value not in capabilities.media:
                path = f"messages.messages[{index}].parts[{number}].{part_field(part)}"
                yield FieldViolation(path, f"this model takes {_listed(capabilities.media)} beside text")


def _sampling(request: CompletionRequest, capabilities: Capabilities) -> Iterator[FieldViolation]:
    for name in SAMPLING_FIELDS:
        if getattr(request, name) not in (None, ()) and name not in capabilities.sampling:
            known = _listed(capabilities.sampling)
            yield FieldViolation(
                name, f"this model's provider has no such field; it has {known}: leave it out"
            )


def _end_user(end_user_id: str, most: int) -> Iterator[FieldViolation]:
    if end_user_id and not most:
        yield FieldViolation("end_user_id", "this model's provider has no field for it: leave it out")
    elif len(end_user_id) > most:
        yield FieldViolation("end_user_id", f"must have at most {most} characters")


def _schema(
    request: CompletionRequest, capabilities: Capabilities, mode: SchemaMode
) -> Iterator[FieldViolation]:
    if mode not in capabilities.schema_modes:
        known = _listed([each.name for each in capabilities.schema_modes])
        yield FieldViolation("schema_mode", f"this model cannot do {mode.name}; it can do {known}")
    if mode is SchemaMode.NATIVE and request.tools and not capabilities.tools_with_schema:
        yield FieldViolation("tools", "this model takes tools or a schema in NATIVE mode, not both")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) if names else "none"
