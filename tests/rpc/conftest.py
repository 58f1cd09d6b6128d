"""What the tests of the service share: a ledger in a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from modelmeter_server.ledger.storage import StoredLedger
from tests.support.ledgers import ledger_in


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[StoredLedger]:
    """Return an open ledger that holds nothing yet."""
    async with ledger_in(tmp_path) as opened:
        yield opened
