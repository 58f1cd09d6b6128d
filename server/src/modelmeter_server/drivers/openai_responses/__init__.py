"""OpenAI Responses: what the provider can do, and how a request becomes its body."""

from .capabilities import CAPABILITIES
from .count import count
from .encode import encode
from .reconcile import RECONCILER
from .websocket_link import WebSocketLink

__all__ = ["CAPABILITIES", "RECONCILER", "WebSocketLink", "count", "encode"]
