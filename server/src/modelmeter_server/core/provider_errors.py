"""What a provider's error means before it generated: by status first, then by type (R-E1, R-E2, R-H1 to R-H3).

One path for HTTP answers and for errors inside a 200: a type stands for the HTTP status that it would have come
with, so that both get the same kind, the same gRPC code and the same visible detail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from .errors import Failure, failure
from .json_text import NotJson, loads_lenient
from .lenient import word
from .outcomes import Cause, Code, Kind, Stage
from .retry_delay import retry_delay
from .session_frames import CONNECTION_LIMIT, PREVIOUS_NOT_FOUND
from .text import cut_utf8

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VISIBLE_MESSAGE_BYTES = 200
"""Bytes of a provider's message that a caller may read, and only for the statuses below: providers echo prompts."""

_CODE_BYTES = 64
"""Bytes of a provider's code or type that a caller may read: some servers put prose there."""

_MESSAGE_STATUSES = frozenset((400, 404, 413, 422))

# `ramp_limit_exceeded` is a cap of the contract that Anthropic tells as a 429 without a delay.
_BILLING = (
    "insufficientquota",
    "creditbalance",
    "billing",
    "spendlimit",
    "ramplimit",
    "insufficientbalance",  # Z.ai, MiniMax
    "insufficientcredit",
    "insufficientfund",
    "creditlimit",  # Together
    "paymentrequired",
    "budgetexceeded",  # LiteLLM
    "arrear",  # Alibaba
)
_QUOTA = ("quotaexceeded", "exceededquota", "exceededcurrentquota", "quotaexhausted", "outofquota")
_CREDENTIAL = ("apikey", "authentication", "unauthenticated", "unauthorized")
_THROTTLED = ("ratelimit", "throttl", "resourceexhausted", "toomanyrequests", "slowdown")
_NUMBERS = ("code", "status", "status_code", "statusCode", "raw_status_code", "error_code")
"""Members that may hold the HTTP status: `status_code` is Groq's, `statusCode` Azure's gateway's, `raw_status_code`
Mistral's."""
_CODE_KEYS = ("reason", "error_code", "code", "type")
"""Members of an error's details that hold a code. Others hold links, names and ids, which decide nothing."""

# The first fitting row wins. Names are compared in lower case without punctuation, because providers spell the same
# type `rate_limit_error`, `RATE_LIMITED` and `RateLimitException`.
_STATUS_BY_TYPE: tuple[tuple[tuple[str, ...], int], ...] = (
    (_BILLING, 402),
    (_THROTTLED, 429),
    (("overloaded", "modelnotready"), 529),
    (("timeout", "deadlineexceeded"), 504),
    (("unavailable",), 503),
    (("apierror", "servererror", "internal"), 500),
    (_CREDENTIAL, 401),
    (("permission", "accessdenied", "forbidden"), 403),
    (("notfound",), 404),
    (("toolarge",), 413),
    (("conflict",), 409),
    (("invalid", "validation", "badrequest", "contextlength", "failedprecondition"), 400),
)

_CODE_BY_STATUS = {
    400: Code.INVALID_ARGUMENT,
    413: Code.INVALID_ARGUMENT,
    422: Code.INVALID_ARGUMENT,
    404: Code.NOT_FOUND,
}
_RATE_LIMITED = frozenset((429, 498, 529))
_TELLING = frozenset((401, 429, 529))
"""Statuses that a word says in whichever place it stands: no other word beside it makes it mean less."""
_UNAVAILABLE = frozenset((408, 424, 425, 499))


class ProviderError(msgspec.Struct, frozen=True, kw_only=True):
    """An error in the provider's own words."""

    type: str = "error"
    """`error` when it named none (R-S0)."""
    message: str = ""
    code: str | None = None
    status: int | None = None
    """The HTTP status it names by number, if any."""
    reasons: tuple[str, ...] = ()
    """Machine-readable words among its details."""
    retry_after: float | None = None

    @property
    def own_code(self) -> str:
        """Return the provider's most specific machine-readable word."""
        return self.code or self.type

    @property
    def is_billing(self) -> bool:
        """Say whether it is about money or a quota, read from codes and types and never from prose (R-H2)."""
        return any(_has(each, _BILLING) or _is_about(each, _QUOTA) for each in self._words)

    @property
    def is_credential(self) -> bool:
        """Say whether it is about the deployment's own key."""
        return any(_is_about(each, _CREDENTIAL) for each in self._words)

    @property
    def _words(self) -> Iterator[str]:
        yield self.type
        yield from self.reasons
        if self.code:
            yield self.code

    def http_status(self) -> int:
        """Return the status of the HTTP answer that this error stands for: its own number, else by its type."""
        if self.code == CONNECTION_LIMIT:
            return 503  # whatever status it names: nothing is wrong with the turn, another socket takes it (R-W1)
        if self.status is not None:
            return self.status
        if self.code == PREVIOUS_NOT_FOUND:
            return 400  # as the frames say that name a status
        # In any of its words: `api_error` with the code `insufficient_quota` is about money.
        if self.is_billing:
            return 402
        told = [status for each in self._words if (status := _status_of(each)) is not None]
        # So are a throttle and a key, which come under the types `server_error` and `invalid_request_error`.
        return next((status for status in told if status in _TELLING), told[0] if told else 500)

    def visible_code(self, scrub: Callable[[str], str]) -> str:
        """Return the own code as a caller may read it: configured keys scrubbed, then cut."""
        return cut_utf8(scrub(self.own_code), _CODE_BYTES)


def read_error(document: object) -> ProviderError | None:
    """Find the error in a provider's JSON document, or return `None` if there is none.

    Shapes seen: `{"type": "error", "error": {...}}` (Anthropic), `{"error": {...}}` and `{"error": "text"}` (OpenAI
    and compatible servers), `{"error": "text", "error_type"}` (Hugging Face's TGI), flat `{"type": "error", "code",
    "message"}` (Responses), `{"object": "error", ...}` (Mistral), `{"error_type", "error_message"}` (R-E2), and each
    of them as the one element of an array (Google).
    """
    if isinstance(document, list) and document:
        document = document[0]
    if not isinstance(document, dict):
        return None
    error = document.get("error")
    if isinstance(error, dict):
        within = error.get("error")  # a gateway that wraps the whole document of the provider behind it
        return _from_object(within if isinstance(within, dict) else error, document)
    if isinstance(error, str) and error:
        return _from_object({"message": error}, document)
    if document.get("error_type") or document.get("error_message"):
        return _from_object({"message": document.get("error_message")}, document)
    if document.get("type") == "error":  # which says what the document is, and not which error
        return _from_object({**document, "type": document.get("error_type")}, document)
    return _from_object(document, document) if document.get("object") == "error" else None


def read_error_event(document: object) -> ProviderError:
    """Read the data of an event that is an error by its name, in whatever shape (R-S0).

    Without a type it is kind `error`, without a message the empty message.
    """
    error = read_error(document)
    if error is not None:
        return error
    if isinstance(document, dict):
        return _from_object(document, document)
    return ProviderError(message=word(document))


def _from_object(error: dict[str, object], document: dict[str, object]) -> ProviderError:
    """Read an error from its object, and what that leaves unsaid from the members beside it."""
    told = (*map(error.get, _NUMBERS), *map(document.get, _NUMBERS))
    status = next((number for number in map(_http_number, told) if number is not None), None)
    words = [_code_word(error.get(name)) for name in ("type", "status", "code")]
    if not any(words):
        words = [*_words_beside(document)]
    return ProviderError(
        type=next(filter(None, words), "error"),
        message=word(error.get("message")),
        code=words[-1] or None,
        status=status,
        reasons=tuple(_reasons(error.get("details"))),
        retry_after=retry_delay(_headers_within(error, document), document),
    )


def _words_beside(document: dict[str, object]) -> Iterator[str]:
    """Yield what the members beside an error call it. A `type` there may as well be the document's, or the event's."""
    type = _code_word(document.get("type"))
    yield _code_word(document.get("error_type")) or (type if _status_of(type) is not None else "")
    yield _code_word(document.get("error_code")) or _code_word(document.get("code"))


def _headers_within(error: dict[str, object], document: dict[str, object]) -> Callable[[str], str | None]:
    """Return a look-up in the headers that an error frame of a WebSocket brings along, beside the error or in it."""
    told = [each for each in (document.get("headers"), error.get("headers")) if isinstance(each, dict)]
    if not told:
        return _no_header
    headers = {name.lower(): word(value) for each in told for name, value in each.items()}
    return headers.get


def _reasons(details: object) -> Iterator[str]:
    """Yield the codes among an error's details: a dictionary (Anthropic), a list of them (Google)."""
    for detail in details if isinstance(details, list) else [details]:
        if isinstance(detail, dict):
            told = (detail.get(name) for name in _CODE_KEYS)
            yield from (word(value) for value in told if isinstance(value, str) and " " not in value)


def _code_word(value: object) -> str:
    return word(value) if isinstance(value, str) and not value.isdigit() else ""


def _status_of(word: str) -> int | None:
    """Return the status that a type or code stands for, by the first row that fits."""
    return next((status for parts, status in _STATUS_BY_TYPE if _has(word, parts)), None)


def _http_number(value: object) -> int | None:
    """Read the status of an error; below 400 a number says nothing about one."""
    if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdigit():
        value = int(value)
    return value if type(value) is int and 400 <= value <= 599 else None


def _no_header(_name: str) -> None:
    return None


def _has(word: str, parts: tuple[str, ...]) -> bool:
    plain = "".join(character for character in word.lower() if character.isalnum())
    return any(part in plain for part in parts)


def _is_about(word: str, parts: tuple[str, ...]) -> bool:
    """Leave out a limit on the rate of something, such as `api_key_rate_limit`: waiting helps against it."""
    return _has(word, parts) and not _has(word, _THROTTLED)


def refusal_code(status: int, error: ProviderError | None) -> Code:
    """Return the gRPC code of a refusal: the caller's arguments, something missing, or the deployment's own affairs.

    Never UNAUTHENTICATED: that would tell our caller to log in, while it is our key that the provider refused.
    """
    if error is not None and (error.is_billing or error.is_credential):
        return Code.FAILED_PRECONDITION
    return _CODE_BY_STATUS.get(status, Code.FAILED_PRECONDITION)


def kind_by_status(status: int, error: ProviderError | None) -> Kind:
    """Return the kind of an error answer that came before any generation (R-H2, R-H3)."""
    is_client_error = 400 <= status < 500
    if is_client_error and error is not None and error.is_billing:
        return Kind.REFUSED
    if status == 429 and error is not None and error.is_credential:
        return Kind.REFUSED
    if status in _RATE_LIMITED:
        return Kind.RATE_LIMITED
    if 300 <= status < 400 or (is_client_error and status not in _UNAVAILABLE):
        return Kind.REFUSED
    return Kind.UNAVAILABLE


def failure_before_generation(
    status: int,
    error: ProviderError | None,
    *,
    source: str,
    stage: Stage,
    scrub: Callable[[str], str],
    **details: Any,
) -> Failure:
    """Build the failure for a provider's error that came before it generated.

    `source` names where the error stood, such as `HTTP 429`. The provider's message is shown for four statuses only,
    with configured keys scrubbed before it is cut, so that no half of a key remains.
    """
    kind = kind_by_status(status, error)
    message = f"the provider answered {source}"
    if error is not None:
        message += f" ({error.visible_code(scrub)})"
        if error.message and status in _MESSAGE_STATUSES:
            message += f": {cut_utf8(scrub(error.message), VISIBLE_MESSAGE_BYTES)}"
    return failure(
        kind,
        message,
        cause=Cause.PROVIDER,
        stage=stage,
        code=refusal_code(status, error) if kind is Kind.REFUSED else None,
        provider_code=error.visible_code(scrub) if error else None,
        **details,
    )


def failure_from_http(
    status: int,
    header: Callable[[str], str | None],
    body: bytes,
    *,
    scrub: Callable[[str], str],
    request_id: str | None = None,
) -> Failure:
    """Classify an HTTP answer other than 200. The status decides, whatever the body is or however it ended (R-H1)."""
    document = _document(body)
    error = _with_amazon_type(read_error(document) or _flat_error(document), header)
    source = f"HTTP {status}"
    if 300 <= status < 400:
        source += ", a redirect, which is never followed because the key would travel"
    return failure_before_generation(
        status,
        error,
        source=source,
        stage=Stage.BODY if body else Stage.HEADERS,
        scrub=scrub,
        http_status=status,
        retry_after=retry_delay(header, document),
        provider_request_id=request_id,
        provider_body=body,
    )


def _document(body: bytes) -> object:
    try:
        return loads_lenient(body)
    except NotJson:
        return None


def _flat_error(document: object) -> ProviderError | None:
    """Read an error body that is nothing but `{"message": ...}`; only a bad status makes it an error."""
    return read_amazon_error(document)


def read_amazon_error(document: object) -> ProviderError | None:
    """Read `{"message": ...}`, which Amazon also spells `Message`; `__type` may name it, behind a namespace and `#`.

    Nothing in such a document says that it is an error: ask only where an answer would look different.
    """
    if not isinstance(document, dict):
        return None
    message = next((document[name] for name in ("message", "Message") if name in document), None)
    type = word(document.get("__type")).rpartition("#")[2]
    if not isinstance(message, str) and not type:
        return None
    return _from_object({"type": type, **document, "message": message}, document)


def _with_amazon_type(
    error: ProviderError | None, header: Callable[[str], str | None]
) -> ProviderError | None:
    """Name the error as Amazon's header does: `Name`, or `Name:` and an address."""
    name = word(header("x-amzn-errortype")).partition(":")[0].strip()
    return msgspec.structs.replace(error or ProviderError(), type=name) if name else error
