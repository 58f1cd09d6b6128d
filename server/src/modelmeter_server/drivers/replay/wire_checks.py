"""Judge a request as the provider of a wire would be asked to: nothing passes here that would be refused there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.request_checks import check_request
from modelmeter_server.core.requests import CompletionRequest, Continuation, Message, Part

from ..wire_formats import WIRE_FORMATS

if TYPE_CHECKING:
    from modelmeter_server.core.errors import FieldViolation
    from modelmeter_server.core.models import ModelSpec

    from .script import Wire


def wire_violations(wire: Wire, request: CompletionRequest, model: ModelSpec) -> list[FieldViolation]:
    """Return the mistakes that the request would have if the model were served by this wire's own provider."""
    format = WIRE_FORMATS[wire.value]
    served = msgspec.structs.replace(model, provider_kind=format.kind, capabilities=format.capabilities)
    return check_request(_addressed(request, format.kind), served)


def _addressed(request: CompletionRequest, kind: str) -> CompletionRequest:
    """Return the request with continuations of ours as if that provider had issued them."""
    return msgspec.structs.replace(
        request,
        messages=request.messages and tuple(_message(message, kind) for message in request.messages),
        continuation=request.continuation and msgspec.structs.replace(request.continuation, provider=kind),
    )


def _message(message: Message, kind: str) -> Message:
    return Message(message.role, tuple(_part(part, kind) for part in message.parts))


def _part(part: Part, kind: str) -> Part:
    return msgspec.structs.replace(part, provider=kind) if isinstance(part, Continuation) else part
