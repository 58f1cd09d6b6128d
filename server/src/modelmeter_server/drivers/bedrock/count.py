"""`POST {base}/model/{model}/count-tokens`, for a request to Converse. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from modelmeter_server.drivers.count_body import counting, members_of, reader_of

if TYPE_CHECKING:
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.drivers.driver import PreparedRequest

# The members of ConverseTokensRequest in the service's own model. A native schema has none: it goes uncounted.
_TAKES: Final = frozenset(("messages", "system", "toolConfig", "additionalModelRequestFields"))


def count(prepared: PreparedRequest, model: ModelSpec, _base_path: str) -> PreparedRequest:
    """Turn a prepared completion into the request that counts its input."""
    converse = {name: raw for name, raw in members_of(prepared.body).items() if name in _TAKES}
    body = msgspec.json.encode({"input": {"converse": converse}})
    target = f"/model/{quote(model.provider_model, safe='')}/count-tokens"
    return counting(prepared, target, body, reader_of("inputTokens"))
