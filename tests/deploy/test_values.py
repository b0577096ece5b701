"""values.schema.json refuses what the chart does not know, and the README describes all that it does."""

import json
import tarfile
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from deploy.helm.document import COPIES, documented, rows
from tests.deploy.rendered import CHART, chart, values

VALUES = (CHART / "values.yaml").read_text()
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("replicas: 2", "replicas"),
        ("image: {name: x}", "/image"),
        ("image: {pullPolicy: Sometimes}", "/image/pullPolicy"),
        ("image: {digest: sha256:abc}", "/image/digest"),
        ("imagePullSecrets: [registry]", "/imagePullSecrets/0"),
        ("config: [a]", "/config"),
        ("existingConfigMap: gateway", "/existingConfigMap"),
        (
            "existingConfigMap: {listeners: [{name: a, port: 8080, protocols: [rest]}]}",
            "/existingConfigMap/listeners/0/protocols/0",
        ),
        (
            "existingConfigMap: {listeners: [{name: a, port: 80800, protocols: []}]}",
            "/existingConfigMap/listeners/0/port",
        ),
        ("replicaCount: two", "/replicaCount"),
        ("reload: often", "/reload"),
        ("strategy: {type: Rolling}", "/strategy/type"),
        ("preStopSeconds: -1", "/preStopSeconds"),
        ("terminationGracePeriodSeconds: 30s", "/terminationGracePeriodSeconds"),
        ("serviceAccount: {token: true}", "/serviceAccount"),
        ("podAnnotations: {a: 1}", "/podAnnotations/a"),
        ("commonLabels: {a: 1}", "/commonLabels/a"),
        ("deploymentAnnotations: {a: true}", "/deploymentAnnotations/a"),
        ("resources: {request: {}}", "/resources"),
        ("probes: {ready: {}}", "/probes"),
        ("probes: {readiness: {httpGet: {}}}", "/probes/readiness"),
        ("service: {type: ExternalName}", "/service/type"),
        ("service: {ports: {http: web}}", "/service/ports/http"),
        ("ingress: {hosts: [{host: a, path: /}]}", "/ingress/hosts/0"),
        ("httpRoute: {gateway: a}", "/httpRoute"),
        ("grpcRoute: {timeouts: {}}", "/grpcRoute"),
        ("grpcRoute: {parentRefs: [{nam: a}]}", "/grpcRoute/parentRefs/0"),
        ("tcpRoutes: [{parentRefs: [{name: a}]}]", "/tcpRoutes/0"),
        ("tlsRoutes: [{listener: a, parentRefs: [{name: a}]}]", "/tlsRoutes/0"),
        ("autoscaling: {minReplicas: 0}", "/autoscaling/minReplicas"),
        ("autoscaling: {behavior: {scaleup: {}}}", "/autoscaling/behavior"),
        ("autoscaling: {targetCPU: most}", "/autoscaling/targetCPU"),
        ("podDisruptionBudget: {maxUnavailable: 0}", "/podDisruptionBudget/maxUnavailable"),
        ("podDisruptionBudget: {minAvailable: 1}", "/podDisruptionBudget"),
        ("topologySpreadConstraints: [{maxSkew: 1}]", "/topologySpreadConstraints/0"),
        ("tolerations: [{keys: a}]", "/tolerations/0"),
        ("affinity: {podAfinity: {}}", "/affinity"),
        ("networkPolicy: {clients: [{cidr: 10.0.0.0/8}]}", "/networkPolicy/clients/0"),
        ("networkPolicy: {dns: kube-dns}", "/networkPolicy/dns"),
        ("networkPolicy: {prometheus: [monitoring]}", "/networkPolicy/prometheus/0"),
        ("metrics: {serviceMonitor: true}", "/metrics/serviceMonitor"),
        ("metrics: {serviceMonitor: {interval: often}}", "/metrics/serviceMonitor/interval"),
        ("metrics: {serviceMonitor: {relabelings: [{action: a}]}}", "/metrics/serviceMonitor/relabelings/0/action"),
        ("metrics: {prometheusRule: {runbooks: docs}}", "/metrics/prometheusRule/runbooks"),
        ("metrics: {dashboard: {labels: {grafana_dashboard: 1}}}", "/metrics/dashboard/labels/grafana_dashboard"),
        ("keda: {scaledObjects: [{backend: a}]}", "/keda/scaledObjects/0"),
        ("keys: {secret: a}", "/keys"),
        ("extraEnv: {A: b}", "/extraEnv"),
        ("extraEnv: [{name: A, value: 1}]", "/extraEnv/0/value"),
        ("extraEnvFrom: [{secret: a}]", "/extraEnvFrom/0"),
        ("initContainers: [{name: a}]", "/initContainers/0"),
        ("dnsPolicy: Cluster", "/dnsPolicy"),
        ("dnsConfig: []", "/dnsConfig"),
        ("hostAliases: [{ip: 192.0.2.1}]", "/hostAliases/0"),
        ("service: {ipFamilies: [v6]}", "/service/ipFamilies/0"),
        ("global: {imageRegistry: 1}", "/global/imageRegistry"),
        ("extraVolumes: [{emptyDir: {}}]", "/extraVolumes/0"),
        ("extraVolumeMounts: [{name: a, path: /a}]", "/extraVolumeMounts/0"),
        ("extraContainers: [{name: a}]", "/extraContainers/0"),
        ("extraObjects: [1]", "/extraObjects/0"),
        ("demo: true", "/demo"),
        ("tls: {secret: own}", "/tls"),
        ("test: {requests: [{model: a}]}", "/test/requests/0"),
        ("test: {tls: {insecure: true}}", "/test/tls"),
        ("test: {keySecret: tester}", "/test/keySecret"),
    ],
)
def test_what_the_chart_does_not_know_is_refused_where_it_stands(given: str, place: str) -> None:
    with pytest.raises(helm_python.HelmValuesError) as raised:
        chart().validate_schema(values(given))
    assert place in str(raised.value)


def test_each_section_has_such_a_test() -> None:
    marks: list[Any] = test_what_the_chart_does_not_know_is_refused_where_it_stands.pytestmark  # type: ignore[attr-defined]
    given = {key for text, _ in marks[0].args[1] for key in values(text)}
    free = {
        *("nameOverride", "fullnameOverride", "priorityClassName", "runtimeClassName", "schedulerName"),
        *("revisionHistoryLimit", "podLabels", "nodeSelector"),
    }
    open_maps = {"podSecurityContext", "securityContext", "global"}
    assert set(SCHEMA["properties"]) - free - open_maps <= given


def open_objects(schema: dict[str, Any], place: str) -> list[str]:
    """Where the schema takes maps with any keys."""
    found = []
    if schema.get("type") == "object" and "additionalProperties" not in schema:
        found.append(place)
    for name, child in schema.get("properties", {}).items():
        found += open_objects(child, f"{place}.{name}")
    if isinstance(schema.get("items"), dict):
        found += open_objects(schema["items"], f"{place}[]")
    return found


def test_only_objects_of_kubernetes_and_the_configuration_have_free_keys() -> None:
    everywhere = open_objects(SCHEMA, "") + [
        place for name, each in SCHEMA["definitions"].items() for place in open_objects(each, name)
    ]
    assert everywhere == [
        ".global",
        ".extraVolumes[]",
        ".initContainers[]",
        ".extraContainers[]",
        "kubernetes",
        "resources.claims[]",
        "tensor.parameters",
    ]


def keys(schema: dict[str, Any], prefix: str = "") -> set[str]:
    """The dotted keys of the schema's maps."""
    found = set()
    for name, child in schema.get("properties", {}).items():
        path = prefix + name
        found |= keys(child, f"{path}.") or {path}
    return found


def leaves(value: object, prefix: str) -> set[str]:
    if not isinstance(value, dict) or not value:
        return {prefix}
    return {leaf for key, child in value.items() for leaf in leaves(child, f"{prefix}.{key}".removeprefix("."))}


def test_every_value_is_described_and_every_description_is_of_a_value() -> None:
    described = {row.key for row in rows(VALUES)}
    for key in leaves(yaml.safe_load(VALUES), "") | keys(SCHEMA):
        parts = key.split(".")
        assert any(".".join(parts[: n + 1]) in described for n in range(len(parts))), f"{key} is not described"


def test_the_readme_has_the_table_of_these_values() -> None:
    """`make chart` writes it."""
    readme = (CHART / "README.md").read_text()
    assert documented(readme, VALUES) == readme


@pytest.mark.parametrize(("source", "copy"), COPIES.items(), ids=lambda path: path.name)
def test_the_chart_has_the_dashboard_and_the_alerts_as_they_are(source: Path, copy: Path) -> None:
    """`make chart` copies them."""
    assert copy.read_text() == source.read_text()


def test_the_package_has_what_users_need_and_nothing_of_the_tests(tmp_path: Path) -> None:
    archive = helm_python.package(CHART, destination=tmp_path)
    with tarfile.open(archive) as packed:
        names = {name.removeprefix("modelglot/") for name in packed.getnames()}
    assert {"Chart.yaml", "README.md", "values.yaml", "values.schema.json", "templates/NOTES.txt"} <= names
    assert {"files/dashboard.json", "files/rules.yaml"} <= names
    assert not [name for name in names if name.startswith("ci/")]
