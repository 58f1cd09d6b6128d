"""A driver that plays a script through the Anthropic accumulator, without a socket.

It keeps the driver's contract: it hears `written` and `progressed` where a real one would, it can be cut at any wait,
and what its calls return is judged by the accumulator alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from modelmeter_server.core.accumulators import Accumulator, AnthropicAccumulator
from modelmeter_server.core.answers import Answer, Expectation
from modelmeter_server.core.calls import Attempt
from modelmeter_server.core.errors import Failure, failure
from modelmeter_server.core.models import Capabilities, ModelSpec
from modelmeter_server.core.outcomes import Cause, Certainty, End, Ending, Kind, Stage
from modelmeter_server.core.requests import CompletionRequest
from modelmeter_server.drivers.driver import LEDGER_DOWN, Observer, PreparedRequest


@dataclass(frozen=True)
class Written:
    """The request was handed to the network."""


@dataclass(frozen=True)
class Bytes:
    """The provider sent this in one read."""

    data: bytes


@dataclass
class Hold:
    """Wait until `go` is set or the call is cut; `reached` tells the test that the call waits here."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True)
class Broken:
    """The connection broke."""

    cause: Cause = Cause.NETWORK


@dataclass(frozen=True)
class Verdict:
    """The call ends with this, as if another accumulator had said so."""

    result: Answer | Failure


@dataclass(frozen=True)
class Explode:
    """The driver has a bug."""

    error: BaseException


Step = Written | Bytes | Hold | Broken | Verdict | Explode


class ScriptedDriver:
    """Play one script per call; the last script is repeated."""

    kind = "scripted"

    def __init__(self, *scripts: Sequence[Step], name: str = "scripted") -> None:
        self.name = name
        self.capabilities = Capabilities(sampling=("temperature", "top_p", "top_k"))
        self.calls: list[ScriptedCall] = []
        self.closed = False
        self.refuse: Callable[[CompletionRequest], None] = lambda request: None
        self._scripts = list(scripts)

    def prepare(self, request: CompletionRequest, model: ModelSpec) -> PreparedRequest:
        self.refuse(request)
        return PreparedRequest(
            target="/v1/scripted", body=json.dumps({"model": model.provider_model}).encode()
        )

    def start(
        self,
        prepared: PreparedRequest,
        model: ModelSpec,
        expectation: Expectation,
        observer: Observer,
        *,
        deltas: bool,
    ) -> ScriptedCall:
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        call = ScriptedCall(script, AnthropicAccumulator(expectation, deltas=deltas), observer, self.name)
        self.calls.append(call)
        return call

    async def aclose(self) -> None:
        self.closed = True


class ScriptedCall:
    """One scripted provider request."""

    def __init__(
        self, script: Sequence[Step], accumulator: AnthropicAccumulator, observer: Observer, target: str
    ) -> None:
        self.accumulator: Accumulator = accumulator
        self.received = 0
        self.refused = False
        self.closed = asyncio.Event()
        """Set when the connection to the provider is closed."""
        self.cut_by: Cause | None = None
        self.attempts: tuple[Attempt, ...] = ()
        self.fault: BaseException | None = None
        self._script = script
        self._observer = observer
        self._target = target
        self._stage = Stage.NOT_WRITTEN
        self._cut = asyncio.Event()
        self._detail = ""

    async def run(self) -> Answer | Failure:
        try:
            result = await self._play()
        finally:
            self.closed.set()
        self.attempts = () if self.refused else (self._attempt(result),)
        return result

    def cut(self, cause: Cause, detail: str = "") -> None:
        if not self.closed.is_set() and self.cut_by is None:
            self.cut_by, self._detail = cause, detail
            self.closed.set()
            self._cut.set()

    async def _play(self) -> Answer | Failure:
        for step in self._script:
            if isinstance(step, Hold):
                await self._hold(step)
            elif isinstance(step, Written) and not await self._may_leave():
                self.refused = True
                return failure(Kind.LEDGER_DOWN, LEDGER_DOWN, cause=Cause.LIMIT)
            result = self._step(step)
            if result is not None:
                return result
        return self.accumulator.finish(Ending(end=End.CLEAN, stage=self._stage))

    async def _may_leave(self) -> bool:
        answer = self._observer.dispatching(1, self._target)
        return answer is None or await answer

    def _step(self, step: Step) -> Answer | Failure | None:
        if self.cut_by is not None:
            ending = Ending(end=End.CUT, cause=self.cut_by, stage=self._stage, detail=self._detail)
            return self.accumulator.finish(ending)
        if isinstance(step, Written):
            self._stage = Stage.WRITTEN
            self._observer.written()
        elif isinstance(step, Bytes):
            self._stage = Stage.BODY
            self.received += len(step.data)
            self.accumulator.feed(step.data)
            self._observer.progressed()
        elif isinstance(step, Broken):
            return self.accumulator.finish(Ending(end=End.RESET, cause=step.cause, stage=self._stage))
        elif isinstance(step, Verdict):
            return step.result
        elif isinstance(step, Explode):
            raise step.error
        return None

    async def _hold(self, step: Hold) -> None:
        step.reached.set()
        waits = [asyncio.ensure_future(step.go.wait()), asyncio.ensure_future(self._cut.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _attempt(self, result: Answer | Failure) -> Attempt:
        failed = result if isinstance(result, Failure) else None
        return Attempt(
            number=1,
            target=self._target,
            stage=failed.stage if failed else Stage.OUTPUT,
            certainty=result.certainty if failed else Certainty.EXACT,
            elapsed=0.001,
            kind=failed.kind if failed else None,
            cause=failed.cause if failed else None,
            usage=result.usage,
        )


# What the provider says


def event(name: str, **members: object) -> bytes:
    """Return one server-sent event of the Anthropic format."""
    return f"event: {name}\ndata: {json.dumps({'type': name, **members})}\n\n".encode()


def opening(input_tokens: int = 25, output_tokens: int = 1) -> Bytes:
    """The answer begins."""
    usage = {"input_tokens": input_tokens, "output_tokens": output_tokens}
    message = {"id": "msg_1", "model": "scripted-1", "role": "assistant", "content": [], "usage": usage}
    block = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    return Bytes(event("message_start", message=message) + block)


def text(piece: str) -> Bytes:
    """More text."""
    return Bytes(event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece}))


def closing(output_tokens: int = 9, stop_reason: str = "end_turn") -> Bytes:
    """The answer is whole."""
    ended = event("message_delta", delta={"stop_reason": stop_reason}, usage={"output_tokens": output_tokens})
    return Bytes(event("content_block_stop", index=0) + ended + event("message_stop"))


def answering(*pieces: str) -> list[Step]:
    """A good answer in one script."""
    return [Written(), opening(), *map(text, pieces or ("Hello.",)), closing()]
