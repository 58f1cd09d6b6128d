"""A stored answer put together from its parts."""

from __future__ import annotations

from typing import TypeVar

import grpc
from google.protobuf.message import DecodeError

from ._lost import CallRecord, error_without_outcome
from .v1 import completion_pb2, embedding_pb2, ledger_service_pb2

_Answer = TypeVar("_Answer", completion_pb2.Completion, embedding_pb2.Embeddings)


class Whole:
    """Take the parts of a stored answer, then give the answer."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._total = 0
        self._is_batch = False

    def add(self, response: ledger_service_pb2.ReadAnswerResponse) -> None:
        """Take the next part."""
        self._parts.append(response.part)
        self._total = response.total_bytes
        self._is_batch = response.operation == ledger_service_pb2.OPERATION_EMBED

    def completion(self) -> completion_pb2.Completion:
        """Return the answer; TypeError for vectors. Raises LostContactError when parts are missing or are no answer."""
        if self._is_batch:
            message = "the stored answer is vectors: read it with read_embeddings"
            raise TypeError(message)
        return self._parsed(completion_pb2.Completion)

    def embeddings(self) -> embedding_pb2.Embeddings:
        """Return vectors; TypeError for a completion. Raises LostContactError like `completion`."""
        if self._parts and not self._is_batch:
            message = "the stored answer is a completion: read it with read_answer"
            raise TypeError(message)
        return self._parsed(embedding_pb2.Embeddings)

    def _parsed(self, kind: type[_Answer]) -> _Answer:
        data = b"".join(self._parts)
        if data and len(data) == self._total:
            try:
                return kind.FromString(data)
            except DecodeError:
                pass
        raise error_without_outcome(CallRecord(), grpc.StatusCode.OK, "the stored answer is not whole")
