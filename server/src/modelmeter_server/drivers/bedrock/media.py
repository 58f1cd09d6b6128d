"""Media of a message as blocks of the Converse API, which takes inline bytes alone and names formats its own way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from modelmeter_server.core.requests import MediaKind
from modelmeter_server.drivers.json_body import base64_text, refused, split_data_url

if TYPE_CHECKING:
    from modelmeter_server.core.requests import MediaPart

_FORMATS: Final = {
    MediaKind.IMAGE: {
        "image/png": "png",
        "image/jpeg": "jpeg",
        "image/gif": "gif",
        "image/webp": "webp",
    },
    MediaKind.AUDIO: {
        "audio/mpeg": "mp3",
        "audio/mp3": "mp3",
        "audio/wav": "wav",
        "audio/x-wav": "wav",
        "audio/aac": "aac",
        "audio/flac": "flac",
        "audio/mp4": "mp4",
        "audio/ogg": "ogg",
        "audio/opus": "opus",
        "audio/webm": "webm",
    },
    MediaKind.DOCUMENT: {
        "application/pdf": "pdf",
        "text/plain": "txt",
        "text/markdown": "md",
        "text/csv": "csv",
        "text/html": "html",
        "application/msword": "doc",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
        "application/vnd.ms-excel": "xls",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    },
}
# The API's rule for the name of a document.
_NAME: Final = re.compile(r"(?:[A-Za-z0-9()\[\]-]| (?! ))+")


def media_block(part: MediaPart, path: str, number: int) -> dict[str, Any]:
    """Return the block of one medium; `number` makes the name of a document that has none. Raises RequestRefused."""
    media_type, data = _inline(part, path)
    formats = _FORMATS[part.kind]
    format = formats.get(media_type.lower())
    if format is None:
        msg = f"{path}.media_type"
        raise refused(msg, f"this provider takes {', '.join(f'`{each}`' for each in formats)}")
    named = {"name": _name(part, path, number)} if part.kind is MediaKind.DOCUMENT else {}
    return {part.kind.value: {"format": format, **named, "source": {"bytes": data}}}


def _inline(part: MediaPart, path: str) -> tuple[str, str]:
    """Return the media type and the base64 text."""
    if part.url is None:
        return part.media_type, base64_text(part.data)
    inline = split_data_url(part.url)
    if inline is None:
        msg = f"{path}.url"
        raise refused(msg, "this provider fetches nothing by URL: send the bytes in `data`")
    return inline


def _name(part: MediaPart, path: str, number: int) -> str:
    if not part.name:
        return f"document {number}"  # neutral, for the model reads it, and unlike the others
    if not _NAME.fullmatch(part.name):
        msg = f"{path}.name"
        raise refused(
            msg, "this provider takes letters, digits, single spaces, hyphens, parentheses and brackets"
        )
    return part.name
