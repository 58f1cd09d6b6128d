"""docs/architecture.md: its layers are the enforced ones, its limits the code's."""

from __future__ import annotations

import importlib
import re
import tomllib

import pytest

from modelmeter_server.core.ladder import Evidence, severed
from modelmeter_server.core.outcomes import Cause, Certainty, End, Ending, Stage
from modelmeter_server.core.usage import Usage
from modelmeter_server.engine.engine import HEADROOM_LEAST, HEADROOM_MOST, HEADROOM_SHARE
from tests.support import ROOT
from tests.support.markdown import code_words, section, table

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
LIMITS = table(section(TEXT, "Limits"))
UNITS = {"": 1, "bytes": 1, "KiB": 1024, "MiB": 1024**2, "ms": 0.001, "s": 1}


def test_the_layers_are_those_that_are_enforced():
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    (contract,) = [each for each in tools["importlinter"]["contracts"] if each["type"] == "layers"]
    enforced = [re.findall(r"\w+", layer) for layer in contract["layers"]]
    told = [row["Layer"] for row in table(section(TEXT, "Layers"))]
    assert told == [name for layer in enforced for name in layer]


def _constant(where: str) -> float:
    """Return the value of `module.NAME`, or the default of `module.Class.field`."""
    path, _, name = where.rpartition(".")
    owner, _, kind = path.rpartition(".")
    if kind[0].isupper():
        made = getattr(importlib.import_module(f"modelmeter_server.{owner}"), kind)()
        return float(getattr(made, name))
    return float(getattr(importlib.import_module(f"modelmeter_server.{path}"), name))


@pytest.mark.parametrize("row", LIMITS, ids=lambda row: row["What"])
def test_a_limit_is_the_one_in_the_code(row):
    match = re.fullmatch(r"([\d,]+)(?: (\w+))?(?: \(\*set\*\))?", row["Limit"])
    assert match is not None
    (where,) = code_words(row["Where"])
    assert _constant(where) == int(match[1].replace(",", "")) * UNITS[match[2] or ""]


def test_limits_that_are_said_to_be_set_are_keys_of_the_configuration():
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    keys = [
        code_words(row["Where"])[0].rpartition(".")[2].lower() for row in LIMITS if "*set*" in row["Limit"]
    ]
    assert keys
    assert not [key for key in keys if f"| `{key}` |" not in page]


def test_the_headroom_is_the_one_in_the_code():
    match = re.search(r"less (\d+) %, at least (\d+) ms and at most (\d+) s", TEXT)
    assert match is not None
    share, least, most = map(float, match.groups())
    assert (share / 100, least / 1000, most) == (HEADROOM_SHARE, HEADROOM_LEAST, HEADROOM_MOST)


DEATHS = {
    "not wholly written": (Evidence(), Stage.WRITING),
    "written, no evidence of generation": (Evidence(), Stage.WRITTEN),
    "generated, no usage told": (Evidence(generated=True), Stage.BODY),
    "some usage told": (Evidence(generated=True, usage=Usage(input_tokens=1)), Stage.BODY),
    "usage told with or after the stop reason": (
        Evidence(generated=True, usage=Usage(input_tokens=1, output_tokens=1), usage_is_final=True),
        Stage.BODY,
    ),
}


@pytest.mark.parametrize(
    "row", table(section(TEXT, "The landing model")), ids=lambda row: row["When it died"]
)
def test_the_ladder_is_the_one_in_the_code(row):
    evidence, stage = DEATHS[row["When it died"]]
    result = severed(evidence, Ending(end=End.RESET, cause=Cause.NETWORK, stage=stage), "it broke")
    assert (f"`{result.kind.name}`", result.certainty) == (row["Kind"], Certainty(row["Certainty"]))
