"""How Parrot says no: `{"squawk": "<word>"}` with statuses that everybody reads, and one that nobody else has."""

from __future__ import annotations

from collections.abc import Callable

from modelmeter_server.drivers.plugin import (
    Failure,
    NotJson,
    ProviderError,
    Stage,
    failure_before_generation,
    loads_event,
    word,
)

# 460 is the provider's own word for 429.
STATUSES = {460: 429}


def classify(
    status: int, header: Callable[[str], str | None], body: bytes, *, scrub: Callable[[str], str]
) -> Failure:
    """Return what a status other than 2xx means."""
    try:
        document = loads_event(body)
    except NotJson:
        document = None
    squawk = word(document.get("squawk")) if isinstance(document, dict) else ""
    return failure_before_generation(
        STATUSES.get(status, status),
        ProviderError(type=squawk or "error"),
        source=f"HTTP {status}",
        stage=Stage.BODY if body else Stage.HEADERS,
        scrub=scrub,
        http_status=status,
        provider_body=body,
    )
