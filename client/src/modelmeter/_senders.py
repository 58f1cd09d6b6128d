"""How the faces of the client make calls: what `AsyncClient` and `Client` lend to those of the other services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import grpc
    import grpc.aio

    from ._channel import Metadata
    from ._lost import CallRecord

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class AsyncUnaryOf(Protocol):
    """Makes a call that has one answer; raises the client's own exceptions."""

    async def __call__(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[_Request, _Response],
        request: _Request,
        record: CallRecord,
        timeout: float | None,
        metadata: Metadata | None,
        /,
    ) -> _Response: ...


class AsyncStreamOf(Protocol):
    """Makes a call that answers in parts; raises the client's own exceptions."""

    def __call__(
        self,
        method: grpc.aio.UnaryStreamMultiCallable[_Request, _Response],
        request: _Request,
        record: CallRecord,
        timeout: float | None,
        metadata: Metadata | None,
        /,
    ) -> AsyncIterator[_Response]: ...


class UnaryOf(Protocol):
    """Makes a call that has one answer; raises the client's own exceptions."""

    def __call__(
        self,
        method: grpc.UnaryUnaryMultiCallable[_Request, _Response],
        request: _Request,
        record: CallRecord,
        timeout: float | None,
        metadata: Metadata | None,
        /,
    ) -> _Response: ...


class StreamOf(Protocol):
    """Makes a call that answers in parts; raises the client's own exceptions."""

    def __call__(
        self,
        method: grpc.UnaryStreamMultiCallable[_Request, _Response],
        request: _Request,
        record: CallRecord,
        timeout: float | None,
        metadata: Metadata | None,
        /,
    ) -> Iterator[_Response]: ...
