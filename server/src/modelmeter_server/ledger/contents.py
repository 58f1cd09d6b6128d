"""What an outcome consists of, as it is kept: one JSON object with a version. Pure.

    {"v": 1, "answer": {...} | "failure": {...}, "attempts": [...]}

Fields that a later version adds are passed over by an earlier one; fields that an earlier one did not write have their
defaults. A prompt is never part of it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from modelmeter_server.core.answers import Answer
from modelmeter_server.core.calls import Attempt, CallOutcome
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.text import well_formed

VERSION = 1
"""Rises when what is written can no longer be read by what came before."""


class ContentUnreadable(Exception):
    """The content is of a later version, or is no content at all."""


class Content(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kept outcome; exactly one of answer and failure is there."""

    v: int
    """The version that wrote it."""
    answer: Answer | None = None
    failure: Failure | None = None
    """Without its provider's body, which is kept beside it."""
    attempts: tuple[Attempt, ...] = ()
    """The last ones, as the outcome told them."""

    @property
    def result(self) -> Answer | Failure:
        """Return what the call ended with."""
        result = self.answer or self.failure
        if result is None:
            message = "the content holds neither an answer nor a failure"
            raise ContentUnreadable(message)
        return result


_decoder = msgspec.json.Decoder(Content)


def encode(outcome: CallOutcome) -> bytes:
    """Return the content of an outcome."""
    result = outcome.result
    if isinstance(result, Answer):
        content = Content(v=VERSION, answer=result, attempts=outcome.attempts)
    else:
        bare = msgspec.structs.replace(result, provider_body=b"")
        content = Content(v=VERSION, failure=bare, attempts=outcome.attempts)
    try:
        return msgspec.json.encode(content)
    except UnicodeEncodeError:  # half a character; a paid answer must not be lost to it
        return msgspec.json.encode(_mended(msgspec.to_builtins(content)))


def decode(data: bytes) -> Content:
    """Return a content. Raises ContentUnreadable."""
    try:
        content = _decoder.decode(data)
    except msgspec.DecodeError as error:
        message = f"the content cannot be read: {error}"
        raise ContentUnreadable(message) from None
    if content.v > VERSION:
        message = f"the content is of version {content.v}, and this server reads up to {VERSION}"
        raise ContentUnreadable(message)
    return content


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list | tuple):
        return [_mended(each) for each in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(each) for key, each in value.items()}
    return value
