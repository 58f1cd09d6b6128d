"""What a session goes on from: what its provider remembers by the socket, and what is kept to be sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from modelmeter_server.core.errors import Failure, failure
from modelmeter_server.core.outcomes import Cause, Code, Disposition, Kind
from modelmeter_server.core.requests import CompletionRequest, Sensitivity, TurnScope
from modelmeter_server.core.session_frames import CONNECTION_LIMIT, PREVIOUS_NOT_FOUND
from modelmeter_server.core.transcripts import Transcript
from modelmeter_server.drivers.driver import TurnTerms

if TYPE_CHECKING:
    from modelmeter_server.core.answers import Answer
    from modelmeter_server.core.calls import CallOutcome
    from modelmeter_server.drivers.driver import SessionLink

CONTEXT_LOST = (
    "what was said before is lost with the socket that the provider remembered it by, and the session keeps no "
    'transcript: send previous_response_id = "" to begin anew, or open sessions with keep_transcript'
)

BYTES_PER_TOKEN = 2
"""Bytes of a transcript that are held for as one token: what the ledger takes a prompt's bytes for."""


class SessionMemory:
    """The conversation of one session.

    Wherever `asked` is a parameter it is the response that a turn names: `None` goes on from where the session is, an
    empty one begins anew, and any other goes on from that response.
    """

    def __init__(self, link: SessionLink | None, *, keeps: bool) -> None:
        """Remember nothing yet. `keeps`: what was said may be sent again. Without a `link` it always has to be."""
        self.response_id: str | None = None
        """The response that the next turn goes on from, as far as the provider remembers it."""
        self._link = link
        self._keeps = keeps or link is None
        self._transcript = Transcript()
        self._connection = 0
        self._has_context = False
        self._context_tokens = 0
        self._sensitivity = Sensitivity.PUBLIC

    def labelled(self, asked: str | None, request: CompletionRequest) -> CompletionRequest:
        """Return a request that is as confidential as what was said before, unless it begins anew."""
        if asked == "" or request.sensitivity >= self._sensitivity:
            return request
        return msgspec.structs.replace(request, sensitivity=self._sensitivity)

    def terms(self, asked: str | None, *, generate: bool) -> TurnTerms | Failure:
        """Return how a turn goes on from what was said, or why it cannot."""
        link = self._link
        if link is None:
            return self._emulated(asked)
        previous, expand = asked or None, _itself
        is_ready = link.is_ready()
        if asked is None and self._has_context:
            if self.response_id is not None and is_ready and link.connection == self._connection:
                previous = self.response_id
            elif self._keeps and self._transcript.is_whole:
                expand = self._transcript.before
            else:
                return failure(Kind.REFUSED, CONTEXT_LOST, cause=Cause.LIMIT, code=Code.FAILED_PRECONDITION)
        return TurnTerms(expand=expand, previous_response_id=previous, generate=generate)

    def _emulated(self, asked: str | None) -> TurnTerms | Failure:
        if asked == "":
            return TurnTerms(expand=_itself)
        if not self._transcript.is_whole:
            message = (
                f"the conversation is too long to be kept ({self._transcript.limit:,} bytes): begin anew"
            )
            return failure(Kind.REFUSED, message, cause=Cause.LIMIT, code=Code.FAILED_PRECONDITION)
        return TurnTerms(expand=self._transcript.before)

    def whole_terms(self, *, generate: bool) -> TurnTerms:
        """Return the terms of a turn that is sent with everything that was said before."""
        return TurnTerms(expand=self._transcript.before, generate=generate)

    def scope(self, asked: str | None, terms: TurnTerms) -> TurnScope:
        """Return what a turn on a socket stands for, with a bound on the tokens that it goes on from."""
        is_anew = terms.previous_response_id is None and terms.expand is _itself
        tokens = 0 if is_anew else max(self._context_tokens, self._transcript.bytes // BYTES_PER_TOKEN)
        return TurnScope(previous_response_id=asked, generate=terms.generate, context_tokens=tokens)

    def may_send_again(
        self, asked: str | None, terms: TurnTerms, result: Answer | Failure, *, is_stale: bool
    ) -> bool:
        """Say whether a turn that did not happen goes out once more, over another socket or with everything.

        `is_stale`: its socket had been closed before it was sent.
        """
        if self._link is None or not self._keeps:
            return False
        if not isinstance(result, Failure) or result.disposition is not Disposition.DID_NOT_HAPPEN:
            return False
        if asked or (terms.previous_response_id and not self._transcript.is_whole):
            return False  # what the caller's own response knew is not known here
        is_forgotten = result.provider_code == PREVIOUS_NOT_FOUND and terms.previous_response_id is not None
        return is_forgotten or is_stale or result.provider_code == CONNECTION_LIMIT

    def learn(self, asked: str | None, request: CompletionRequest, outcome: CallOutcome) -> None:
        """Take over what a turn has added to the conversation."""
        answer = outcome.result
        if isinstance(answer, Failure):
            if answer.provider_code == PREVIOUS_NOT_FOUND and asked is None:
                self.response_id = None
            return
        if (
            outcome.replayed
            and self.response_id is not None
            and answer.provider_response_id == self.response_id
        ):
            return  # the turn before, asked for once more
        if asked is not None:
            self._transcript.clear()
        if asked:
            self._transcript.lose()
        if self._keeps:
            self._transcript.add(request, answer)
        self._sensitivity = request.sensitivity
        self._has_context = True
        self._context_tokens = answer.usage.spend_tokens if answer.usage is not None else 0
        # A recorded answer's response is no news to the socket.
        self.response_id = None if outcome.replayed else answer.provider_response_id or None
        self._connection = 0 if self._link is None else self._link.connection


def _itself(request: CompletionRequest) -> CompletionRequest:
    return request
