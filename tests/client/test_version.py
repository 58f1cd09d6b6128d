"""The version in the code is the version of the distribution."""

from __future__ import annotations

import tomllib

import modelmeter
from tests.support import ROOT


def test_the_version_is_the_one_of_the_distribution():
    project = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert modelmeter.__version__ == project["version"]


def test_every_public_name_is_there_once():
    assert len(modelmeter.__all__) == len(set(modelmeter.__all__))
    assert [name for name in modelmeter.__all__ if not hasattr(modelmeter, name)] == []
