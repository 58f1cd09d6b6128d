"""The embedding model of the embedded provider: texts that share words lie near each other. Pure, the same every time.

Each word moves a few components up or down (feature hashing). It knows nothing of meaning, and that is enough to see a
search work, in a program or in a test, without a key.
"""

from __future__ import annotations

import base64
import math
import re
import sys
from array import array
from hashlib import blake2b
from typing import Any, Final

import msgspec

from modelmeter_server.core.accumulators.accumulator import BYTES_PER_TOKEN

MODEL: Final = "embedding"
"""What the model is called at the provider."""

DIMENSIONS: Final = 64
"""Components of a vector unless the request says otherwise."""

_READ_CHARACTERS: Final = 512
"""Of each text, for its words; the vector of a longer text is still its own."""
_WORD: Final = re.compile(r"\w+")
_MARKS: Final = 4
_OWN_SHARE: Final = 0.125  # of a whole: no sum of words takes it back, so that no vector is all zeros


def answer(body: bytes) -> bytes:
    """Return the document that answers a batch in OpenAI's format."""
    asked: dict[str, Any] = msgspec.json.decode(body)
    texts: list[str] = asked["input"]
    dimensions = asked.get("dimensions", DIMENSIONS)
    is_numbers = asked.get("encoding_format") == "float"
    items = []
    for index, text in enumerate(texts):
        vector = vector_of(text, dimensions)
        written: object = vector.tolist() if is_numbers else base64.b64encode(_little_endian(vector)).decode()
        items.append({"object": "embedding", "index": index, "embedding": written})
    tokens = max(1, sum(len(text.encode()) for text in texts) // BYTES_PER_TOKEN)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return msgspec.json.encode({"object": "list", "data": items, "model": asked["model"], "usage": usage})


def vector_of(text: str, dimensions: int) -> array[float]:
    """Return the unit vector of a text."""
    components = [0.0] * dimensions
    for word in _WORD.findall(text[:_READ_CHARACTERS].lower()):
        _mark(components, word, 1.0)
    _mark(components, text, _OWN_SHARE, marks=1)
    norm = math.hypot(*components)
    return array("f", [component / norm for component in components])


def _mark(components: list[float], word: str, share: float, marks: int = _MARKS) -> None:
    digest = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=4 * marks).digest()
    for start in range(0, len(digest), 4):
        number = int.from_bytes(digest[start : start + 4], "big")
        components[(number >> 1) % len(components)] += share if number & 1 else -share


def _little_endian(vector: array[float]) -> bytes:
    if sys.byteorder == "big":
        vector.byteswap()
    return vector.tobytes()
