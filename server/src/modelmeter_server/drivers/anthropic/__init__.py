"""Anthropic Messages: what the provider can do, and how a request becomes its body."""

from .capabilities import CAPABILITIES
from .count import count
from .encode import encode

__all__ = ["CAPABILITIES", "count", "encode"]
