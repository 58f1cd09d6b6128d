"""Gemini: what the provider can do, and how a request becomes its body and its address."""

from .authentication import authenticate
from .capabilities import CAPABILITIES
from .count import count
from .embed import embed
from .encode import encode

__all__ = ["CAPABILITIES", "authenticate", "count", "embed", "encode"]
