"""An agent's step that is bought once, however often it is run, and never for more than its ceiling.

python examples/effects.py [TARGET [MODEL [RUN]]]
"""

from __future__ import annotations

import sys

import modelmeter
from modelmeter import CallCeiling, Effect

CEILING = CallCeiling(tokens=20_000)
"""Of each call, input and output together."""


def step(client: modelmeter.Client, model: str, effect: Effect) -> str:
    """Make the call of a step; say whether it was bought now or before."""
    answer = client.complete(model, "Why is the sky blue?", effect=effect, ceiling=CEILING)
    return f"{'replayed' if answer.replayed else 'bought'}: {answer.text}"


def main(target: str = "127.0.0.1:50051", model: str = "replay/answer", run: str = "run-1") -> int:
    """Print what became of a step, of the same step again, and of one that may cost nothing; return 0."""
    with modelmeter.Client(target) as client:
        print(step(client, model, Effect(run, "step-1")))
        print(step(client, model, Effect(run, "step-1")))
        try:
            client.complete(model, "And at night?", ceiling=CallCeiling(tokens=0))
        except modelmeter.CeilingError as error:
            print(f"refused: {error.message}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
