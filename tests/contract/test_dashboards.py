"""The dashboard and the alerts name metrics and labels that are really emitted."""

from __future__ import annotations

import json
import re

import pytest

from modelmeter_server.core.outcomes import Certainty, Disposition, Kind
from modelmeter_server.telemetry.observation import Telemetry
from modelmeter_server.telemetry.prometheus import spelled
from tests.support import ROOT

DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "modelmeter.json").read_text(encoding="utf-8"))
ALERTS = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text(encoding="utf-8")

_SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
_WORDS = {
    "modelmeter_outcome": {"OK", *(kind.value for kind in Kind)},
    "modelmeter_disposition": {each.value for each in Disposition},
    "modelmeter_certainty": {each.value for each in Certainty},
    "modelmeter_state": {"settled", "held", "unsettled", "written_off"},
    "modelmeter_percent": {"50", "80", "100"},
}


def emitted() -> dict[str, set[str]]:
    """Return the labels of every series, by its name."""
    telemetry = Telemetry()
    telemetry.ask_in_flight(lambda: 0)
    telemetry.ask_ledger(lambda: True)
    found = {}
    for reading in telemetry.meters.read():
        labels = {name.replace(".", "_") for name in reading.described.attributes}
        for suffix in _SUFFIXES[reading.kind]:
            found[spelled(reading) + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
    return found


EMITTED = emitted()
OF_DASHBOARD = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
OF_ALERTS = re.findall(r"^\s+expr: (.+)$", ALERTS, re.MULTILINE)
_NAME = re.compile(r"\b(?:modelmeter|gen_ai|rpc)_\w+\b")


def names_and_labels(expression: str) -> tuple[set[str], set[str]]:
    """Return the series that an expression reads, and every label that it names."""
    matchers = re.findall(r"\{([^}]*)\}", expression)
    labels = {name for matcher in matchers for name in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matcher)}
    for group in re.findall(r"(?:by|on|ignoring|group_left) \(([^)]*)\)", expression):
        labels |= set(re.findall(r"\w+", group))
    bare = re.sub(r"\{[^}]*\}|(?:by|on|ignoring|group_left) \([^)]*\)", " ", expression)
    return set(_NAME.findall(bare)), labels


def test_there_is_something_to_check():
    assert len(OF_DASHBOARD) > 12
    assert len(OF_ALERTS) == ALERTS.count("- alert:") > 6


@pytest.mark.parametrize("expression", OF_DASHBOARD + OF_ALERTS)
def test_every_metric_and_label_is_emitted(expression):
    names, labels = names_and_labels(expression)
    assert names
    assert names <= EMITTED.keys()
    assert labels <= set.union(*(EMITTED[name] for name in names))


@pytest.mark.parametrize("expression", OF_DASHBOARD + OF_ALERTS)
def test_every_value_that_is_looked_for_is_one_that_occurs(expression):
    for label, values in re.findall(r'(\w+)\s*(?:=~|!~|!=|=)"([^"]*)"', expression):
        assert set(values.split("|")) <= _WORDS[label]


@pytest.mark.parametrize("expression", OF_DASHBOARD + OF_ALERTS)
def test_what_every_server_reads_of_one_ledger_is_not_added_up(expression):
    assert not re.search(r"sum(?: by \([^)]*\))? ?\((?:delta\()?modelmeter_ledger_", expression)


@pytest.mark.parametrize(
    "needed",
    [
        'certainty="UNKNOWN"',
        'state="held"',
        'state="unsettled"',
        "outcome",
        "soft_limits",
        "time_to_first_chunk",
        '"BUG"',
        "ledger_up",
    ],
)
def test_what_operators_must_hear_of_has_an_alert(needed):
    assert any(needed in expression for expression in OF_ALERTS)


def test_labels_in_texts_are_labels_of_the_expression():
    for rule in ALERTS.split("- alert:")[1:]:
        _, labels = names_and_labels(re.search(r"expr: (.+)", rule)[1])  # type: ignore[index]
        assert set(re.findall(r"\$labels\.(\w+)", rule)) <= labels


def test_panels_have_their_own_place_and_number():
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in DASHBOARD["panels"]})
