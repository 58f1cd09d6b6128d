"""What is served when there is no file: the embedded replay provider, one model for each of its scripts."""

from __future__ import annotations

import msgspec

from modelmeter_server.core.models import Task
from modelmeter_server.core.pricing import PriceTable, Tier, nanos_per_million
from modelmeter_server.drivers.replay.book import builtin_scripts
from modelmeter_server.drivers.replay.vectors import MODEL as EMBEDDING_MODEL

from .kinds import REPLAY
from .model_settings import ModelSettings
from .settings import ProviderSettings, Settings

# Made up, so that a first look shows costs too.
PRICE = PriceTable(
    currency="USD",
    tiers=(
        Tier(
            input=nanos_per_million("3"),
            output=nanos_per_million("15"),
            cache_read=nanos_per_million("0.3"),
            cache_write=nanos_per_million("3.75"),
        ),
    ),
)


EMBEDDING_PRICE = PriceTable(currency="USD", tiers=(Tier(input=nanos_per_million("0.02"), output=0),))


def with_replay(settings: Settings) -> Settings:
    """Return the settings with the replay provider and its models in place of any others."""
    scripts = builtin_scripts()
    return msgspec.structs.replace(
        settings,
        providers=(ProviderSettings(name=REPLAY.name, kind=REPLAY.name, scripts=scripts),),
        models=(
            *(
                ModelSettings(name=f"{REPLAY.name}/{name}", provider=REPLAY.name, model=name, price=PRICE)
                for name in scripts.names
            ),
            ModelSettings(
                name=f"{REPLAY.name}/{EMBEDDING_MODEL}",
                provider=REPLAY.name,
                model=EMBEDDING_MODEL,
                task=Task.EMBEDDING,
                price=EMBEDDING_PRICE,
            ),
        ),
    )
