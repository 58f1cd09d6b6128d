"""One call on both paths: unary and streamed, reduced to what they must agree on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import modelmeter
from modelmeter import ModelmeterError
from modelmeter.events import ReasoningDelta, TextDelta, ToolCallDelta

Face = Literal["unary", "stream"]


@dataclass
class Heard:
    """What one caller got: the completion or the error, and the text as it came."""

    result: modelmeter.Completion | ModelmeterError
    text: str = ""
    reasoning: str = ""
    arguments: tuple[str, ...] = ()
    streamed: bool = False

    @property
    def kind(self) -> str:
        """`COMPLETION`, or the kind of the error."""
        return self.result.kind.name if isinstance(self.result, ModelmeterError) else "COMPLETION"

    @property
    def code(self) -> str:
        """`OK`, or the name of the gRPC code."""
        return self.result.code.name if isinstance(self.result, ModelmeterError) else "OK"


async def ask(client: modelmeter.AsyncClient, face: Face, model: str, prompt: str, **options: Any) -> Heard:
    """Call the model and keep whatever came back."""
    try:
        if face == "unary":
            return Heard(await client.complete(model, prompt, **options))
        return await _stream(client, model, prompt, **options)
    except ModelmeterError as error:
        return Heard(error, streamed=face == "stream")


async def _stream(client: modelmeter.AsyncClient, model: str, prompt: str, **options: Any) -> Heard:
    text: list[str] = []
    reasoning: list[str] = []
    arguments: dict[int, str] = {}
    async with client.stream(model, prompt, **options) as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                text.append(event.text)
            elif isinstance(event, ReasoningDelta):
                reasoning.append(event.text)
            elif isinstance(event, ToolCallDelta):
                arguments[event.index] = arguments.get(event.index, "") + event.arguments_json
        completion = stream.completion
    assert completion is not None
    return Heard(
        completion,
        text="".join(text),
        reasoning="".join(reasoning),
        arguments=tuple(arguments[index] for index in sorted(arguments)),
        streamed=True,
    )
