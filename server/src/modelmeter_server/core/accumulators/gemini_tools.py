"""Uses of Google's own tools in an answer: code execution, search, URL context and whatever comes after them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..answers import HostedTool
from ..lenient import word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class GoogleTools:
    """Gather what the parts and the metadata of an answer tell about the provider's own tools."""

    def __init__(self) -> None:
        """Start with no use."""
        self._runs: list[HostedTool] = []
        """What stands in parts: code that was executed, and calls of tools on Google's side."""
        self._searches: dict[str, str] = {}
        """Query with the tool that asked it; each is billed once, however many chunks repeat it."""
        self._pages: dict[str, str] = {}
        """URL with the status of its retrieval."""
        self._has_maps = False

    def take_part(self, part: Mapping[str, Any]) -> None:
        """Take a part that is no text and no call of the caller's tools."""
        if isinstance(code := part.get("executableCode"), dict):
            self._runs.append(HostedTool(type="code_execution", id=word(code.get("id"))))
        if isinstance(result := part.get("codeExecutionResult"), dict):
            self._end_run("code_execution", result, word(result.get("outcome")))
        if isinstance(call := part.get("toolCall"), dict):
            self._runs.append(HostedTool(type=_tool_type(call), id=word(call.get("id"))))

    def _end_run(self, type: str, result: Mapping[str, Any], status: str) -> None:
        id = word(result.get("id"))
        for index, run in enumerate(self._runs):
            if run.type == type and not run.status and run.id == id:
                self._runs[index] = HostedTool(type=type, id=id, status=status)
                return

    def take_metadata(self, candidate: Mapping[str, Any]) -> None:
        """Take the grounding of a candidate. Chunks repeat it, or tell it piece by piece."""
        grounding = candidate.get("groundingMetadata")
        if isinstance(grounding, dict):
            for name, tool in _QUERIES.items():
                self._searches.update((query, tool) for query in _words(grounding.get(name)))
            self._has_maps = self._has_maps or any(
                isinstance(each.get("maps"), dict) for each in _objects(grounding.get("groundingChunks"))
            )
        context = candidate.get("urlContextMetadata")
        if isinstance(context, dict):
            for page in _objects(context.get("urlMetadata")):
                self._pages[word(page.get("retrievedUrl"))] = word(page.get("urlRetrievalStatus"))

    def requests(self) -> dict[str, int]:
        """Return the requests that are billed apiece: searches, by their queries."""
        queries = list(self._searches.values())
        return {tool: queries.count(tool) for tool in dict.fromkeys(queries)}

    def uses(self) -> Iterator[HostedTool]:
        """Return every use. What a part told is not told again by the grounding that came of it."""
        yield from self._runs
        told = {run.type for run in self._runs}
        for tool in self._searches.values():
            if tool not in told:
                yield HostedTool(type=tool)
        for status in self._pages.values() if "url_context" not in told else ():
            yield HostedTool(type="url_context", status=status)
        if self._has_maps and "google_maps" not in told:
            yield HostedTool(type="google_maps")


_QUERIES = {
    "webSearchQueries": "google_search",
    "imageSearchQueries": "google_search",
    "retrievalQueries": "retrieval",
}


def _tool_type(call: Mapping[str, Any]) -> str:
    """Return `google_search` for GOOGLE_SEARCH_WEB and GOOGLE_SEARCH_IMAGE, the other types in lower case."""
    type = word(call.get("toolType")).lower()
    return "google_search" if type.startswith("google_search") else type


def _words(value: object) -> Iterator[str]:
    for each in value if isinstance(value, list) else ():
        if text := word(each):
            yield text


def _objects(value: object) -> Iterator[dict[str, Any]]:
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict):
            yield each
