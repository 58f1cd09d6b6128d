"""Ceilings of the configuration bind from the first call on, and declaring them again changes nothing."""

from __future__ import annotations

from modelmeter_server.core.ceilings import Ceiling, Subject
from modelmeter_server.engine.declared_ceilings import declare
from modelmeter_server.ledger.queries import list_ceilings

DECLARED = Ceiling(ceiling_id="", subject=Subject("acme", "TENANT", ""), tokens=10)


async def test_declaring_again_keeps_the_id_and_another_bound_replaces_the_old_one(ledger):
    async def kept():
        return await ledger.read(lambda connection: list_ceilings(connection, "acme", "", 10))

    await declare(ledger, (DECLARED,))
    (first,) = await kept()
    await declare(ledger, (DECLARED,))
    assert await kept() == [first]
    assert (len(first.ceiling_id), first.by_admin, first.created_at > 0) == (36, True, True)
    await declare(ledger, (Ceiling(ceiling_id="", subject=DECLARED.subject, tokens=20),))
    (second,) = await kept()
    assert (second.ceiling_id, second.tokens) == (first.ceiling_id, 20)
