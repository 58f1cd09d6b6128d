"""The Python client of modelmeter: calls language models, and says truly what each call cost.

    import modelmeter

    with modelmeter.Client("127.0.0.1:50051") as client:
        answer = client.complete("replay/answer", "Hello")
        print(answer.text, answer.usage.output_tokens, answer.certainty)

`AsyncClient` is the same for asyncio. A call that fails raises a `ModelmeterError` that carries its bill; the
tree of them opens `modelmeter.errors`. `modelmeter.v1` holds the generated messages.
"""

from __future__ import annotations

from ._async import AsyncClient, AsyncCompletionStream
from ._channel import DEFAULT_TIMEOUT
from ._requests import CompleteOptions, Prompt
from ._sync import Client, CompletionStream
from ._version import __version__
from .enums import (
    Cause,
    Certainty,
    CostSource,
    Disposition,
    EffectOutcome,
    ErrorKind,
    Finish,
    ReasoningEffort,
    Role,
    SchemaMode,
    Sensitivity,
    Stage,
    ToolMode,
    Trust,
)
from .errors import (
    BugError,
    CallIdConflictError,
    CallInterruptedError,
    CeilingError,
    DivergedError,
    DrainingError,
    FieldViolation,
    HaltedError,
    LedgerDownError,
    LostContactError,
    ModelmeterError,
    NotConnectedError,
    OutcomeGoneError,
    OverloadedError,
    RateLimitedError,
    RefusedError,
    ReplayMissError,
    UnaccountedError,
    UnavailableError,
    UnreachableError,
    UnusableError,
)
from .events import ReasoningDelta, Started, StreamEvent, TextDelta, ToolCallDelta, UsageSnapshot
from .messages import (
    Audio,
    Continuation,
    Document,
    Image,
    Message,
    Part,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from .results import (
    AdditionalUsage,
    Attempt,
    Completion,
    Cost,
    HostedTool,
    Model,
    ModelCapabilities,
    Price,
    PriceTier,
    Timings,
    Usage,
)

__all__ = [
    "DEFAULT_TIMEOUT",
    "AdditionalUsage",
    "AsyncClient",
    "AsyncCompletionStream",
    "Attempt",
    "Audio",
    "BugError",
    "CallIdConflictError",
    "CallInterruptedError",
    "Cause",
    "CeilingError",
    "Certainty",
    "Client",
    "CompleteOptions",
    "Completion",
    "CompletionStream",
    "Continuation",
    "Cost",
    "CostSource",
    "Disposition",
    "DivergedError",
    "Document",
    "DrainingError",
    "EffectOutcome",
    "ErrorKind",
    "FieldViolation",
    "Finish",
    "HaltedError",
    "HostedTool",
    "Image",
    "LedgerDownError",
    "LostContactError",
    "Message",
    "Model",
    "ModelCapabilities",
    "ModelmeterError",
    "NotConnectedError",
    "OutcomeGoneError",
    "OverloadedError",
    "Part",
    "Price",
    "PriceTier",
    "Prompt",
    "RateLimitedError",
    "ReasoningDelta",
    "ReasoningEffort",
    "RefusedError",
    "ReplayMissError",
    "Role",
    "SchemaMode",
    "Sensitivity",
    "Stage",
    "Started",
    "StreamEvent",
    "TextDelta",
    "Timings",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolChoice",
    "ToolMode",
    "ToolResult",
    "Trust",
    "UnaccountedError",
    "UnavailableError",
    "UnreachableError",
    "UnusableError",
    "Usage",
    "UsageSnapshot",
    "__version__",
]
