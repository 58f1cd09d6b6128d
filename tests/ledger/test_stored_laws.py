"""The laws of the ledger on both databases: what holds for rows in dictionaries holds for rows in tables."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.ledger_machine import ledger_machine
from tests.support.stored_ledger import StoredLedger

FEW = settings(max_examples=6, stateful_step_count=25, deadline=None)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_laws_of_the_ledger_hold_on_each_database(ledger_url):
    ledger = StoredLedger(ledger_url)
    run_state_machine_as_test(ledger_machine(ledger.emptied), settings=FEW)
    ledger.close()
