"""Where a Google credential goes: an API key into its own header, an OAuth token into `authorization`.

Never into the query, which lands in logs.
"""

from __future__ import annotations

import re
from typing import Final

# Access tokens begin with `ya29.` (a user's, a service account's `ya29.c.`, a federated one's `ya29.d.`); a signed JWT
# of a service account is three parts of base64. Neither is ever an API key, which begins with `AIza` or `AQ.`.
_TOKEN: Final = re.compile(r"ya29\..+|eyJ[\w-]+\.[\w-]+\.[\w-]+")


def authenticate(key: str) -> tuple[str, str]:
    """Return the header that carries a key of the Gemini API or a token of Vertex AI."""
    if _TOKEN.fullmatch(key):
        return "authorization", f"Bearer {key}"
    return "x-goog-api-key", key
