"""The client for asyncio. A thin twin of `_sync`: all that needs thought stands in the modules both share."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar, Unpack

import grpc
import grpc.aio

from ._asking import ASK_SECONDS, is_worth_asking, verdict
from ._async_admin import AsyncAdmin
from ._async_events import AsyncEvents
from ._async_ledger import AsyncLedger
from ._channel import DEFAULT_TIMEOUT, Metadata, call_metadata, channel_options, check_token, deadline
from ._lost import CallRecord, error_without_outcome
from ._requests import (
    CompleteOptions,
    EmbedOptions,
    Prompt,
    complete_request,
    count_request,
    embed_request,
    stream_request,
)
from ._results import completion_from, embeddings_from, has_outcome, model_from, token_count_from
from ._session import AsyncSession, open_session
from ._status import error_at_end, error_from_rpc
from ._stream import StreamProgress
from ._turns import SessionOptions, session_opening
from .enums import Operation
from .errors import LostContactError, ModelmeterError
from .events import StreamEvent, TextDelta
from .v1.admin_service_pb2_grpc import AdminServiceStub
from .v1.event_service_pb2_grpc import EventServiceStub
from .v1.ledger_service_pb2_grpc import LedgerServiceStub
from .v1.model_service_pb2 import (
    CompleteRequest,
    EmbedRequest,
    GetModelRequest,
    ListModelsRequest,
    StreamCompleteRequest,
    StreamCompleteResponse,
)
from .v1.model_service_pb2_grpc import ModelServiceStub

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from .records import LedgerCall
    from .results import Completion, Embeddings, Model, TokenCount
    from .v1 import completion_pb2, embedding_pb2
    from .v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from .v1.event_service_pb2_grpc import EventServiceAsyncStub
    from .v1.ledger_service_pb2_grpc import LedgerServiceAsyncStub
    from .v1.model_service_pb2_grpc import ModelServiceAsyncStub

    _Stubs = tuple[
        ModelServiceAsyncStub, LedgerServiceAsyncStub, AdminServiceAsyncStub, EventServiceAsyncStub
    ]

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


def _task_is_cancelled() -> bool:
    """Tell a cancelled task from a cancelled call: grpc.aio raises CancelledError in the waiting task for both."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class AsyncCompletionStream(StreamProgress):
    """The events of one streamed call, in order; iterate it once. Comes from `AsyncClient.stream`.

    Iterating raises what `AsyncClient.complete` raises. A completion that has arrived stays good whatever
    becomes of the connection.
    """

    def __init__(
        self,
        call: grpc.aio.UnaryStreamCall[StreamCompleteRequest, StreamCompleteResponse],
        record: CallRecord,
        asked: Callable[[ModelmeterError], Awaitable[completion_pb2.Completion]],
    ) -> None:
        super().__init__(record)
        self._call = call
        self._asked = asked
        self._messages = aiter(call)

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self

    async def __anext__(self) -> StreamEvent:
        while True:
            message = await self._read()
            # None: gRPC logs a message that it cannot decode and hands out nothing.
            event = None if message is None else self._event(message)
            if event is not None:
                return event

    async def _read(self) -> StreamCompleteResponse | None:
        try:
            return await anext(self._messages)
        except StopAsyncIteration:
            if self._completion is not None:
                raise
            failed = error_at_end(self._record)
        except grpc.RpcError as error:
            if self._completion is not None:
                raise StopAsyncIteration from None
            failed = error_from_rpc(error, self._record)
            failed.__cause__ = error
        except asyncio.CancelledError:
            if _task_is_cancelled():
                raise
            self._record.cancelled = True
            raise error_without_outcome(self._record, grpc.StatusCode.CANCELLED) from None
        if isinstance(failed, LostContactError):
            return StreamCompleteResponse(completion=await self._asked(failed))
        raise failed from failed.__cause__

    @property
    def text(self) -> AsyncIterator[str]:
        """The pieces of the answer's text, in order; reads the stream to its end."""
        return (event.text async for event in self if isinstance(event, TextDelta))

    def cancel(self) -> None:
        """End the call, from any task. Who is iterating gets `LostContactError` with cause CALLER."""
        self._record.cancelled = True
        self._call.cancel()


class AsyncClient:
    """A connection to one modelmeter server, for any number of calls of one event loop.

    Use it as an async context manager, or await `close`. Every method takes `timeout` in seconds (None: the
    client's own, `math.inf`: none) and `metadata` to send with the call, and raises `ModelmeterError` and nothing
    else of gRPC's; TypeError or ValueError for arguments that no request can hold, RuntimeError on a closed
    client. Cancelling the task that waits for a call cancels the call.
    """

    def __init__(
        self,
        target: str | grpc.aio.Channel,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        token: str | None = None,
        allow_insecure_token: bool = False,
        timeout: float = DEFAULT_TIMEOUT,
        ask_ledger: float = ASK_SECONDS,
        options: Mapping[str, str | int] | None = None,
    ) -> None:
        """Prepare a connection; it is made with the first call, on the event loop of that call.

        The arguments are those of `Client`; a ready channel is a `grpc.aio.Channel`.
        """
        check_token(target, token, secure=credentials is not None, allowed=allow_insecure_token)
        self._target = target
        self._credentials = credentials
        self._options = options
        self._token = token
        self._timeout = timeout
        self._owned: grpc.aio.Channel | None = None
        self._open_stubs: _Stubs | None = None
        self._closed = False
        self._ask_seconds = ask_ledger
        self.ledger = AsyncLedger(self._ledger_stub, self._unary, self._parts)
        """What calls cost, and what may still be spent."""
        self.admin = AsyncAdmin(self._admin_stub, self._unary)
        """The tokens and tenants of the deployment, for admins."""
        self.events = AsyncEvents(self._event_stub, self._unary, self._parts)
        """What happens to calls, live and in sum."""

    async def complete(
        self,
        model: str | CompleteRequest,
        prompt: Prompt | None = None,
        *,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        **options: Unpack[CompleteOptions],
    ) -> Completion:
        """Ask a model for one completion and return it whole.

        Takes a model and a prompt with options (see `CompleteOptions`), or a ready `CompleteRequest`.
        """
        request = complete_request(model, prompt, **options)
        record = CallRecord(request.call_id, request.model)
        try:
            response = await self._unary(self._stub.Complete, request, record, timeout, metadata)
            if not has_outcome(response.completion):
                raise error_at_end(record)
        except LostContactError as lost:
            return completion_from(await self._asked(lost))
        return completion_from(response.completion)

    @asynccontextmanager
    async def stream(
        self,
        model: str | CompleteRequest,
        prompt: Prompt | None = None,
        *,
        flush_interval: float | None = None,
        from_sequence: int = 0,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        **options: Unpack[CompleteOptions],
    ) -> AsyncIterator[AsyncCompletionStream]:
        """Ask a model for one completion and hand it out as it comes.

        The call starts on entering the `async with` block, and is cancelled on leaving it, however it is left:
        breaking out of `async for` alone would leave it running, and buying. `flush_interval` is how many
        seconds the server may gather deltas into one message. To join a call that runs, or to read one again,
        send its `call_id`; `from_sequence` leaves out the deltas up to that one.
        """
        request = complete_request(model, prompt, **options)
        record = CallRecord(request.call_id, request.model)
        call = self._stub.StreamComplete(
            stream_request(request, flush_interval, from_sequence),
            timeout=deadline(timeout, self._timeout),
            metadata=call_metadata(metadata, self._token),
        )
        stream = AsyncCompletionStream(call, record, self._asked)
        try:
            yield stream
        finally:
            stream.cancel()

    @asynccontextmanager
    async def session(
        self,
        model: str,
        *,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        **options: Unpack[SessionOptions],
    ) -> AsyncIterator[AsyncSession]:
        """Open a conversation of many turns; leaving the `async with` block closes it, and an exception cancels it.

        Takes what `open_session` takes.
        """
        session = await self.open_session(model, timeout=timeout, metadata=metadata, **options)
        try:
            yield session
        except BaseException:
            session.cancel()
            raise
        else:
            await session.close()

    async def open_session(
        self,
        model: str,
        *,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        **options: Unpack[SessionOptions],
    ) -> AsyncSession:
        """Open a conversation of many turns, which the caller closes.

        See `SessionOptions`. `timeout` is for the session as a whole; left out, there is none.
        """
        opening = session_opening(model, **options)
        call = self._stub.Session(
            timeout=deadline(timeout, math.inf), metadata=call_metadata(metadata, self._token)
        )
        return await open_session(call, opening)

    async def count_tokens(
        self,
        model: str | CompleteRequest,
        prompt: Prompt | None = None,
        *,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        **options: Unpack[CompleteOptions],
    ) -> TokenCount:
        """Count the input tokens that `complete` would have with the same arguments; nothing is bought."""
        request = count_request(model, prompt, **options)
        record = CallRecord(model=request.request.model)
        response = await self._unary(self._stub.CountTokens, request, record, timeout, metadata)
        if not response.HasField("count"):
            raise error_at_end(record)
        return token_count_from(response.count)

    async def embed(
        self,
        model: str | EmbedRequest,
        inputs: str | Sequence[str] | None = None,
        *,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        **options: Unpack[EmbedOptions],
    ) -> Embeddings:
        """Turn texts into vectors with an embedding model.

        Takes a model and the texts with options (see `EmbedOptions`), or a ready `EmbedRequest`.
        """
        request = embed_request(model, inputs, **options)
        record = CallRecord(request.call_id, request.model)
        try:
            response = await self._unary(self._stub.Embed, request, record, timeout, metadata)
            if not has_outcome(response.embeddings):
                raise error_at_end(record)
        except LostContactError as lost:
            return embeddings_from(await self._asked_vectors(lost))
        return embeddings_from(response.embeddings)

    async def models(self, *, timeout: float | None = None, metadata: Metadata | None = None) -> list[Model]:
        """Return every model that the server serves, by name; `timeout` holds for each page."""
        found: list[Model] = []
        request = ListModelsRequest()
        while True:
            page = await self._unary(self._stub.ListModels, request, CallRecord(), timeout, metadata)
            found += map(model_from, page.models)
            if not page.next_page_token:
                return found
            request = ListModelsRequest(page_token=page.next_page_token)

    async def model(
        self, name: str, *, timeout: float | None = None, metadata: Metadata | None = None
    ) -> Model:
        """Return one model. An unknown name raises `RefusedError` with code NOT_FOUND."""
        record = CallRecord(model=name)
        response = await self._unary(
            self._stub.GetModel, GetModelRequest(name=name), record, timeout, metadata
        )
        return model_from(response.model)

    async def close(self) -> None:
        """Close the connection and end the calls that run on it."""
        self._closed = True
        if self._owned is not None:
            await self._owned.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def _stub(self) -> ModelServiceAsyncStub:
        return self._stubs()[0]

    def _ledger_stub(self) -> LedgerServiceAsyncStub:
        return self._stubs()[1]

    def _admin_stub(self) -> AdminServiceAsyncStub:
        return self._stubs()[2]

    def _event_stub(self) -> EventServiceAsyncStub:
        return self._stubs()[3]

    def _stubs(self) -> _Stubs:
        if self._closed:
            message = "the client is closed"
            raise RuntimeError(message)
        if self._open_stubs is None:
            channel = self._channel()
            self._open_stubs = (
                ModelServiceStub(channel),
                LedgerServiceStub(channel),
                AdminServiceStub(channel),
                EventServiceStub(channel),
            )
        return self._open_stubs

    async def _asked(self, lost: ModelmeterError) -> completion_pb2.Completion:
        """Return the answer of a call that contact was lost to, if the ledger has it; raise what is known otherwise."""
        call = await self._recorded(lost)
        if call.answered and call.operation is Operation.COMPLETE and call.completion is None:
            try:
                return (await self.ledger.read_answer(lost.call_id, timeout=self._ask_seconds)).proto
            except ModelmeterError:
                raise lost from lost.__cause__
        if call.completion is not None:
            return call.completion.proto
        raise verdict(lost, call) from lost.__cause__

    async def _asked_vectors(self, lost: ModelmeterError) -> embedding_pb2.Embeddings:
        """Return the vectors of a batch that contact was lost to, like `_asked`."""
        call = await self._recorded(lost)
        if call.answered and call.operation is Operation.EMBED and call.embeddings is None:
            try:
                return (await self.ledger.read_embeddings(lost.call_id, timeout=self._ask_seconds)).proto
            except ModelmeterError:
                raise lost from lost.__cause__
        if call.embeddings is not None:
            return call.embeddings.proto
        raise verdict(lost, call) from lost.__cause__

    async def _recorded(self, lost: ModelmeterError) -> LedgerCall:
        if self._ask_seconds <= 0 or self._closed or not is_worth_asking(lost):
            raise lost
        try:
            return await self.ledger.get_call(lost.call_id, full=True, timeout=self._ask_seconds)
        except ModelmeterError:
            raise lost from lost.__cause__

    def _channel(self) -> grpc.aio.Channel:
        # Not in the constructor: an aio channel belongs to the loop it is made on, and there may be none yet.
        if not isinstance(self._target, str):
            return self._target
        chosen = channel_options(self._target, self._options)
        if self._credentials is None:
            self._owned = grpc.aio.insecure_channel(self._target, chosen)
        else:
            self._owned = grpc.aio.secure_channel(self._target, self._credentials, chosen)
        return self._owned

    async def _parts(
        self,
        method: grpc.aio.UnaryStreamMultiCallable[_Request, _Response],
        request: _Request,
        record: CallRecord,
        timeout: float | None,
        metadata: Metadata | None,
    ) -> AsyncIterator[_Response]:
        call = method(
            request, timeout=deadline(timeout, self._timeout), metadata=call_metadata(metadata, self._token)
        )
        try:
            async for part in call:
                yield part
        except grpc.RpcError as error:
            raise error_from_rpc(error, record) from error
        except asyncio.CancelledError:
            if _task_is_cancelled():
                raise
            record.cancelled = True
            raise error_without_outcome(record, grpc.StatusCode.CANCELLED) from None
        finally:
            call.cancel()

    async def _unary(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[_Request, _Response],
        request: _Request,
        record: CallRecord,
        timeout: float | None,
        metadata: Metadata | None,
    ) -> _Response:
        call = method(
            request, timeout=deadline(timeout, self._timeout), metadata=call_metadata(metadata, self._token)
        )
        try:
            response: _Response | None = await call
        except grpc.RpcError as error:
            raise error_from_rpc(error, record) from error
        except asyncio.CancelledError:
            if _task_is_cancelled():
                raise
            record.cancelled = True
            raise error_without_outcome(record, grpc.StatusCode.CANCELLED) from None
        if response is None:  # gRPC logs a message that it cannot decode and returns nothing
            raise error_at_end(record)
        return response
