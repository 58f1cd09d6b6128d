"""A call whose answer is known without asking anyone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelmeter_server.core.accumulators.token_count import TokenCountAccumulator

if TYPE_CHECKING:
    from modelmeter_server.core.accumulators import Accumulator
    from modelmeter_server.core.answers import Answer
    from modelmeter_server.core.calls import Attempt
    from modelmeter_server.core.errors import Failure
    from modelmeter_server.core.outcomes import Cause


class KnownAnswer:
    """A provider call that sends nothing."""

    def __init__(self, answer: Answer) -> None:
        """Take the answer."""
        self.accumulator: Accumulator = TokenCountAccumulator(member="")
        """Has read nothing, and never will."""
        self.received = 0
        self._answer = answer

    async def run(self) -> Answer | Failure:
        """Return the answer."""
        return self._answer

    def cut(self, cause: Cause, detail: str = "") -> None:
        """Do nothing: there is nothing to end."""

    @property
    def fault(self) -> BaseException | None:
        """Return nothing: no code of ours runs."""
        return None

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Return nothing: nobody was asked."""
        return ()
