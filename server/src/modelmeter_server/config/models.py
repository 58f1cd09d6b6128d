"""The sections `[models."NAME"]`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypedDict

from modelmeter_server.core.dialects import schema_modes
from modelmeter_server.core.models import OnCancel, Task
from modelmeter_server.core.requests import (
    DEFAULT_MAX_OUTPUT_TOKENS,
    SchemaCheckPolicy,
    SchemaMode,
    Sensitivity,
)
from modelmeter_server.core.reservation import MAX_TOKENS_PER_SECOND
from modelmeter_server.core.toml_words import choices
from modelmeter_server.drivers.bedrock import EMBEDDING_DIALECTS, REASONING_DIALECTS
from modelmeter_server.drivers.replay.vectors import MODEL as EMBEDDING_MODEL

from .call_limits import read_limits
from .kinds import BEDROCK, OPENAI_RESPONSES, REPLAY, SUPPORTED
from .mistakes import did_you_mean
from .model_settings import ModelSettings
from .price_source import read_any_price
from .retries import read_retry
from .sensitivity import read_sensitivity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .settings import ProviderSettings
    from .tables import Table

MODEL_NAME = re.compile(r"[!-~]{1,128}")
_TIER = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OF_COMPLETIONS = (
    "schema_mode",
    "schema_check",
    "max_output_tokens",
    "buffered",
    "allow_remote_media",
    "hosted_tools",
    "service_tier",
    "reasoning_dialect",
    "max_tokens_per_second",
    "clamp_output",
    "recoverable",
)
_MOST_OUTPUT = 2**31 - 1
"""`max_output_tokens` is an int32 on the wire."""


class ModelReader:
    """Read models; one reader serves a whole document."""

    def __init__(self, providers: Mapping[str, ProviderSettings | None]) -> None:
        """`providers` are the configured names; `None` stands for one that could not be read."""
        self._providers = providers

    def read(self, table: Table) -> ModelSettings:
        """Return one model; its mistakes are noted."""
        provider = self._read_provider(table)
        self._check_name(table, provider)
        model = table.required_text("model", "write model = the model's name in the provider's own spelling")
        task = table.word("task", Task.COMPLETION)
        if task is Task.EMBEDDING:
            return self._read_embedding(table, provider, model)
        if "embedding_dialect" in table:
            fix = 'remove it, or write task = "embedding"'
            table.refuse("embedding_dialect", "goes with embedding models", fix)
        self._check_script(table, provider, model)
        recoverable = self._read_recoverable(table, provider)
        owner = self._providers.get(provider)
        settings = ModelSettings(
            name=table.name,
            provider=provider,
            model=model or "",
            schema_mode=self._read_schema_mode(table, provider),
            schema_check=table.word("schema_check", SchemaCheckPolicy.AUTO),
            max_output_tokens=table.integer(
                "max_output_tokens", DEFAULT_MAX_OUTPUT_TOKENS, least=1, most=_MOST_OUTPUT
            ),
            buffered=table.flag("buffered", default=False),
            allow_remote_media=table.flag("allow_remote_media", default=False),
            hosted_tools=frozenset(table.texts("hosted_tools") or ()),
            service_tier=self._read_service_tier(table, provider),
            reasoning_dialect=self._read_reasoning_dialect(table, provider),
            price=read_any_price(table, owner, model, has_output=True),
            limits=read_limits(table.table("limits")),
            max_tokens_per_second=table.integer(
                "max_tokens_per_second", MAX_TOKENS_PER_SECOND, least=1, most=_MOST_OUTPUT
            ),
            clamp_output=table.optional_integer("clamp_output", most=_MOST_OUTPUT),
            recoverable=recoverable,
            max_sensitivity=read_sensitivity(table, "max_sensitivity", Sensitivity.PUBLIC),
            output_sensitivity=_read_output_sensitivity(table),
            # What is generated in the background goes on after its connection was cut.
            retry=read_retry(table, owner),
            **_read_purchase(table, abort_stops_billing=not recoverable),
        )
        table.close()
        return settings

    def _read_embedding(self, table: Table, provider: str, model: str | None) -> ModelSettings:
        for key in _OF_COMPLETIONS:
            if key in table:
                table.refuse(key, "does not go with an embedding model", "remove it: vectors have none")
        owner = self._providers.get(provider)
        kind = (
            SUPPORTED.get(owner.kind) if owner is not None else None
        )  # `None` too for a driver of another make
        if owner is not None and kind is not None and not kind.has_embeddings:
            fix = "name another provider"
            table.mistake("provider", f'"{provider}" is of kind "{owner.kind}", which has no embeddings', fix)
        if owner is not None and owner.kind == REPLAY.name and model not in (None, EMBEDDING_MODEL):
            fix = f'write "{EMBEDDING_MODEL}", its one embedding model'
            table.mistake("model", f'"{provider}" has no embedding model "{model}"', fix)
        settings = ModelSettings(
            name=table.name,
            provider=provider,
            model=model or "",
            task=Task.EMBEDDING,
            embedding_dialect=self._read_embedding_dialect(table, owner),
            price=read_any_price(table, owner, model, has_output=False),
            limits=read_limits(table.table("limits")),
            max_sensitivity=read_sensitivity(table, "max_sensitivity", Sensitivity.PUBLIC),
            output_sensitivity=_read_output_sensitivity(table),
            retry=read_retry(table, owner),
            **_read_purchase(table),
        )
        table.close()
        return settings

    def _read_embedding_dialect(self, table: Table, owner: ProviderSettings | None) -> str | None:
        """Return how a model of Bedrock is asked: each family has a body of its own, and an ARN tells no family."""
        if owner is None or owner.kind == BEDROCK:
            known = choices(EMBEDDING_DIALECTS)
            if owner is not None and "embedding_dialect" not in table:
                table.mistake(None, 'lacks "embedding_dialect"', f"write {known}, after the model's family")
            return table.choice("embedding_dialect", EMBEDDING_DIALECTS, "") or None
        fix = "remove it: the other kinds have one format"
        table.refuse("embedding_dialect", f'goes with models of a "{BEDROCK}" provider', fix)
        return None

    def _read_provider(self, table: Table) -> str:
        known = ", ".join(sorted(self._providers)) or "none yet"
        name = table.required_text("provider", f"name a provider of this file: {known}")
        if name is not None and name not in self._providers:
            meant = did_you_mean(name, self._providers)
            fix = f'did you mean "{meant}"?' if meant else f"name one of {known}, or add [providers.{name}]"
            table.mistake("provider", f'there is no provider "{name}"', fix)
        return name or ""

    def _read_reasoning_dialect(self, table: Table, provider: str) -> str | None:
        if "reasoning_dialect" not in table:
            return None
        owner = self._providers.get(provider)
        if owner is not None and owner.kind != BEDROCK:
            fix = "remove it: the other kinds name the effort in their own format"
            table.refuse("reasoning_dialect", f'goes with models of a "{BEDROCK}" provider', fix)
            return None
        return table.choice("reasoning_dialect", REASONING_DIALECTS, "") or None

    def _read_recoverable(self, table: Table, provider: str) -> bool:
        wanted = table.flag("recoverable", default=False)
        owner = self._providers.get(provider)
        if wanted and owner is not None and owner.kind != OPENAI_RESPONSES:
            fix = "remove it: only the Responses API keeps answers that can be asked for"
            table.mistake("recoverable", f'goes with models of an "{OPENAI_RESPONSES}" provider', fix)
        return wanted

    def _read_service_tier(self, table: Table, provider: str) -> str | None:
        """Return the tier in the provider's own word, which only the provider can judge."""
        tier = table.text("service_tier")
        owner = self._providers.get(provider)
        if tier is not None and not _TIER.fullmatch(tier):
            table.mistake(
                "service_tier", f'"{tier}" is no tier', 'write the provider\'s word, such as "flex"'
            )
        elif tier and owner is not None and owner.dialect is not None and not owner.dialect.service_tier:
            fix = "remove it, or set dialect.service_tier = true if the server has tiers"
            table.mistake("service_tier", f'the dialect of "{provider}" has no tiers', fix)
        return tier

    def _read_schema_mode(self, table: Table, provider: str) -> SchemaMode:
        """Return the model's mode: native, unless its server is known to have no such thing."""
        owner = self._providers.get(provider)
        dialect = owner.dialect if owner is not None else None
        no_native = dialect is not None and dialect.tool_choice and not dialect.native_schema
        mode = table.word("schema_mode", SchemaMode.FORCED_TOOL if no_native else SchemaMode.NATIVE)
        able = (SchemaMode.NATIVE, SchemaMode.FORCED_TOOL) if dialect is None else schema_modes(dialect)
        if "schema_mode" in table and mode not in able:
            fix = f"write {choices(each.value for each in able)}, or remove it" if able else "remove it"
            table.mistake("schema_mode", f'the dialect of "{provider}" cannot do "{mode.value}"', fix)
        return mode

    def _check_script(self, table: Table, provider: str, model: str | None) -> None:
        """Note a script that its replay provider does not have; no other provider tells what it has."""
        owner = self._providers.get(provider)
        if model is None or owner is None or owner.scripts is None or owner.scripts.find(model):
            return
        names = owner.scripts.names
        meant = did_you_mean(model, names)
        fix = f'did you mean "{meant}"?' if meant else f"write one of {', '.join(names)}"
        table.mistake("model", f'"{provider}" has no script "{model}"', fix)

    def _check_name(self, table: Table, provider: str) -> None:
        if not MODEL_NAME.fullmatch(table.name):
            table.mistake(
                None,
                "the name cannot be asked for",
                "use 1 to 128 printable ASCII characters without spaces",
            )
        head, slash, _ = table.name.partition("/")
        if slash and head in self._providers and head != provider:
            table.mistake(
                None,
                f'the name reads as a model of provider "{head}", and "{provider}" would serve it',
                "choose another name",
            )


def read_declared_identity(table: Table) -> str:
    """Return what a model says that it is; empty when it says nothing."""
    identity = table.text("identity") or ""
    if identity and not MODEL_NAME.fullmatch(identity):
        table.mistake("identity", "is no name", "use 1 to 128 printable ASCII characters without spaces")
    return identity


class _Purchase(TypedDict):
    identity: str
    reserve_factor: int | None
    abort_stops_billing: bool
    on_cancel: OnCancel
    drain_seconds: float
    drain_bytes: int


def _read_purchase(table: Table, *, abort_stops_billing: bool = True) -> _Purchase:
    """Return how calls are booked and what becomes of their requests, which concerns vectors as well."""
    return _Purchase(
        identity=read_declared_identity(table),
        reserve_factor=table.optional_integer("reserve_factor", most=1_000_000),
        abort_stops_billing=table.flag("abort_stops_billing", default=abort_stops_billing),
        on_cancel=table.word("on_cancel", OnCancel.ABORT),
        drain_seconds=table.seconds("drain_seconds", 30.0),
        drain_bytes=table.integer("drain_bytes", 4 * 1024 * 1024, least=1, most=2**40),
    )


def _read_output_sensitivity(table: Table) -> Sensitivity | None:
    if "output_sensitivity" not in table:
        table.get("output_sensitivity", str, "")
        return None
    return read_sensitivity(table, "output_sensitivity", Sensitivity.PUBLIC)
