"""The server's commands of `modelmeter`. Each imports what it needs when it runs, so that listing them is quick."""

from __future__ import annotations

from .config import config
from .demo import demo
from .healthcheck import healthcheck
from .serve import serve
from .tokens import tokens

__all__ = ["config", "demo", "healthcheck", "serve", "tokens"]
