"""One call, its answer and its bill; or its error and its bill.

python examples/complete.py [TARGET [MODEL]]     try MODEL replay/cut, replay/no_usage, replay/refused
"""

from __future__ import annotations

import sys

import modelmeter


def main(target: str = "127.0.0.1:50051", model: str = "replay/answer") -> int:
    """Ask once; return 0 when there was an answer, 1 when there was none."""
    with modelmeter.Client(target) as client:
        try:
            answer = client.complete(model, "What is the capital of France?", system="Answer in one word.")
        except modelmeter.ModelmeterError as error:
            print(f"{type(error).__name__}: {error}")
            print(
                f"{error.disposition}, used {error.usage} ({error.certainty}), retryable: {error.retryable}"
            )
            return 1
        print(answer.text)
        print(f"used {answer.usage} ({answer.certainty})")
        return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
