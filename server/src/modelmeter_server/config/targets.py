"""The sections `[models."NAME"]` that have targets: where the calls of such a model may be sent.

A target names another model of the file, or a provider: then everything else in the section holds for it, as if the
section had that provider. What a target asks is read like any model, so that its mistakes are told like any model's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.core.models import Strategy, Task

from .mistakes import did_you_mean
from .model_settings import ModelSettings, RouteSettings, TargetSettings
from .models import MODEL_NAME, read_declared_identity
from .retries import read_retry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelmeter_server.core.retry_policy import RetryPolicy

    from .models import ModelReader
    from .settings import ProviderSettings
    from .tables import Table

TARGETS = "targets"
"""The key that makes a model one with targets."""

MOST_TARGETS = 32
"""A call looks at all of them, and so does whoever reads its error."""

MOST_WEIGHT = 1_000_000

_OF_THE_ROUTE = (TARGETS, "strategy", "sticky_runs", "identity", "retry")
_OF_A_TARGET = ("provider", "model")


class RouteReader:
    """Read models with targets, once all models without are read."""

    def __init__(
        self,
        providers: Mapping[str, ProviderSettings | None],
        reader: ModelReader,
        models: Mapping[str, ModelSettings],
        routed: frozenset[str],
    ) -> None:
        """`models` are those without targets by name; `routed` the names of those with."""
        self._providers = providers
        self._reader = reader
        self._models = models
        self._routed = routed

    def read(self, section: Table) -> RouteSettings:
        """Return one model; its mistakes are noted."""
        self._check_name(section)
        if "provider" in section:
            fix = "write it into the targets, each with its own, or remove the targets"
            section.refuse("provider", "a model with targets has no provider of its own", fix)
        strategy = section.word("strategy", Strategy.ORDERED)
        sticky = section.flag("sticky_runs", default=False)
        if sticky and strategy is Strategy.ORDERED:
            problem = "goes with a choice among targets, and ordered targets leave none"
            section.mistake("sticky_runs", problem, 'remove it, or write strategy = "weighted"')
        entries = list(section.tables(TARGETS))
        _check_number(section)
        read = [self._read_target(section, entry, strategy) for entry in entries]
        targets = tuple((entry, each) for entry, each in zip(entries, read, strict=True) if each is not None)
        _check_together(targets, self._providers)
        if not any("provider" in entry for entry in entries):
            _refuse_what_holds_for_none(section)
        return RouteSettings(
            name=section.name,
            targets=tuple(each for _, each in targets),
            strategy=strategy,
            sticky_runs=sticky,
            identity=read_declared_identity(section),
            retry=self._read_retry(section, [each for _, each in targets]),
        )

    def _read_retry(self, section: Table, targets: list[TargetSettings]) -> RetryPolicy:
        """Return how often a call asks: once for each target, unless the section says otherwise."""
        owners = [self._providers.get(each.model.provider) for each in targets]
        return read_retry(section, *owners, attempts=max(1, len(targets)))

    def _check_name(self, section: Table) -> None:
        if not MODEL_NAME.fullmatch(section.name):
            fix = "use 1 to 128 printable ASCII characters without spaces"
            section.mistake(None, "the name cannot be asked for", fix)
        head, slash, _ = section.name.partition("/")
        if slash and head in self._providers:
            problem = f'the name reads as a model of provider "{head}", and its targets would serve it'
            section.mistake(None, problem, "choose another name")

    def _read_target(self, section: Table, entry: Table, strategy: Strategy) -> TargetSettings | None:
        weight = entry.integer("weight", 1, least=1, most=MOST_WEIGHT)
        if "weight" in entry and strategy is Strategy.ORDERED:
            fix = 'remove it, or write strategy = "weighted"'
            entry.mistake("weight", "goes with a choice among targets, and ordered targets leave none", fix)
        if "provider" in entry:
            model = self._read_at_provider(section, entry)
        else:
            found = self._find_model(entry)
            if found is None:
                return None
            model = found
        return TargetSettings(model=model, weight=weight)

    def _read_at_provider(self, section: Table, entry: Table) -> ModelSettings:
        entry.text("provider")
        entry.text("model")
        entry.close()
        return self._reader.read(section.merged(entry, _OF_A_TARGET, _OF_THE_ROUTE))

    def _find_model(self, entry: Table) -> ModelSettings | None:
        name = entry.required_text(
            "model", 'name another model of this file, or a provider: { provider = "NAME" }'
        )
        entry.get("provider", str, "")
        entry.close()
        if name is None:
            return None
        if name in self._routed:
            problem = f'"{name}" has targets itself, and a target is where a call ends'
            entry.mistake("model", problem, "name its targets here instead")
        elif name not in self._models:
            meant = did_you_mean(name, self._models)
            fix = (
                f'did you mean "{meant}"?' if meant else f'add [models."{name}"], or name a provider as well'
            )
            entry.mistake("model", f'there is no model "{name}"', fix)
        return self._models.get(name)


def _check_number(section: Table) -> None:
    entries = section.peek(TARGETS)
    if not isinstance(entries, list):
        return  # noted as a value of another type
    if not entries:
        section.mistake(TARGETS, "names no target", 'write [{ provider = "NAME" }, { model = "NAME" }]')
    elif len(entries) > MOST_TARGETS:
        section.mistake(TARGETS, f"names {len(entries)} targets", f"name {MOST_TARGETS} at most")


def _refuse_what_holds_for_none(section: Table) -> None:
    """Note what stands in a section none of whose targets names a provider: it would hold for nothing."""
    for key in section:
        if key in (*_OF_THE_ROUTE, "provider"):
            continue
        if meant := did_you_mean(key, _OF_THE_ROUTE):
            section.mistake(key, "unknown key", f'did you mean "{meant}"?')
        else:
            problem = "holds for targets that name a provider, and here is none"
            section.mistake(key, problem, "write it into the models that are the targets")


def _check_together(
    targets: tuple[tuple[Table, TargetSettings], ...], providers: Mapping[str, ProviderSettings | None]
) -> None:
    """Note what keeps targets from standing in for each other; the first one sets what the others are held to."""
    seen: set[tuple[str, str]] = set()
    for entry, each in targets:
        place = (each.model.provider, each.model.model)
        if place in seen:
            problem = f'is a target already: "{place[1]}" at "{place[0]}"'
            entry.mistake(None, problem, "remove it; a weight gives a target a larger share")
        seen.add(place)
    if not targets:
        return
    first = targets[0][1].model
    for entry, each in targets[1:]:
        _check_pair(entry, each.model, first, providers)


def _check_pair(
    entry: Table,
    model: ModelSettings,
    first: ModelSettings,
    providers: Mapping[str, ProviderSettings | None],
) -> None:
    if model.task is not first.task:
        problem = f"is for {model.task.value}s, and the first target for {first.task.value}s"
        entry.mistake(None, problem, "give each task a model of its own")
    elif model.task is Task.EMBEDDING and _identity(model, providers) != _identity(first, providers):
        problem = "is another embedding model than the first target: vectors of two models cannot be compared"
        entry.mistake(
            None, problem, "name targets of one model; the same identity says that two are the same"
        )
    if (model.price is None) != (first.price is None):
        problem = "targets with prices and targets without: what a call may cost has no bound"
        entry.mistake(None, problem, "price all of them, or none")
    elif model.price is not None and first.price is not None and model.price.currency != first.price.currency:
        problem = f"is priced in {model.price.currency}, and the first target in {first.price.currency}"
        entry.mistake(None, problem, "price them in one currency: a call has one bill")


def _identity(model: ModelSettings, providers: Mapping[str, ProviderSettings | None]) -> str:
    owner = providers.get(model.provider)
    return model.identity or f"{'' if owner is None else owner.kind}/{model.model}"
