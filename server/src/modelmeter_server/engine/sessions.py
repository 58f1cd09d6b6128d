"""The sessions that are open: admitted up to a limit, told when the server shuts down, ended one by one."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from modelmeter_server.core.errors import FieldViolation, failure
from modelmeter_server.core.models import Task
from modelmeter_server.core.outcomes import Cause, Kind
from modelmeter_server.core.tenants import OPEN
from modelmeter_server.drivers.driver import SessionDriver
from modelmeter_server.telemetry.sessions import log_event

from .choosing import place_of
from .plan import Refused, find_model, mistaken
from .session import Session, SessionEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from modelmeter_server.core.session_events import SessionEvent
    from modelmeter_server.core.tenants import Tenant

    from .engine import Engine

MAX_SESSIONS = 1_000
"""Sessions that are open at once unless configured otherwise; more are refused, never queued."""

IDLE_SECONDS = 900.0
AGE_SECONDS = 86_400.0
RETRY_AFTER = 1.0

SETTLING_SECONDS = 2.0
"""What sessions get at shutdown to tell their end, once all calls are settled."""


class Sessions:
    """Hold the open sessions of one server."""

    def __init__(self, engine: Engine) -> None:
        """Begin with none."""
        self.idle_seconds = IDLE_SECONDS
        """How long a session may wait for its next turn."""
        self.age_seconds = AGE_SECONDS
        """How old a session may become."""
        self.tell: Callable[[SessionEvent], None] = log_event
        """Hears every event of every session that is opened from now on, besides those who watch."""
        self._engine = engine
        self._limit = MAX_SESSIONS
        self._open: set[Session] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def bound(self, *, limit: int, idle_seconds: float, age_seconds: float) -> None:
        """Set the bounds of the deployment, from the next look at a clock on."""
        self._limit, self.idle_seconds, self.age_seconds = limit, idle_seconds, age_seconds

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self,
        name: str,
        *,
        session_id: str,
        conversation_id: str = "",
        keeps_transcript: bool = False,
        found: Sequence[FieldViolation] = (),
        field: str = "model",
        tenant: Tenant = OPEN,
    ) -> Session:
        """Open a session with a model; nothing is sent yet. Raises Refused, with what else was `found`."""
        offers = self._engine.offers
        model = find_model(offers.current.catalog, name, found, field, tenant=tenant)
        if model.task is Task.EMBEDDING:
            raise Refused(
                mistaken([*found, FieldViolation(field, "is an embedding model: ask it with `Embed`")])
            )
        if found:
            raise Refused(mistaken(found))
        if self._engine.is_draining:
            message = "this server is shutting down; another one will take the session"
            raise Refused(failure(Kind.DRAINING, message, cause=Cause.DRAIN, retry_after=RETRY_AFTER))
        if len(self._open) >= self._limit:
            message = f"this server already holds {self._limit} sessions, as many as it admits"
            raise Refused(failure(Kind.OVERLOADED, message, cause=Cause.LIMIT, retry_after=RETRY_AFTER))
        model = place_of(model, session_id, self._engine.targets)
        offer = offers.take()
        driver = offer.drivers[model.provider]
        link = driver.open_link() if isinstance(driver, SessionDriver) else None
        telemetry = self._engine.telemetry
        session = Session(
            self._engine,
            model,
            link,
            session_id=session_id,
            conversation_id=conversation_id,
            keeps_transcript=keeps_transcript,
            tell=self.tell,
            watch=None
            if telemetry is None
            else telemetry.session_opened(
                tenant=tenant.name, conversation_id=conversation_id, emulated=link is None
            ),
            tenant=tenant,
            offer=offer,
        )
        self._open.add(session)
        return session

    async def close(self, session: Session, reason: SessionEnd) -> None:
        """End a session once its turn has ended; harmless when it has ended. It ends whoever stops waiting for it."""
        if session in self._open:
            await asyncio.shield(self._begin_closing(session, reason))

    def abandon(self, session: Session, cause: Cause, detail: str, reason: SessionEnd) -> None:
        """End a session whose caller is gone: its turn is cut, and works out its bill without anyone waiting."""
        session.cut(cause, detail)
        if session in self._open:
            self._begin_closing(session, reason)

    def _begin_closing(self, session: Session, reason: SessionEnd) -> asyncio.Task[None]:
        self._open.discard(session)
        task = asyncio.get_running_loop().create_task(self._close(session, reason))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def _close(self, session: Session, reason: SessionEnd) -> None:
        try:
            await session.close(reason)
        finally:
            self._engine.offers.give_back(session.offer)

    def drain(self) -> None:
        """Tell every session that no further turn is wanted."""
        for session in self._open:
            if not session.draining.done():
                session.draining.set_result(None)

    async def settled(self) -> None:
        """Wait until every session has told its end, `SETTLING_SECONDS` at most: one may wait for a slow reader."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLING_SECONDS):
                while ending := [*self._closing, *(session.is_closing for session in self._open)]:
                    await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
