"""LedgerService: convert, ask the ledger, convert. It reads and orders; what a command means is the ledger's to say."""

from __future__ import annotations

import functools
import uuid
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from google.protobuf.message import Message

from modelmeter.v1 import ledger_service_pb2 as pb
from modelmeter.v1 import ledger_service_pb2_grpc
from modelmeter_server.core.errors import FieldViolation
from modelmeter_server.core.journal import CallKey, CallState
from modelmeter_server.core.outcomes import Certainty
from modelmeter_server.engine.plan import Refused, mistaken
from modelmeter_server.ledger import queries
from modelmeter_server.ledger.clock import now
from modelmeter_server.ledger.commands import DropCeiling, DropHalt, PutCeiling, PutHalt, Reconcile
from modelmeter_server.ledger.ledger import LedgerUnavailable
from modelmeter_server.ledger.questions import SpendPosition
from modelmeter_server.ledger.replies import Guarded
from modelmeter_server.telemetry.log import get_logger

from .acting import acting_for, admins_only
from .call_records import answer_in, fill_page, fill_record, find_record, list_records
from .convert_ceilings import ceiling_from, fill_ceiling, fill_halt, halt_from, subject_from
from .convert_content import PART_BYTES, parts
from .convert_ledger import fill_call, fill_spend
from .convert_questions import (
    call_id_from,
    calls_asked,
    erasure_from,
    figure_from,
    generation_from,
    is_full,
    spend_asked,
)
from .convert_request import Violations
from .identity import current_tenant
from .ledger_errors import down, no_ledger, no_such, not_ended
from .paging import page_asked, page_of, page_token, token_of
from .plain_text import NUL_REFUSED, fields_with_nul
from .status import lookup_trailer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from grpc.aio import ServicerContext
    from sqlalchemy import Connection

    from modelmeter_server.core.ceilings import Ceiling
    from modelmeter_server.core.errors import Failure
    from modelmeter_server.engine.engine import Engine
    from modelmeter_server.ledger.ledger import Ledger
    from modelmeter_server.ledger.rows import CallRow

    from .call_records import Record
    from .convert_content import StoredAnswer
    from .convert_questions import FigureAsked

    Context = ServicerContext[Any, Any]


class NamesCall(Protocol):
    """A request about one call."""

    @property
    def tenant(self) -> str:
        """Return whose it is; empty for the caller's own."""

    @property
    def call_id(self) -> str:
        """Return its id."""


_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response")

_log = get_logger(__name__)


def _typed(
    handler: Callable[[LedgerService, _Request, Context], Awaitable[_Response]],
) -> Callable[[LedgerService, _Request, Context], Awaitable[_Response]]:
    """End a handler's refusals, and a ledger that is away, as statuses."""

    @functools.wraps(handler)
    async def answered(self: LedgerService, request: _Request, context: Context) -> _Response:
        try:
            _check([FieldViolation(path, NUL_REFUSED) for path in fields_with_nul(request)])
            return await handler(self, request, context)
        except Refused as refusal:
            return await _end(context, refusal.verdict)
        except LedgerUnavailable as error:
            _log.warning("the ledger is away", cause=str(error))
            return await _end(context, down())

    return answered


async def _end(context: Context, failed: Failure) -> NoReturn:
    end = lookup_trailer(failed)
    await context.abort(end.code, end.message, end.metadata)


class LedgerService(ledger_service_pb2_grpc.LedgerServiceServicer):
    """Serve the ledger to the caller's tenant: another tenant's calls and ceilings do not exist for it."""

    def __init__(self, engine: Engine) -> None:
        """Serve the ledger that the engine uses; while it uses none, every method says so."""
        self._engine = engine

    # Calls

    @_typed
    async def GetCall(self, request: pb.GetCallRequest, _context: Context) -> pb.GetCallResponse:
        """Return one call."""
        found = Violations()
        key = self._key(request, found)
        generation = generation_from(request.generation, found)
        full = is_full(request.view, found)
        _check(found)
        record = await self._record(key, generation, full=full)
        response = pb.GetCallResponse()
        fill_record(response.call, record, PART_BYTES)
        return response

    @_typed
    async def ListCalls(self, request: pb.ListCallsRequest, _context: Context) -> pb.ListCallsResponse:
        """Return a page of calls."""
        found = Violations()
        full = is_full(request.view, found)
        asked = calls_asked(request, acting_for(request, found), found, full=full)
        _check(found)
        records = await self._ledger.read(lambda connection: list_records(connection, asked, full=full))
        response = pb.ListCallsResponse()
        fill_page(response, records, asked)
        return response

    async def ReadAnswer(  # type: ignore[override]  # writes by itself: it hears of a leaving caller in one shape
        self, request: pb.ReadAnswerRequest, context: Context
    ) -> None:
        """Send a stored answer in parts."""
        answer = await self._answer(request, context)
        for part in parts(answer):
            await context.write(part)

    @_typed
    async def _answer(self, request: pb.ReadAnswerRequest, _context: Context) -> StoredAnswer:
        found = Violations()
        key = self._key(request, found)
        generation = generation_from(request.generation, found)
        _check(found)
        return answer_in(await self._record(key, generation, full=True))

    @_typed
    async def ReconcileCall(
        self, request: pb.ReconcileCallRequest, _context: Context
    ) -> pb.ReconcileCallResponse:
        """Book a truer figure, the provider's or the operator's."""
        found = Violations()
        key = self._key(request, found)
        generation = generation_from(request.generation, found)
        figure = figure_from(request.figure, found) if request.HasField("figure") else None
        if figure is not None and not current_tenant().is_admin:
            raise Refused(
                admins_only("a figure of one's own gives room back, and only an admin may book one")
            )
        _check(found)
        row = (await self._record(key, generation, full=False)).row
        if CallState(row.state).is_open:
            raise Refused(not_ended(row.call_id))
        order = await self._truer(key, row, figure)
        done = await self._ledger.order(order)
        if done is None:
            raise Refused(no_such("CallRecord", row.call_id))
        if self._engine.telemetry is not None:
            certainty = Certainty(order.figures.certainty)
            self._engine.telemetry.reconciled(
                key.tenant, row.call_id, row.generation, order.by, raised=done.raised, certainty=certainty
            )
        response = pb.ReconcileCallResponse(raised=done.raised)
        fill_call(response.call, done.row)
        return response

    async def _truer(self, key: CallKey, row: CallRow, figure: FigureAsked | None) -> Reconcile:
        """Return the order to book what an operator says of a call or, without that, what its provider does."""
        reconciliation = self._engine.reconciliation
        if figure is None:
            figures, by, reason = await reconciliation.ask(row), "provider", ""
        else:
            figures = reconciliation.figures(
                row, figure.usage, figure.certainty, figure.nano_units, figure.currency
            )
            by, reason = "operator", figure.reason
        return Reconcile(call=key, generation=row.generation, at=now(), figures=figures, by=by, reason=reason)

    @_typed
    async def EraseContent(
        self, request: pb.EraseContentRequest, _context: Context
    ) -> pb.EraseContentResponse:
        """Delete content of a call, a run or the tenant."""
        found = Violations()
        order = erasure_from(request, found, acting_for(request, found))
        _check(found)
        return pb.EraseContentResponse(calls=await self._ledger.order(order))

    # Spend

    @_typed
    async def GetSpend(self, request: pb.GetSpendRequest, _context: Context) -> pb.GetSpendResponse:
        """Return a page of sums."""
        found = Violations()
        asked = spend_asked(request, acting_for(request, found), found)
        _check(found)
        sums = await self._ledger.read(lambda connection: queries.get_spend(connection, asked))
        response = pb.GetSpendResponse()
        for each in sums[: asked.limit - 1]:
            fill_spend(response.spend.add(), each, is_cut=bool(request.period))
        if len(sums) == asked.limit:
            last = sums[-2]
            response.next_page_token = token_of(SpendPosition(last.starts_at, last.value, last.currency))
        return response

    # Ceilings

    @_typed
    async def SetCeiling(self, request: pb.SetCeilingRequest, _context: Context) -> pb.SetCeilingResponse:
        """Set a ceiling."""
        found = Violations()
        tenant = acting_for(request, found)
        asked = ceiling_from(
            request.ceiling, tenant, str(uuid.uuid4()), now(), found, by_admin=current_tenant().is_admin
        )
        _check(found)
        kept: Ceiling = await self._order(PutCeiling(ceiling=asked), _CEILINGS_OF_ADMINS)
        response = pb.SetCeilingResponse()
        standings = await self._ledger.read(
            lambda connection: queries.find_standings(connection, kept, now())
        )
        fill_ceiling(response.ceiling, kept, standings)
        return response

    @_typed
    async def GetCeiling(self, request: pb.GetCeilingRequest, _context: Context) -> pb.GetCeilingResponse:
        """Return one ceiling."""
        found = Violations()
        tenant = acting_for(request, found)
        _check(found)

        def read(connection: Connection) -> tuple[Ceiling, Any] | None:
            ceiling = queries.find_ceiling(connection, tenant, request.ceiling_id)
            if ceiling is None:
                return None
            return ceiling, queries.find_standings(connection, ceiling, now())

        kept = await self._ledger.read(read)
        if kept is None:
            raise Refused(no_such("Ceiling", request.ceiling_id))
        response = pb.GetCeilingResponse()
        fill_ceiling(response.ceiling, *kept)
        return response

    @_typed
    async def ListCeilings(
        self, request: pb.ListCeilingsRequest, _context: Context
    ) -> pb.ListCeilingsResponse:
        """Return a page of ceilings."""
        found = Violations()
        size, after = page_asked(request, found)
        tenant = acting_for(request, found)
        _check(found)

        def read(connection: Connection) -> list[tuple[Ceiling, Any]]:
            page = queries.list_ceilings(connection, tenant, after, size + 1)
            return [(each, queries.find_standings(connection, each, now())) for each in page]

        kept = await self._ledger.read(read)
        response = pb.ListCeilingsResponse()
        for ceiling, standings in kept[:size]:
            fill_ceiling(response.ceilings.add(), ceiling, standings)
        if len(kept) > size:
            response.next_page_token = page_token(kept[size - 1][0].ceiling_id)
        return response

    @_typed
    async def DeleteCeiling(
        self, request: pb.DeleteCeilingRequest, _context: Context
    ) -> pb.DeleteCeilingResponse:
        """Delete a ceiling."""
        found = Violations()
        order = DropCeiling(
            tenant=acting_for(request, found),
            ceiling_id=request.ceiling_id,
            by_admin=current_tenant().is_admin,
        )
        _check(found)
        if not await self._order(order, _CEILINGS_OF_ADMINS):
            raise Refused(no_such("Ceiling", request.ceiling_id))
        return pb.DeleteCeilingResponse()

    # Halts

    @_typed
    async def SetHalt(self, request: pb.SetHaltRequest, _context: Context) -> pb.SetHaltResponse:
        """Stop a tenant, a run or a model."""
        found = Violations()
        tenant = acting_for(request, found)
        halt = halt_from(request.halt, tenant, now(), found, by_admin=current_tenant().is_admin)
        _check(found)
        await self._order(PutHalt(halt=halt), _HALTS_OF_ADMINS)
        cut = self._engine.halted(halt)  # other servers see it when they next look
        if self._engine.telemetry is not None:
            self._engine.telemetry.halt_changed(
                tenant, halt.subject.scope, halt.subject.name, mode=halt.mode.value, cut=cut
            )
        response = pb.SetHaltResponse()
        fill_halt(response.halt, halt)
        return response

    @_typed
    async def ClearHalt(self, request: pb.ClearHaltRequest, _context: Context) -> pb.ClearHaltResponse:
        """Let a subject go on."""
        found = Violations()
        tenant = acting_for(request, found)
        subject = subject_from(request.subject, tenant, found, "subject")
        _check(found)
        order = DropHalt(subject=subject, by_admin=current_tenant().is_admin)
        if not await self._order(order, _HALTS_OF_ADMINS):
            raise Refused(no_such("Halt", f"{subject.scope}:{subject.name}".rstrip(":")))
        if self._engine.telemetry is not None:
            self._engine.telemetry.halt_changed(tenant, subject.scope, subject.name, cleared=True)
        return pb.ClearHaltResponse()

    @_typed
    async def ListHalts(self, request: pb.ListHaltsRequest, _context: Context) -> pb.ListHaltsResponse:
        """Return a page of halts."""
        found = Violations()
        size, after = page_asked(request, found)
        tenant = acting_for(request, found)
        _check(found)
        halts = await self._ledger.read(lambda connection: queries.list_halts(connection, tenant))
        places = {f"{each.subject.scope}:{each.subject.name}": each for each in halts}
        page, rest = page_of(places, size, after)
        response = pb.ListHaltsResponse(next_page_token=rest)
        for halt in page:
            fill_halt(response.halts.add(), halt)
        return response

    # What they share

    async def _order(self, order: Any, refusal: str) -> Any:
        """Give an order that only an admin may give in some cases. Raises Refused with these words in those."""
        reply = await self._ledger.order(order)
        if isinstance(reply, Guarded):
            raise Refused(admins_only(refusal))
        return reply

    @property
    def _ledger(self) -> Ledger:
        if self._engine.desk is None:
            raise Refused(no_ledger())
        return self._engine.desk.ledger

    def _key(self, request: NamesCall, found: Violations) -> CallKey:
        return CallKey(acting_for(request, found), call_id_from(request.call_id, found))

    async def _record(self, key: CallKey, generation: int | None, *, full: bool) -> Record:
        record = await self._ledger.read(
            lambda connection: find_record(connection, key, generation, full=full)
        )
        if record is None:
            raise Refused(no_such("CallRecord", key.call_id))
        return record


_CEILINGS_OF_ADMINS = (
    "ceilings on a tenant and on its models, and those that an admin set, are for admins to change; "
    "set one on a run of your own"
)
_HALTS_OF_ADMINS = "an admin set this halt, and only an admin may change or clear it"


def _check(found: Sequence[FieldViolation]) -> None:
    if found:
        raise Refused(mistaken(found))
