"""A stored answer put together from its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from ._lost import CallRecord, error_without_outcome
from .v1 import completion_pb2

if TYPE_CHECKING:
    from .v1 import ledger_service_pb2

import grpc


class Whole:
    """Take the parts of a stored answer, then give the answer."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._total = 0

    def add(self, response: ledger_service_pb2.ReadAnswerResponse) -> None:
        """Take the next part."""
        self._parts.append(response.part)
        self._total = response.total_bytes

    def completion(self) -> completion_pb2.Completion:
        """Return the answer. Raises LostContactError when parts are missing or are no answer."""
        data = b"".join(self._parts)
        if data and len(data) == self._total:
            try:
                return completion_pb2.Completion.FromString(data)
            except DecodeError:
                pass
        raise error_without_outcome(CallRecord(), grpc.StatusCode.OK, "the stored answer is not whole")
