"""The questions of `ledger.questions`, answered with SQLAlchemy Core on a read-only connection."""

from .calls import find_attempts, find_call, find_content, list_calls
from .ceilings import find_ceiling, find_standings, list_all_halts, list_ceilings, list_halts
from .servers import list_expired_servers
from .spend import get_spend

__all__ = (
    "find_attempts",
    "find_call",
    "find_ceiling",
    "find_content",
    "find_standings",
    "get_spend",
    "list_all_halts",
    "list_calls",
    "list_ceilings",
    "list_expired_servers",
    "list_halts",
)
