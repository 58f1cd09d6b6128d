"""A server that is killed between two attempts: its rows say what the first one came to, and nothing else."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

import modelmeter
from modelmeter import LedgerCall
from modelmeter.errors import LostContactError
from tests.conformance.asking import ask
from tests.support.fault_server import FaultServer
from tests.support.retry_faults import reply
from tests.support.server_process import configuration, server_process

FOR_EVER = "retry = { max_attempts = 2, initial_wait = 300, max_wait = 300, landed = true }\n"


def waiting_server(folder: Path, provider: str) -> Path:
    """Write the file of a server whose model waits for minutes before it tries again."""
    file = configuration(folder, provider, f"sqlite:///{folder / 'ledger.db'}")
    file.write_text(file.read_text("utf-8") + FOR_EVER, "utf-8")
    return file


async def until_tried(client: modelmeter.AsyncClient, call_id: uuid.UUID) -> LedgerCall:
    """Return the row of a call once its first attempt has an end."""
    async with asyncio.timeout(10):
        while True:
            try:
                row = await client.ledger.get_call(call_id, full=True)
            except modelmeter.RefusedError:
                continue  # not reserved yet
            if row.attempts and row.attempts[0].elapsed is not None:
                return row


async def until_ended(client: modelmeter.AsyncClient, call_id: uuid.UUID) -> LedgerCall:
    """Return the row of a call once somebody has closed it."""
    async with asyncio.timeout(15):
        while (row := await client.ledger.get_call(call_id, full=True)).ended_at is None:
            pass
        return row


@pytest.mark.parametrize(
    ("fault", "kind", "disposition", "tokens", "requests"),
    [("limited", "RATE_LIMITED", "DID_NOT_HAPPEN", 0, 2), ("blank", "UNUSABLE", "LANDED", 32, 1)],
)
async def test_a_call_whose_server_dies_between_two_attempts_ended_as_the_first_one_did(
    tmp_path: Path, fault: str, kind: str, disposition: str, tokens: int, requests: int
):
    call_id = uuid.uuid4()
    async with FaultServer(reply("anthropic", "answer")) as provider:
        provider.script([reply("anthropic", fault)])
        file = waiting_server(tmp_path, provider.url)
        async with (
            server_process(file) as server,
            modelmeter.AsyncClient(server.address, ask_ledger=0) as client,
        ):
            asking = asyncio.create_task(client.complete("m", "Hi", call_id=call_id))
            row = await until_tried(client, call_id)
            assert (row.attempts[0].kind.name, row.state.name) == (kind, "RESERVED")
            await server.kill()
            with pytest.raises(LostContactError):
                await asking
        async with server_process(file) as server, modelmeter.AsyncClient(server.address) as client:
            row = await until_ended(client, call_id)
            again = await ask(client, "unary", "m", "Hi", call_id=call_id)
            assert len(provider.requests) == requests
    assert (row.kind.name, row.disposition.name, len(row.attempts)) == (kind, disposition, 1)
    assert (row.booking.settled.tokens, row.booking.unsettled.tokens) == (tokens, 0)
    assert again.kind == ("COMPLETION" if requests == 2 else kind)
