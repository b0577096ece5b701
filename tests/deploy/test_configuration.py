"""The gateway's configuration in values: how it reaches the pod, what is derived from it, and what is refused."""

import json
import re
from typing import Any

import helm_python
import pytest
import yaml

from gateway.assembly import registry
from gateway.cli.options import catalog
from gateway.config.schema import Schema, dereferenced, json_schema
from tests.deploy.rendered import CHART, EXAMPLES, render, rendered

MINIMAL = """
listeners: [{name: http, bind: "0.0.0.0:8080", protocols: [v2-rest]}]
health: {bind: "0.0.0.0:9091"}
"""


def refusal(values: dict[str, Any] | str) -> str:
    """What Helm says of values that are refused."""
    with pytest.raises(helm_python.HelmError) as raised:
        render(values)
    return str(raised.value)


def test_a_text_reaches_the_pod_as_it_is() -> None:
    text = f"# kept\n{MINIMAL}\nbackends: {{}}  # as it is\n"
    assert render({"config": text}).configuration.strip() == text.strip()


def test_a_map_is_merged_with_the_defaults() -> None:
    read = yaml.safe_load(render("config: {backends: {a: {protocol: v2-rest, endpoints: ['a:1']}}}").configuration)
    assert set(read) == {"listeners", "health", "log", "drain", "backends", "routes"}
    assert set(read["backends"]) == {"a"}


def test_the_log_is_for_collectors_and_requests_that_fail_are_all_in_it() -> None:
    log = render("").config.log
    assert (log.format, log.access.when, log.access.path) == ("json", "always", "stdout")
    assert 0 < log.access.sample < 1
    own = "config: {log: {format: text, access: {when: never}}}"
    assert yaml.safe_load(render(own).configuration)["log"]["access"]["when"] == "never"


def test_numbers_arrive_as_they_were() -> None:
    """Helm holds every number as a float; large ones must not come out with an exponent, which is no whole number."""
    release = render(
        """
        config:
          listeners: [{name: http, bind: "0.0.0.0:1", protocols: [v2-rest], limits: {message: 1073741824}}]
          backends: {b: {protocol: v2-rest, endpoints: ["b:1"], policies: [{timeout: {seconds: 0.000001}}]}}
        """
    )
    assert release.config.listeners[0].limits.message == 2**30
    assert "1e-06" in release.configuration


def test_the_checksum_changes_when_and_only_when_the_configuration_does() -> None:
    before = render().checksum
    assert render("{replicaCount: 3, podLabels: {a: b}, service: {type: NodePort}, resources: {}}").checksum == before
    assert render("config: {drain: {delay: 5}}").checksum == before
    assert render("config: {drain: {delay: 6}}").checksum != before
    texts = [render({"config": MINIMAL + comment}).checksum for comment in ("", "# a", "# b")]
    assert len({before, *texts}) == 4
    assert rendered("demo-values").checksum != before


def test_with_reload_a_changed_configuration_keeps_the_pods_unless_their_ports_or_times_change() -> None:
    def pod(values: str) -> object:
        return render("{reload: true, config: {" + values + "}}").deployment["spec"]["template"]

    assert "checksum/config" not in str(pod(""))
    assert pod("ready: all") == pod("ready: none")
    assert pod("drain: {timeout: 99}") != pod("")


def test_an_existing_config_map_is_mounted_and_not_made() -> None:
    release = rendered("existing-values")
    assert [each["metadata"]["name"] for each in release.all("ConfigMap")] == ["my-gateway"]
    assert "checksum/config" not in release.deployment["spec"]["template"]["metadata"]["annotations"]
    assert {each["name"]: each["port"] for each in release.service["spec"]["ports"]} == {"http": 8080, "mip": 9100}


@pytest.mark.parametrize(
    ("drain", "hook", "grace"),
    [
        ("", ["sleep", "5"], 5 + 30 + 10),
        ("drain: {delay: 7}", None, 7 + 30 + 10),
        ("drain: {delay: 0.5, timeout: 1.5}", None, 1 + 2 + 10),
        ("drain: {timeout: 60}", ["sleep", "5"], 5 + 60 + 10),
        ("drain: {delay: 0, timeout: 0}", ["sleep", "5"], 5 + 0 + 10),
    ],
)
def test_a_pod_has_the_time_that_its_drain_takes(drain: str, hook: list[str] | None, grace: int) -> None:
    """Either the gateway's own delay or the hook, not both."""
    release = render({"config": f"{MINIMAL}\n{drain}\n"})
    assert release.pod["terminationGracePeriodSeconds"] == grace
    lifecycle = release.container.get("lifecycle", {})
    assert lifecycle.get("preStop", {}).get("exec", {}).get("command") == hook


def test_the_default_drains_by_the_gateway_itself() -> None:
    release = render()
    assert "lifecycle" not in release.container
    assert release.pod["terminationGracePeriodSeconds"] == 5 + 30 + 10
    assert render("terminationGracePeriodSeconds: 7").pod["terminationGracePeriodSeconds"] == 7


def test_the_drain_of_an_existing_config_map_is_told() -> None:
    release = rendered("existing-values")
    assert release.container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "5"]
    assert release.pod["terminationGracePeriodSeconds"] == 5 + 20 + 10


def test_ports_have_the_listeners_names_where_kubernetes_takes_them() -> None:
    names = ["http", "Upper", "health", "double--dash", "8080", "a-name-that-is-too-long", "http"]
    binds = {f"0.0.0.0:{7000 + number}": name for number, name in enumerate(names)}
    listeners = [{"name": name, "bind": bind, "protocols": ["v2-rest"]} for bind, name in binds.items()]
    ports = render({"config": {"listeners": listeners}}).service["spec"]["ports"]
    assert [each["name"] for each in ports] == ["http", *(f"port-{7000 + number}" for number in range(1, 7))]


LISTENERS = 'config: {{listeners: [{{name: a, bind: "{}", protocols: [{}]}}]}}'


ONE = "config: {listeners: [{name: a, bind: '[::]:1', %s}]}"
SCALER = "config: {scaler: {bind: '0.0.0.0:9092', %s}}"
POLICY = "{networkPolicy: {enabled: true}, config: {backends: {b: {protocol: v2-rest, %s}}}}"
EXISTING = "existingConfigMap: {name: own, listeners: [{name: a, port: 1, protocols: [mip]}]}"
PARENT = "enabled: true, parentRefs: [{name: a}]"
UNREACHED = "nothing outside the pod reaches"


OF_THE_CHART = "the label app.kubernetes.io/name is the chart's"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (LISTENERS.format("127.0.0.1:8080", "v2-rest"), f"{UNREACHED} 127.0.0.1:8080; bind 0.0.0.0:8080 or"),
        (LISTENERS.format("tcp://localhost:9100", "mip"), f"listener 'a': {UNREACHED} tcp://localhost:9100"),
        (LISTENERS.format("[::1]:8080", "v2-rest"), f"{UNREACHED} [::1]:8080"),
        (LISTENERS.format("0.0.0.0:0", "v2-rest"), "a Service needs a port from 1 to 65535"),
        (LISTENERS.format("0.0.0.0", "v2-rest"), "expected a bind such as 0.0.0.0:8080"),
        (LISTENERS.format("0.0.0.0:${PORT}", "v2-rest"), "cannot read the reference in bind"),
        (LISTENERS.format("unix:///run/a.sock", "mip"), "no listener has a TCP port"),
        (LISTENERS.format("0.0.0.0:1", "v3-rest"), "the chart knows no protocol 'v3-rest'; expected one of graphpipe"),
        ("config: {listeners: []}", "it has no listeners"),
        ('config: {health: {bind: "127.0.0.1:9091"}}', f"config: health: {UNREACHED} 127.0.0.1:9091"),
        ("config: {health: null}", "the probes need the health port"),
        ('config: {drain: {delay: "${DELAY}"}}', "drain: delay is ${DELAY}"),
        (
            "config: {admin: {bind: '0.0.0.0:9090'}}",
            "admin: everybody who reaches 0.0.0.0:9090 could use the status API; bind",
        ),
        ("config: {admin: {bind: '[::]:9090', auth: null}}", "admin: everybody who reaches [::]:9090"),
        (
            "config: {admin: {bind: '0.0.0.0:9090', auth: {}}}",
            "names no keys and no issuer of tokens for the status API",
        ),
        ("config: {scaler: {bind: '0.0.0.0:9092'}}", "scaler: everybody who reaches 0.0.0.0:9092 could ask it"),
        (SCALER % "tls: {certificate: /own/c, key: /own/k}", "scaler: everybody who reaches 0.0.0.0:9092 could ask it"),
        (SCALER % "open: true, tls: {certificate: /tls/tls.crt}", "nothing mounts /tls/"),
        (
            "config: {admin: '0.0.0.0:90'}",
            'config.admin must be a map, such as {bind: "127.0.0.1:9090"}, not "0.0.0.0:9',
        ),
        ("config: {health: '0.0.0.0:9091'}", 'config.health must be a map, such as {bind: "0.0.0.0:9091"}, not "0.0.0'),
        ("config: {health: ['0.0.0.0:9091']}", "config.health must be a map"),
        ("config: {scaler: '0.0.0.0:9092'}", "config.scaler must be a map, such as"),
        ("config: {auth: /etc/gateway-keys/keys.yaml}", "config.auth must be a map, such as {keys: {file:"),
        ("config: {auth: {keys: /etc/gateway-keys/keys.yaml}}", "config.auth.keys must be a map, such as {file:"),
        ("config: {drain: 30}", "config.drain must be a map, such as {delay: 5, timeout: 30}, not 30"),
        ("config: {log: json}", "config.log must be a map, such as {format: json}"),
        ("config: {log: {payloads: /var/log}}", "config.log.payloads must be a map, such as"),
        ("config: {tracing: 'http://a:4318'}", "config.tracing must be a map, such as {otlp:"),
        ("config: {backends: [lab]}", "config.backends must be a map, such as {lab:"),
        ("config: {backends: {a: 'lab:8000'}}", "config.backends.a must be a map, such as {protocol:"),
        (
            "config: {backends: {a: {endpoints: 'lab:8000'}}}",
            'config.backends.a.endpoints must be a list, such as ["lab',
        ),
        (
            "config: {backends: {a: {discovery: 'lab:80'}}}",
            "config.backends.a.discovery must be a map, such as {dns: all}",
        ),
        ("config: {listeners: '0.0.0.0:8080'}", "config.listeners must be a list, such as [{name: http"),
        ("{demo: {enabled: true}, config: {routes: {backend: a}}}", "config.routes must be a list, such as"),
        (ONE % "protocols: v2-rest", "config.listeners[0].protocols must be a list, such as [v2-rest]"),
        (ONE % "protocols: [mip], tls: true", "config.listeners[0].tls must be a map, such as {certificate:"),
        ("config: {admin: {bind: '127.0.0.1:1', tls: true}}", "config.admin.tls must be a map"),
        ("{config: \"admin: '0.0.0.0:9090'\"}", "config.admin must be a map"),
        ("config: null", "config: it has no listeners"),
        ("image: null", "image.repository: name the repository of the gateway's image"),
        ("image: {repository: null}", "image.repository: name the repository of the gateway's image"),
        ("config: {listeners: [null]}", "config: listeners[0]: expected a map, such as {name: http, bind:"),
        ("config: {listeners: [{name: a, bind: '[::]:1'}]}", "listener 'a': it has no protocols"),
        ("ingress: {enabled: true, hosts: null}", "ingress: it needs hosts"),
        ("autoscaling: {enabled: true, maxReplicas: null}", "autoscaling: it needs maxReplicas"),
        (
            "{replicaCount: 2, podDisruptionBudget: {enabled: true, maxUnavailable: null}}",
            "podDisruptionBudget.maxUnavailable: it needs a number or a percentage",
        ),
        (
            "tls: {certManager: {enabled: true, issuerRef: {name: a}, serviceNames: false}}",
            "tls.certManager: the certificate has no name; list its names in dnsNames",
        ),
        ('config: "listeners: ["', "the text is no YAML map"),
        ("{demo: {enabled: true}, config: 'a: b'}", "must be a map for that"),
        (f"{{demo: {{enabled: true}}, {EXISTING}}}", "demo"),
        ("existingConfigMap: {name: a}", "existingConfigMap.listeners"),
        ("service: {ports: {htp: 80}}", "unknown listener 'htp'; expected one of http, grpc"),
        ("ingress: {enabled: true, hosts: [{paths: [{path: /, listener: mip}]}]}", "no listener 'mip'"),
        ("httpRoute: {enabled: true}", "httpRoute: parentRefs names no Gateway"),
        (f"httpRoute: {{listener: grpc, {PARENT}}}", "no listener 'grpc' speaks protocols over http"),
        (f"{{httpRoute: {{{PARENT}}}, grpcRoute: {{{PARENT}}}}}", "only for different host names"),
        ("autoscaling: {enabled: true, targetCPU: null}", "it needs a metric"),
        ("autoscaling: {enabled: true, minReplicas: 5, maxReplicas: 2}", "minReplicas 5 is more than maxReplicas 2"),
        (POLICY % 'endpoints: ["${IT}"]', "cannot read the reference in endpoint ${IT} of backend 'b'"),
        (
            POLICY % "discovery: {files: /a/*}",
            "cannot read backend 'b': discovery.files; let through by networkPolicy.extraEgress",
        ),
        (
            POLICY % "discovery: {srv: _v2._tcp.example.com}",
            "cannot read the servers that _v2._tcp.example.com of backend 'b': discovery.srv names",
        ),
        (f"{{networkPolicy: {{enabled: true}}, {EXISTING}}}", "cannot read the ConfigMap own"),
        (
            ONE % "protocols: [mip], tls: {certificate: /tls/tls.crt, key: /tls/tls.key}",
            "config: nothing mounts /tls/tls.crt; set tls.existingSecret or tls.certManager, or extraVolumes",
        ),
        (
            "config: {auth: {keys: {file: /etc/gateway-keys/keys.yaml}}}",
            "config: nothing mounts /etc/gateway-keys/keys.yaml; set keys.existingSecret",
        ),
        (
            "{extraVolumeMounts: [{name: a, mountPath: /tls-clients}], tls: {existingSecret: own}, config: {health: "
            "{bind: '[::]:2', tls: {certificate: /tls/tls.crt, key: /tls/tls.key, client_ca: /tls-clients-b/ca.crt}}, "
            "auth: {keys: {file: /etc/gateway-keys/k}}}}",
            "config: nothing mounts /etc/gateway-keys/k",
        ),
        ("tcpRoutes: [{listener: brpc, parentRefs: [{name: a}]}]", "tcpRoutes: unknown listener 'brpc'"),
        ("podLabels: {app.kubernetes.io/component: a}", "podLabels: the label app.kubernetes.io/component is the"),
        ("service: {labels: {app.kubernetes.io/name: a}}", "service.labels: the label app.kubernetes.io/name is the"),
        ("ingress: {enabled: true, labels: {app.kubernetes.io/name: a}}", f"ingress.labels: {OF_THE_CHART}"),
        ("commonLabels: {app.kubernetes.io/name: a}", f"commonLabels: {OF_THE_CHART}"),
        (
            "metrics: {dashboard: {enabled: true, labels: {app.kubernetes.io/name: a}}}",
            f"metrics.dashboard.labels: {OF_THE_CHART}",
        ),
        ("podAnnotations: {checksum/config: a}", "podAnnotations: the annotation checksum/config is the chart's"),
    ],
)
def test_what_cannot_work_is_refused_with_what_would(values: str, said: str) -> None:
    assert said in refusal(values)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("routes: [{match: {model: on}, backend: b}]", "routes[0].match.model: a text belongs here, and YAML has read"),
        ("routes: [{match: {model: a, version: 1}, backend: b}]", "routes[0].match.version: a text belongs here"),
        (
            "backends: {no: {protocol: umbridge, endpoints: ['a:1']}}",
            "backends: a key is the boolean false, as which YAML 1.1 (Helm's) reads n, no and off; quote it",
        ),
        ("forms: {own: {tensors: {y: 'FP64 [1]'}}}", "forms.own.tensors: a key is the boolean true"),
        ("forms: {own: {infer: {path: /p, response: [{on: $y}]}}}", "forms.own.infer.response[0]: a key is the"),
        ("models: {m: {steps: {s: {model: a, inputs: {y: $x}}}}}", "models.m.steps.s.inputs: a key is the boolean"),
        ("models: {n: {}}", "models: a key is the boolean false"),
        ("routes: [{match: {header: {x-on: yes}}, backend: b}]", "routes[0].match.header.x-on"),
        ("routes: [{match: {}, backend: b, fallback: [true]}]", "routes[0].fallback[0]"),
        ("backends: {b: {limits: {headers: 9000}, headers: {x-on: yes}}}", "backends.b.headers.x-on"),
        ("listeners: [{cors: {origins: [yes]}}]", "listeners[0].cors.origins[0]"),
        ("routes: [{name: on, match: {}, backend: b}]", "routes[0].name"),
    ],
)
def test_a_boolean_or_a_number_in_the_place_of_a_text_is_refused(written: str, said: str) -> None:
    message = refusal(f"config: {{{written}}}")
    assert f"config.{said}" in message
    assert "quote it" in message


def test_a_text_may_have_the_keys_that_helm_would_change() -> None:
    form = "{own: {infer: {path: /p, request: {y: $x}, response: {'true': $n}}}}"
    assert form in render({"config": f"{MINIMAL}\nforms: {form}\n"}).configuration


def test_templates_of_forms_may_have_any_values() -> None:
    form = "{infer: {path: /p, request: {model: 1, name: true, x: $x}, response: $y}}"
    listeners = '[{name: a, bind: "0.0.0.0:1", protocols: ["json:own", "json:mlflow"], prefix: {"json:mlflow": /m}}]'
    release = render(f"config: {{forms: {{own: {form}}}, listeners: {listeners}}}")
    assert "model: 1" in release.configuration
    assert release.service["spec"]["ports"][0]["appProtocol"] == "http"


def test_booleans_that_are_meant_pass() -> None:
    flags = "{match: {path: /a}, backend: b, passthrough: true, translate: {carry_config: false}}"
    constant = "{match: {}, backend: b, translate: {constants: [{name: c, datatype: BOOL, shape: [], data: true}]}}"
    assert "true" in render(f"config: {{routes: [{flags}, {constant}]}}").configuration


def kinds(whole: Schema, part: Schema, key: str, found: dict[str, set[object]]) -> None:
    """The JSON types of the values below each key of the configuration."""
    if {"type": "string", "minLength": 1} in part.get("anyOf", ()):  # a text or a map
        found.setdefault(key, set()).add("string")
    part = dereferenced(whole, part)
    if part.get("type") == "array":
        kinds(whole, part["items"], key, found)
    elif part.get("type") == "object":
        for name, child in part.get("properties", {}).items():
            kinds(whole, child, name, found)
        if isinstance(part.get("additionalProperties"), dict):
            kinds(whole, part["additionalProperties"], key, found)
    else:
        found.setdefault(key, set()).add(part.get("type"))


def test_the_chart_knows_which_keys_of_the_configuration_are_texts() -> None:
    found: dict[str, set[object]] = {}
    whole = json_schema(catalog())
    # the templates of forms have the keys of servers, and graphs the names of tensors, with values of any kind
    checked = {name: part for name, part in whole["properties"].items() if name not in ("forms", "models")}
    kinds(whole, {**whole, "properties": checked}, "", found)
    texts = {key for key, types in found.items() if types == {"string"}}
    template = (CHART / "templates" / "_config.tpl").read_text()
    listed = template.partition("$texts := list ")[2].partition("-}}")[0]
    names = set(listed.replace('"', "").split())
    assert texts - names == set(), "add these keys to `$texts` in deploy/helm/modelglot/templates/_config.tpl"
    assert names - texts == set(), "remove these from `$texts` in deploy/helm/modelglot/templates/_config.tpl"


def test_the_chart_knows_every_protocol() -> None:
    assert json.dumps(sorted(registry.protocols())) in (CHART / "values.schema.json").read_text()
    for name, protocol in registry.protocols().items():
        release = render(LISTENERS.format("tcp://0.0.0.0:1" if protocol.transport == "tcp" else "0.0.0.0:1", name))
        (port,) = release.service["spec"]["ports"]
        transport = port["appProtocol"].replace("kubernetes.io/h2c", "grpc")
        assert transport == protocol.transport


def test_the_examples_say_only_what_differs() -> None:
    """They stand for what a user writes: nothing in them repeats a default of the chart."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    for path in sorted(EXAMPLES.glob("*.yaml")):
        for given in yaml.safe_load_all(path.read_text()):
            if "kind" not in given:
                assert not [key for key, value in given.items() if defaults[key] == value]


SHARED = """
config:
  backends:
    shared: {protocol: v2-grpc, endpoints: ["a:1"], placement: {redis: {url: "redis://r", name: a}}}
    own: {protocol: v2-grpc, endpoints: ["b:1"], placement: {loading: on_demand}}
  routes:
    - {match: {model: a}, backend: shared, policies: [{rate_limit: {requests: 1, seconds: 1, redis: "redis://r"}}]}
    - {match: {model: b}, backend: own, policies: [{timeout: {seconds: 1}}, {rate_limit: {requests: 1, seconds: 1}}]}
"""


@pytest.mark.parametrize("more", ["replicaCount: 2", "autoscaling: {enabled: true}"])
def test_the_notes_name_what_each_of_several_replicas_applies_by_itself(more: str) -> None:
    _, _, named = render(f"{SHARED}\n{more}").notes.partition("Each replica applies these by itself")
    assert re.findall(r"^  (config\..*)$", named, re.MULTILINE) == [
        "config.backends.own.placement",
        "config.routes[1].policies[1].rate_limit",
    ]


def test_the_notes_do_not_speak_of_replicas_where_there_is_one_or_all_agree() -> None:
    assert "by itself" not in render(SHARED).notes
    agreed = SHARED.replace("{loading: on_demand}", "null").replace("requests: 1, seconds: 1}", "redis: 'redis://r'}")
    assert "by itself" not in render(f"{agreed}\nreplicaCount: 2").notes


def test_the_notes_warn_of_replicas_where_the_chart_cannot_read_the_configuration() -> None:
    assert "placement of the ConfigMap own that has no redis" in render(f"{EXISTING}\nreplicaCount: 2").notes


README = (CHART / "README.md").read_text()


@pytest.mark.parametrize("shown", re.findall(r"^ *```yaml\n(.*?)^ *```$", README, re.MULTILINE | re.DOTALL))
def test_what_the_readme_shows_is_right(shown: str) -> None:
    assert render(shown).config


def test_the_grace_periods_in_the_readme_are_those_of_the_chart() -> None:
    assert "D + T + 10" in README
    assert "sleeps for `preStopSeconds` (5) | 5 + T + 10" in README
