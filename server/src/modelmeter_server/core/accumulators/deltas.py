"""The pieces of an answer as they are passed on: neighbours of one kind joined into one."""

from __future__ import annotations

from ..answers import Delta, ReasoningDelta, TextDelta, ToolCallDelta


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
