"""A provider's words that reach a caller, without the keys that it may echo.

Any word can hold one: a gateway answers with the key as an id, as a stop reason, as the name of a model. What the model
wrote is not a word of the provider and stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modelmeter_server.core.answers import Answer
    from modelmeter_server.core.errors import Failure
    from modelmeter_server.core.hosted import HostedTool
    from modelmeter_server.core.usage import AdditionalUsage, Usage

_Scrub = Callable[[str], str]

# Of answers and of failures; a field that one of them has not is passed over.
_FIELDS: Final = (
    "message",
    "model_served",
    "provider_code",
    "provider_request_id",
    "provider_response_id",
    "service_tier",
    "stop_reason",
)

# Without the arguments, which the model wrote.
_HOSTED_FIELDS: Final = ("type", "id", "status", "name", "server", "result_json", "error")


def without_keys(result: Answer | Failure, scrub: _Scrub) -> Answer | Failure:
    """Return the result with every word of the provider scrubbed; the result itself if no word holds a key."""
    joined = "\n".join(_words(result))  # no key holds a line end, so that none arises from two words
    if scrub(joined) == joined:
        return result
    changed: dict[str, object] = {
        name: scrub(word) for name in _FIELDS if (word := getattr(result, name, None))
    }
    if result.usage is not None:
        changed["usage"] = _usage(result.usage, scrub)
    changed["additional_usage"] = tuple(_additional(extra, scrub) for extra in result.additional_usage)
    changed["hosted_tools"] = tuple(_hosted(tool, scrub) for tool in result.hosted_tools)
    return msgspec.structs.replace(result, **changed)


def _words(result: Answer | Failure) -> Iterator[str]:
    for name in _FIELDS:
        yield getattr(result, name, None) or ""
    if result.usage is not None:
        yield from result.usage.hosted_tool_requests
    for extra in result.additional_usage:
        yield extra.kind
        yield extra.model or ""
        yield from extra.usage.hosted_tool_requests
    for tool in result.hosted_tools:
        yield from (getattr(tool, name) for name in _HOSTED_FIELDS)


def _usage(usage: Usage, scrub: _Scrub) -> Usage:
    requests = {scrub(tool): count for tool, count in usage.hosted_tool_requests.items()}
    return msgspec.structs.replace(usage, hosted_tool_requests=requests)


def _additional(extra: AdditionalUsage, scrub: _Scrub) -> AdditionalUsage:
    model = scrub(extra.model) if extra.model is not None else None
    return msgspec.structs.replace(
        extra, kind=scrub(extra.kind), model=model, usage=_usage(extra.usage, scrub)
    )


def _hosted(tool: HostedTool, scrub: _Scrub) -> HostedTool:
    return msgspec.structs.replace(
        tool, **{name: scrub(word) for name in _HOSTED_FIELDS if (word := getattr(tool, name))}
    )
