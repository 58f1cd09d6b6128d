"""From the tables of a script file to scripts, or to every mistake at once."""

from __future__ import annotations

import re
from typing import Any

from modelmeter_server.core.json_text import NotJson, dumps_compact
from modelmeter_server.core.outcomes import Stage

from .script import ANSWER, Figures, Play, PlayEnd, Script, ScriptedCall, ScriptedError, Wire
from .tables import ScriptMistake, ScriptMistakes, Table

_MOST_NUMBER = 2**53 - 1
"""What every JSON reader holds exactly."""
_MOST_EVENTS = 1_000_000
_MOST_PIECES = 10_000

_TOLD_EARLY = (Wire.ANTHROPIC, Wire.GEMINI)
"""Wires that tell usage before the end too."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]+")
_HEADER_VALUE = re.compile(r"[ -~]*")

_STAGES = {stage.name.lower(): stage for stage in (Stage.NOT_WRITTEN, Stage.WRITING, Stage.WRITTEN)}

_GENERATED = (
    "text",
    "reasoning",
    "refusal",
    "tool_calls",
    "structured",
    "structured_text",
    "stop_reason",
    "usage",
    "pieces",
    "cut_after",
)
_ANSWERED = (*_GENERATED, "delay", "pause", "error", "status", "headers", "body")

# A key and those that say something else about the same thing.
_CLASHES = (
    ("refusal", ("text", "tool_calls", "structured", "structured_text", "stop_reason")),
    ("structured", ("structured_text",)),
    ("error", ("cut_after",)),
    ("body", (*_GENERATED, "error")),
)


def parse_scripts(document: dict[str, Any]) -> tuple[Script, ...]:
    """Return the scripts of a file's tables, in its order. Raises ScriptMistakes with all of them."""
    mistakes: list[ScriptMistake] = []
    root = Table(document, (), mistakes)
    outer = root.table("scripts")
    if outer is None and not mistakes:
        root.mistake(None, 'has no table "scripts"', "begin a script with [scripts.NAME]")
    scripts = [_script(name, table) for name, table in outer.named_tables()] if outer else []
    root.close()
    if mistakes:
        raise ScriptMistakes(mistakes)
    return tuple(scripts)


def _script(name: str, table: Table) -> Script:
    if not _NAME.fullmatch(name):
        fix = "use up to 64 letters, digits, dots, dashes and underscores, a letter or digit first"
        table.mistake(None, "the name cannot be a model's", fix)
    wire = Wire(table.choice("wire", [wire.value for wire in Wire]) or Wire.ANTHROPIC.value)
    calls = tuple(_play(each, wire) for each in table.tables("calls"))
    return Script(name=name, wire=wire, play=_play(table, wire), calls=calls)


def _play(table: Table, wire: Wire) -> Play:
    error = _error(table)
    stops_at = table.choice("stops_at", _STAGES)
    play = Play(
        text=table.text("text"),
        reasoning=table.text("reasoning") or "",
        refusal=table.word("refusal"),
        tool_calls=tuple(_call(each) for each in table.tables("tool_calls")),
        structured=_structured(table),
        stop_reason=table.word("stop_reason"),
        usage=_usage(table, wire),
        delay=table.seconds("delay"),
        pieces=table.integer("pieces", least=1, most=_MOST_PIECES),
        pause=table.seconds("pause"),
        cut_after=table.integer("cut_after", least=-_MOST_EVENTS, most=_MOST_EVENTS),
        end=_end(table),
        error=error,
        status=table.integer("status", least=200, most=599) or 200,
        headers=_headers(table),
        body=table.text("body"),
        stops_at=_STAGES[stops_at] if stops_at else None,
    )
    _judge(table, play)
    table.close()
    return play


def _end(table: Table) -> PlayEnd:
    told = table.choice("end", [end.value for end in PlayEnd])
    if told is not None:
        return PlayEnd(told)
    is_cut = "cut_after" in table or "stops_at" in table
    return PlayEnd.RESET if is_cut else PlayEnd.CLEAN


def _judge(table: Table, play: Play) -> None:
    """Note keys that cannot stand together: the play would have to leave one of them out."""
    if play.stops_at is not None:
        has_silence = play.stops_at is Stage.WRITTEN
        barred = tuple(key for key in _ANSWERED if key != "delay") if has_silence else (*_ANSWERED, "end")
        _no_others(table, "stops_at", barred, "the call ends before there is an answer")
    elif not 200 <= play.status < 300:
        _no_others(table, "status", _GENERATED, f"an answer with status {play.status} generates nothing")
        if play.error is not None and play.error.after:
            table.mistake("error", '"after" counts events, and this status has none', 'remove "after"')
    for key, others in _CLASHES:
        if key in table:
            _no_others(table, key, others)


def _no_others(table: Table, key: str, others: tuple[str, ...], why: str = "") -> None:
    for other in others:
        if other in table and not table.is_mistaken(other):
            table.mistake(other, why or f'cannot stand beside "{key}"', f'remove it, or remove "{key}"')


def _error(table: Table) -> ScriptedError | None:
    inner = table.table("error")
    if inner is None:
        return None
    type = inner.word("type")
    if "type" not in inner:
        inner.mistake(
            None, 'lacks "type"', 'name the provider\'s error type, such as type = "overloaded_error"'
        )
    message = inner.text("message")
    error = ScriptedError(
        type=type or "",
        message=ScriptedError(type="").message if message is None else message,
        code=inner.word("code"),
        after=inner.integer("after", least=-_MOST_EVENTS, most=_MOST_EVENTS) or 0,
    )
    inner.close()
    return error


def _call(table: Table) -> ScriptedCall:
    arguments = table.value("arguments")
    if isinstance(arguments, dict):
        arguments = _json(table, "arguments", arguments)
    elif arguments is not None and not isinstance(arguments, str):
        table.mistake("arguments", "has the wrong type", "write a table, or text that is sent as it stands")
        arguments = None
    call = ScriptedCall(name=table.word("name"), arguments=arguments, id=table.word("id"))
    table.close()
    return call


def _structured(table: Table) -> str | None:
    value = table.value("structured")
    text = table.text("structured_text")
    return text if value is None else _json(table, "structured", value)


def _json(table: Table, key: str, value: Any) -> str | None:
    try:
        return dumps_compact(value)
    except NotJson:
        table.mistake(
            key, "holds a value that JSON does not have", "write dates and times as strings, no nan or inf"
        )
        return None


def _usage(table: Table, wire: Wire) -> Figures | None:
    if table.value("usage") is False:
        return None
    inner = table.table("usage", "a table of tokens, or false for an answer without usage")
    if inner is None:
        return ANSWER.usage
    figures = Figures(
        input=_tokens(inner, "input"),
        output=_tokens(inner, "output"),
        cache_read=_tokens(inner, "cache_read") or 0,
        cache_write=_tokens(inner, "cache_write") or 0,
        reasoning=_tokens(inner, "reasoning"),
        final=inner.flag("final", default=True),
    )
    inner.close()
    _judge_figures(inner, figures, wire)
    return figures


def _tokens(table: Table, key: str) -> int | None:
    return table.integer(key, least=0, most=_MOST_NUMBER)


def _judge_figures(table: Table, figures: Figures, wire: Wire) -> None:
    if figures.input is not None and figures.cache_read + figures.cache_write > figures.input:
        table.mistake("input", "is less than its cached part", "count cache_read and cache_write into it")
    if figures.output is not None and (figures.reasoning or 0) > figures.output:
        table.mistake("output", "is less than its reasoning", "count reasoning into it")
    if not figures.final and wire not in _TOLD_EARLY:
        table.mistake("final", "this wire tells usage in its last event only", "remove it")
    if figures.cache_write and wire is Wire.GEMINI:
        table.mistake("cache_write", "this wire tells no cache writes", "remove it")


def _headers(table: Table) -> tuple[tuple[str, str], ...]:
    told = table.value("headers")
    if told is None:
        return ()
    if not isinstance(told, dict):
        table.mistake("headers", "has the wrong type", 'write a table, such as { retry-after = "2" }')
        return ()
    headers = []
    for name, value in told.items():
        text = _header_text(value)
        if text is not None and _HEADER_NAME.fullmatch(name):
            headers.append((name.lower(), text))
        else:
            fix = "write a name of letters, digits and dashes, and a number or printable text"
            table.mistake("headers", f'"{name}" is no header', fix)
    return tuple(headers)


def _header_text(value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST_NUMBER:
        return str(value)
    if isinstance(value, float):
        return str(value)
    return value if isinstance(value, str) and _HEADER_VALUE.fullmatch(value) else None
