"""The services on one machine: what compose's own reader says, and the laws that it does not know."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import click.testing
import pytest

from modelmeter_server.commands import config as config_command
from modelmeter_server.config.environment import OVERRIDES
from modelmeter_server.rpc.server import FLUSH_SECONDS
from tests.support import ROOT
from tests.support.deploy_tools import loaded, run

FOLDER = ROOT / "deploy" / "compose"
TEXT = (FOLDER / "compose.yaml").read_text(encoding="utf-8")
SERVICES = loaded("compose/compose.yaml")["services"]
OURS = SERVICES["modelmeter"]
_ASKED = re.compile(r"\$\{(\w+):\?[^}]*\}")


def read(folder: Path, text: str):
    """Return what compose makes of a file with every variable set."""
    file = folder / "compose.yaml"
    file.write_text(_ASKED.sub("x1y2", text), encoding="utf-8")
    return run("compose-go", "-format", "json", file)


def test_compose_takes_it(tmp_path):
    result = read(tmp_path, TEXT)
    assert result.returncode == 0, result.stderr
    services = json.loads(result.stdout)["services"]
    assert services.keys() == {"modelmeter", "postgres", "prometheus", "grafana"}


def test_compose_sees_a_field_that_is_not_there(tmp_path):
    assert read(tmp_path, TEXT.replace("healthcheck:", "healthchek:", 1)).returncode != 0


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_names_is_declared(name):
    whole, service = loaded("compose/compose.yaml"), SERVICES[name]
    places = [each.partition(":")[0] for each in service.get("volumes", [])]
    assert {place for place in places if not place.startswith(".")} <= whole["volumes"].keys()
    assert set(service["networks"]) <= whole["networks"].keys()
    for other, wish in service.get("depends_on", {}).items():
        assert wish == {"condition": "service_healthy"}
        assert "healthcheck" in SERVICES[other]


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_has_a_version(name):
    assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+(\.\d+)?", SERVICES[name]["image"])


def test_the_image_of_the_service_has_the_version_of_the_server():
    version = re.search(r'^version = "(.+)"', (ROOT / "server" / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert OURS["image"] == f"modelmeter:{version[1]}"
    assert (FOLDER / OURS["build"]["context"] / "Dockerfile").resolve() == ROOT / "Dockerfile"


@pytest.mark.parametrize("name", SERVICES)
def test_only_the_loopback_is_published(name):
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


def test_the_database_is_reached_by_the_services_alone():
    assert "ports" not in SERVICES["postgres"]
    assert SERVICES["postgres"]["networks"] == ["inside"]
    assert loaded("compose/compose.yaml")["networks"]["inside"] == {"internal": True}


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_tells_its_health_and_gets_no_more_rights(name):
    service = SERVICES[name]
    assert service["healthcheck"]["test"][0] == "CMD"
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_health_is_asked_through_the_command_line():
    assert OURS["healthcheck"]["test"] == ["CMD", "modelmeter", "healthcheck"]
    assert OURS["read_only"] is True
    assert OURS["cap_drop"] == ["ALL"]


def test_no_password_stands_in_the_file():
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if "PASSWORD" in name or "://" in value:
                assert _ASKED.search(value), name
    variables = set(_ASKED.findall(TEXT))
    lines = (FOLDER / "env.example").read_text(encoding="utf-8").splitlines()
    assert {line for line in lines if not line.startswith("#")} == {f"{name}=" for name in variables}
    assert {"*", "!.gitignore"} <= set((FOLDER / "secrets" / ".gitignore").read_text().splitlines())


def test_calls_can_end_and_be_booked_before_the_container_is_killed():
    drain = float(OURS["environment"]["MODELMETER_DRAIN_SECONDS"])
    assert float(OURS["stop_grace_period"].removesuffix("s")) > drain + FLUSH_SECONDS


def test_variables_are_those_that_the_server_reads():
    assert OURS["environment"].keys() <= {each.variable for each in OVERRIDES}


def test_the_configuration_has_no_mistakes(monkeypatch):
    for name, value in OURS["environment"].items():
        monkeypatch.setenv(name, _ASKED.sub("x", value))
    words = ["check", str(FOLDER / "modelmeter.toml")]
    result = click.testing.CliRunner().invoke(config_command, words)
    assert (result.exit_code, "is correct" in result.output) == (0, True), result.output


def test_what_is_mounted_is_there():
    volumes = [each for service in SERVICES.values() for each in service.get("volumes", [])]
    files = [each.partition(":")[0] for each in volumes if each.startswith(".")]
    assert len(files) > 5
    assert [file for file in files if not (FOLDER / file).exists()] == []


def mounted(service: str, target: str) -> Path:
    """Return the file of the repository that a container sees at a path."""
    volumes = [each.split(":") for each in SERVICES[service]["volumes"]]
    (source,) = [each[0] for each in volumes if each[1] == target]
    return (FOLDER / source).resolve()


def test_prometheus_takes_its_configuration_and_finds_the_alerts(tmp_path):
    for name in ("prometheus.yml", "alerts.yml"):
        shutil.copy(mounted("prometheus", f"/etc/prometheus/{name}"), tmp_path / name)
    result = run("promtool", "check", "config", tmp_path / "prometheus.yml")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 rule files found" in result.stdout + result.stderr


def test_prometheus_asks_where_the_server_tells():
    (job,) = loaded("compose/prometheus.yml")["scrape_configs"]
    ((target,),) = [each["targets"] for each in job["static_configs"]]
    host, _, port = target.partition(":")
    assert host in SERVICES
    assert f'listen = "0.0.0.0:{port}"' in (FOLDER / "modelmeter.toml").read_text(encoding="utf-8")


def test_grafana_finds_the_dashboard_and_its_data():
    (provider,) = loaded("compose/grafana/dashboards.yml")["providers"]
    assert mounted("grafana", f"{provider['options']['path']}/modelmeter.json").name == "modelmeter.json"
    assert mounted("grafana", "/etc/grafana/provisioning/dashboards/modelmeter.yml").name == "dashboards.yml"
    (source,) = loaded("compose/grafana/datasources.yml")["datasources"]
    (wanted,) = loaded("grafana/modelmeter.json")["templating"]["list"]
    assert source["type"] == wanted["query"]
    assert source["url"].split("/")[2].split(":")[0] in SERVICES
