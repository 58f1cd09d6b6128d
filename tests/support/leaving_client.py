"""A client process that may be killed: asks for every call named on its standard input, all at once, and says so.

python -m tests.support.leaving_client ADDRESS < call ids, one on each line
"""

from __future__ import annotations

import asyncio
import sys

import modelmeter
from modelmeter import ModelmeterError

from .telling_provider import prompt


async def _ask(client: modelmeter.AsyncClient, call_id: str) -> None:
    try:
        async with client.stream("m", prompt(call_id), call_id=call_id) as stream:
            async for _ in stream:
                pass
    except ModelmeterError:
        pass


async def _main(address: str, call_ids: list[str]) -> None:
    async with modelmeter.AsyncClient(address) as client:
        asking = [asyncio.create_task(_ask(client, call_id)) for call_id in call_ids]
        sys.stdout.write("asking\n")
        sys.stdout.flush()
        await asyncio.gather(*asking)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.stdin.read().split()))
