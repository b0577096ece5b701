"""What the chart creates for Prometheus and Grafana."""

import json

import yaml

from deploy.helm.document import COPIES
from tests.deploy.rendered import render, rendered

ALL = """
metrics:
  serviceMonitor: {enabled: true, labels: {release: prometheus}, interval: 15s}
  prometheusRule: {enabled: true, runbooks: "https://git.example.com/gateway/"}
  dashboard: {enabled: true}
"""
DASHBOARD, RULES = COPIES


def test_nothing_is_there_by_default() -> None:
    kinds = {each["kind"] for each in rendered("default-values").objects}
    assert not kinds & {"ServiceMonitor", "PrometheusRule"}
    assert len(rendered("default-values").all("ConfigMap")) == 1


def test_prometheus_is_led_to_the_health_port_of_every_pod() -> None:
    """From the ServiceMonitor to its Service, from that to the pods, and there to the port that the gateway binds."""
    release = render(ALL)
    monitor = release.one("ServiceMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["path"], endpoint["interval"]) == ("/metrics", "15s")
    wanted = monitor["spec"]["selector"]["matchLabels"]
    (service,) = [each for each in release.all("Service") if wanted.items() <= each["metadata"]["labels"].items()]
    assert service["spec"]["selector"].items() <= release.deployment["spec"]["template"]["metadata"]["labels"].items()
    (port,) = service["spec"]["ports"]
    assert port["name"] == endpoint["port"]
    targets = {each["name"]: each["containerPort"] for each in release.container["ports"]}
    assert targets[port["targetPort"]] == 9091
    assert service["spec"]["clusterIP"] == "None"


def test_clients_do_not_get_the_health_port() -> None:
    service = render(ALL).service["spec"]
    assert "health" not in {each["targetPort"] for each in service["ports"]}


def test_the_alerts_are_those_of_the_repository_with_whole_links() -> None:
    rendered_groups = render(ALL).one("PrometheusRule")["spec"]["groups"]
    groups = yaml.safe_load(RULES.read_text())["groups"]
    for group in groups:
        for rule in group["rules"]:
            rule["annotations"]["runbook_url"] = "https://git.example.com/gateway/" + rule["annotations"]["runbook_url"]
    assert rendered_groups == groups


def test_grafana_s_sidecar_finds_the_dashboard() -> None:
    release = render(ALL)
    config = release.one("ConfigMap", f"{release.name}-dashboard")
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(config["data"]["gateway.json"]) == json.loads(DASHBOARD.read_text())


def test_prometheus_may_come_in_beside_the_probes() -> None:
    def peers(text: str) -> object:
        policy = render(text).one("NetworkPolicy")["spec"]
        (rule,) = [rule for rule in policy["ingress"] for port in rule["ports"] if port["port"] == "health"]
        return rule.get("from")

    probes = {"ipBlock": {"cidr": "10.0.0.0/8"}}
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    own = {"podSelector": {"matchLabels": {"app": "prometheus"}}}
    limited = "probes: [{ipBlock: {cidr: 10.0.0.0/8}}]"
    assert peers("networkPolicy: {enabled: true}") is None
    assert peers(f"networkPolicy: {{enabled: true, {limited}}}") == [probes, monitoring]
    chosen = "prometheus: [{podSelector: {matchLabels: {app: prometheus}}}]"
    assert peers(f"networkPolicy: {{enabled: true, {limited}, {chosen}}}") == [probes, own]


TLS = """
config:
  health: {bind: "0.0.0.0:9091", auth: {}, tls: {certificate: /tls/tls.crt, key: /tls/tls.key}}
metrics: {serviceMonitor: {enabled: true, keySecret: {name: scrape, key: token}%s}}
"""
ISSUER = "{enabled: true, issuerRef: {name: lab}}"


def endpoint_of(text: str) -> dict[str, object]:
    (endpoint,) = render(text).one("ServiceMonitor")["spec"]["endpoints"]
    found: dict[str, object] = endpoint
    return found


def test_a_health_port_without_tls_and_keys_is_scraped_plainly() -> None:
    assert not {"scheme", "tlsConfig", "authorization"} & set(endpoint_of(ALL))


def test_prometheus_sends_the_key_of_a_secret() -> None:
    wanted = {"type": "Bearer", "credentials": {"name": "scrape", "key": "token"}}
    assert endpoint_of(TLS % "" + "tls: {existingSecret: own}")["authorization"] == wanted


def test_a_health_port_with_tls_is_scraped_over_it_and_its_certificate_is_checked() -> None:
    """By a name that cert-manager's Certificate has, and the CA that it writes."""
    release = render(TLS % "" + f"tls: {{certManager: {ISSUER}}}")
    (endpoint,) = release.one("ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    certificate = release.one("Certificate")["spec"]
    assert endpoint["tlsConfig"]["serverName"] in certificate["dnsNames"]
    assert endpoint["tlsConfig"]["ca"] == {"secret": {"name": certificate["secretName"], "key": "ca.crt"}}
    (port,) = release.one("Service", f"{release.name}-metrics")["spec"]["ports"]
    assert port["appProtocol"] == "https"


def test_secrets_that_exist_and_ones_own_checks_are_used() -> None:
    existing = endpoint_of(TLS % "" + "tls: {existingSecret: own}")["tlsConfig"]
    ca = {"secret": {"name": "own", "key": "ca.crt"}}
    assert existing == {"serverName": "models-modelglot.inference.svc", "ca": ca}
    own = endpoint_of(TLS % ", tlsConfig: {insecureSkipVerify: true}" + "tls: {existingSecret: own}")
    assert own["tlsConfig"] == {"insecureSkipVerify": True}
    assert own["scheme"] == "https"
    listeners = "[{name: http, port: 1, protocols: [v2-rest]}]"
    config_map = f"existingConfigMap: {{name: own, listeners: {listeners}, healthTls: true}}"
    assert endpoint_of(f"{config_map}\nmetrics: {{serviceMonitor: {{enabled: true}}}}")["scheme"] == "https"
