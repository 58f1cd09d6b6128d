"""Machinery that several test folders share; each module here has tests of its own."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
"""The folder of the repository."""
