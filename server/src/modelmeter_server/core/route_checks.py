"""What only a model with targets asks of a request: that whoever is chosen can read what the caller sends. Pure.

A continuation holds turns that the provider has signed or encrypted. They are bound to the account that they were made
under, so they go back to the instance that issued them and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import FieldViolation
from .requests import CompletionRequest, Continuation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .embeddings import EmbeddingRequest
    from .models import ModelSpec

_NATIVE = ("native_json", "provider_options_json")


def route_violations(request: CompletionRequest | EmbeddingRequest, model: ModelSpec) -> list[FieldViolation]:
    """Return the mistakes of a request to a model with targets, whichever of them it would be sent to."""
    found: list[FieldViolation] = []
    if not model.provider_kind:
        found += _native_violations(request)
    if isinstance(request, CompletionRequest):
        found += _continuation_violations(request, model)
    return found


def bound_to(request: CompletionRequest | EmbeddingRequest, model: ModelSpec) -> str:
    """Return the provider instance that alone can read a checked request; empty where any may."""
    if not isinstance(request, CompletionRequest):
        return ""
    named = {_issuer(each, model) for _, each in _continuations(request)} - {""}
    return named.pop() if named else ""


def _native_violations(request: CompletionRequest | EmbeddingRequest) -> Iterator[FieldViolation]:
    for name in _NATIVE:
        if getattr(request, name, None):
            fix = "is one provider's own format, and the targets of this model are of different kinds: ask one of them"
            yield FieldViolation(name, fix)


def _continuation_violations(request: CompletionRequest, model: ModelSpec) -> Iterator[FieldViolation]:
    issuers: set[str] = set()
    for path, each in _continuations(request):
        able = _instances(each.provider, model)
        issuer = _issuer(each, model)
        if issuer and issuer not in able:
            known = " and ".join(map(_quoted, able)) or "none"
            fix = f"names {_quoted(issuer)}, and of that kind this model has {known}: send the turns as messages"
            yield FieldViolation(f"{path}.target", fix)
        elif not issuer and len(able) > 1:
            fix = f"must say who issued it, as the answer did: this model has {' and '.join(map(_quoted, able))}"
            yield FieldViolation(f"{path}.target", fix)
        elif issuer and issuers and issuer not in issuers:
            fix = f"names {_quoted(issuer)}, and another continuation {_quoted(min(issuers))}: no target reads both"
            yield FieldViolation(f"{path}.target", fix)
        if issuer:
            issuers.add(issuer)


def _continuations(request: CompletionRequest) -> Iterator[tuple[str, Continuation]]:
    if request.continuation is not None:
        yield "continuation", request.continuation
    for index, message in enumerate(request.messages or ()):
        for number, part in enumerate(message.parts):
            if isinstance(part, Continuation):
                yield f"messages.messages[{index}].parts[{number}].continuation", part


def _issuer(continuation: Continuation, model: ModelSpec) -> str:
    """Return the instance that issued it: the one it names, else the only one of its kind; empty if that is open."""
    able = _instances(continuation.provider, model)
    return continuation.target or (able[0] if len(able) == 1 else "")


def _instances(kind: str, model: ModelSpec) -> list[str]:
    targets = model.route.targets if model.route is not None else ()
    return list(dict.fromkeys(each.model.provider for each in targets if each.model.provider_kind == kind))


def _quoted(name: str) -> str:
    return f"`{name}`"
