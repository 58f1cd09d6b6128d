"""The tools that a Chat Completions server ran itself: `executed_tools` (Groq), annotations, lists of sources.

Only Groq tells each use. Of the others an answer shows what a search found, and the usage may tell how often it ran.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..hosted import hosted_tool, present
from ..lenient import word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..hosted import HostedTool
    from .chat_extras import MessageExtras

EXECUTED: Final = "executed_tools"
_ANNOTATIONS: Final = "annotations"
_SEARCH: Final = "web_search"
_RESULTS: Final = ("output", "search_results", "code_results", "browser_results")


class ChatTools:
    """Read what the message holds of the server's own tools; `extras` gathers its members."""

    __slots__ = ("_extras", "_sources")

    def __init__(self, extras: MessageExtras) -> None:
        """Start with no use."""
        self._extras = extras
        self._sources: list[Any] = []

    def take_sources(self, *places: object) -> None:
        """Take what a search found, beside the choices: `search_results` or `citations` (Perplexity, xAI).

        Every chunk repeats it; the last list counts.
        """
        self._sources = next((each for each in places if isinstance(each, list) and each), self._sources)

    def requests(self, told: Mapping[str, int]) -> dict[str, int]:
        """Return the requests by tool: those told, and those that only the message shows.

        A search whose sources are cited was paid for; that nobody tells how many there were makes it one.
        """
        counted: dict[str, int] = {}
        for tool in self._executed():
            counted[tool] = counted.get(tool, 0) + 1
        if not told and not counted and self._found():
            counted[_SEARCH] = 1
        return {**counted, **told}

    def uses(self, told: Mapping[str, int]) -> Iterator[HostedTool]:
        """Return every use that is shown or told; a search shows what it found."""
        listed = list(self._extras.entries(EXECUTED))
        for each in listed:
            yield hosted_tool(
                word(each.get("type")),
                id=each.get("id"),
                arguments=each.get("arguments"),
                result=present(each, _RESULTS),
            )
        shown = {word(each.get("type")) for each in listed}
        found = self._found()
        for tool in self.requests(told) if told or found else ():
            if tool not in shown:
                yield hosted_tool(tool, result=found)
                found = []

    def _executed(self) -> Iterator[str]:
        for each in self._extras.entries(EXECUTED):
            if tool := word(each.get("type")):
                yield tool

    def _found(self) -> list[Any]:
        cited = [each for each in self._extras.entries(_ANNOTATIONS) if each.get("type") == "url_citation"]
        return self._sources or cited
