"""Where the recorded material is, if anywhere. Imported before the environment is scrubbed."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support import ROOT

SHARED = Path(os.environ.get("MODELMETER_SHARED") or ROOT.parent / "shared")
"""The folder of recorded provider streams and cases (MODELMETER_SHARED, else beside the checkout)."""

MISSING = "no recorded material: set MODELMETER_SHARED to its folder"


def has_material() -> bool:
    """Say whether the recorded material is there."""
    return (SHARED / "streams").is_dir()
