"""An answer as it comes, with asyncio. Leaving the `async with` block ends the call, and what it costs.

python examples/stream.py [TARGET [MODEL]]     try MODEL replay/reasoning, replay/stall with Ctrl-C
"""

from __future__ import annotations

import asyncio
import sys

import modelmeter


async def main(target: str = "127.0.0.1:50051", model: str = "replay/drip") -> None:
    """Print thinking in brackets, text as it stands, and the bill at the end."""
    async with (
        modelmeter.AsyncClient(target) as client,
        client.stream(model, "Tell me about the sea.", max_output_tokens=1_000, timeout=60) as stream,
    ):
        async for event in stream:
            match event:
                case modelmeter.ReasoningDelta(text):
                    print(f"[{text}]", end="", flush=True)
                case modelmeter.TextDelta(text):
                    print(text, end="", flush=True)
                case _:
                    pass
        answer = stream.completion
    print(f"\nused {answer.usage} ({answer.certainty}), finish {answer.finish}, {answer.timings.total} s")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
