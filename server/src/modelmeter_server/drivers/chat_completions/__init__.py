"""Chat Completions and its dialects: what a server can do, and how a request becomes its body."""

from .capabilities import CAPABILITIES, capabilities
from .count import count
from .encode import encode
from .reconcile import reconciler

__all__ = ["CAPABILITIES", "capabilities", "count", "encode", "reconciler"]
