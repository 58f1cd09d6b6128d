"""Read the answer of a counting endpoint: one number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..counters import counter
from ..token_count import TokenCount
from .document import DocumentAccumulator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..answers import Answer
    from ..errors import Failure
    from ..usage import Usage


class TokenCountAccumulator(DocumentAccumulator):
    """Read one count. Nothing that it can end with was bought; `core.token_count.costless` says so."""

    def __init__(self, *args: Any, member: str, **options: Any) -> None:
        """Find the count in the document's member of this name."""
        super().__init__(*args, **options)
        self._member = member
        self._count: int | None = None

    def _take_document(self, document: dict[str, object]) -> bool:
        self._count = counter(document.get(self._member))
        self._complete = self._count is not None
        return self._complete

    def _take_members(self, members: Mapping[str, object]) -> None:
        """Take nothing: a cut document has no count, and no bill."""

    def _usage(self) -> Usage | None:
        return None

    def _usage_is_final(self) -> bool:
        return False

    def _answer(self) -> Answer | Failure:
        assert self._count is not None
        return TokenCount(input_tokens=self._count)
