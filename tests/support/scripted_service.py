"""A ModelService on 127.0.0.1 that answers as a test says: the other end of every test of the Python client.

    async with serve(service) as address:
        service.script("Complete", failing(model_error(ErrorKind.ERROR_KIND_RATE_LIMITED)))

A script is an async function of the request and the gRPC context; for StreamComplete it is an async generator.
Nothing here sleeps: `reached` is set when a hanging script runs, `cancelled` when the client has left it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from modelmeter.v1 import completion_pb2, embedding_pb2, error_pb2, token_count_pb2, usage_pb2
from modelmeter.v1.model_service_pb2 import (
    CompleteRequest,
    CompleteResponse,
    CountTokensRequest,
    CountTokensResponse,
    EmbedRequest,
    EmbedResponse,
    GetModelRequest,
    GetModelResponse,
    ListModelsRequest,
    ListModelsResponse,
    StreamCompleteRequest,
    StreamCompleteResponse,
)
from modelmeter.v1.model_service_pb2_grpc import ModelServiceServicer, add_ModelServiceServicer_to_server
from modelmeter_server.core.errors import TABLE
from modelmeter_server.core.outcomes import Kind

Context = grpc.aio.ServicerContext[Any, Any]
Script = Callable[[Any, Any], Any]

DETAILS_KEY = "grpc-status-details-bin"
FENCE = (("modelmeter-call-id", "fence"),)


class ScriptedService(ModelServiceServicer):
    """Plays the script of each method and keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        """Every request, in the order of arrival."""
        self.metadata: list[dict[str, str | bytes]] = []
        """The metadata that came with each of them."""
        self.time_remaining: list[float | None] = []
        """Seconds to the deadline of each of them; None without one."""
        self.arrivals: asyncio.Queue[str] = asyncio.Queue()
        """The name of the method for each request, to wait for one."""
        self.reached = asyncio.Event()
        self.cancelled = asyncio.Event()
        self._scripts: dict[str, Script] = {
            "Complete": answering(completion(text="hello")),
            "StreamComplete": streaming(StreamCompleteResponse(completion=completion())),
            "CountTokens": returning(counted(7)),
            "Embed": returning(embedded([0.6, 0.8])),
            "ListModels": returning(ListModelsResponse()),
            "GetModel": returning(GetModelResponse()),
        }

    def script(self, method: str, script: Script) -> None:
        """Set what a method does from now on."""
        self._scripts[method] = script

    def _take(self, method: str, request: Any, context: Any) -> Any:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        self.time_remaining.append(context.time_remaining())
        self.arrivals.put_nowait(method)
        return self._scripts[method](request, context)

    async def Complete(self, request: CompleteRequest, context: Any) -> CompleteResponse:
        """Play the script."""
        response: CompleteResponse = await self._take("Complete", request, context)
        return response

    async def StreamComplete(
        self, request: StreamCompleteRequest, context: Any
    ) -> AsyncIterator[StreamCompleteResponse]:
        """Play the script."""
        async for response in self._take("StreamComplete", request, context):
            yield response

    async def CountTokens(self, request: CountTokensRequest, context: Any) -> CountTokensResponse:
        """Play the script."""
        response: CountTokensResponse = await self._take("CountTokens", request, context)
        return response

    async def Embed(self, request: EmbedRequest, context: Any) -> EmbedResponse:
        """Play the script."""
        response: EmbedResponse = await self._take("Embed", request, context)
        return response

    async def ListModels(self, request: ListModelsRequest, context: Any) -> ListModelsResponse:
        """Play the script."""
        response: ListModelsResponse = await self._take("ListModels", request, context)
        return response

    async def GetModel(self, request: GetModelRequest, context: Any) -> GetModelResponse:
        """Play the script."""
        response: GetModelResponse = await self._take("GetModel", request, context)
        return response

    async def Session(  # type: ignore[override]  # a script of it reads and writes by itself
        self, request: Any, context: Any
    ) -> None:
        """Play the script, which gets the iterator of the requests."""
        await self._take("Session", request, context)

    def hanging(self, *, fence: bool = False) -> Script:
        """Return a script that never answers, after the fence if asked for."""

        async def script(_request: Any, context: Any) -> NoReturn:
            await self._hang(context, fence=fence)
            raise AssertionError

        return script

    def streaming_then_hanging(self, *messages: StreamCompleteResponse) -> Script:
        """Return a script that streams messages and then hangs."""

        async def script(_request: Any, context: Any) -> AsyncIterator[StreamCompleteResponse]:
            try:
                for message in messages:
                    yield message
                await self._hang(context, fence=False)
            finally:
                self.cancelled.set()  # also when the client leaves while a message is being written

        return script

    async def _hang(self, context: Any, *, fence: bool) -> None:
        if fence:
            await context.send_initial_metadata(FENCE)
        self.reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


def returning(response: Any) -> Script:
    """Return a script that answers with one message."""

    async def script(_request: Any, _context: Any) -> Any:
        return response

    return script


def completion(**fields: Any) -> completion_pb2.Completion:
    """Return an answer that says how sure its bill is, as every one of the service does."""
    return completion_pb2.Completion(**{"certainty": usage_pb2.CERTAINTY_EXACT, **fields})


def counted(tokens: int, **fields: Any) -> CountTokensResponse:
    """Return a count."""
    return CountTokensResponse(count=token_count_pb2.TokenCount(input_tokens=tokens, **fields))


def embedded(*vectors: Sequence[float], **fields: Any) -> EmbedResponse:
    """Return vectors that say how sure their bill is."""
    told = {"certainty": usage_pb2.CERTAINTY_EXACT, "dimensions": len(vectors[0]), **fields}
    answer = embedding_pb2.Embeddings(
        vectors=[embedding_pb2.Vector(values=vector) for vector in vectors], **told
    )
    return EmbedResponse(embeddings=answer)


def answering(answer: completion_pb2.Completion) -> Script:
    """Return a script of Complete that answers with a completion."""
    return returning(CompleteResponse(completion=answer))


def streaming(*messages: StreamCompleteResponse, then: Script | None = None) -> Script:
    """Return a script of StreamComplete: messages, then OK or what `then` does."""

    async def script(request: Any, context: Any) -> AsyncIterator[StreamCompleteResponse]:
        for message in messages:
            yield message
        if then is not None:
            await then(request, context)

    return script


def aborting(
    code: grpc.StatusCode,
    text: str = "",
    trailers: Iterable[tuple[str, str | bytes]] = (),
    *,
    fence: bool = False,
) -> Script:
    """Return a script that ends with a bare status and any trailers."""

    async def script(_request: Any, context: Any) -> None:
        if fence:
            await context.send_initial_metadata(FENCE)
        await context.abort(code, text, tuple(trailers))

    return script


def failing(
    error: error_pb2.ModelError,
    *details: Message,
    code: grpc.StatusCode | None = None,
    text: str = "it failed",
) -> Script:
    """Return a script that ends as the server ends a failed call, with a status that carries its details.

    `code` is the code on the wire; the one inside the details is always the table's.
    """
    status = status_of(error, *details, text=text)
    return aborting(code or table_code(error), text, ((DETAILS_KEY, status.SerializeToString()),))


def in_turn(*scripts: Script) -> Script:
    """Return a script that plays one of `scripts` for each call, in order."""
    waiting = list(scripts)

    def script(request: Any, context: Any) -> Awaitable[Any]:
        played: Awaitable[Any] = waiting.pop(0)(request, context)
        return played

    return script


def table_code(error: error_pb2.ModelError) -> grpc.StatusCode:
    """Return the code that the one table has for an error; UNKNOWN for a kind that is in no table."""
    name = _kind_name(error)
    if name not in Kind.__members__:
        return grpc.StatusCode.UNKNOWN
    return grpc.StatusCode[TABLE[Kind[name]].code.name]


def _kind_name(error: error_pb2.ModelError) -> str:
    value = error_pb2.ErrorKind.DESCRIPTOR.values_by_number.get(error.kind)
    return "NEWER" if value is None else value.name.removeprefix("ERROR_KIND_")


def status_of(error: error_pb2.ModelError, *details: Message, text: str = "it failed") -> status_pb2.Status:
    """Return the status that carries an error: ErrorInfo first, then the error, then further details."""
    number = code_pb2.Code.Value(table_code(error).name)
    status = status_pb2.Status(code=number, message=text)
    info = error_details_pb2.ErrorInfo(reason=_kind_name(error), domain="modelmeter")
    for detail in (info, error, *details):
        status.details.add().Pack(detail)
    return status


def model_error(kind: int, **fields: Any) -> error_pb2.ModelError:
    """Return an error of a kind with every field set to something of its own, for which `fields` can stand in."""
    every: dict[str, Any] = {
        "cause": error_pb2.CAUSE_IDLE_TIMEOUT,
        "stage": error_pb2.STAGE_BODY,
        "model_asked": "asked",
        "model_served": "served",
        "service_tier": "batch",
        "target": "target",
        "message": "a sentence",
        "usage": usage_pb2.Usage(input_tokens=11, output_tokens=0, hosted_tool_requests={"web_search": 2}),
        "additional_usage": [
            usage_pb2.AdditionalUsage(kind="compaction", usage=usage_pb2.Usage(input_tokens=5))
        ],
        "certainty": usage_pb2.CERTAINTY_AT_LEAST,
        "estimated_output_tokens": 7,
        "cost": usage_pb2.Cost(nano_units=12, currency="EUR", certainty=usage_pb2.CERTAINTY_AT_LEAST),
        "disposition": error_pb2.DISPOSITION_LANDED,
        "retryable": True,
        "may_have_generated": True,
        "retry_after": {"seconds": 2, "nanos": 500_000_000},
        "http_status": 529,
        "provider_code": "overloaded_error",
        "provider_request_id": "req-1",
        "provider_response_id": "resp-1",
        "attempts": [
            error_pb2.Attempt(number=1, target="target", stage=error_pb2.STAGE_BODY, http_status=529)
        ],
        "attempts_total": 3,
        "call_id": "call-1",
    }
    return error_pb2.ModelError(kind=kind, **{**every, **fields})  # type: ignore[arg-type]  # open enum


@asynccontextmanager
async def serve(service: ModelServiceServicer) -> AsyncIterator[str]:
    """Serve on a free port of 127.0.0.1; yield `host:port`. Leaving ends what still runs."""
    server = grpc.aio.server()
    add_ModelServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)
