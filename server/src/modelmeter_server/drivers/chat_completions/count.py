"""Chat Completions has no endpoint that counts: an estimate from what would be sent, which says so. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from modelmeter_server.core.token_count import estimate

if TYPE_CHECKING:
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.drivers.driver import PreparedRequest

_DOCUMENTS: Final = ("tools", "response_format")


def count(prepared: PreparedRequest, _model: ModelSpec, _base_path: str) -> PreparedRequest:
    """Estimate the input of a prepared completion; nothing will be sent."""
    return msgspec.structs.replace(prepared, answer=estimate(prepared.body, "messages", _DOCUMENTS))
