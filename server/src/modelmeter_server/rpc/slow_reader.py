"""A caller that does not read its stream: how long a message waits for it, and how its RPC ends then.

A write waits for the flow control of HTTP/2, so that how long it takes is how slow the caller is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from modelmeter_server.core.errors import Failure
from modelmeter_server.engine.bill import unread
from modelmeter_server.engine.reading import TOO_SLOW, ReaderWatch

from .status import trailer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from google.protobuf.message import Message
    from grpc.aio import ServicerContext

    from modelmeter_server.core.calls import CallOutcome
    from modelmeter_server.engine.call import Call

Write = Callable[["Message"], Awaitable[None]]

STATUS_SECONDS: Final = 1.0
"""What a caller that read too slowly gets to take the status, which stands behind what it did not read."""


class TooSlow(Exception):
    """The caller takes nothing."""


@asynccontextmanager
async def patient_writer(context: ServicerContext[Any, Any], seconds: float) -> AsyncIterator[Write]:
    """Yield what writes messages inside this block. Raises TooSlow once one has waited `seconds` for the caller.

    Another task that writes has it raised by its write: it would wait for as long as the caller stays.
    """
    patience = asyncio.timeout(None)
    own = asyncio.current_task()
    writing: asyncio.Task[Any] | None = None
    try:
        async with patience:

            def give_up() -> None:
                patience.reschedule(0)
                if writing is not None and writing is not own:
                    writing.cancel()

            watch = ReaderWatch(seconds, give_up)

            async def write(message: Message) -> None:
                nonlocal writing
                watch.begin()
                writing = asyncio.current_task()
                try:
                    await context.write(message)
                except asyncio.CancelledError:
                    if writing is None or writing is own or not watch.is_over or writing.uncancel():
                        raise
                    raise TooSlow from None
                finally:
                    writing = None
                watch.end()

            try:
                yield write
            finally:
                watch.close()
    except TimeoutError:
        if not patience.expired():
            raise
        raise TooSlow from None


@contextmanager
def reading(call: Call) -> Iterator[None]:
    """Keep the call's place in this server inside this block, also when it has ended: its answer is still here."""
    if call.entry is None:
        yield
        return
    call.entry.hold()
    try:
        yield
    finally:
        call.entry.release()


async def break_off(context: ServicerContext[Any, Any], outcome: CallOutcome) -> None:
    """End the RPC of a caller that did not read, with its bill; what waits for the caller is dropped soon after."""
    result = outcome.result
    failed = result if isinstance(result, Failure) else unread(result, TOO_SLOW)
    end = trailer(msgspec.structs.replace(outcome, result=failed), failed)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STATUS_SECONDS):
            await context.abort(end.code, end.message, end.metadata)
