"""The alerts: Prometheus can read them, and they fire when they must."""

from __future__ import annotations

import shutil

import pytest
import yaml

from tests.support import ROOT
from tests.support.deploy_tools import loaded, run

FILE = ROOT / "deploy" / "prometheus" / "alerts.yml"
CALLS = "modelmeter_calls_total"


def test_prometheus_can_read_every_rule():
    result = run("promtool", "check", "rules", FILE)
    assert result.returncode == 0, result.stdout + result.stderr
    (group,) = loaded("prometheus/alerts.yml")["groups"]
    assert f"{len(group['rules'])} rules found" in result.stdout


def calls(values: str, outcome: str = "OK", disposition: str = "LANDED", certainty: str = "EXACT"):
    """Return the count of calls of one model that ended in one way."""
    labels = {
        "gen_ai_request_model": "claude",
        "modelmeter_outcome": outcome,
        "modelmeter_disposition": disposition,
        "modelmeter_certainty": certainty,
    }
    text = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return {"series": f"{CALLS}{{{text}}}", "values": values}


def gauge(name: str, values: str, **labels: str):
    """Return a gauge."""
    text = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return {"series": f"{name}{{{text}}}", "values": values}


STEADY, SILENT = "0+60x60", "0x60"
SITUATIONS = {
    "all is well": ([calls(STEADY), gauge("modelmeter_ledger_up", "1x60")], set()),
    "one call in three is interrupted": (
        [calls(STEADY), calls("0+30x60", "INTERRUPTED")],
        {"ModelmeterCallsFail"},
    ),
    "one call in twenty is interrupted": ([calls(STEADY), calls("0+3x60", "INTERRUPTED")], set()),
    "a bill is never told": (
        [calls(STEADY), calls("0x25 1x40", "UNACCOUNTED", certainty="UNKNOWN")],
        {"ModelmeterUnaccountedCalls"},
    ),
    "a fault of ours": ([calls(STEADY), calls("0x27 1x40", "BUG")], {"ModelmeterBug"}),
    "the first fault ever": ([calls(STEADY), calls("_x27 1x40", "BUG")], {"ModelmeterBug"}),
    "a fault of an hour ago": ([calls("0+60x120"), calls("1x120", "BUG")], set()),
    "the first bill that is never told": (
        [calls(STEADY), calls("_x25 1x40", "UNACCOUNTED", certainty="UNKNOWN")],
        {"ModelmeterUnaccountedCalls"},
    ),
    "a ceiling is nearly reached": (
        [gauge("modelmeter_soft_limits_total", "_x20 1x40", modelmeter_scope="run", modelmeter_percent="80")],
        {"ModelmeterCeilingNear"},
    ),
    "half of a ceiling is used": (
        [gauge("modelmeter_soft_limits_total", "_x20 1x40", modelmeter_scope="run", modelmeter_percent="50")],
        set(),
    ),
    "the ledger is down": ([gauge("modelmeter_ledger_up", "1x20 0x40")], {"ModelmeterLedgerDown"}),
    "room is held for nobody": (
        [
            gauge("modelmeter_ledger_tokens", "500x60", modelmeter_state="held"),
            gauge("modelmeter_calls_in_flight", SILENT),
        ],
        {"ModelmeterHeldWithoutCalls"},
    ),
    "room is held for calls under way": (
        [
            gauge("modelmeter_ledger_tokens", "500x60", modelmeter_state="held"),
            gauge("modelmeter_calls_in_flight", "3x60"),
        ],
        set(),
    ),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_an_alert_fires_when_it_must_and_only_then(tmp_path, situation):
    series, fires = SITUATIONS[situation]
    (group,) = loaded("prometheus/alerts.yml")["groups"]
    shutil.copy(FILE, tmp_path / "alerts.yml")
    # `alert_rule_test` would compare every text of an alert; Prometheus' own series says only whether it fires.
    fired = [{"labels": f'ALERTS{{alertname="{name}"}}', "value": 1} for name in sorted(fires)]
    asked = {"expr": 'max by (__name__, alertname) (ALERTS{alertstate="firing"})', "eval_time": "30m"}
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [{**asked, "exp_samples": fired}]}
    file = tmp_path / "tests.yml"
    document = {"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": [test]}
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert fires <= {rule["alert"] for rule in group["rules"]}
    result = run("promtool", "test", "rules", file)
    assert result.returncode == 0, result.stdout + result.stderr
