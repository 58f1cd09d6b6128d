"""What must hold in every rendering of the chart, held against the server's own code."""

from __future__ import annotations

import re

import click.testing
import pytest
import trustme

from modelmeter_server.commands import config as config_command
from modelmeter_server.config.environment import OVERRIDES
from modelmeter_server.config.settings import ServerSettings
from modelmeter_server.rpc.health import LIVENESS, READINESS
from modelmeter_server.rpc.server import FLUSH_SECONDS
from modelmeter_server.telemetry.observation import Telemetry
from modelmeter_server.telemetry.prometheus import spelled
from tests.support.certificates import write_server
from tests.support.deploy_tools import CHART, VALUES, Release, loaded
from tests.support.markdown import blocks

SETS = [None, *sorted(path.stem for path in VALUES.glob("*.yaml"))]


@pytest.fixture(params=SETS, ids=str)
def release(request):
    """Return each rendering in turn."""
    return Release(request.param)


def asked_by(probe):
    """Return the service and the port that a probe asks for."""
    if "grpc" in probe:
        return probe["grpc"]["service"], probe["grpc"]["port"]
    words = dict(word.removeprefix("--").partition("=")[::2] for word in probe["exec"]["command"])
    return words["service"], int(words["address"].rpartition(":")[2])


def test_probes_ask_for_services_that_the_server_has(release):
    probes = {name: asked_by(release.container[f"{name}Probe"])[0] for name in ("startup", "liveness")}
    assert probes == {"startup": LIVENESS, "liveness": LIVENESS}
    assert asked_by(release.container["readinessProbe"])[0] == READINESS


def test_everything_speaks_of_one_port(release):
    ports = {each["name"]: each["containerPort"] for each in release.container["ports"]}
    listened = int(release.environment["MODELMETER_LISTEN"].rpartition(":")[2])
    probed = {asked_by(release.container[f"{name}Probe"])[1] for name in ("startup", "liveness", "readiness")}
    served = {
        port["port"]
        for service in release.of("Service")
        for port in service["spec"]["ports"]
        if port["targetPort"] == "grpc"
    }
    assert {ports["grpc"], listened} == probed == served


def test_a_server_that_asks_for_certificates_is_probed_on_its_private_listener():
    config = '[server]\nprivate_listen = "127.0.0.1:50052"\n[server.tls]\nclient_ca = "c"\n[identity]\n'
    settings = ("probes.privatePort=50052", "tls.existingSecret=t", f"config={config}")
    release = Release(None, *settings)
    for name in ("startup", "liveness", "readiness"):
        probe = release.container[f"{name}Probe"]
        assert asked_by(probe)[1] == 50052
        assert "--address=127.0.0.1:50052" in probe["exec"]["command"]


def test_the_default_port_is_the_servers():
    (address,) = ServerSettings().listen
    assert Release(None).container["ports"][0]["containerPort"] == int(address.rpartition(":")[2])


def test_calls_can_end_and_be_booked_before_the_pod_is_killed(release):
    lifecycle = release.container.get("lifecycle", {})
    before = lifecycle.get("preStop", {}).get("sleep", {}).get("seconds", 0)
    drain = float(release.environment["MODELMETER_DRAIN_SECONDS"])
    assert release.pod["spec"]["terminationGracePeriodSeconds"] > before + drain + FLUSH_SECONDS


def check_configuration(release, tmp_path, monkeypatch):
    """Check the configuration as the pod would see it, with its variables and its files."""
    for name, value in release.environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "tls").mkdir()
    files = write_server(tmp_path / "tls", trustme.CA())
    files.certificate.rename(tmp_path / "tls" / "tls.crt")
    files.key.rename(tmp_path / "tls" / "tls.key")
    (tmp_path / "secrets" / "tokens").mkdir(parents=True)
    file = tmp_path / "modelmeter.toml"
    file.write_text(release.toml.replace("/etc/modelmeter/", f"{tmp_path}/"), encoding="utf-8")
    result = click.testing.CliRunner().invoke(config_command, ["check", str(file), "--no-keys"])
    assert (result.exit_code, "is correct" in result.output) == (0, True), result.output


def test_the_configuration_has_no_mistakes(release, tmp_path, monkeypatch):
    check_configuration(release, tmp_path, monkeypatch)


def test_the_example_of_the_readme_is_rendered_and_has_no_mistakes(tmp_path, monkeypatch):
    (example, _) = [block for block in blocks(CHART / "README.md") if block.language == "yaml"]
    (tmp_path / "example.yaml").write_text(example.text, encoding="utf-8")
    release = Release(str(tmp_path / "example"))
    assert release.one("Deployment")["spec"]["replicas"] == 3
    check_configuration(release, tmp_path, monkeypatch)


def test_the_files_that_the_configuration_names_are_mounted(release):
    mounts = {each["mountPath"] for each in release.container["volumeMounts"]}
    named = set(re.findall(r'"(/etc/modelmeter/[^"]+)/[^"/]+"', release.toml))
    assert named | {"/etc/modelmeter/config", "/var/lib/modelmeter", "/tmp"} <= mounts
    assert release.environment["MODELMETER_CONFIG"] == "/etc/modelmeter/config/modelmeter.toml"


def test_every_mount_has_its_volume_and_only_two_can_be_written(release):
    volumes = {each["name"] for each in release.pod["spec"]["volumes"]}
    mounts = release.container["volumeMounts"]
    assert {each["name"] for each in mounts} == volumes
    assert {each["name"] for each in mounts if not each.get("readOnly")} == {"data", "tmp"}


def test_variables_are_those_that_the_server_reads(release):
    known = {each.variable for each in OVERRIDES} | {"MODELMETER_CONFIG"}
    assert {each["name"] for each in release.container["env"]} <= known


def test_no_secret_stands_in_a_manifest(release):
    assert not release.of("Secret")
    text = release.toml + str(release.environment)
    assert not re.search(r"api_key\s*=|api_key_env|sk-|password|postgresql://|bearer", text, re.IGNORECASE)
    indirect = [each["valueFrom"] for each in release.container["env"] if "valueFrom" in each]
    assert all(set(each) == {"secretKeyRef"} for each in indirect)


def test_the_pod_has_no_rights(release):
    pod, own = release.pod["spec"], release.container["securityContext"]
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == 10001  # the Dockerfile's
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own["readOnlyRootFilesystem"] is True
    assert own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert pod["automountServiceAccountToken"] is False
    assert not [key for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]


def test_every_selector_finds_the_pods(release):
    labels = release.pod["metadata"]["labels"].items()
    selectors = [service["spec"]["selector"] for service in release.of("Service")]
    selectors += [each["spec"]["selector"]["matchLabels"] for each in release.of("PodDisruptionBudget")]
    selectors += [each["spec"]["podSelector"]["matchLabels"] for each in release.of("NetworkPolicy")]
    spread = release.pod["spec"]["topologySpreadConstraints"]
    selectors += [each["labelSelector"]["matchLabels"] for each in spread]
    selectors.append(release.one("Deployment")["spec"]["selector"]["matchLabels"])
    assert len(selectors) > 4
    assert all(selector.items() <= labels for selector in selectors)


def test_one_service_has_no_address_of_its_own(release):
    headless = [each for each in release.of("Service") if each["spec"].get("clusterIP") == "None"]
    assert [each["metadata"]["name"].endswith("-headless") for each in headless] == [True]


def test_a_ledger_in_a_file_has_one_writer(release):
    deployment = release.one("Deployment")["spec"]
    if release.environment.get("MODELMETER_LEDGER_URL", "").startswith("sqlite:"):
        assert deployment["replicas"] == 1
        assert deployment["strategy"]["type"] == "Recreate"
    else:
        assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_only_calls_and_metrics_come_in_and_only_what_is_needed_goes_out(release):
    for policy in release.of("NetworkPolicy"):
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        opened = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        assert opened <= {each["name"] for each in release.container["ports"]}
        assert all(rule["from"] for rule in policy["spec"]["ingress"])
        assert all(rule["to"] and rule["ports"] for rule in policy["spec"]["egress"])


def test_by_default_no_machine_of_the_own_network_is_called():
    rules = Release(None).one("NetworkPolicy")["spec"]["egress"]
    blocks = [each["ipBlock"] for rule in rules for each in rule["to"] if "ipBlock" in each]
    forbidden = {cidr for block in blocks for cidr in block["except"]}
    assert {"10.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"} <= forbidden


def test_the_autoscaler_counts_what_the_server_emits():
    telemetry = Telemetry()
    telemetry.ask_in_flight(lambda: 0)
    gauges = {spelled(each) for each in telemetry.meters.read() if each.kind == "gauge"}
    (metric,) = Release("autoscaling").one("HorizontalPodAutoscaler")["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] in gauges


def test_the_autoscaler_owns_the_number_of_pods():
    release = Release("autoscaling")
    assert "replicas" not in release.one("Deployment")["spec"]
    target = release.one("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert target["name"] == release.one("Deployment")["metadata"]["name"]


def test_the_rules_are_the_alerts_of_prometheus():
    assert Release("autoscaling").one("PrometheusRule")["spec"] == loaded("prometheus/alerts.yml")


def test_metrics_are_fetched_where_the_server_tells_them():
    release = Release("autoscaling")
    assert 'listen = "0.0.0.0:9100"' in release.toml
    (endpoint,) = release.one("ServiceMonitor")["spec"]["endpoints"]
    wanted = release.one("ServiceMonitor")["spec"]["selector"]["matchLabels"].items()
    (service,) = [each for each in release.of("Service") if wanted <= each["metadata"]["labels"].items()]
    assert {"name": endpoint["port"], "port": 9100, "targetPort": "metrics"} in service["spec"]["ports"]


def test_hosts_by_name_take_the_place_of_addresses():
    release = Release("hosts")
    rules = release.one("NetworkPolicy")["spec"]["egress"]
    assert not [each for rule in rules for each in rule["to"] if "ipBlock" in each]
    (named,) = [rule for rule in release.one("CiliumNetworkPolicy")["spec"]["egress"] if "toFQDNs" in rule]
    assert named["toFQDNs"] == [{"matchName": "bedrock-runtime.eu-central-1.amazonaws.com"}]


def test_a_bill_outlives_the_release():
    claim = Release("tls").one("PersistentVolumeClaim")
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert not Release("hosts").of("PersistentVolumeClaim")  # its claim is there already


def test_a_changed_configuration_makes_new_pods():
    key = "checksum/config"
    sums = {Release(values).pod["metadata"]["annotations"][key] for values in (None, "tls", "bare")}
    assert len(sums) == 3
