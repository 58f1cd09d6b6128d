"""Uses of Google's own tools in an answer: code execution, search, URL context and whatever comes after them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from ..hosted import hosted_tool, present
from ..lenient import word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..hosted import HostedTool


class GoogleTools:
    """Gather what the parts and the metadata of an answer tell about the provider's own tools."""

    def __init__(self) -> None:
        """Start with no use."""
        self._runs: list[HostedTool] = []
        """What stands in parts: code that was executed, and calls of tools on Google's side."""
        self._running: dict[tuple[str, str], deque[int]] = {}
        """Places of the uses whose result has not come, by tool and id."""
        self._searches: dict[str, str] = {}
        """Query with the tool that asked it; each is billed once, however many chunks repeat it."""
        self._pages: dict[str, str] = {}
        """URL with the status of its retrieval."""
        self._has_maps = False
        self._has_documents = False

    def take_part(self, part: Mapping[str, Any]) -> None:
        """Take a part that is no text and no call of the caller's tools."""
        if isinstance(code := part.get("executableCode"), dict):
            self._begin_run(_CODE, code, present(code, ("language", "code")))
        if isinstance(result := part.get("codeExecutionResult"), dict):
            self._end_run(_CODE, result, word(result.get("outcome")), present(result, ("output",)))
        if isinstance(call := part.get("toolCall"), dict):
            self._begin_run(_tool_type(call), call, call.get("args"))
            self._take_queries(call)
        if isinstance(result := part.get("toolResponse"), dict):
            self._end_run(_tool_type(result), result, "", result.get("response"))

    def _begin_run(self, type: str, told: Mapping[str, Any], arguments: object) -> None:
        run = hosted_tool(type, id=told.get("id"), arguments=arguments)
        self._running.setdefault((type, run.id), deque()).append(len(self._runs))
        self._runs.append(run)

    def _end_run(self, type: str, told: Mapping[str, Any], status: str, result: object) -> None:
        """Put a result with the first use that has none, of the same tool and id."""
        waiting = self._running.get((type, word(told.get("id"))))
        if not waiting:
            return
        index = waiting.popleft()
        run, end = self._runs[index], hosted_tool(type, status=status, result=result)
        self._runs[index] = msgspec.structs.replace(
            run, status=end.status, result_json=end.result_json, omitted=run.omitted or end.omitted
        )

    def _take_queries(self, call: Mapping[str, Any]) -> None:
        """Take the queries of a search that was called in a part: its grounding need not repeat them."""
        arguments = call.get("args")
        if _tool_type(call) == _SEARCH and isinstance(arguments, dict):
            for query in (*_words([arguments.get("query")]), *_words(arguments.get("queries"))):
                self._searches.setdefault(query, _SEARCH)

    def take_metadata(self, candidate: Mapping[str, Any]) -> None:
        """Take the grounding of a candidate. Chunks repeat it, or tell it piece by piece."""
        grounding = candidate.get("groundingMetadata")
        if isinstance(grounding, dict):
            for name, tool in _QUERIES.items():
                self._searches.update((query, tool) for query in _words(grounding.get(name)))
            for each in _objects(grounding.get("groundingChunks")):
                self._has_maps = self._has_maps or isinstance(each.get("maps"), dict)
                self._has_documents = self._has_documents or isinstance(each.get("retrievedContext"), dict)
        context = candidate.get("urlContextMetadata")
        if isinstance(context, dict):
            for page in _objects(context.get("urlMetadata")):
                self._pages[word(page.get("retrievedUrl"))] = word(page.get("urlRetrievalStatus"))

    def requests(self) -> dict[str, int]:
        """Return the requests that are billed apiece: searches by their queries, and maps once for the prompt."""
        queries = list(self._searches.values())
        counted = {tool: queries.count(tool) for tool in dict.fromkeys(queries)}
        return {**counted, _MAPS: 1} if self._has_maps else counted

    def uses(self) -> Iterator[HostedTool]:
        """Return every use. What a part told is not told again by the grounding that came of it."""
        yield from self._runs
        told = {run.type for run in self._runs}
        for query, tool in self._searches.items():
            if tool not in told:
                yield hosted_tool(tool, arguments={"query": query})
        for url, status in self._pages.items() if _URLS not in told else ():
            yield hosted_tool(_URLS, status=status, arguments={"url": url} if url else None)
        if self._has_maps and _MAPS not in told:
            yield hosted_tool(_MAPS)
        if self._has_documents and not told.union(self._searches.values()) & {_FILES, _RETRIEVAL}:
            yield hosted_tool(_FILES)


_CODE = "code_execution"
_SEARCH = "google_search"
_RETRIEVAL = "retrieval"
_URLS = "url_context"
_MAPS = "google_maps"
_FILES = "file_search"

_QUERIES = {
    "webSearchQueries": _SEARCH,
    "imageSearchQueries": _SEARCH,
    "retrievalQueries": _RETRIEVAL,
}


def _tool_type(call: Mapping[str, Any]) -> str:
    """Return `google_search` for GOOGLE_SEARCH_WEB and GOOGLE_SEARCH_IMAGE, the other types in lower case."""
    type = word(call.get("toolType")).lower()
    return _SEARCH if type.startswith(_SEARCH) else type


def _words(value: object) -> Iterator[str]:
    for each in value if isinstance(value, list) else ():
        if text := word(each):
            yield text


def _objects(value: object) -> Iterator[dict[str, Any]]:
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict):
            yield each
