"""A conversation of many turns, for threads: one connection, each turn with its bill, and the sum of them at the end.

python examples/conversation.py [TARGET [MODEL]]
"""

from __future__ import annotations

import sys

import modelmeter


def main(target: str = "127.0.0.1:50051", model: str = "replay/drip") -> None:
    """Ask twice, the second time about the first; print what each turn cost and what all came to."""
    with modelmeter.Client(target) as client, client.session(model, keep_transcript=True) as session:
        turn = session.turn("Name a river.")
        for piece in turn.text:
            print(piece, end="", flush=True)
        print(f"\n{turn.completion.usage} ({turn.completion.certainty}), {turn.end.status}")
        answer = session.ask("And where does it end?", timeout=60)
        print(answer.text)
    assert session.ended is not None
    print(f"{session.ended.reason}: {session.ended.totals.usage} ({session.ended.totals.certainty})")


if __name__ == "__main__":
    main(*sys.argv[1:])
