"""The names that operators already know: OpenTelemetry's conventions for RPC and for generative AI, and our own.

The GenAI conventions have moved to a repository of their own and were renamed on the way; the names of before stand
here too, and are written beside the new ones where the deployment asks for it. No other module spells a name.
"""

from __future__ import annotations

from typing import Final

# RPC (semantic conventions 1.40 and later)

RPC_SYSTEM: Final = "rpc.system.name"
RPC_METHOD: Final = "rpc.method"
RPC_STATUS: Final = "rpc.response.status_code"
ERROR_TYPE: Final = "error.type"
RPC_SERVER_DURATION: Final = "rpc.server.call.duration"

# Generative AI (open-telemetry/semantic-conventions-genai 0.1)

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_TOP_P: Final = "gen_ai.request.top_p"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
CONVERSATION: Final = "gen_ai.conversation.id"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE: Final = "gen_ai.usage.cache_write.input_tokens"
REASONING: Final = "gen_ai.usage.reasoning.output_tokens"

INFERENCE_DURATION: Final = "gen_ai.client.inference.duration"
INFERENCE_FIRST_CHUNK: Final = "gen_ai.client.inference.time_to_first_chunk"
INFERENCE_USAGE: Final = "gen_ai.client.inference.usage."
"""Followed by what was counted, such as `input_tokens`."""
INFERENCE_INPUT: Final = "gen_ai.client.inference.operation.input_tokens"
INFERENCE_OUTPUT: Final = "gen_ai.client.inference.operation.output_tokens"
SERVER_DURATION: Final = "gen_ai.server.request.duration"
SERVER_FIRST_TOKEN: Final = "gen_ai.server.time_to_first_token"  # noqa: S105 - the name of a metric

# The names of before (semantic conventions up to 1.41)

OLD_DURATION: Final = "gen_ai.client.operation.duration"
OLD_FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"
OLD_TOKENS: Final = "gen_ai.client.token.usage"
OLD_TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - the name of an attribute
OLD_SYSTEM: Final = "gen_ai.system"
OLD_CACHE_WRITE: Final = "gen_ai.usage.cache_creation.input_tokens"

# Ours

CALL_ID: Final = "modelmeter.call.id"
RUN_ID: Final = "modelmeter.run.id"
TARGET: Final = "modelmeter.target"
ATTEMPT: Final = "modelmeter.attempt.number"
OUTCOME: Final = "modelmeter.outcome"
"""`OK`, or the kind of the failure."""
DISPOSITION: Final = "modelmeter.disposition"
CERTAINTY: Final = "modelmeter.certainty"
CAUSE: Final = "modelmeter.cause"
STAGE: Final = "modelmeter.stage"
CURRENCY: Final = "modelmeter.currency"
STATE: Final = "modelmeter.state"
COST_NANOS: Final = "modelmeter.cost.nano_units"
SCOPE: Final = "modelmeter.scope"
PERCENT: Final = "modelmeter.percent"
BY: Final = "modelmeter.by"
REASON: Final = "modelmeter.reason"
TENANT: Final = "modelmeter.tenant"

CALLS: Final = "modelmeter.calls"
IN_FLIGHT: Final = "modelmeter.calls.in_flight"
WAITING: Final = "modelmeter.calls.waiting"
SESSIONS_OPEN: Final = "modelmeter.sessions.open"
REPLAYS: Final = "modelmeter.replays"
QUEUE_TIME: Final = "modelmeter.call.queue_time"
RETRIES: Final = "modelmeter.retries"
TARGET_STATE: Final = "modelmeter.target.state"
TARGET_CHANGES: Final = "modelmeter.target.changes"
PASSED_OVER: Final = "modelmeter.target.passed_over"
COST: Final = "modelmeter.cost"
LEDGER_TOKENS: Final = "modelmeter.ledger.tokens"
LEDGER_COST: Final = "modelmeter.ledger.cost"
LEDGER_UP: Final = "modelmeter.ledger.up"
SOFT_LIMITS: Final = "modelmeter.soft_limits"
RECONCILIATIONS: Final = "modelmeter.reconciliations"
HALTS: Final = "modelmeter.halts"
RELOADS: Final = "modelmeter.reloads"
WATCHERS: Final = "modelmeter.events.watchers"
EVENTS_LOST: Final = "modelmeter.events.lost"

CHAT: Final = "chat"
EMBEDDINGS: Final = "embeddings"
"""Values of `gen_ai.operation.name`."""

PROVIDERS: Final = {
    "anthropic": "anthropic",
    "openai_responses": "openai",
    "chat_completions": "openai",
    "gemini": "gcp.gemini",
    "bedrock": "aws.bedrock",
}
"""What the conventions call the provider behind a kind of driver; another kind stands for itself."""
