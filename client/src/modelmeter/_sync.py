"""The client for threads. A thin twin of `_async`: all that needs thought stands in the modules both share."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar, Unpack

import grpc

from ._asking import ASK_SECONDS, is_worth_asking, verdict
from ._channel import DEFAULT_TIMEOUT, Metadata, call_metadata, channel_options, check_token, deadline
from ._lost import CallRecord
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
from ._status import error_at_end, error_from_rpc
from ._stream import StreamProgress
from ._sync_admin import Admin
from ._sync_events import Events
from ._sync_ledger import Ledger
from ._sync_session import Session, open_session
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
    StreamCompleteResponse,
)
from .v1.model_service_pb2_grpc import ModelServiceStub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from grpc import _CallIterator

    from .records import LedgerCall
    from .results import Completion, Embeddings, Model, TokenCount
    from .v1 import completion_pb2, embedding_pb2

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class CompletionStream(StreamProgress):
    """The events of one streamed call, in order; iterate it once. Comes from `Client.stream`.

    Iterating raises what `Client.complete` raises. A completion that has arrived stays good whatever becomes
    of the connection.
    """

    def __init__(
        self,
        call: _CallIterator[StreamCompleteResponse],
        record: CallRecord,
        asked: Callable[[ModelmeterError], completion_pb2.Completion],
    ) -> None:
        super().__init__(record)
        self._call = call
        self._asked = asked

    def __iter__(self) -> Iterator[StreamEvent]:
        return self

    def __next__(self) -> StreamEvent:
        while True:
            event = self._event(self._read())
            if event is not None:
                return event

    def _read(self) -> StreamCompleteResponse:
        try:
            return next(self._call)
        except StopIteration:
            if self._completion is not None:
                raise
            failed = error_at_end(self._record)
        except grpc.RpcError as error:
            if self._completion is not None:
                raise StopIteration from None
            failed = error_from_rpc(error, self._record)
            failed.__cause__ = error
        if isinstance(failed, LostContactError):
            return StreamCompleteResponse(completion=self._asked(failed))
        raise failed from failed.__cause__

    @property
    def text(self) -> Iterator[str]:
        """The pieces of the answer's text, in order; reads the stream to its end."""
        return (event.text for event in self if isinstance(event, TextDelta))

    def cancel(self) -> None:
        """End the call, from any thread. Who is iterating gets `LostContactError` with cause CALLER."""
        self._record.cancelled = True
        self._call.cancel()


class Client:
    """A connection to one modelmeter server, for any number of calls and threads.

    Use it as a context manager, or call `close`. Every method takes `timeout` in seconds (None: the client's
    own, `math.inf`: none) and `metadata` to send with the call, and raises `ModelmeterError` and nothing else of
    gRPC's; TypeError or ValueError for arguments that no request can hold, RuntimeError on a closed client.
    """

    def __init__(
        self,
        target: str | grpc.Channel,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        token: str | None = None,
        allow_insecure_token: bool = False,
        timeout: float = DEFAULT_TIMEOUT,
        ask_ledger: float = ASK_SECONDS,
        options: Mapping[str, str | int] | None = None,
    ) -> None:
        """Prepare a connection; it is made with the first call.

        `target` is `host:port` or any gRPC target, or a channel that is then used as it is and left open.
        `credentials` switch TLS on; `tls_credentials` makes them from files. `token` goes with every call as a
        bearer token; ValueError if that would cross a network without TLS, unless `allow_insecure_token` says that
        something else encrypts it, or is no header's value. When contact to a call is lost, its ledger is asked
        once what became of it, for at most `ask_ledger` seconds beyond the call's own; 0: never. `options` are
        channel options in place of the defaults in `_channel`.
        """
        self._owned: grpc.Channel | None = None
        check_token(target, token, secure=credentials is not None, allowed=allow_insecure_token)
        if isinstance(target, str):
            chosen = channel_options(target, options)
            self._owned = target = (
                grpc.insecure_channel(target, chosen)
                if credentials is None
                else grpc.secure_channel(target, credentials, chosen)
            )
        self._open_stub = ModelServiceStub(target)
        self._open_ledger_stub = LedgerServiceStub(target)
        self._open_admin_stub = AdminServiceStub(target)
        self._open_event_stub = EventServiceStub(target)
        self._ask_seconds = ask_ledger
        self.ledger = Ledger(self._ledger_stub, self._unary, self._parts)
        """What calls cost, and what may still be spent."""
        self.admin = Admin(self._admin_stub, self._unary)
        """The tokens and tenants of the deployment, for admins."""
        self.events = Events(self._event_stub, self._unary, self._parts)
        """What happens to calls, live and in sum."""
        self._token = token
        self._timeout = timeout
        self._closed = False

    def complete(
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
            response = self._unary(self._stub.Complete, request, record, timeout, metadata)
            if not has_outcome(response.completion):
                raise error_at_end(record)
        except LostContactError as lost:
            return completion_from(self._asked(lost))
        return completion_from(response.completion)

    @contextmanager
    def stream(
        self,
        model: str | CompleteRequest,
        prompt: Prompt | None = None,
        *,
        flush_interval: float | None = None,
        from_sequence: int = 0,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        **options: Unpack[CompleteOptions],
    ) -> Iterator[CompletionStream]:
        """Ask a model for one completion and hand it out as it comes.

        The call starts on entering the `with` block, and is cancelled on leaving it, however it is left.
        `flush_interval` is how many seconds the server may gather deltas into one message. To join a call that runs,
        or to read one again, send its `call_id`; `from_sequence` leaves out the deltas up to that one.
        """
        request = complete_request(model, prompt, **options)
        record = CallRecord(request.call_id, request.model)
        call = self._stub.StreamComplete(
            stream_request(request, flush_interval, from_sequence),
            timeout=deadline(timeout, self._timeout),
            metadata=call_metadata(metadata, self._token),
        )
        stream = CompletionStream(call, record, self._asked)
        try:
            yield stream
        finally:
            stream.cancel()

    @contextmanager
    def session(
        self,
        model: str,
        *,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        **options: Unpack[SessionOptions],
    ) -> Iterator[Session]:
        """Open a conversation of many turns; leaving the `with` block closes it, and an exception cancels it.

        Takes what `open_session` takes.
        """
        session = self.open_session(model, timeout=timeout, metadata=metadata, **options)
        try:
            yield session
        except BaseException:
            session.cancel()
            raise
        else:
            session.close()

    def open_session(
        self,
        model: str,
        *,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        **options: Unpack[SessionOptions],
    ) -> Session:
        """Open a conversation of many turns, which the caller closes.

        See `SessionOptions`. `timeout` is for the session as a whole; left out, there is none.
        """
        opening = session_opening(model, **options)
        method, limit = self._stub.Session, deadline(timeout, math.inf)
        headers = call_metadata(metadata, self._token)
        return open_session(lambda told: method(told, timeout=limit, metadata=headers), opening)

    def count_tokens(
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
        response = self._unary(self._stub.CountTokens, request, record, timeout, metadata)
        if not response.HasField("count"):
            raise error_at_end(record)
        return token_count_from(response.count)

    def embed(
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
            response = self._unary(self._stub.Embed, request, record, timeout, metadata)
            if not has_outcome(response.embeddings):
                raise error_at_end(record)
        except LostContactError as lost:
            return embeddings_from(self._asked_vectors(lost))
        return embeddings_from(response.embeddings)

    def models(self, *, timeout: float | None = None, metadata: Metadata | None = None) -> list[Model]:
        """Return every model that the server serves, by name; `timeout` holds for each page."""
        found: list[Model] = []
        request = ListModelsRequest()
        while True:
            page = self._unary(self._stub.ListModels, request, CallRecord(), timeout, metadata)
            found += map(model_from, page.models)
            if not page.next_page_token:
                return found
            request = ListModelsRequest(page_token=page.next_page_token)

    def model(self, name: str, *, timeout: float | None = None, metadata: Metadata | None = None) -> Model:
        """Return one model. An unknown name raises `RefusedError` with code NOT_FOUND."""
        record = CallRecord(model=name)
        response = self._unary(self._stub.GetModel, GetModelRequest(name=name), record, timeout, metadata)
        return model_from(response.model)

    def close(self) -> None:
        """Close the connection and end the calls that run on it."""
        self._closed = True
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _stub(self) -> ModelServiceStub:
        self._check_open()
        return self._open_stub

    def _admin_stub(self) -> AdminServiceStub:
        self._check_open()
        return self._open_admin_stub

    def _ledger_stub(self) -> LedgerServiceStub:
        self._check_open()
        return self._open_ledger_stub

    def _event_stub(self) -> EventServiceStub:
        self._check_open()
        return self._open_event_stub

    def _check_open(self) -> None:
        if self._closed:
            message = "the client is closed"
            raise RuntimeError(message)

    def _asked(self, lost: ModelmeterError) -> completion_pb2.Completion:
        """Return the answer of a call that contact was lost to, if the ledger has it; raise what is known otherwise."""
        call = self._recorded(lost)
        if call.answered and call.operation is Operation.COMPLETE and call.completion is None:
            try:
                return self.ledger.read_answer(lost.call_id, timeout=self._ask_seconds).proto
            except ModelmeterError:
                raise lost from lost.__cause__
        if call.completion is not None:
            return call.completion.proto
        raise verdict(lost, call) from lost.__cause__

    def _asked_vectors(self, lost: ModelmeterError) -> embedding_pb2.Embeddings:
        """Return the vectors of a batch that contact was lost to, like `_asked`."""
        call = self._recorded(lost)
        if call.answered and call.operation is Operation.EMBED and call.embeddings is None:
            try:
                return self.ledger.read_embeddings(lost.call_id, timeout=self._ask_seconds).proto
            except ModelmeterError:
                raise lost from lost.__cause__
        if call.embeddings is not None:
            return call.embeddings.proto
        raise verdict(lost, call) from lost.__cause__

    def _recorded(self, lost: ModelmeterError) -> LedgerCall:
        if self._ask_seconds <= 0 or self._closed or not is_worth_asking(lost):
            raise lost
        try:
            return self.ledger.get_call(lost.call_id, full=True, timeout=self._ask_seconds)
        except ModelmeterError:
            raise lost from lost.__cause__

    def _parts(
        self,
        method: grpc.UnaryStreamMultiCallable[_Request, _Response],
        request: _Request,
        record: CallRecord,
        timeout: float | None,
        metadata: Metadata | None,
    ) -> Iterator[_Response]:
        call = method(
            request, timeout=deadline(timeout, self._timeout), metadata=call_metadata(metadata, self._token)
        )
        try:
            yield from call
        except grpc.RpcError as error:
            raise error_from_rpc(error, record) from error
        finally:
            call.cancel()

    def _unary(
        self,
        method: grpc.UnaryUnaryMultiCallable[_Request, _Response],
        request: _Request,
        record: CallRecord,
        timeout: float | None,
        metadata: Metadata | None,
    ) -> _Response:
        # A future: only that can be cancelled when Ctrl-C ends the wait, and an abandoned call goes on buying.
        call = method.future(
            request, timeout=deadline(timeout, self._timeout), metadata=call_metadata(metadata, self._token)
        )
        try:
            return call.result()
        except grpc.RpcError as error:
            record.cancelled = self._closed
            raise error_from_rpc(error, record) from error
        except BaseException:
            call.cancel()
            raise
