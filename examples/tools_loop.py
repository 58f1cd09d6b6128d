"""A model that calls a tool: the conversation goes on until it answers, and every turn has its bill.

python examples/tools_loop.py [TARGET [MODEL]]
"""

from __future__ import annotations

import json
import sys

import modelmeter
from modelmeter import Message, Tool, ToolCall, ToolResult

WEATHER = Tool(
    "get_weather",
    "Returns the weather of a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
MOST_TURNS = 8


def run(call: ToolCall) -> ToolResult:
    """Run a tool call. The model wrote it: check everything."""
    city = call.arguments.get("city") if call.name == WEATHER.name else None
    if not isinstance(city, str):
        return ToolResult(call.id, f"there is no tool {call.name} with these arguments", failed=True)
    return ToolResult(call.id, json.dumps({"city": city, "sky": "clear", "celsius": 21}))


def main(target: str = "127.0.0.1:50051", model: str = "replay/answer") -> int:
    """Print each turn; return 0 when the model answered, 1 when it did not stop calling."""
    messages = [Message.user("Can I go swimming in Lisbon today?")]
    with modelmeter.Client(target) as client:
        for turn in range(MOST_TURNS):
            # The first turn must look, the later ones may.
            choice = "required" if turn == 0 else "auto"
            answer = client.complete(model, messages, tools=[WEATHER], tool_choice=choice)
            print(f"turn {turn + 1}: {answer.usage} ({answer.certainty})")
            if not answer.tool_calls:
                print(answer.text)
                return 0
            results = [run(call) for call in answer.tool_calls]
            messages += [answer.message, Message.user(*results)]
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
