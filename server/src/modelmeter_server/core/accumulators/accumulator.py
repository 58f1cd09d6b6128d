"""What all accumulators share: the shape of the body, the state of the answer, and the ladder at its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import msgspec

from ..answers import FREE_TEXT, Answer, Delta, Expectation, ReasoningDelta, TextDelta, ToolCallDelta
from ..json_text import NotJson, begins_error_object, leading_members, loads_lenient
from ..ladder import Evidence, severed
from ..lenient import EventDecoder
from ..outcomes import Cause, Certainty, End, Ending, Stage
from ..provider_errors import ProviderError, failure_before_generation, read_error
from ..sse import EVENT_LIMIT, EventTooLarge, SseEvent, SseSplitter
from ..usage import AdditionalUsage, Usage
from ..verdict import Draft, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..errors import Failure

BYTES_PER_TOKEN = 4
"""Rough size of a token in the UTF-8 text of European languages; an estimate that is always marked as one."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known at one moment of a stream."""

    started: bool
    generated: bool
    complete: bool
    error: ProviderError | None
    stop_reason: str | None
    text: str
    reasoning: str
    tool_calls: tuple[tuple[str, str, str], ...]
    """(id, name, argument text so far) of the caller's tools."""
    forced_input: str | None
    """Argument text of the forced tool so far; `None` when it was not called."""
    usage: Usage | None
    additional_usage: tuple[AdditionalUsage, ...]
    certainty: Certainty
    model_served: str | None
    response_id: str | None


class _Named(msgspec.Struct):
    type: str = ""


_read_type = EventDecoder(_Named)
_BOM = b"\xef\xbb\xbf"


class Accumulator(ABC):
    """Read one provider answer from its bytes, as a stream of events or as one JSON body (R-H4).

    Feed it every byte, then call `finish` once. `snapshot` may be called at any moment.
    """

    def __init__(
        self,
        expectation: Expectation = FREE_TEXT,
        *,
        deltas: bool = False,
        event_limit: int = EVENT_LIMIT,
        scrub: Callable[[str], str] = str,
    ) -> None:
        """Start before the first byte.

        `deltas` keeps what arrives for `drain`; `scrub` removes configured keys from any text of the provider that a
        caller may read; an event over `event_limit` bytes is a dead connection.
        """
        self.done = False
        """Reading can end: the provider's end marker came, and what follows does not matter (R-O1)."""
        self.awaits_tail = False
        """Only a tail is still expected, so that the shorter tail timeout applies."""
        self.usage_changed = False
        """Another usage was told since this flag was last lowered."""
        self.skipped_events = 0
        """Events whose data was not JSON; each was skipped (R-S1)."""
        self.generated = False
        self._expectation = expectation
        self._scrub = scrub
        self._splitter = SseSplitter(event_limit=event_limit)
        self._keeps_deltas = deltas
        self._deltas: list[Delta] = []
        self._prelude: bytes | None = b""
        self._foreign = False
        self._body: bytearray | None = None
        self._error: ProviderError | None = None
        self._complete = False
        self._response_id: str | None = None
        self._model_served: str | None = None
        self._service_tier: str | None = None
        self._handlers: dict[str, Callable[[bytes], None]] = {"error": self._on_error}
        """What to do with an event, by its name; other events are nothing."""

    # Feeding

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the body. Raises EventTooLarge; the events before the large one count."""
        if self._prelude is not None:
            chunk = self._find_shape(chunk)
        if self._body is not None:
            self._body += chunk
            return
        try:
            events = self._splitter.feed(chunk)
        except EventTooLarge as error:
            self._take(error.events)
            raise
        if not self._splitter.recognised and b"\n" in chunk.lstrip():
            self._foreign = True
        self._take(events)

    def _take(self, events: list[SseEvent]) -> None:
        for event in events:
            if self.done:
                return
            self.feed_event(event.name, event.data)

    def feed_event(self, name: str, data: bytes) -> None:
        """Take one event. The name decides what it is; the JSON `type` only when there is no name (R-S0)."""
        try:
            handler = self._handlers.get(name or _read_type(data).type)
            if handler is not None:
                handler(data)
            elif self._proves_generation(name or _read_type(data).type):
                self.generated = True
        except NotJson:
            self.skipped_events += 1

    def _proves_generation(self, name: str) -> bool:
        """Say whether an event that has no handler is evidence by its name alone."""
        return False

    def _find_shape(self, chunk: bytes) -> bytes:
        """Tell a JSON document from an event stream by its first character; the label is not asked (R-H4)."""
        assert self._prelude is not None
        start = self._prelude + chunk
        visible = start.removeprefix(_BOM).lstrip()
        if not visible or _BOM.startswith(visible):
            self._prelude = start
            return b""
        self._prelude = None
        if visible[:1] in (b"{", b"["):
            self._body = bytearray()
            return visible
        return start

    def _on_error(self, data: bytes) -> None:
        """Remember the first error; an event named `error` is one whatever its data says."""
        self.awaits_tail = True
        if self._error is None:
            try:
                document = loads_lenient(data)
            except NotJson:
                document = None
            self._error = read_error(document) or ProviderError()

    # Deltas

    def _emit(self, delta: Delta) -> None:
        if self._keeps_deltas:
            self._deltas.append(delta)

    def drain(self) -> list[Delta]:
        """Return the deltas since the last call, neighbours of one kind joined into one."""
        deltas, self._deltas = self._deltas, []
        return coalesce(deltas)

    # What is known

    def snapshot(self) -> Snapshot:
        """Return everything known at this moment."""
        evidence = self._evidence()
        return Snapshot(
            started=self._started,
            generated=self.generated,
            complete=self._complete,
            error=self._error,
            stop_reason=self._stop_reason,
            text=self._text(),
            reasoning=self._reasoning(),
            tool_calls=self._open_calls(),
            forced_input=self._forced_arguments(),
            usage=self._usage(),
            additional_usage=evidence.additional_usage,
            certainty=evidence.certainty,
            model_served=self._model_served,
            response_id=self._response_id,
        )

    @property
    def _started(self) -> bool:
        return self.generated

    @property
    @abstractmethod
    def _stop_reason(self) -> str | None: ...

    @abstractmethod
    def _usage(self) -> Usage | None:
        """Return the figures told so far, zeros included; `None` when nothing was told."""

    @abstractmethod
    def _usage_is_final(self) -> bool: ...

    def _additional_usage(self) -> tuple[AdditionalUsage, ...]:
        return ()

    @abstractmethod
    def _text(self) -> str: ...

    @abstractmethod
    def _reasoning(self) -> str: ...

    @abstractmethod
    def _open_calls(self) -> tuple[tuple[str, str, str], ...]: ...

    @abstractmethod
    def _forced_arguments(self) -> str | None: ...

    def _evidence(self) -> Evidence:
        usage = self._usage()
        seen = usage if usage is not None and usage.is_seen else None
        text = self._text()
        return Evidence(
            generated=self.generated,
            usage=seen,
            usage_is_final=self._usage_is_final(),
            additional_usage=self._additional_usage(),
            estimated_output_tokens=self._estimate(text),
            model_served=self._model_served,
            response_id=self._response_id,
            partial_text=text,
        )

    def _estimate(self, text: str) -> int | None:
        pieces = [text, self._reasoning(), self._forced_arguments() or ""]
        pieces += [arguments for _, _, arguments in self._open_calls()]
        size = sum(len(piece.encode()) for piece in pieces)
        return -(-size // BYTES_PER_TOKEN) or None

    # The end

    def finish(self, ending: Ending) -> Answer | Failure:
        """Judge what arrived, given how the reading ended. Call it once, after the last `feed`."""
        if self._body is not None:
            return self._finish_body(self._body, ending)
        self._take(self._splitter.close(ending.end is End.CLEAN))
        if self._error is not None:
            return self._finish_error(self._error, ending)
        if self._complete:
            return self._conclude()
        if self._is_foreign(ending):
            self.generated = True
            return severed(
                self._evidence(), ending, "the provider's answer is neither an event stream nor JSON"
            )
        return severed(self._evidence(), ending, self._severed_message(ending))

    def _is_foreign(self, ending: Ending) -> bool:
        """Say whether text came that is no event stream at all, such as a proxy's page with status 200.

        Whoever wrote it, the request was accepted by someone: claiming that nothing happened would invite a second
        purchase (R-H6). A fragment of a first line says nothing.
        """
        if self._prelude is not None or self._splitter.recognised:
            return False
        return self._foreign or ending.end is End.CLEAN

    def _conclude(self) -> Answer | Failure:
        """Judge an answer whose end marker came."""
        return self._judged(self._draft())

    def _judged(self, draft: Draft) -> Answer | Failure:
        return judge(draft, self._expectation)

    @abstractmethod
    def _draft(self) -> Draft:
        """Return the whole answer, unjudged."""

    def _finish_error(self, error: ProviderError, ending: Ending) -> Answer | Failure:
        evidence = self._evidence()
        stage = max(ending.stage, Stage.BODY)
        if evidence.generated or evidence.usage is not None:
            ended = Ending(end=ending.end, cause=Cause.PROVIDER, stage=stage)
            code = self._scrub(error.own_code)
            message = f"the provider reported an error ({code}) after it had begun to answer"
            return severed(evidence, ended, message, provider_code=code, retry_after=error.retry_after)
        return failure_before_generation(
            error.http_status(),
            error,
            source="an error inside its answer",
            stage=stage,
            scrub=self._scrub,
            retry_after=error.retry_after,
            provider_response_id=self._response_id,
            model_served=self._model_served,
        )

    def _severed_message(self, ending: Ending) -> str:
        if ending.detail:
            return ending.detail
        if ending.end is End.CLEAN:
            return "the provider ended its answer before the end marker"
        return "the connection broke before the answer was whole"

    # One JSON body

    def _finish_body(self, body: bytearray, ending: Ending) -> Answer | Failure:
        """Judge an answer that came as one document (R-H6)."""
        if ending.end is End.CLEAN:
            try:
                document = loads_lenient(bytes(body))
            except NotJson:
                return self._finish_cut_body(body, ending)
            return self._finish_document(document, ending)
        return self._finish_cut_body(body, ending)

    def _finish_document(self, document: object, ending: Ending) -> Answer | Failure:
        if isinstance(document, dict) and self._take_document(document):
            return self._conclude()
        error = read_error(document)
        if error is not None:
            return self._finish_error(error, ending)
        self.generated = True
        if isinstance(document, dict):
            self._take_members(document)
        return judge(self._non_answer(), self._expectation)

    def _non_answer(self) -> Draft:
        return Draft(
            text="",
            stop=self._draft().stop,
            stop_reason=self._stop_reason or "",
            evidence=self._evidence(),
            refusal="the provider's document is not an answer",
        )

    def _finish_cut_body(self, body: bytearray, ending: Ending) -> Answer | Failure:
        text = body.decode("utf-8", "replace")
        members, _ = leading_members(text)
        if begins_error_object(text):
            error = read_error(members)
            if error is not None:
                return self._finish_error(error, ending)
            return severed(self._evidence(), ending, "the provider began to report an error, which was cut")
        self.generated = True
        self._take_members(members)
        detail = ending.detail or "the provider's document was cut"
        return severed(self._evidence(), ending, detail)

    @abstractmethod
    def _take_document(self, document: dict[str, object]) -> bool:
        """Take a whole answer document; return False if it is none of this format."""

    @abstractmethod
    def _take_members(self, members: Mapping[str, object]) -> None:
        """Take the bill from the members that are whole, in their order: the stop word may stand before the usage."""


def coalesce(deltas: list[Delta]) -> list[Delta]:
    """Join neighbouring deltas of one kind, and of one tool call."""
    joined: list[Delta] = []
    run: list[str] = []
    for delta in deltas:
        if joined and _continues(joined[-1], delta):
            run.append(_piece(delta))
            continue
        if joined:
            joined[-1] = _extended(joined[-1], run)
        joined.append(delta)
        run = [_piece(delta)]
    if joined:
        joined[-1] = _extended(joined[-1], run)
    return joined


def _continues(last: Delta, delta: Delta) -> bool:
    if isinstance(delta, ToolCallDelta):
        return isinstance(last, ToolCallDelta) and last.index == delta.index and not delta.name
    return type(last) is type(delta)


def _piece(delta: Delta) -> str:
    return delta.arguments_json if isinstance(delta, ToolCallDelta) else delta.text


def _extended(delta: Delta, run: list[str]) -> Delta:
    text = "".join(run)
    if isinstance(delta, ToolCallDelta):
        return ToolCallDelta(index=delta.index, id=delta.id, name=delta.name, arguments_json=text)
    return TextDelta(text) if isinstance(delta, TextDelta) else ReasoningDelta(text)
