"""The embedded provider: no key, no network, every ending that a provider can have.

Everything but the socket is the real thing: requests pass the encoder of the wire that a script plays, answers are
that provider's bytes, and the accumulator that reads them is the one that reads the provider.
"""

from __future__ import annotations

from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.answers import Answer
from modelmeter_server.core.errors import FieldViolation
from modelmeter_server.core.models import Capabilities, ModelSpec
from modelmeter_server.core.requests import CompletionRequest, ReasoningEffort
from modelmeter_server.core.token_count import TokenCount

from .. import openai_embeddings
from ..driver import Observer, PreparedRequest, ProviderCall, RequestRefused
from ..http import Limits, Timeouts
from ..http_driver import HttpCall
from ..known_answer import KnownAnswer
from ..wire_formats import WIRE_FORMATS
from . import vectors
from .ask import read_ask
from .book import ScriptBook, builtin_scripts
from .exchange import ReplayTransport
from .render import Rendition, render
from .reply import input_tokens, reply_key
from .script import Figures, PlayEnd, Script, Wire
from .wire_checks import wire_violations

if TYPE_CHECKING:
    from modelmeter_server.core.answers import Expectation
    from modelmeter_server.core.embeddings import EmbeddingRequest
    from modelmeter_server.core.errors import Failure

KIND = "replay"


def _union(*parts: Capabilities) -> Capabilities:
    """Return what at least one of the wires can do; a script's own wire refuses the rest when it encodes.

    No schema is enforced here while generating, so that `auto` checks scripted answers as it checks a stranger's.
    """
    efforts = {effort for part in parts for effort in part.reasoning_efforts}
    return Capabilities(
        schema_modes=tuple(dict.fromkeys(mode for part in parts for mode in part.schema_modes)),
        enforces_native_schema=False,
        tools=any(part.tools for part in parts),
        tools_with_schema=any(part.tools_with_schema for part in parts),
        media=tuple(dict.fromkeys(kind for part in parts for kind in part.media)),
        reasoning_efforts=tuple(effort for effort in ReasoningEffort if effort in efforts),
        sampling=tuple(dict.fromkeys(field for part in parts for field in part.sampling)),
    )


CAPABILITIES = _union(*(WIRE_FORMATS[wire.value].capabilities for wire in Wire))


class ReplayedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the embedded provider received it."""

    script: str
    wire: Wire
    call: int
    """Number among the calls of this script, from 0."""
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


class ReplayCall(HttpCall):
    """A call whose answer goes on here and nowhere else."""

    async def run(self) -> Answer | Failure:
        """See `HttpCall.run`."""
        result = await super().run()
        if not isinstance(result, Answer) or result.continuation is None:
            return result
        # The accumulator signs for its provider, which would refuse the signatures that are made up here.
        continuation = msgspec.structs.replace(result.continuation, provider=KIND)
        return msgspec.structs.replace(result, continuation=continuation)


class ReplayDriver:
    """A provider instance that plays scripts. A script's name is the model that callers ask for."""

    kind = KIND
    capabilities = CAPABILITIES

    def __init__(
        self,
        name: str = KIND,
        scripts: ScriptBook | None = None,
        timeouts: Timeouts | None = None,
        *,
        remember: int = 0,
    ) -> None:
        """Play the built-in scripts unless a book is given.

        `remember` is how many of the last requests `requests` keeps, for tests: none unless asked for, because a
        prompt is nobody's business once its call has ended.
        """
        self.name = name
        self.requests: deque[ReplayedRequest] = deque(maxlen=remember)
        self.calls: Counter[str] = Counter()
        """How often each script was played."""
        self._scripts = builtin_scripts() if scripts is None else scripts
        self._timeouts = timeouts or Timeouts()
        self._limits = Limits()
        self._transport = ReplayTransport(self._timeouts)

    def prepare(self, request: CompletionRequest, model: ModelSpec) -> PreparedRequest:
        """Turn a checked request into the body of the wire that its script plays.

        Raises:
            RequestRefused: there is no such script, or that provider could not do what is asked.
        """
        wire = self._script(model).wire
        if violations := wire_violations(wire, request, model):
            raise RequestRefused(*violations)
        return WIRE_FORMATS[wire.value].encode(request, model)

    def prepare_count(self, request: CompletionRequest, model: ModelSpec) -> PreparedRequest:
        """See `CountingDriver`. The count is the input that the script's next call would tell; it uses none up."""
        prepared = self.prepare(request, model)
        script = self._script(model)
        told = script.play_of(self.calls[script.name]).usage or Figures()
        count = TokenCount(input_tokens=input_tokens(told, read_ask(script.wire, prepared.body)))
        return msgspec.structs.replace(prepared, answer=count)

    def prepare_embedding(self, request: EmbeddingRequest, model: ModelSpec) -> PreparedRequest:
        """See `EmbeddingDriver`. There is one embedding model, and it plays no script."""
        if model.provider_model != vectors.MODEL:
            known = f"the one embedding model of this provider is `{vectors.MODEL}`"
            raise RequestRefused(FieldViolation("model", known))
        return openai_embeddings.embed(request, model, "")

    def start(
        self,
        prepared: PreparedRequest,
        model: ModelSpec,
        expectation: Expectation,
        observer: Observer,
        *,
        deltas: bool,
    ) -> ProviderCall:
        """Make the call; its script moves on when it runs, not before."""
        if prepared.answer is not None:
            return KnownAnswer(prepared.answer)
        if prepared.accumulator is not None:
            call = ReplayCall(
                self.name, prepared.accumulator(expectation), observer, str, self._timeouts, self._limits
            )
            call.exchange = self._transport.exchange(partial(_embed, prepared.body), call)
            return call
        script = self._script(model)
        accumulator = WIRE_FORMATS[script.wire.value].accumulator(expectation, deltas=deltas)
        call = ReplayCall(self.name, accumulator, observer, str, self._timeouts, self._limits)
        call.exchange = self._transport.exchange(
            partial(self._play, script, prepared), call, call.dispatching
        )
        return call

    async def aclose(self) -> None:
        """Cut what runs."""
        self._transport.close()

    def _script(self, model: ModelSpec) -> Script:
        script = self._scripts.find(model.provider_model)
        if script is None:
            known = ", ".join(self._scripts.names)
            raise RequestRefused(
                FieldViolation("model", f"there is no script of this name; there are {known}")
            )
        return script

    def _play(self, script: Script, prepared: PreparedRequest) -> Rendition:
        call = self.calls[script.name]
        self.calls[script.name] += 1
        self.requests.append(
            ReplayedRequest(
                script=script.name,
                wire=script.wire,
                call=call,
                target=prepared.target,
                headers=prepared.headers,
                body=prepared.body,
            )
        )
        return render(script, script.play_of(call), prepared.body, prepared.target)


def _embed(body: bytes) -> Rendition:
    told = (("content-type", "application/json"), ("x-request-id", f"req_{reply_key(vectors.MODEL, body)}"))
    document = vectors.answer(body)
    return Rendition(stops_at=None, delay=0.0, status=200, headers=told, steps=(document,), end=PlayEnd.CLEAN)
