"""What a request asks of the ledger: whether it can be had, and whether it is well formed. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .errors import FieldViolation
from .requests import CallCeiling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .embeddings import EmbeddingRequest
    from .requests import CompletionRequest

MAX_RUN_ID = 128
MAX_EFFECT_KEY = 256
"""Characters."""

NEEDS_LEDGER = "needs a ledger, and this deployment has none: leave it out, or configure [ledger]"

_CURRENCY = re.compile(r"[A-Z]{3}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def ledger_violations(
    request: CompletionRequest | EmbeddingRequest, *, has_ledger: bool
) -> list[FieldViolation]:
    """Return what is wrong with the fields that are the ledger's business."""
    if not has_ledger:
        return [FieldViolation(field, NEEDS_LEDGER) for field in _asked(request)]
    return [*_effect(request), *_ceiling(request), *_labels(request)]


def _asked(request: CompletionRequest | EmbeddingRequest) -> Iterator[str]:
    if request.effect is not None:
        yield "effect"
    if request.ceiling is not None:
        yield "ceiling"
    if request.replay_only:
        yield "replay_only"


def _effect(request: CompletionRequest | EmbeddingRequest) -> Iterator[FieldViolation]:
    if request.effect is None:
        return
    names = (
        ("effect.run_id", request.effect.run_id, MAX_RUN_ID),
        ("effect.key", request.effect.key, MAX_EFFECT_KEY),
    )
    for field, name, most in names:
        if not 1 <= len(name) <= most:
            yield FieldViolation(field, f"must have 1 to {most} characters")
        elif _CONTROL.search(name):
            yield FieldViolation(field, "must not hold control characters")


def _ceiling(request: CompletionRequest | EmbeddingRequest) -> Iterator[FieldViolation]:
    ceiling = request.ceiling
    if ceiling is None:
        return
    if ceiling == CallCeiling():
        yield FieldViolation("ceiling", "must bound tokens, nano_units or both; leave it out for no limit")
    if ceiling.tokens is not None and ceiling.tokens < 0:
        yield FieldViolation("ceiling.tokens", "must be 0 or more")
    if ceiling.nano_units is None:
        if ceiling.currency:
            yield FieldViolation("ceiling.currency", "goes with nano_units only")
        return
    if ceiling.nano_units < 0:
        yield FieldViolation("ceiling.nano_units", "must be 0 or more")
    if not _CURRENCY.fullmatch(ceiling.currency):
        yield FieldViolation("ceiling.currency", 'must be a currency code such as "USD"')


def _labels(request: CompletionRequest | EmbeddingRequest) -> Iterator[FieldViolation]:
    # A database that cannot keep U+0000 would refuse the whole batch of other calls with it.
    if any("\0" in text for label in request.labels.items() for text in label):
        yield FieldViolation("labels", "must not hold the character U+0000")
