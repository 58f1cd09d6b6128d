"""Both clients behind one face, so that a law is stated once and tested on the two of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from modelmeter import AsyncClient, Client, Completion, Embeddings, Model, StreamEvent, TokenCount


class Face(Protocol):
    """What the tests do with a client."""

    async def complete(self, *args: Any, **options: Any) -> Completion: ...
    async def count_tokens(self, *args: Any, **options: Any) -> TokenCount: ...
    async def embed(self, *args: Any, **options: Any) -> Embeddings: ...
    async def models(self, **options: Any) -> list[Model]: ...
    async def model(self, *args: Any, **options: Any) -> Model: ...
    async def events(self, *args: Any, **options: Any) -> list[StreamEvent]:
        """Read a stream to its end."""
        ...

    async def texts(self, *args: Any, **options: Any) -> tuple[list[str], Completion]:
        """Read the text of a stream to its end, then ask for the completion."""
        ...

    async def leave(self, *args: Any, **options: Any) -> StreamEvent:
        """Read one event of a stream, then leave it."""
        ...


class AsyncFace:
    """The async client."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def complete(self, *args: Any, **options: Any) -> Completion:
        return await self._client.complete(*args, **options)

    async def count_tokens(self, *args: Any, **options: Any) -> TokenCount:
        return await self._client.count_tokens(*args, **options)

    async def embed(self, *args: Any, **options: Any) -> Embeddings:
        return await self._client.embed(*args, **options)

    async def models(self, **options: Any) -> list[Model]:
        return await self._client.models(**options)

    async def model(self, *args: Any, **options: Any) -> Model:
        return await self._client.model(*args, **options)

    async def events(self, *args: Any, **options: Any) -> list[StreamEvent]:
        async with self._client.stream(*args, **options) as stream:
            return [event async for event in stream]

    async def texts(self, *args: Any, **options: Any) -> tuple[list[str], Completion]:
        async with self._client.stream(*args, **options) as stream:
            return [text async for text in stream.text], stream.completion

    async def leave(self, *args: Any, **options: Any) -> StreamEvent:
        async with self._client.stream(*args, **options) as stream:
            async for event in stream:
                return event
        raise AssertionError


class SyncFace:
    """The sync client, each call in a thread."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def complete(self, *args: Any, **options: Any) -> Completion:
        return await asyncio.to_thread(self._client.complete, *args, **options)

    async def count_tokens(self, *args: Any, **options: Any) -> TokenCount:
        return await asyncio.to_thread(self._client.count_tokens, *args, **options)

    async def embed(self, *args: Any, **options: Any) -> Embeddings:
        return await asyncio.to_thread(self._client.embed, *args, **options)

    async def models(self, **options: Any) -> list[Model]:
        return await asyncio.to_thread(self._client.models, **options)

    async def model(self, *args: Any, **options: Any) -> Model:
        return await asyncio.to_thread(self._client.model, *args, **options)

    async def events(self, *args: Any, **options: Any) -> list[StreamEvent]:
        def read() -> list[StreamEvent]:
            with self._client.stream(*args, **options) as stream:
                return list(stream)

        return await asyncio.to_thread(read)

    async def texts(self, *args: Any, **options: Any) -> tuple[list[str], Completion]:
        def read() -> tuple[list[str], Completion]:
            with self._client.stream(*args, **options) as stream:
                return list(stream.text), stream.completion

        return await asyncio.to_thread(read)

    async def leave(self, *args: Any, **options: Any) -> StreamEvent:
        def read() -> StreamEvent:
            with self._client.stream(*args, **options) as stream:
                return next(iter(stream))

        return await asyncio.to_thread(read)


@asynccontextmanager
async def face(kind: str, target: str, **options: Any) -> AsyncIterator[Face]:
    """Open a client of a kind, `sync` or `async`. Calls that forget their deadline still end within a test's."""
    options.setdefault("timeout", 20)
    if kind == "sync":
        with Client(target, **options) as client:
            yield SyncFace(client)
    else:
        async with AsyncClient(target, **options) as async_client:
            yield AsyncFace(async_client)
