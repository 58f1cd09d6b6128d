"""ModelService: convert, call the engine, convert. A failure goes out as a status that carries its bill.

The fence: the moment the provider's request is written, initial metadata is sent. From then on no gRPC client
repeats the call by itself (gRFC A6), whatever its retry policy says.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from modelmeter.v1 import model_service_pb2, model_service_pb2_grpc
from modelmeter_server.core.answers import Answer
from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Cause
from modelmeter_server.core.token_count import costless_outcome
from modelmeter_server.engine.plan import Refused, find_model, mistaken
from modelmeter_server.engine.reading import TOO_SLOW
from modelmeter_server.engine.stream import FLUSH_INTERVAL, LiveFeed, Started

from .boundary import current_call_id
from .convert_answer import event_from, fill_completion
from .convert_count import fill_count
from .convert_embedding import embedding_request, fill_embeddings
from .convert_model import fill_model
from .convert_request import Violations, completion_request, flush_interval, from_sequence
from .delivery import Fill, delivered
from .identity import current_tenant
from .leaving import seconds_left, why_left
from .paging import page_asked, page_token
from .session_service import SessionRpc
from .slow_reader import TooSlow, break_off, patient_writer, reading
from .status import fill_in_band, trailer
from .stays import on_end_of_credential

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from grpc.aio import ServicerContext

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
        SessionRequest,
        SessionResponse,
        StreamCompleteRequest,
        StreamCompleteResponse,
    )
    from modelmeter_server.engine.call import Call
    from modelmeter_server.engine.engine import Engine

    from .slow_reader import Write

CALL_ID_KEY: Final = "modelmeter-call-id"
"""Initial metadata with the call's id: the sign that the provider's request was written."""


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """Serve completions, counts, embeddings and the catalog.

    All handlers are coroutines: a plain generator would block the loop.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def Complete(
        self, request: CompleteRequest, context: ServicerContext[CompleteRequest, CompleteResponse]
    ) -> CompleteResponse:
        """Return a whole completion."""
        found = Violations()
        tenant = current_tenant()
        asked = completion_request(request, found, tenant.default_sensitivity)
        call = self._engine.start(asked, budget=seconds_left(context), violations=found, tenant=tenant)
        response = model_service_pb2.CompleteResponse()
        await _answer(call, context, partial(fill_completion, response.completion))
        return response

    async def CountTokens(
        self, request: CountTokensRequest, context: ServicerContext[CountTokensRequest, CountTokensResponse]
    ) -> CountTokensResponse:
        """Return how many input tokens a call would have."""
        found = Violations("request.")
        tenant = current_tenant()
        asked = completion_request(request.request, found, tenant.default_sensitivity)
        budget = seconds_left(context)
        call = self._engine.count(asked, budget=budget, violations=found, prefix=found.prefix, tenant=tenant)
        response = model_service_pb2.CountTokensResponse()
        await _answer(call, context, partial(fill_count, response.count), is_free=True)
        return response

    async def Embed(
        self, request: EmbedRequest, context: ServicerContext[EmbedRequest, EmbedResponse]
    ) -> EmbedResponse:
        """Return the vectors of a batch of texts."""
        found = Violations()
        tenant = current_tenant()
        asked = embedding_request(request, found, tenant.default_sensitivity)
        call = self._engine.embed(asked, budget=seconds_left(context), violations=found, tenant=tenant)
        response = model_service_pb2.EmbedResponse()
        await _answer(call, context, partial(fill_embeddings, response.embeddings))
        return response

    async def StreamComplete(  # type: ignore[override]  # writes by itself: it hears of a leaving caller in one shape
        self,
        request: StreamCompleteRequest,
        context: ServicerContext[StreamCompleteRequest, StreamCompleteResponse],
    ) -> None:
        """Send a completion as it comes."""
        found = Violations("request.")
        tenant = current_tenant()
        asked = completion_request(request.request, found, tenant.default_sensitivity)
        interval = flush_interval(request, FLUSH_INTERVAL, found)
        position = from_sequence(request, found, has_ledger=self._engine.desk is not None)
        budget = seconds_left(context)
        call = self._engine.start(
            asked, budget=budget, deltas=True, violations=found, prefix=found.prefix, tenant=tenant
        )
        current_call_id.set(call.call_id)
        feed = LiveFeed(call, interval, position)
        on_end_of_credential(partial(_expel, call))
        try:
            with reading(call):
                await _read_out(feed, context, self._engine.slow_reader_seconds)
        except TooSlow:
            call.let_go(Cause.LIMIT, TOO_SLOW)
            feed.close()
            await break_off(context, await call.outcome())
        except BaseException as error:
            call.cut(*why_left(context, error))
            raise
        finally:
            feed.close()

    async def Session(  # type: ignore[override]  # writes by itself, as StreamComplete
        self,
        requests: AsyncIterator[SessionRequest],
        context: ServicerContext[SessionRequest, SessionResponse],
    ) -> None:
        """Hold a conversation of many turns."""
        refused = await SessionRpc(self._engine, requests, context).run()
        if refused is not None:
            await _refuse(context, refused)

    async def ListModels(
        self, request: ListModelsRequest, context: ServicerContext[ListModelsRequest, ListModelsResponse]
    ) -> ListModelsResponse:
        """Return a page of models."""
        found = Violations()
        size, after = page_asked(request, found)
        if found:
            await _refuse(context, mistaken(found))
        models, rest = self._engine.catalog.page(after, size, current_tenant().may_use)
        response = model_service_pb2.ListModelsResponse(next_page_token=page_token(rest) if rest else "")
        for model in models:
            fill_model(response.models.add(), model)
        return response

    async def GetModel(
        self, request: GetModelRequest, context: ServicerContext[GetModelRequest, GetModelResponse]
    ) -> GetModelResponse:
        """Return one model."""
        try:
            model = find_model(self._engine.catalog, request.name, field="name", tenant=current_tenant())
        except Refused as refusal:
            await _refuse(context, refusal.verdict, request.name)
        response = model_service_pb2.GetModelResponse()
        fill_model(response.model, model)
        return response


async def _answer(
    call: Call, context: ServicerContext[Any, Any], fill: Fill, *, is_free: bool = False
) -> None:
    """Wait for a call's outcome and write its answer with `fill`; a failure ends the RPC.

    What `is_free` needs no fence: whoever repeats it buys nothing.
    """
    current_call_id.set(call.call_id)
    on_end_of_credential(partial(_expel, call))
    try:
        if await call.dispatched() and not is_free:
            await context.send_initial_metadata(((CALL_ID_KEY, call.call_id),))
        outcome = await call.outcome()
    except BaseException as error:
        call.cut(*why_left(context, error))
        raise
    outcome = delivered(fill, outcome)
    if is_free:
        outcome = costless_outcome(outcome)
    if isinstance(outcome.result, Failure):
        await _abort(context, outcome, outcome.result)


async def _read_out(feed: LiveFeed, context: ServicerContext[Any, Any], seconds: float) -> None:
    """Send what comes. Raises TooSlow when the caller takes none of it for so long."""
    async with patient_writer(context, seconds) as write:
        failed = await _relay(feed, context, write)
    if failed is not None:
        await _abort(context, *failed)


async def _relay(
    feed: LiveFeed, context: ServicerContext[Any, Any], write: Write
) -> tuple[CallOutcome, Failure] | None:
    """Send a call to its end; return how it failed, if it did, for the status."""
    while True:
        for sequence, event in await feed.numbered():
            if isinstance(event, CallOutcome):
                return await _finish(event, write)
            if isinstance(event, Started):
                await context.send_initial_metadata(((CALL_ID_KEY, event.call_id),))
            await write(event_from(event, sequence))


async def _finish(outcome: CallOutcome, write: Write) -> tuple[CallOutcome, Failure] | None:
    response = model_service_pb2.StreamCompleteResponse()
    if isinstance(outcome.result, Answer):
        outcome = delivered(partial(fill_completion, response.completion), outcome)
    failed = outcome.result if isinstance(outcome.result, Failure) else None
    if failed is not None:
        fill_in_band(response.failed, outcome, failed)
    await write(response)
    return None if failed is None else (outcome, failed)


def _expel(call: Call, reason: str) -> None:
    """Cut the call of a caller whose credential has ended; it goes on for others who have joined it."""
    call.cut(Cause.CALLER if call.audience.has_joiners else Cause.LIMIT, f"{reason}, and so the call was cut")


async def _abort(context: ServicerContext[Any, Any], outcome: CallOutcome, failed: Failure) -> NoReturn:
    # Not abort_with_status: instrumentation does not see its code.
    end = trailer(outcome, failed)
    await context.abort(end.code, end.message, end.metadata)


async def _refuse(context: ServicerContext[Any, Any], failed: Failure, model: str = "") -> NoReturn:
    await _abort(context, CallOutcome(call_id="", model_asked=model, result=failed), failed)
