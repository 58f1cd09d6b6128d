"""Schemas compiled once, and answers checked against them. Nothing is ever fetched, and every check ends.

Draft 2020-12 unless the schema names another. Formats are annotations, as that draft has it: `"format": "email"` is
never enforced. Patterns run in the engine without backtracking, so that look-around and back-references are refused.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NoReturn

import jsonschema_rs

from modelmeter_server.core.answers import FREE_TEXT, Expectation
from modelmeter_server.core.requests import SchemaCheckPolicy, SchemaMode
from modelmeter_server.core.schema_document import MAX_PATTERNS, SchemaDocument, SchemaUnfit, read_schema
from modelmeter_server.core.text import cut_utf8

if TYPE_CHECKING:
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.requests import CompletionRequest

PATTERN_BYTES: Final = 1 << 20
"""Memory that one compiled pattern may take; larger ones are refused. Unicode classes with a high count are larger."""

CACHE_BYTES: Final = 4 * MAX_PATTERNS * PATTERN_BYTES
"""What all compiled schemas may take together, estimated from above: agents ask with the same few again and again."""

_MESSAGE_BYTES: Final = 200
_PLACE_BYTES: Final = 160
_NOT_SATISFIED: Final = "the document does not satisfy the schema"


class SchemaInvalid(ValueError):
    """Report a schema that cannot be used; the message says why and how to mend it."""


class CompiledSchema:
    """A schema that answers can be checked against."""

    def __init__(self, document: SchemaDocument, validator: jsonschema_rs.Validator) -> None:
        """Use `compile_schema`."""
        self.checkable = document.checkable
        """An answer can be checked in bounded time."""
        self._recursive = document.recursive
        self._validator = validator

    def __call__(self, document: object) -> str | None:
        """Return what is wrong with a document, or `None`. Never quotes the document.

        The reason has the JSON pointer and the keyword that failed first; not for schemas that refer to themselves.
        """
        try:
            if self._validator.is_valid(document):
                return None
            # Only the verdict is quick for recursive schemas: to name the place the library tries every way anew,
            # and their number doubles with each level of the document (measured: 3 s at ten levels).
            return _NOT_SATISFIED if self._recursive else self._reason(document)
        except ValueError:
            return "the document holds a value that no schema can judge"

    def _reason(self, document: object) -> str:
        try:
            self._validator.validate(document)
        except jsonschema_rs.ValidationError as error:
            return _reason(error)
        return _NOT_SATISFIED


def expectation_for(request: CompletionRequest, model: ModelSpec) -> Expectation:
    """Return what the answer to a request is held to. Raises SchemaInvalid.

    `auto` only parses where the provider constrained the generation by the schema, and enforces everywhere else.
    """
    if not request.output_schema_json:
        return FREE_TEXT
    schema = compile_schema(request.output_schema_json)
    forced = (request.schema_mode or model.schema_mode) is SchemaMode.FORCED_TOOL
    enforce = _enforces(model, forced=forced)
    if enforce and not schema.checkable:
        msg = "refers to itself so often that no check of an answer would end in time: let references multiply less"
        raise SchemaInvalid(msg)
    return Expectation(schema_check=schema, forced_tool=forced, enforce=enforce)


def compile_schema(text: str) -> CompiledSchema:
    """Compile a schema, or find it compiled. Raises SchemaInvalid with the reason."""
    return _CACHE.get(text)


def _enforces(model: ModelSpec, *, forced: bool) -> bool:
    if model.schema_check is SchemaCheckPolicy.AUTO:
        return forced or not model.capabilities.enforces_native_schema
    return model.schema_check is SchemaCheckPolicy.ENFORCE


def _compile(document: SchemaDocument) -> CompiledSchema:
    try:
        validator = jsonschema_rs.validator_for(
            document.schema,
            retriever=_refuse,  # without one the library reads `http:` and `file:` references
            validate_formats=False,
            pattern_options=jsonschema_rs.RegexOptions(
                size_limit=PATTERN_BYTES, dfa_size_limit=PATTERN_BYTES
            ),
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaInvalid(_complaint(error)) from None
    return CompiledSchema(document, validator)


def _refuse(uri: str) -> NoReturn:
    msg = f"nothing is fetched: {uri}"
    raise ValueError(msg)


def _complaint(error: Exception) -> str:
    if isinstance(error, jsonschema_rs.ValidationError):
        reason, place = error.message, _pointer(error.instance_path)
        at = f" at {place}" if place else ""
    else:
        reason, at = str(error).partition("\n")[0], ""
    fix = ""
    if reason.endswith('is not a "regex"'):
        fix = "; patterns must be small and do without look-around and back-references"
    return f"must be a valid JSON Schema{at}: {cut_utf8(reason, _MESSAGE_BYTES)}{fix}"


def _reason(error: jsonschema_rs.ValidationError) -> str:
    """Name place and keyword only: the library's own message quotes the document."""
    missing = ""
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
        missing = f" ({cut_utf8(error.kind.property, _PLACE_BYTES)})"
    return f"fails `{error.kind.name}`{missing} at {_pointer(error.instance_path) or 'the root'}"


def _pointer(steps: list[str | int]) -> str:
    text = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)
    return cut_utf8(text, _PLACE_BYTES)


class _Cache:
    """The schemas that were used last, as far as they fit into `CACHE_BYTES`; for any number of threads."""

    def __init__(self) -> None:
        self._schemas: OrderedDict[str, tuple[CompiledSchema, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, text: str) -> CompiledSchema:
        with self._lock:
            found = self._schemas.get(text)
            if found is not None:
                self._schemas.move_to_end(text)
                return found[0]
        try:
            document = read_schema(text)
        except SchemaUnfit as error:
            raise SchemaInvalid(str(error)) from None
        schema = _compile(document)
        self._keep(text, schema, 16 * len(text) + document.patterns * PATTERN_BYTES)
        return schema

    def _keep(self, text: str, schema: CompiledSchema, size: int) -> None:
        with self._lock:
            if text in self._schemas:
                return
            self._schemas[text] = schema, size
            self._bytes += size
            while self._bytes > CACHE_BYTES:
                _, (_, freed) = self._schemas.popitem(last=False)
                self._bytes -= freed


_CACHE: Final = _Cache()
