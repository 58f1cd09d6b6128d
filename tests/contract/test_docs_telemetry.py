"""docs/telemetry.md names every kind, every field and every metric, and no other."""

from __future__ import annotations

import pytest

from modelmeter_server.core.events import KINDS, SCHEMA_VERSION, Event
from modelmeter_server.core.redaction import PAYLOAD_BYTES
from modelmeter_server.telemetry import bus, meters, observation
from tests.support import ROOT
from tests.support.markdown import code_words, section, table

TEXT = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
ROWS = {code_words(row["Kind"])[0]: row for row in table(section(TEXT, "Kinds of events"))}


def test_the_page_lists_every_kind_and_no_other():
    assert list(ROWS) == list(KINDS.values())


@pytest.mark.parametrize("kind", KINDS, ids=KINDS.values())
def test_the_page_lists_the_fields_of_a_kind(kind):
    own = [name for name in kind.__struct_fields__ if name not in Event.__struct_fields__]
    assert code_words(ROWS[KINDS[kind]]["Its own fields"]) == own


def test_the_page_names_the_fields_of_the_envelope():
    told = set(code_words(section(TEXT, "Kinds of events").split("| Kind |")[0]))
    assert set(Event.__struct_fields__) - {"tenant"} <= told
    assert f"`version` ({SCHEMA_VERSION})" in TEXT


def test_the_page_lists_every_metric_with_its_attributes():
    telemetry = observation.Telemetry(old_names=True)
    telemetry.ask_in_flight(lambda: 0)
    telemetry.ask_waiting(lambda: 0)
    telemetry.ask_sessions(lambda: 0)
    telemetry.ask_ledger(lambda: True)
    real = {
        reading.described.name: (reading.kind, list(reading.described.attributes))
        for reading in telemetry.meters.read()
    }
    told = {
        code_words(row["Metric"])[0]: (row["Is a"], code_words(row["Attributes"]))
        for row in table(section(TEXT, "Metrics"))
    }
    assert told == real


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (bus.BATCH, "at most 500, which wait 20 ms"),
        (bus.WAITING, "`waiting_events`, 10,000"),
        (PAYLOAD_BYTES, "4,096 bytes"),
        (meters.SERIES, "`max_series` (1,000)"),
    ],
)
def test_the_page_names_the_bounds_of_the_code(value, words):
    assert words in " ".join(TEXT.split())
    assert f"{value:,}" in words
