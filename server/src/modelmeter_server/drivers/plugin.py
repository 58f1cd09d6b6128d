"""What a driver that lives in another distribution is made of: the one module of this package that it may import.

Everything in `__all__` is stable within one `PROTOCOL`; nothing else in this package is, whatever its name. A driver
is a wire format: pure encoding and pure accumulating. Sockets, TLS, timers, landing and the bill stay here, so that a
foreign driver cannot get them wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from modelmeter_server.core.accumulators import Accumulator
from modelmeter_server.core.answers import ReasoningDelta, TextDelta, ToolCall, ToolCallDelta
from modelmeter_server.core.capability_checks import capability_violations
from modelmeter_server.core.counters import counter
from modelmeter_server.core.errors import Failure, FieldViolation
from modelmeter_server.core.hosted import HostedTool
from modelmeter_server.core.json_text import NotJson, loads_event
from modelmeter_server.core.lenient import EventDecoder, word
from modelmeter_server.core.models import Capabilities, ModelSpec
from modelmeter_server.core.outcomes import Stage
from modelmeter_server.core.provider_errors import (
    ProviderError,
    failure_before_generation,
    failure_from_http,
)
from modelmeter_server.core.requests import (
    FORCED_TOOL,
    CompletionRequest,
    Continuation,
    MediaKind,
    MediaPart,
    Message,
    ReasoningEffort,
    Role,
    SchemaMode,
    TextPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolMode,
    ToolResultPart,
)
from modelmeter_server.core.stop_reasons import Stop
from modelmeter_server.core.text_buffer import TextBuffer
from modelmeter_server.core.usage import Usage
from modelmeter_server.core.usage_meter import RunningTotals
from modelmeter_server.core.verdict import Draft

from .authentication import Authenticator, CredentialsError, key_header
from .driver import PreparedRequest, RequestRefused
from .http_driver import WireFormat
from .json_body import (
    embedded,
    embedded_arguments,
    finished,
    native_prompt,
    parameters,
    refused,
    state_turns,
)

GROUP: Final = "modelmeter.drivers"
"""The group of entry points in which a distribution announces its drivers, each under the name of its kind."""

PROTOCOL: Final = 1
"""Version of what stands in `__all__`, with the hooks that `Accumulator` leaves to its subclasses."""


class SettingError(ValueError):
    """Report a mistake in the table `settings` of a provider instance; neither text may quote a secret."""

    def __init__(self, key: str | None, problem: str, fix: str) -> None:
        """`key` is the key of `settings` with the mistake, `None` for the table; the texts end no sentence."""
        super().__init__(f"{problem}; {fix}")
        self.key = key
        self.problem = problem
        self.fix = fix


class DriverPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of provider. The entry point `<kind>` of the group `modelmeter.drivers` names one."""

    protocol: int
    """The `PROTOCOL` that the driver was written for, as a literal: another one is refused at start."""
    kind: str
    """Lower-case letters, digits and underscores; the name of the entry point."""
    wire_format: Callable[[Mapping[str, Any]], WireFormat]
    """Make the row of one instance from its table `settings`, empty if it has none; called once, at start.

    Raises SettingError. It must refuse keys that it does not know.
    """
    base_url: str = ""
    """Where instances go that name no `base_url`; empty if they all have to."""
    key_example: str = "PROVIDER_API_KEY"
    """An environment variable for the key, as messages suggest it."""


__all__ = [
    "FORCED_TOOL",
    "GROUP",
    "PROTOCOL",
    "Accumulator",
    "Authenticator",
    "Capabilities",
    "CompletionRequest",
    "Continuation",
    "CredentialsError",
    "Draft",
    "DriverPlugin",
    "EventDecoder",
    "Failure",
    "FieldViolation",
    "HostedTool",
    "MediaKind",
    "MediaPart",
    "Message",
    "ModelSpec",
    "NotJson",
    "PreparedRequest",
    "ProviderError",
    "ReasoningDelta",
    "ReasoningEffort",
    "RequestRefused",
    "Role",
    "RunningTotals",
    "SchemaMode",
    "SettingError",
    "Stage",
    "Stop",
    "TextBuffer",
    "TextDelta",
    "TextPart",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallPart",
    "ToolChoice",
    "ToolMode",
    "ToolResultPart",
    "Usage",
    "WireFormat",
    "capability_violations",
    "counter",
    "embedded",
    "embedded_arguments",
    "failure_before_generation",
    "failure_from_http",
    "finished",
    "key_header",
    "loads_event",
    "native_prompt",
    "parameters",
    "refused",
    "state_turns",
    "word",
]
