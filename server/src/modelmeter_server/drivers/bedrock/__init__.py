"""Bedrock's Converse API: what it can do, how a request becomes its body, and who signs it."""

from .capabilities import CAPABILITIES, REASONING_DIALECTS, capabilities_of
from .count import count
from .embed import EMBEDDING_DIALECTS, embed
from .encode import encode
from .signing import EXTRA, MissingExtra, SigV4, can_sign

__all__ = [
    "CAPABILITIES",
    "EMBEDDING_DIALECTS",
    "EXTRA",
    "REASONING_DIALECTS",
    "MissingExtra",
    "SigV4",
    "can_sign",
    "capabilities_of",
    "count",
    "embed",
    "encode",
]
