"""The laws of the ledger, over everything that can happen to calls in any order."""

from __future__ import annotations

from hypothesis import settings

from tests.support.ledger_machine import ledger_machine
from tests.support.memory_ledger import MemoryLedger

TestLaws = ledger_machine(MemoryLedger).TestCase
TestLaws.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def _blind() -> MemoryLedger:
    return MemoryLedger(tells_governed=False)


TestLawsWithoutLookingUpWhoIsGoverned = ledger_machine(_blind).TestCase
TestLawsWithoutLookingUpWhoIsGoverned.settings = settings(
    max_examples=10, stateful_step_count=30, deadline=None
)
