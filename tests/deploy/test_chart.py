"""The chart: values render to what Kubernetes takes, bad ones are refused, and the README knows each."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from tests.support.deploy_tools import CHART, KUBERNETES, VALUES, program, rendered, run, template
from tests.support.markdown import code_words, section, table

SETS = [None, *sorted(path.stem for path in VALUES.glob("*.yaml"))]
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
PAGE = (CHART / "README.md").read_text(encoding="utf-8")
ROWS = {code_words(row["Value"])[0]: row for row in table(section(PAGE, "Values"))}
_OF_OTHERS = {"ServiceMonitor", "PrometheusRule", "CiliumNetworkPolicy"}


def leaves(values: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Return each value by its dotted path; a map that is empty or free counts as one."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        inner = isinstance(value, dict) and value and (path + name) != "resources"
        found |= leaves(value, f"{path}{name}.") if inner else {path + name: value}
    return found


LEAVES = leaves(DEFAULTS)


def test_there_are_several_sets_of_values():
    assert len(SETS) > 5


@pytest.mark.parametrize("values", SETS)
@pytest.mark.parametrize("version", KUBERNETES)
def test_every_document_has_the_schema_of_kubernetes(tmp_path, values, version):
    documents = [each for each in rendered(values) if each["kind"] not in _OF_OTHERS]
    file = tmp_path / "documents.yaml"
    file.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    result = run("kubernetes-validate", "--strict", "--kubernetes-version", version, file)
    assert result.returncode == 0, result.stdout + result.stderr
    assert (result.stdout + result.stderr).count(" passed ") == len(documents) > 3


def test_the_judge_of_schemas_sees_a_field_that_is_not_there(tmp_path):
    (service, *_) = [each for each in rendered(None) if each["kind"] == "Service"]
    file = tmp_path / "service.yaml"
    file.write_text(yaml.safe_dump({**service, "spec": {**service["spec"], "prots": []}}), encoding="utf-8")
    assert run("kubernetes-validate", "--strict", "--kubernetes-version", KUBERNETES[0], file).returncode != 0


def test_the_linter_has_no_complaint():
    result = run("helm", "lint", "--strict", CHART)
    assert result.returncode == 0, result.stdout
    assert "[WARNING]" not in result.stdout


def notes(folder: Path, values: str | None) -> str:
    """Return what helm says after an installation, which `helm template` leaves out."""
    chart = shutil.copytree(CHART, folder / "chart")
    (chart / "templates" / "NOTES.txt").rename(chart / "NOTES.txt")
    text = 'notes: {{ tpl (.Files.Get "NOTES.txt") . | toJson }}'
    (chart / "templates" / "notes.yaml").write_text(text, encoding="utf-8")
    words: list[str | Path] = [] if values is None else ["--values", VALUES / f"{values}.yaml"]
    result = run("helm", "template", "release", chart, "--kube-version", "1.34", *words)
    assert result.returncode == 0, result.stderr
    (found,) = [each["notes"] for each in yaml.safe_load_all(result.stdout) if each and "notes" in each]
    return str(found)


@pytest.mark.parametrize(
    ("values", "told", "untold"),
    [
        (None, ["without TLS", "whoever reaches", "ends with its pod", "round_robin"], ["adapter"]),
        ("postgresql", ["without TLS"], ["whoever reaches", "ends with its pod", "lets nothing through"]),
        ("tls", ["whoever reaches"], ["without TLS", "ends with its pod"]),
        ("autoscaling", ["adapter"], ["lets nothing through"]),
    ],
)
def test_the_notes_say_what_is_open_and_what_does_not_last(tmp_path, values, told, untold):
    text = notes(tmp_path, values)
    assert [word for word in told if word not in text] == []
    assert [word for word in untold if word in text] == []


def test_the_schema_is_one_and_takes_the_defaults():
    jsonschema_rs.meta.validate(SCHEMA)
    jsonschema_rs.validate(SCHEMA, DEFAULTS)


def test_the_schema_knows_every_value_and_no_other():
    def known(schema: dict[str, Any], values: dict[str, Any]) -> None:
        if "properties" not in schema:
            return
        assert schema["properties"].keys() - {"global"} == values.keys()
        assert schema["additionalProperties"] is False
        for name, value in values.items():
            if isinstance(value, dict):
                known(schema["properties"][name], value)

    known(SCHEMA, DEFAULTS)


def test_the_readme_has_each_value_with_its_default():
    assert list(ROWS) == list(LEAVES)
    for name, value in LEAVES.items():
        shown = ROWS[name]["Default"]
        told = json.loads(code_words(shown)[0]) if "`" in shown else shown
        assert told == value or (name == "config" and shown == "the embedded provider"), name
        assert ROWS[name]["Meaning"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["replicas=3"], "additional properties 'replicas' not allowed"),
        (["grpc.port=0"], "/grpc/port"),
        (["replicaCount=2"], "several pods cannot share a SQLite ledger"),
        (["autoscaling.enabled=true"], "several pods cannot share a SQLite ledger"),
        (["autoscaling.enabled=true", "ledger.existingSecret=l"], "set metrics.enabled"),
        (["metrics.enabled=true"], 'listen = "0.0.0.0:9464"'),
        (
            [
                "metrics.enabled=true",
                'config=[server]\nworkers = 2\n[telemetry.prometheus]\nlisten = "0.0.0.0:9464"',
            ],
            "remove server.workers",
        ),
        (["terminationGracePeriodSeconds=144"], "at least preStopSeconds + drainSeconds + 10 = 145"),
        (
            ["config=[server]\ndrain_delay_seconds = 4.5", "terminationGracePeriodSeconds=149"],
            "10 = 150",
        ),
        (["config=x"], "config is not TOML"),
        (['config=[server]\nlisten = "0.0.0.0:1"'], "remove server.listen"),
        (["config=[server]\ndrain_seconds = 5"], "remove server.drain_seconds"),
        (['config=[ledger]\nurl = "postgresql://u:p@h/d"'], "remove ledger.url"),
        (['config=[ledger]\nurl = "none"', "ledger.existingSecret=l"], "remove one"),
        (['config=[providers.a]\nkind = "anthropic"\napi_key_env = "K"'], "use api_key_file"),
        (['config=[providers.a]\nkind = "anthropic"'], "without TLS"),
        (
            ["allowInsecure=true", 'config=[providers.a]\nkind = "anthropic"'],
            "would be open to whoever reaches the pod",
        ),
        (["tls.existingSecret=t"], "TLS needs both"),
        (['config=[server.tls]\nkey = "k"'], "TLS needs both"),
        (['config=[identity]\ntokens_file = "t"'], "identity.open_health = true"),
        (['config=[server.tls]\nclient_ca = "c"', "tls.existingSecret=t"], "probes.privatePort: 50052"),
        (["probes.privatePort=50052"], 'private_listen = "127.0.0.1:50052"'),
    ],
    ids=str,
)
def test_what_would_not_run_is_not_rendered(settings, words):
    program("helm")
    result = template(None, settings)
    assert result.returncode != 0
    assert words in result.stderr


def test_workers_are_taken_where_nobody_counts_them():
    assert template(None, ["config=[server]\nworkers = 2"]).returncode == 0


@pytest.mark.parametrize("grace", [145, 200])
def test_a_grace_that_is_long_enough_is_taken(grace):
    assert template(None, [f"terminationGracePeriodSeconds={grace}"]).returncode == 0
