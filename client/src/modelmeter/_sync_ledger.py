"""The ledger, for threads. A thin twin of `_async_ledger`; comes from `Client.ledger`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, Unpack

from . import _ledger_requests as requests
from ._ledger_results import call_from, ceiling_from, halt_from, spend_from
from ._lost import CallRecord
from ._results import completion_from, embeddings_from
from ._tenant import naming
from ._wholes import Whole
from .records import Reconciliation
from .v1 import ledger_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ._channel import Metadata
    from ._ledger_requests import CallFilter, CallId, SpendOptions
    from ._senders import StreamOf, UnaryOf
    from .enums import HaltMode, Scope, WindowKind
    from .records import Ceiling, Figure, Halt, LedgerCall, Spend, Window
    from .results import Completion, Embeddings
    from .v1.ledger_service_pb2_grpc import LedgerServiceStub

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class Ledger:
    """What calls cost, what may still be spent, and how figures become true.

    Methods take `timeout` and `metadata` and raise as those of `Client` do. A name that the ledger does not have
    raises `RefusedError` with code NOT_FOUND; a database that is away, `LedgerDownError`; a server that keeps no
    ledger, `RefusedError` with reason NO_LEDGER, or `LostContactError` with code UNIMPLEMENTED if it is too old.
    """

    def __init__(
        self,
        stub: Callable[[], LedgerServiceStub],
        unary: UnaryOf,
        stream: StreamOf,
        tenant: str = "",
    ) -> None:
        self._stub = stub
        self._senders = (unary, stream)
        self._unary = naming(unary, tenant)
        self._stream = naming(stream, tenant)

    def of(self, tenant: str) -> Ledger:
        """Return the same for another tenant. For admins: a server refuses it to everybody else."""
        return Ledger(self._stub, *self._senders, tenant)

    def get_call(
        self,
        call_id: CallId,
        *,
        generation: int = 0,
        full: bool = False,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> LedgerCall:
        """Return the record of a call, `full` with attempts and content. Works after its caller has vanished.

        `generation` says which purchase under the id, 0 the newest.
        """
        request = pb.GetCallRequest(
            call_id=str(call_id), generation=generation, view=requests.view(full=full)
        )
        response = self._unary(self._stub().GetCall, request, CallRecord(), timeout, metadata)
        return call_from(response.call)

    def list_calls(
        self,
        *,
        full: bool = False,
        page_size: int = 0,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        **only: Unpack[CallFilter],
    ) -> Iterator[LedgerCall]:
        """Yield calls, the newest first, page by page as they are asked for; `timeout` holds for each page.

        `full` adds attempts, and content of up to 64 KiB a call.
        """
        request = requests.list_calls(full=full, page_size=page_size, **only)
        while True:
            page = self._unary(self._stub().ListCalls, request, CallRecord(), timeout, metadata)
            for call in page.calls:
                yield call_from(call)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def read_answer(
        self,
        call_id: CallId,
        *,
        generation: int = 0,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> Completion:
        """Return a stored answer, however large it is.

        Raises `OutcomeGoneError` when its content is no longer kept, and `RefusedError` with reason NO_ANSWER or
        STILL_RUNNING for a call that has none; TypeError for vectors.
        """
        request = pb.ReadAnswerRequest(call_id=str(call_id), generation=generation)
        whole = Whole()
        for part in self._stream(self._stub().ReadAnswer, request, CallRecord(), timeout, metadata):
            whole.add(part)
        return completion_from(whole.completion())

    def read_embeddings(
        self,
        call_id: CallId,
        *,
        generation: int = 0,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> Embeddings:
        """Return the stored vectors of an embedding. Raises like `read_answer`; TypeError for a completion."""
        request = pb.ReadAnswerRequest(call_id=str(call_id), generation=generation)
        whole = Whole()
        for part in self._stream(self._stub().ReadAnswer, request, CallRecord(), timeout, metadata):
            whole.add(part)
        return embeddings_from(whole.embeddings())

    def spend(
        self,
        *,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        **options: Unpack[SpendOptions],
    ) -> list[Spend]:
        """Return sums of what calls consumed, by period, value and currency; `timeout` holds for each page."""
        request = requests.spend(**options)
        found: list[Spend] = []
        while True:
            page = self._unary(self._stub().GetSpend, request, CallRecord(), timeout, metadata)
            found += map(spend_from, page.spend)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def set_ceiling(
        self,
        scope: Scope | str,
        name: str = "",
        *,
        tokens: int | None = None,
        nano_units: int | None = None,
        currency: str = "",
        window: Window | WindowKind | str | None = None,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> Ceiling:
        """Bound what a tenant, a run or a model may consume; replaces a ceiling of the same subject, window, currency.

        `scope` is `"tenant"`, `"run"` or `"model"`; `"run"` without a name bounds every run by itself. `window` is
        TOTAL unless given: `"day"`, `"month"` or a `Window`.
        """
        request = requests.set_ceiling(scope, name, window, tokens, nano_units, currency)
        response = self._unary(self._stub().SetCeiling, request, CallRecord(), timeout, metadata)
        return ceiling_from(response.ceiling)

    def ceiling(
        self, ceiling_id: str, *, timeout: float | None = None, metadata: Metadata | None = None
    ) -> Ceiling:
        """Return a ceiling and where its subject stands."""
        request = pb.GetCeilingRequest(ceiling_id=ceiling_id)
        response = self._unary(self._stub().GetCeiling, request, CallRecord(), timeout, metadata)
        return ceiling_from(response.ceiling)

    def ceilings(self, *, timeout: float | None = None, metadata: Metadata | None = None) -> list[Ceiling]:
        """Return every ceiling with its standings; `timeout` holds for each page."""
        found: list[Ceiling] = []
        request = pb.ListCeilingsRequest()
        while True:
            page = self._unary(self._stub().ListCeilings, request, CallRecord(), timeout, metadata)
            found += map(ceiling_from, page.ceilings)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def delete_ceiling(
        self, ceiling_id: str, *, timeout: float | None = None, metadata: Metadata | None = None
    ) -> None:
        """Delete a ceiling."""
        request = pb.DeleteCeilingRequest(ceiling_id=ceiling_id)
        self._unary(self._stub().DeleteCeiling, request, CallRecord(), timeout, metadata)

    def reconcile(
        self,
        call_id: CallId,
        figure: Figure | None = None,
        *,
        generation: int = 0,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> Reconciliation:
        """Ask the provider for a truer figure of an ended call, or book the operator's own.

        Raises `RefusedError` with reason NOT_RECONCILABLE when the provider cannot tell; the message says what helps.
        """
        request = requests.reconcile(call_id, generation, figure)
        response = self._unary(self._stub().ReconcileCall, request, CallRecord(), timeout, metadata)
        return Reconciliation(call_from(response.call), response.raised)

    def halt(
        self,
        scope: Scope | str,
        name: str = "",
        *,
        mode: HaltMode | str | None = None,
        reason: str = "",
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> Halt:
        """Stop a tenant, a run or a model; with mode CUT also the calls under way."""
        request = requests.set_halt(scope, name, mode, reason)
        response = self._unary(self._stub().SetHalt, request, CallRecord(), timeout, metadata)
        return halt_from(response.halt)

    def clear_halt(
        self,
        scope: Scope | str,
        name: str = "",
        *,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        """Let a tenant, a run or a model go on."""
        request = pb.ClearHaltRequest(subject=requests.subject(scope, name))
        self._unary(self._stub().ClearHalt, request, CallRecord(), timeout, metadata)

    def halts(self, *, timeout: float | None = None, metadata: Metadata | None = None) -> list[Halt]:
        """Return every halt that is set; `timeout` holds for each page."""
        found: list[Halt] = []
        request = pb.ListHaltsRequest()
        while True:
            page = self._unary(self._stub().ListHalts, request, CallRecord(), timeout, metadata)
            found += map(halt_from, page.halts)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def erase(
        self,
        *,
        call_id: CallId | None = None,
        run_id: str | None = None,
        everything: bool = False,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> int:
        """Delete the content of a call, a run or the whole tenant for good; return how many calls lost theirs.

        Figures and sums stay. Raises TypeError unless exactly one of the three is named.
        """
        request = requests.erase(call_id, run_id, everything=everything)
        response = self._unary(self._stub().EraseContent, request, CallRecord(), timeout, metadata)
        return response.calls
