"""Every object of every values file is one that Kubernetes takes, and the objects fit together."""

import base64
import re
import shutil
from collections.abc import Iterator
from functools import cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import helm_python
import jsonschema
import kubernetes_validate
import pytest
import yaml
from kubernetes_validate import utils
from kubernetes_validate.utils import all_versions

from gateway.assembly import registry
from gateway.cli.options import catalog
from gateway.config import Config, loads
from gateway.core.address import Address
from tests.deploy import gateway_api, keda, prometheus_operator
from tests.deploy.rendered import CHART, FILES, NAMESPACE, ROOT, Object, Release, render, rendered, servers, values

utils.schema_contents = cache(utils.schema_contents)  # it reads two megabytes for each object
VERSIONS = all_versions()
SCHEMAS = gateway_api.SCHEMAS | prometheus_operator.SCHEMAS | keda.SCHEMAS
TESTED = dict.fromkeys((VERSIONS[0], VERSIONS[len(VERSIONS) // 2], *VERSIONS[-2:]))  # of few, some are the same

each_file = pytest.mark.parametrize("name", FILES)


@pytest.fixture
def release(name: str) -> Release:
    return rendered(name)


def test_the_oldest_kubernetes_is_the_chart_s() -> None:
    """What Chart.yaml promises is what the objects are checked against."""
    metadata = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert metadata["kubeVersion"] == f">={VERSIONS[0].removesuffix('.0')}.0-0"


@each_file
def test_helm_finds_nothing_to_complain_about(name: str) -> None:
    report = helm_python.lint(CHART, values(FILES[name].read_text()), strict=True)
    assert report["errors"] == []
    assert report["messages"] == []


def test_the_icon_is_that_of_the_console() -> None:
    """As text in the chart: it is shown without a server that has it."""
    kind, _, encoded = yaml.safe_load((CHART / "Chart.yaml").read_text())["icon"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(encoded) == (ROOT / "gateway" / "admin" / "console" / "files" / "icon.svg").read_bytes()


def validate(thing: Object, version: str) -> None:
    """Raises ValidationError where Kubernetes would refuse an object, or not know one of its fields."""
    if thing["kind"] in SCHEMAS:
        jsonschema.validate(thing, SCHEMAS[thing["kind"]])
    else:
        kubernetes_validate.validate(thing, version, strict=True)


@pytest.mark.long
@pytest.mark.parametrize("version", TESTED)
@each_file
def test_kubernetes_takes_every_object(release: Release, version: str) -> None:
    for each in release.objects:
        validate(each, version)


@pytest.mark.parametrize("version", TESTED)
def test_kubernetes_takes_the_servers_of_the_documentation(version: str) -> None:
    for each in servers():
        validate(each, version)


def test_a_misspelt_field_would_be_seen() -> None:
    route = rendered("gateway-api-values").one("HTTPRoute")
    service = rendered("default-values").service
    with pytest.raises(kubernetes_validate.ValidationError):
        validate({**service, "spec": {**service["spec"], "slector": {}}}, VERSIONS[-1])
    with pytest.raises(jsonschema.ValidationError):
        validate({**route, "spec": {**route["spec"], "hostnmes": []}}, VERSIONS[-1])


def test_everything_is_on_in_one_of_the_files() -> None:
    assert {each["kind"] for each in rendered("all-values").objects} == {
        *("ConfigMap", "Deployment", "GRPCRoute", "HTTPRoute", "HorizontalPodAutoscaler", "Ingress", "NetworkPolicy"),
        *("Pod", "PodDisruptionBudget", "PrometheusRule", "Service", "ServiceAccount", "ServiceMonitor", "TCPRoute"),
        "TLSRoute",
    }


def config(release: Release) -> Config:
    """The configuration as `gateway check` reads it, in the environment of the pod."""
    annotations = release.deployment["spec"]["template"]["metadata"]["annotations"]
    environment = {}
    for each in release.container.get("env", []):
        path = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        is_annotation = path.startswith("metadata.annotations")
        environment[each["name"]] = annotations[path.split("'")[1]] if is_annotation else each["value"]
    return loads(release.configuration, "gateway.yaml", catalog(), environment)


@each_file
def test_the_gateway_takes_its_configuration(release: Release) -> None:
    assert config(release).health


def tcp(address: Address) -> bool:
    return not address.path


@each_file
def test_ports_are_those_that_the_configuration_listens_on(release: Release) -> None:
    read = config(release)
    assert read.health
    listening = [each.bind.port for each in read.listeners if tcp(each.bind)]
    ports = {each["name"]: each["containerPort"] for each in release.container["ports"]}
    scaler = [] if read.scaler is None or read.scaler.bind.loopback else [read.scaler.bind.port]
    assert sorted(ports.values()) == sorted([*listening, read.health.bind.port, *scaler])
    assert [ports[each["targetPort"]] for each in release.service["spec"]["ports"]] == listening
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = release.container[probe]["httpGet"]
        assert ports[asked["port"]] == read.health.bind.port
        assert asked["path"] == ("/readyz" if probe == "readinessProbe" else "/healthz")


@each_file
def test_every_port_says_what_it_carries(release: Release) -> None:
    protocols = registry.protocols()
    listeners = [each for each in config(release).listeners if tcp(each.bind)]
    expected = [app_protocol({protocols[name].transport for name in each.protocols}) for each in listeners]
    assert [each.get("appProtocol") for each in release.service["spec"]["ports"]] == expected


def app_protocol(transports: set[str]) -> str | None:
    """HTTP/1.1 and HTTP/2 at one port are neither."""
    if "tcp" in transports:
        return "tcp"
    return {"http": "http", "grpc": "kubernetes.io/h2c", "grpchttp": None}["".join(sorted(transports))]


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    return labels.items() >= selector.items()


def templates(release: Release) -> Iterator[Object]:
    """What each Deployment and StatefulSet makes pods from, and the pod of the test."""
    for each in (*release.all("Deployment"), *release.all("StatefulSet")):
        yield each["spec"]["template"]
    yield from release.all("Pod")


@each_file
def test_selectors_mean_the_right_pods_and_no_others(release: Release) -> None:
    pods = [each["metadata"]["labels"] for each in templates(release)]

    def selected(selector: dict[str, Any]) -> list[dict[str, str]]:
        return [pod for pod in pods if selects(selector, pod)]

    for each in (*release.all("Deployment"), *release.all("StatefulSet")):
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert selected(each["spec"]["selector"]["matchLabels"]) == [labels]
    for each in release.all("Service"):
        assert len(selected(each["spec"]["selector"])) == 1
    own = release.deployment["spec"]["template"]["metadata"]["labels"]
    for each in release.all("PodDisruptionBudget"):
        assert selected(each["spec"]["selector"]["matchLabels"]) == [own]
    for each in release.all("NetworkPolicy"):
        assert selected(each["spec"]["podSelector"]["matchLabels"]) == [own]
    for spread in release.pod["topologySpreadConstraints"]:
        assert selects(spread["labelSelector"]["matchLabels"], own)


@each_file
def test_a_selector_does_not_change_with_the_version(release: Release) -> None:
    """Kubernetes refuses an upgrade that changes the selector of a Deployment."""
    selector = release.deployment["spec"]["selector"]["matchLabels"]
    assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(selector)


@each_file
def test_every_volume_and_every_port_that_is_used_is_there(release: Release) -> None:
    for template in templates(release):
        spec = template["spec"]
        volumes = {each["name"]: each for each in spec["volumes"]}
        for each in volumes.values():
            if "configMap" in each:
                data = release.one("ConfigMap", each["configMap"]["name"])["data"]
                assert {item["key"] for item in each["configMap"].get("items", [])} <= set(data)
        for container in spec["containers"]:
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= set(volumes)
            names = [port["name"] for port in container.get("ports", [])]
            assert len(set(names)) == len(names)
            for probe in (container[key] for key in container if key.endswith("Probe")):
                (asked,) = [probe[way]["port"] for way in ("httpGet", "tcpSocket") if way in probe]
                assert asked in names


@each_file
def test_what_leads_to_the_service_names_its_ports(release: Release) -> None:
    by_name = {each["name"]: each for each in release.service["spec"]["ports"]}
    by_number = {each["port"]: each for each in release.service["spec"]["ports"]}
    name = release.service["metadata"]["name"]
    for each in release.all("Ingress"):
        for path in (path for rule in each["spec"]["rules"] for path in rule["http"]["paths"]):
            assert path["backend"]["service"]["name"] == name
            assert by_name[path["backend"]["service"]["port"]["name"]].get("appProtocol") != "tcp"
    for kind, carried in (("HTTPRoute", "http"), ("GRPCRoute", "kubernetes.io/h2c")):
        for each in release.all(kind):
            for backend in (backend for rule in each["spec"]["rules"] for backend in rule["backendRefs"]):
                assert backend["name"] == name
                assert by_number[backend["port"]].get("appProtocol", carried) == carried


def check_restricted(spec: Object) -> None:
    """The spec of a pod keeps the Pod Security Standard `restricted`, and a read-only root file system."""
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        if container["name"] in ("fit",):  # a container of the user's
            continue
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_servers_of_the_documentation_keep_the_restricted_pod_security_standard() -> None:
    for each in servers():
        if each["kind"] == "Deployment":
            check_restricted(each["spec"]["template"]["spec"])


@each_file
def test_pods_keep_the_restricted_pod_security_standard(release: Release) -> None:
    for template in templates(release):
        check_restricted(template["spec"])
    for each in release.all("ServiceAccount"):
        assert each["automountServiceAccountToken"] is False


@each_file
def test_every_object_is_in_the_namespace_of_the_release_and_has_the_labels_of_all(name: str) -> None:
    """A manifest that `helm template` prints goes where it was meant to, whatever kubectl's own namespace is."""
    given = yaml.safe_load(FILES[name].read_text()) or {}
    release = render({**given, "extraObjects": [], "commonLabels": {"team": "science"}})
    for each in release.objects:
        assert each["metadata"]["namespace"] == NAMESPACE, each["kind"]
        assert each["metadata"]["labels"]["team"] == "science", each["kind"]
    for template in (each["spec"]["template"] for each in release.all("Deployment")):
        assert template["metadata"]["labels"]["team"] == "science"


def test_labels_and_annotations_of_the_user_replace_what_the_chart_only_tells() -> None:
    """A key stands once: `render` refuses a map that has one twice."""
    release = render(
        """
        commonLabels: {app.kubernetes.io/part-of: science}
        podLabels: {app.kubernetes.io/version: mine}
        podAnnotations: {kubectl.kubernetes.io/default-container: fit}
        deploymentAnnotations: {reloader: "on"}
        """
    )
    metadata = release.deployment["spec"]["template"]["metadata"]
    assert metadata["labels"]["app.kubernetes.io/version"] == "mine"
    assert metadata["labels"]["app.kubernetes.io/part-of"] == "science"
    assert metadata["annotations"]["kubectl.kubernetes.io/default-container"] == "fit"
    assert release.deployment["metadata"]["annotations"] == {"reloader": "on"}


def test_labels_and_annotations_of_the_service_and_of_the_ingress_are_theirs_alone() -> None:
    release = render(
        """
        service: {labels: {lb: near}, annotations: {lb/kind: internal}}
        ingress: {enabled: true, labels: {dns: public}, annotations: {dns/ttl: "60"}}
        metrics: {serviceMonitor: {enabled: true}}
        demo: {enabled: true}
        """
    )
    for key, owner in (("lb", release.service), ("dns", release.one("Ingress"))):
        having = [each for each in release.objects if key in each["metadata"]["labels"]]
        assert having == [owner]
    annotated = [each for each in release.objects if "lb/kind" in each["metadata"].get("annotations", {})]
    assert annotated == [release.service]


def test_constraints_select_the_pods_of_the_gateway_unless_they_select_others() -> None:
    own = {"matchExpressions": [{"key": "team", "operator": "In", "values": ["science"]}]}
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    release = render({"topologySpreadConstraints": [{**spread, "labelSelector": own}, spread]})
    given, completed = release.pod["topologySpreadConstraints"]
    assert given == {**spread, "labelSelector": own}
    labels = release.deployment["spec"]["selector"]["matchLabels"]
    assert completed == {**spread, "labelSelector": {"matchLabels": labels}}


def test_null_removes_a_value() -> None:
    release = render(
        """
        probes: {startup: null, readiness: {periodSeconds: null, timeoutSeconds: null, failureThreshold: null}}
        strategy: null
        replicaCount: null
        revisionHistoryLimit: null
        resources: null
        image: {registry: null, pullPolicy: null}
        """
    )
    assert "startupProbe" not in release.container
    assert release.container["readinessProbe"] == {"httpGet": {"path": "/readyz", "port": "health"}}
    assert release.container["livenessProbe"]["periodSeconds"] == 10
    assert not {"strategy", "replicas", "revisionHistoryLimit"} & set(release.deployment["spec"])
    assert not {"resources", "imagePullPolicy"} & set(release.container)
    assert release.container["image"] == "modelglot:0.1.0"


def test_pods_are_added_when_a_process_comes_near_one_core() -> None:
    """A share of the request, 250m, would add pods at a sixth of what a process can use."""
    (metric,) = render("autoscaling: {enabled: true}").one("HorizontalPodAutoscaler")["spec"]["metrics"]
    assert metric["resource"] == {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "700m"}}
    share = render("autoscaling: {enabled: true, targetCPUUtilizationPercentage: 60}")
    (metric,) = share.one("HorizontalPodAutoscaler")["spec"]["metrics"]
    assert metric["resource"] == {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}


def test_the_admin_port_away_from_loopback_has_a_service_of_its_own() -> None:
    values = """
        networkPolicy: {enabled: true, admin: [{podSelector: {matchLabels: {role: operator}}}]}
        config:
          admin: {bind: "0.0.0.0:9090", auth: {}, tls: {certificate: /tls/tls.crt, key: /tls/tls.key}}
          auth: {keys: {file: /etc/gateway-keys/keys.yaml}}
        tls: {existingSecret: own}
        keys: {existingSecret: keys}
        """
    release = render(values)
    assert {"name": "admin", "containerPort": 9090, "protocol": "TCP"} in release.container["ports"]
    service = release.one("Service", f"{release.name}-admin")
    labels = release.deployment["spec"]["template"]["metadata"]["labels"]
    assert selects(service["spec"]["selector"], labels)
    assert [(each["port"], each["appProtocol"]) for each in service["spec"]["ports"]] == [(9090, "https")]
    assert "admin" not in {each["name"] for each in release.service["spec"]["ports"]}
    (rule,) = [each for each in release.one("NetworkPolicy")["spec"]["ingress"] if each["ports"][0]["port"] == "admin"]
    assert rule["from"] == [{"podSelector": {"matchLabels": {"role": "operator"}}}]
    for each in release.objects:
        validate(each, VERSIONS[-1])
    loopback = render('config: {admin: {bind: "127.0.0.1:9090"}}')
    assert len(loopback.all("Service")) == 1
    assert "admin" not in {each["name"] for each in loopback.container["ports"]}


def test_a_pod_gets_what_the_values_have_for_it() -> None:
    release = rendered("all-values")
    pod = release.pod
    assert [each["name"] for each in pod["initContainers"]] == ["wait"]
    assert (pod["runtimeClassName"], pod["schedulerName"], pod["dnsPolicy"]) == ("gvisor", "own", "None")
    assert pod["dnsConfig"]["nameservers"] == ["192.0.2.53"]
    assert pod["hostAliases"] == [{"ip": "192.0.2.7", "hostnames": ["far"]}]
    assert release.container["envFrom"] == [{"secretRef": {"name": "credentials"}, "prefix": "MODELS_"}]
    service = release.service["spec"]
    assert (service["loadBalancerClass"], service["ipFamilyPolicy"]) == ("example.com/internal", "PreferDualStack")
    assert service["ipFamilies"] == ["IPv6", "IPv4"]


def test_every_image_is_pulled_from_the_registry_of_all_charts_with_its_secrets() -> None:
    values = "global: {imageRegistry: registry.example.com/, imagePullSecrets: [shared]}\ndemo: {enabled: true}\n"
    for template in templates(render(values + "imagePullSecrets: [{name: own}]")):
        assert {each["image"] for each in template["spec"]["containers"]} == {"registry.example.com/modelglot:0.1.0"}
        assert template["spec"]["imagePullSecrets"] == [{"name": "shared"}, {"name": "own"}]
    assert render("image: {registry: near, tag: a}").container["image"] == "near/modelglot:a"
    assert "imagePullSecrets" not in render().pod


def test_tcp_protocols_have_routes_of_the_gateway_api() -> None:
    release = rendered("all-values")
    ports = {each["name"]: each["port"] for each in release.service["spec"]["ports"]}
    for kind, listener in (("TCPRoute", "brpc"), ("TLSRoute", "http")):
        route = release.one(kind)
        assert route["metadata"]["name"] == f"models-{listener}"
        assert route["spec"]["rules"] == [{"backendRefs": [{"name": "models", "port": ports[listener]}]}]
    assert release.one("TLSRoute")["spec"]["hostnames"] == ["models.example.com"]
    version = "gateway.networking.k8s.io/v1alpha2"
    older = render(f"tcpRoutes: [{{listener: http, apiVersion: {version}, parentRefs: [{{name: a}}]}}]")
    assert older.one("TCPRoute")["apiVersion"] == version


@each_file
def test_replicas_are_counted_by_one_of_two(release: Release) -> None:
    """A Deployment that has `replicas` takes back what its autoscaler decided at every upgrade."""
    scalers = release.all("HorizontalPodAutoscaler")
    assert ("replicas" in release.deployment["spec"]) == (not scalers)
    for each in scalers:
        target = each["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) == ("Deployment", release.deployment["metadata"]["name"])
        assert target["apiVersion"] == release.deployment["apiVersion"]
        resources = [metric["resource"]["name"] for metric in each["spec"]["metrics"] if metric["type"] == "Resource"]
        requests = set(release.container["resources"]["requests"])
        assert set(resources) <= requests, "a share of a request that is not made"


LIVE = "{spec: {replicas: 5}}"


@pytest.mark.parametrize(
    ("scaled", "live", "replicas"),
    [("true", LIVE, 5), ("true", "{spec: {replicas: 0}}", 0), ("true", "{}", None), ("false", LIVE, 3)],
)
def test_switching_on_the_autoscaler_keeps_the_number_of_pods(
    scaled: str, live: str, replicas: int | None, tmp_path: Path
) -> None:
    """No cluster is asked here: `live` is the Deployment that Helm would find in it."""
    copy = shutil.copytree(CHART, tmp_path / "modelglot")
    deployment = copy / "templates" / "deployment.yaml"
    asked = re.compile(r"lookup \"apps/v1\" \"Deployment\" \.Release\.Namespace \(include \"modelglot\.fullname\" \.\)")
    text, found = asked.subn(f'fromYaml "{live}"', deployment.read_text())
    assert found == 1
    deployment.write_text(text)
    given = values(f"{{replicaCount: 3, autoscaling: {{enabled: {scaled}}}}}")
    manifests = helm_python.Chart.load(copy).render(given, name="models", namespace=NAMESPACE, is_upgrade=True)
    (made,) = [text for path, text in manifests.items() if path.endswith("/deployment.yaml")]
    assert yaml.safe_load(made)["spec"].get("replicas") == replicas


@pytest.mark.parametrize(
    ("text", "budgets"),
    [
        ("podDisruptionBudget: {enabled: true}", 0),
        ("{podDisruptionBudget: {enabled: true}, replicaCount: 2}", 1),
        ("{podDisruptionBudget: {enabled: true}, replicaCount: 5, autoscaling: {enabled: true, minReplicas: 1}}", 0),
        ("{podDisruptionBudget: {enabled: true}, autoscaling: {enabled: true}}", 1),
        ("replicaCount: 2", 0),
    ],
)
def test_a_budget_never_blocks_a_single_replica(text: str, budgets: int) -> None:
    assert len(render(text).all("PodDisruptionBudget")) == budgets


# A map of the cluster: what the NetworkPolicy lets a packet to.
Place = tuple[str, int]


def allows(rule: Object, place: Place) -> bool:
    """Whether an egress rule lets packets to `NAME`, `NAME.NAMESPACE...` or an address, at a port."""
    host, port = place
    if not any(each.get("protocol", "TCP") == "TCP" and each["port"] == port for each in rule["ports"]):
        return False
    return any(_peer_has(peer, host) for peer in rule["to"])


def _peer_has(peer: Object, host: str) -> bool:
    if "ipBlock" in peer:
        network = ip_network(peer["ipBlock"]["cidr"])
        try:
            return ip_address(host) in network
        except ValueError:
            # A name outside of the cluster has an address that nobody knows here: only "every address" has it.
            return network.prefixlen == 0 and (host.count(".") > 1 and ".svc" not in host)
    _, _, rest = host.partition(".")
    if rest.count(".") and ".svc" not in rest:
        return False
    namespace = rest.removesuffix(".cluster.local").removesuffix(".svc").split(".")[-1] or NAMESPACE
    if "namespaceSelector" not in peer:
        return namespace == NAMESPACE
    wanted = peer["namespaceSelector"].get("matchLabels", {}).get("kubernetes.io/metadata.name")
    return wanted in (None, namespace)


def places(read: Config) -> Iterator[Place]:
    """What the backends of a configuration are connected to, but for what is in the pod itself."""
    for backend in read.backends.values():
        for endpoint in backend.addresses:
            scheme, _, rest = endpoint.rpartition("://")
            if scheme == "unix":
                continue
            host, _, port = rest.rpartition(":") if rest.rpartition(":")[2].isdigit() else (rest, "", "443")
            if host not in ("127.0.0.1", "localhost"):
                yield host.strip("[]"), int(port)


@pytest.mark.parametrize("name", [name for name, path in FILES.items() if "networkPolicy:" in path.read_text()])
def test_the_network_policy_lets_through_what_the_gateway_needs_and_nothing_else(release: Release) -> None:
    policy = release.one("NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    names = {each["name"]: each["containerPort"] for each in release.container["ports"]}
    entered = {port["port"]: rule for rule in policy["ingress"] for port in rule["ports"]}
    assert set(entered) == set(names), "listeners and probes come in, at their ports"
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    assert entered["health"].get("from") in (None, [{"ipBlock": {"cidr": "10.0.0.0/8"}}, monitoring])
    for pod in release.all("Pod"):
        for port, rule in entered.items():
            tested = [peer["podSelector"]["matchLabels"] for peer in rule.get("from", []) if "podSelector" in peer]
            assert port == "health" or "from" not in rule or selects(tested[0], pod["metadata"]["labels"])
    dns, *rest = policy["egress"]
    assert {(each["protocol"], each["port"]) for each in dns["ports"]} == {("UDP", 53), ("TCP", 53)}
    wanted = list(places(config(release)))
    assert wanted or len(release.pod["containers"]) > 1, "servers are outside of the pod or in it"
    for place in wanted:
        assert any(allows(rule, place) for rule in rest), place
    ports = {each["port"] for rule in rest for each in rule["ports"]}
    assert ports <= {port for _, port in wanted} | {443}, "443 is what all-values adds"


@pytest.mark.parametrize(
    ("endpoint", "refused"),
    [
        ("near:8001", ("near.models", 8001)),
        ("near.models:8001", ("near", 8001)),
        ("a.near.models.svc.cluster.local:8001", ("192.0.2.1", 8001)),
        ("192.0.2.7:8001", ("192.0.2.8", 8001)),
        ("models.example.com:8001", ("models.example.com", 8002)),
        ("127.0.0.1:8001", ("192.0.2.1", 8001)),
    ],
)
def test_an_endpoint_opens_no_other_place(endpoint: str, refused: Place) -> None:
    release = render(
        f"""
        networkPolicy: {{enabled: true}}
        config: {{backends: {{it: {{protocol: v2-grpc, endpoints: ["{endpoint}"]}}}}}}
        """
    )
    _, *rules = release.one("NetworkPolicy")["spec"]["egress"]
    for place in places(config(release)):
        assert any(allows(rule, place) for rule in rules)
    assert not any(allows(rule, refused) for rule in rules)


OTHERS = """
networkPolicy: {enabled: true}
config:
  tracing: {otlp: "http://collector.tracing:4318"}
  log: {payloads: {to: "http://detector.drift:8090/events"}}
  auth:
    jwt:
      - {issuer: "https://login.example.com/realm", audience: [models]}
      - {issuer: "https://other", audience: [models], jwks: "http://keys.identity.svc:8180/keys"}
      - {issuer: "https://third", audience: [models], jwks: /keys/third.json}
  backends:
    found: {protocol: v2-grpc, discovery: {srv: _grpc._tcp.triton.serving.svc.cluster.local}}
    cached:
      protocol: v2-grpc
      endpoints: ["127.0.0.1:8001"]
      policies: [{cache: {redis: {url: "redis://:secret@cache.stores:6380/0", name: a}}}]
  routes:
    - match: {model: "*"}
      backend: cached
      policies: [{rate_limit: {requests: 5, seconds: 1, redis: "rediss://limits"}}]
"""


PLACES = {"collector.tracing": 4318, "detector.drift": 8090, "login.example.com": 443}
PLACES |= {"keys.identity.svc": 8180, "cache.stores": 6380, "limits": 6379}


@pytest.mark.parametrize(("host", "port"), PLACES.items(), ids=PLACES)
def test_the_network_policy_lets_through_collectors_the_issuers_and_redis(host: str, port: int) -> None:
    _, *rules = render(OTHERS).one("NetworkPolicy")["spec"]["egress"]
    with_ports = [each for each in rules if "port" in each["ports"][0]]
    assert len(with_ports) == len(PLACES)
    assert any(allows(rule, (host, port)) for rule in with_ports)
    assert not any(allows(rule, (host, port + 1)) for rule in with_ports)


def test_the_network_policy_lets_through_the_pods_that_srv_records_name() -> None:
    """The records name ports, too: every port of that namespace."""
    _, *rules = render(OTHERS).one("NetworkPolicy")["spec"]["egress"]
    (rule,) = [each for each in rules if "port" not in each["ports"][0]]
    assert rule == {
        "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "serving"}}}],
        "ports": [{"protocol": "TCP"}],
    }
