"""The key `price` of a model, whatever stands there: a table of rates, or the name of a collection that has them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from .price_collection import EXTRA, NAME, NotInstalled, Unpriced, find_price
from .prices import read_price

if TYPE_CHECKING:
    from modelmeter_server.core.pricing import PriceTable

    from .settings import ProviderSettings
    from .tables import Table

_KEY = "price"


def read_any_price(
    table: Table, owner: ProviderSettings | None, model: str | None, *, has_output: bool
) -> PriceTable | None:
    """Return what a model costs; `None` for no price, or for a mistake, which is noted."""
    value = table.get(_KEY, (dict, str), f'a table of rates, or "{NAME}"')
    if value is None:
        return None
    if isinstance(value, dict):
        return read_price(table.table(_KEY), has_output=has_output)
    if table.choice(_KEY, (NAME,), "") != NAME or owner is None or model is None:
        return None
    if not owner.base_url:
        table.mistake(_KEY, f'{NAME} knows no prices of "{owner.name}"', "write a table of rates")
        return None
    try:
        return find_price(owner.base_url, model, datetime.now(UTC).date(), has_output=has_output)
    except NotInstalled:
        table.mistake(_KEY, f"{NAME} is not installed", f'pip install "{EXTRA}", or write a table of rates')
    except Unpriced as error:
        near = f"its names near it: {', '.join(error.near)}; or " if error.near else ""
        table.mistake(_KEY, f"{NAME} {error}", f"{near}write a table of rates")
    return None
