"""The models of a deployment by the names that callers use."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from modelmeter_server.core.models import Capabilities, ModelSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from modelmeter_server.core.pricing import PriceTable

MAX_DIRECT_NAME = 256
"""Characters of a model in the provider's spelling; longer names are no model's, and names travel in errors."""


class Catalog:
    """Find models by alias, or by `provider/model` where the provider instance allows it."""

    def __init__(
        self, models: Iterable[ModelSpec], direct: Mapping[str, tuple[str, Capabilities]] | None = None
    ) -> None:
        """Take the configured models; `direct` maps provider instances that allow direct names to (kind, abilities).

        Raises ValueError if two models have one name.
        """
        self._models: dict[str, ModelSpec] = {}
        self._tables: dict[str, dict[str, PriceTable]] = {}
        self._direct = dict(direct or {})
        for model in models:
            self._add(model)
        self._names = sorted(self._models)

    def _add(self, model: ModelSpec) -> None:
        if model.name in self._models:
            message = f'two models are called "{model.name}"'
            raise ValueError(message)
        self._models[model.name] = model
        for each in model.places:
            if each.price is not None:
                self._tables.setdefault(each.provider, {}).setdefault(each.provider_model, each.price)

    @property
    def routed(self) -> list[ModelSpec]:
        """Return the models that have targets."""
        return [each for each in self._models.values() if each.route is not None]

    def __len__(self) -> int:
        return len(self._models)

    def find(self, name: str) -> ModelSpec | None:
        """Return the model of this name, or `None`. An alias wins over a direct name that is spelled the same."""
        return self._models.get(name) or self._find_direct(name)

    def _find_direct(self, name: str) -> ModelSpec | None:
        provider, slash, model = name.partition("/")
        if not slash or provider not in self._direct or not _is_model_name(model):
            return None
        kind, capabilities = self._direct[provider]
        return ModelSpec(
            name=name,
            provider=provider,
            provider_kind=kind,
            provider_model=model,
            capabilities=capabilities,
            schema_mode=capabilities.default_schema_mode,
            task=None,
            price=self.price_tables(provider).get(model),
        )

    def price_tables(self, provider: str) -> dict[str, PriceTable]:
        """Return the prices at one provider instance, by the provider's spelling of the model."""
        return self._tables.get(provider, {})

    def page(
        self, after: str, size: int, may_see: Callable[[str], bool] | None = None
    ) -> tuple[list[ModelSpec], str | None]:
        """Return up to `size` models whose names follow `after`, in order, and the name to go on after, if any.

        Names that `may_see` is false for are left out.

        The position is a name and not a number, so that a reload between two pages neither skips nor repeats.
        """
        rest = self._names[bisect_right(self._names, after) :]
        if may_see is not None:
            rest = [name for name in rest if may_see(name)]
        names = rest[:size]
        return [self._models[name] for name in names], names[-1] if len(rest) > size and names else None


def _is_model_name(text: str) -> bool:
    return 0 < len(text) <= MAX_DIRECT_NAME and text.isprintable() and " " not in text
