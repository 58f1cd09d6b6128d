"""The dialects of Chat Completions: what one compatible server does differently, as data and never as code.

A profile is a row below; a server that none of them fits is declared in the configuration, from a row and the fields
that differ. What the rules decide from the figures alone (cached inside the prompt, reasoning beside the completion,
where a usage object stands) is no matter of dialect and not here.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .requests import ReasoningEffort, SchemaMode
from .stop_reasons import Stop

PATH: Final = "/v1/chat/completions"
_BARE_PATH: Final = "/chat/completions"

MAX_TOKENS_FIELDS: Final = ("max_tokens", "max_completion_tokens")
EFFORT_FIELDS: Final = ("reasoning_effort", "reasoning.effort")
SEED_FIELDS: Final = ("seed", "random_seed")
CACHE_MARKS: Final = ("none", "prompt_cache_breakpoint", "cache_control")
END_USER_FIELDS: Final = ("none", "safety_identifier", "user")
MEDIA: Final = ("image", "audio", "document")
SAMPLING: Final = ("temperature", "top_p", "top_k", "seed", "stop_sequences")

_E = ReasoningEffort
_LOW_TO_HIGH: Final = (_E.LOW, _E.MEDIUM, _E.HIGH)
_USUAL: Final = ("temperature", "top_p", "seed", "stop_sequences")
_WITH_TOP_K: Final = SAMPLING


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How one server speaks Chat Completions. The defaults are those of a compatible server nobody knows."""

    name: str = "compatible"
    """The profile it was made from."""

    # Where it is

    base_url: str = ""
    """Used when the provider instance names none; empty where everybody has a server of their own."""
    path: str = PATH
    """Path below the base URL."""
    api_version: str = ""
    """Sent as the query `api-version`; empty for none."""
    auth_header: str = "authorization"
    """Header of the key; `authorization` carries it as a bearer token, any other header bare."""

    # What it is sent

    max_tokens_field: str = "max_tokens"
    """One of MAX_TOKENS_FIELDS."""
    stream_options: bool = True
    """Ask for usage with `stream_options.include_usage`. Without it only a server that always tells is accounted."""
    store_switch: bool = False
    """Say `store: false`, where answers would else be kept at the provider."""
    native_schema: bool = True
    """Takes `response_format` of type `json_schema`."""
    strict: bool = True
    """Takes `strict: true` with a schema and with a tool."""
    strict_schemas: bool = False
    """Rejects a strict schema outside its subset, which is then refused before dispatch with the places named."""
    tools_with_schema: bool = True
    """Takes tools and a native schema in one request."""
    tool_choice: bool = True
    """Obeys `tool_choice`; without it no tool can be forced."""
    parallel_switch: bool = True
    """Takes `parallel_tool_calls`."""
    custom_tools: bool = False
    """Takes back calls of tools whose input is free text."""
    media: tuple[str, ...] = ("image",)
    """Kinds of media, of MEDIA."""
    sampling: tuple[str, ...] = _USUAL
    """Sampling fields of the request, of SAMPLING."""
    seed_field: str = "seed"
    """One of SEED_FIELDS."""
    max_stop_sequences: int = 0
    """Most stop sequences; 0 for no bound that is known."""
    reasoning_efforts: tuple[ReasoningEffort, ...] = ()
    """Efforts that it names; any other is refused, never rounded."""
    effort_field: str = "reasoning_effort"
    """One of EFFORT_FIELDS."""
    cache_marks: str = "none"
    """One of CACHE_MARKS: the member of a part that marks the end of what is to be cached."""
    end_user_field: str = "none"
    """One of END_USER_FIELDS."""
    service_tier: bool = False
    """Takes `service_tier`."""

    # How it answers

    hidden_output: bool = False
    """Its total holds output that no counter names: output = total - prompt (R-U4)."""
    no_finish_reason: bool = False
    """Never says why it stopped: an answer is whole at a usage with both counts and `[DONE]` (R-C1)."""
    reasoning_fields: tuple[str, ...] = ("reasoning_content", "reasoning")
    """Members of a delta with reasoning text; the first that holds text counts, for some servers send both."""
    stop_reasons: dict[str, Stop] = {}
    """Meanings of stop reasons that are not in the common table, or that mean something else here."""


def schema_modes(dialect: Dialect) -> tuple[SchemaMode, ...]:
    """Return how an answer of this dialect can be held to a schema; nothing can be forced without `tool_choice`."""
    native = (SchemaMode.NATIVE,) if dialect.native_schema else ()
    return (*native, SchemaMode.FORCED_TOOL) if dialect.tool_choice else native


def _dialect(name: str, **fields: object) -> Dialect:
    return msgspec.structs.replace(Dialect(), name=name, **fields)


OPENAI: Final = _dialect(
    "openai",
    base_url="https://api.openai.com/v1",
    max_tokens_field="max_completion_tokens",  # max_tokens is a 400 on reasoning models
    store_switch=True,
    strict_schemas=True,
    custom_tools=True,
    media=MEDIA,
    max_stop_sequences=4,
    reasoning_efforts=tuple(ReasoningEffort),
    cache_marks="prompt_cache_breakpoint",
    end_user_field="safety_identifier",
    service_tier=True,
)

COMPATIBLE: Final = Dialect()

DIALECTS: Final = {
    each.name: each
    for each in (
        OPENAI,
        COMPATIBLE,
        msgspec.structs.replace(
            OPENAI,
            name="azure",
            base_url="",
            auth_header="api-key",
            media=("image", "audio"),
            cache_marks="none",
            end_user_field="user",
        ),
        _dialect(
            "deepseek",
            base_url="https://api.deepseek.com",
            native_schema=False,  # json_object only
            media=(),
            parallel_switch=False,
            strict=False,
            sampling=("temperature", "top_p", "stop_sequences"),
            max_stop_sequences=16,
        ),
        _dialect(
            "gemini",
            base_url="https://generativelanguage.googleapis.com/v1beta/openai",
            path=_BARE_PATH,
            hidden_output=True,
            parallel_switch=False,
            media=("image", "audio"),
            sampling=("temperature", "top_p", "stop_sequences"),
            reasoning_efforts=(_E.NONE, _E.MINIMAL, *_LOW_TO_HIGH),
        ),
        _dialect(
            "groq",
            base_url="https://api.groq.com/openai/v1",
            max_tokens_field="max_completion_tokens",
            tools_with_schema=False,
            strict=False,  # two models take it, and the others fail on it
            max_stop_sequences=4,
            reasoning_efforts=(_E.NONE, *_LOW_TO_HIGH),
            end_user_field="user",
            service_tier=True,
        ),
        _dialect(
            "huggingface",
            base_url="https://router.huggingface.co/v1",
            stop_reasons={"eos_token": Stop.FINISHED, "stop_sequence": Stop.SEQUENCE},
        ),
        _dialect("llamacpp", sampling=_WITH_TOP_K, media=("image", "audio")),
        _dialect(
            "mistral",
            base_url="https://api.mistral.ai/v1",
            stream_options=False,  # tells usage in the finish chunk unasked
            seed_field="random_seed",
            reasoning_efforts=(_E.NONE, _E.HIGH),
        ),
        # Said to ignore tool_choice, so that nothing can be forced.
        _dialect(
            "ollama", tool_choice=False, parallel_switch=False, reasoning_efforts=(_E.NONE, *_LOW_TO_HIGH)
        ),
        _dialect(
            "openrouter",
            base_url="https://openrouter.ai/api/v1",
            media=MEDIA,
            sampling=_WITH_TOP_K,
            reasoning_efforts=(_E.NONE, _E.MINIMAL, *_LOW_TO_HIGH, _E.XHIGH),
            effort_field="reasoning.effort",
            cache_marks="cache_control",
            end_user_field="user",
            service_tier=True,
        ),
        _dialect(
            "perplexity",
            base_url="https://api.perplexity.ai",
            path=_BARE_PATH,
            stream_options=False,  # tells usage in every chunk unasked
            strict=False,
            tool_choice=False,
            parallel_switch=False,
            sampling=("temperature", "top_p", "top_k", "stop_sequences"),
            reasoning_efforts=_LOW_TO_HIGH,
        ),
        _dialect(
            "snowflake",
            max_tokens_field="max_completion_tokens",
            no_finish_reason=True,
            parallel_switch=False,
            sampling=("temperature", "top_p"),
        ),
        _dialect(
            "together",
            base_url="https://api.together.xyz/v1",
            sampling=_WITH_TOP_K,
            reasoning_efforts=_LOW_TO_HIGH,
            stop_reasons={"eos": Stop.FINISHED},
        ),
        _dialect("vercel", base_url="https://ai-gateway.vercel.sh/v1"),
        _dialect(
            "vllm",
            media=("image", "audio"),
            sampling=_WITH_TOP_K,
            reasoning_efforts=_LOW_TO_HIGH,
        ),
        _dialect(
            "xai",
            base_url="https://api.x.ai/v1",
            max_tokens_field="max_completion_tokens",
            reasoning_efforts=(_E.NONE, *_LOW_TO_HIGH, _E.XHIGH),
            end_user_field="user",
        ),
        _dialect(
            "zai",
            base_url="https://api.z.ai/api/paas/v4",
            path=_BARE_PATH,
            native_schema=False,  # json_object only
            tool_choice=False,  # auto only
            parallel_switch=False,
            strict=False,
            sampling=("temperature", "top_p", "stop_sequences"),
            max_stop_sequences=1,
            stop_reasons={
                "sensitive": Stop.WITHDRAWN,
                "network_error": Stop.OUTSIDE,
                "model_context_window_exceeded": Stop.LENGTH,
            },
        ),
    )
}
"""Built-in profiles by name."""
