"""`python -m modelmeter.cli` is the command `modelmeter`."""

from __future__ import annotations

from . import main

main()
