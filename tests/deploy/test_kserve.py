"""`deploy/kserve`: files that Kubernetes and KServe take, and the pod that they make, run here."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.cli.commands import ROOT, gateway
from tests.deploy.dockerfile import stages
from tests.deploy.local import Ports, started
from tests.interop.exchanges import post
from tests.interop.processes import answers, start_umbridge

KSERVE = ROOT / "deploy/kserve"
SCHEMAS = {
    kind: yaml.safe_load((Path(__file__).parent / "schemas" / f"{kind.lower()}.yaml").read_text())
    for kind in ("ServingRuntime", "InferenceService")
}
KUBERNETES = ("1.30", "1.33", "1.37")
"""An old version, one in between, and the newest that there are schemas of."""
IMAGE = stages(ROOT / "deploy/Dockerfile")[-1]

Document = dict[str, Any]


def documents() -> Iterator[tuple[str, Document]]:
    """Every object, with the path of its file."""
    for path in sorted(KSERVE.rglob("*.yaml")):
        if path.name != "kustomization.yaml":
            for document in yaml.safe_load_all(path.read_text()):
                yield str(path.relative_to(KSERVE)), document


FILES = dict(documents())
OF_KSERVE = {name: each for name, each in FILES.items() if each["kind"] in SCHEMAS}
OF_KUBERNETES = {name: each for name, each in FILES.items() if each["kind"] not in SCHEMAS}
CONFIGS = [name for name, each in FILES.items() if each["kind"] == "ConfigMap"]


SPECS = {
    name: each["spec"] if each["kind"] == "ServingRuntime" else each["spec"]["predictor"]
    for name, each in OF_KSERVE.items()
}
PODS = {name: {key: spec[key] for key in ("containers", "volumes") if key in spec} for name, spec in SPECS.items()}
PODS = {name: pod for name, pod in PODS.items() if pod}
"""The part of each of KServe's objects that becomes a pod."""
PAIRS = [name for name in PODS if name.startswith("sidecar/")]
"""Files in which the two containers of the pod stand."""


def container(pod: Document, name: str) -> Document:
    [found] = [each for each in pod["containers"] if each["name"] == name]
    return dict(found)


# --- what the files are ---


def errors(document: Document) -> list[str]:
    schema = SCHEMAS[document["kind"]]
    return [each.message for each in jsonschema.Draft202012Validator(schema).iter_errors(document)]


@pytest.mark.parametrize("name", OF_KSERVE)
def test_kserve_takes_its_objects(name: str) -> None:
    assert errors(OF_KSERVE[name]) == []


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("sidecar/servingruntime.yaml", {"protocolVersion": ["v2"]}, "'protocolVersion' was unexpected"),
        ("sidecar/servingruntime.yaml", {"protocolVersions": ["grpc"]}, "'grpc' is not one of "),
        ("sidecar/servingruntime.yaml", {"supportedModelFormats": [{"autoSelect": True}]}, "'name' is a required"),
        ("sidecar/servingruntime.yaml", {"supportedModelFormats": [{"name": "a", "version": 1}]}, "1 is not of type"),
        ("sidecar/inferenceservice.yaml", {"transformers": {}}, "'transformers' was unexpected"),
        ("sidecar/inferenceservice.yaml", {"predictor": {"minReplicas": 1}}, "is not valid under any of"),
        ("sidecar/custom-predictor.yaml", {"predictor": {"containers": [], "model": {}}}, "is valid under each of"),
    ],
)
def test_the_schemas_refuse_what_kserve_would(name: str, change: Document, said: str) -> None:
    document = OF_KSERVE[name]
    found = errors(document | {"spec": document["spec"] | change})
    assert [each for each in found if said in each], found


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("name", OF_KUBERNETES)
def test_kubernetes_takes_its_objects(name: str, version: str) -> None:
    kubernetes_validate.validate(OF_KUBERNETES[name], version, strict=True)


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("name", PODS)
def test_kubernetes_takes_the_pods_of_kserve_s_objects(name: str, version: str) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": PODS[name]}
    kubernetes_validate.validate(pod, version, strict=True)


@pytest.mark.parametrize("folder", ["sidecar", "front"])
def test_kustomize_finds_its_resources(folder: str) -> None:
    kustomization = yaml.safe_load((KSERVE / folder / "kustomization.yaml").read_text())
    assert all((KSERVE / folder / name).is_file() for name in kustomization["resources"])
    text = "".join((KSERVE / folder / name).read_text() for name in kustomization["resources"])
    assert all(f"image: {each['name']}" in text for each in kustomization["images"])


@pytest.mark.real("kubectl")
@pytest.mark.parametrize("folder", ["sidecar", "front"])
def test_kustomize_renders_it(folder: str) -> None:
    done = subprocess.run(["kubectl", "kustomize", str(KSERVE / folder)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    images = [line.split()[1] for line in done.stdout.replace("- image:", "image:").splitlines() if " image: " in line]
    assert images
    assert all(image.startswith("registry.example.com/") for image in images)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_gateway_takes_its_configuration(name: str, tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(FILES[name]["data"]["gateway.yaml"])
    result = gateway("check", "--config", str(file))
    assert (result.exit_code, result.output) == (0, "")


# --- what fits together ---


@pytest.mark.parametrize("name", PAIRS)
def test_the_gateway_gets_the_traffic_and_the_server_the_model(name: str) -> None:
    """KServe makes its Service of `transformer-container`'s ports, and mounts model files into `kserve-container`."""
    pod = PODS[name]
    assert [each["name"] for each in pod["containers"]] == ["kserve-container", "transformer-container"]
    server, front = pod["containers"]
    assert (server["image"], front["image"]) == ("umbridge-server", "modelglot")
    assert "ports" not in server
    assert [(each["name"], each["containerPort"]) for each in front["ports"]] == [("http1", 8080), ("h2c", 8081)]


def test_a_custom_predictor_s_pod_is_that_of_the_runtime() -> None:
    assert PODS["sidecar/custom-predictor.yaml"] == PODS["sidecar/servingruntime.yaml"]


def test_the_model_is_one_for_the_runtime() -> None:
    runtime, service = OF_KSERVE["sidecar/servingruntime.yaml"], OF_KSERVE["sidecar/inferenceservice.yaml"]
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    formats = runtime["spec"]["supportedModelFormats"]
    assert model["modelFormat"] in [{"name": each["name"], "version": each["version"]} for each in formats]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    assert "storageUri" in model, "without it KServe adds the agent of multi-model servers"


GATEWAY_PODS = {name: PODS[name] for name in PAIRS}
GATEWAY_PODS["front/deployment.yaml"] = FILES["front/deployment.yaml"]["spec"]["template"]["spec"]
"""The specs of the pods with the gateway in them, by file."""


def box_and_config(name: str) -> tuple[Document, Document]:
    """The gateway's container in such a pod, and the ConfigMap with its configuration."""
    [box] = [each for each in GATEWAY_PODS[name]["containers"] if each["image"] == "modelglot"]
    [config] = [FILES[each] for each in CONFIGS if each.startswith(name.partition("/")[0])]
    return box, config


@pytest.mark.parametrize("name", GATEWAY_PODS)
def test_the_gateway_s_container_is_the_image_s(name: str) -> None:
    """Its arguments are the image's own, its configuration lies where they say, it has no rights."""
    pod, (box, config) = GATEWAY_PODS[name], box_and_config(name)
    assert box["args"] == IMAGE.words("CMD")
    [mount], [volume] = box["volumeMounts"], pod["volumes"]
    assert mount["name"] == volume["name"]
    assert config["metadata"]["name"] == volume["configMap"]["name"]
    assert box["args"][-1] in {f"{mount['mountPath']}/{key}" for key in config["data"]}
    rights = pod.get("securityContext", {}) | box["securityContext"]
    assert str(rights["runAsUser"]) == IMAGE.last("USER").partition(":")[0]
    assert (rights["runAsNonRoot"], rights["readOnlyRootFilesystem"]) == (True, True)
    assert (rights["allowPrivilegeEscalation"], rights["capabilities"]) == (False, {"drop": ["ALL"]})


@pytest.mark.parametrize("name", GATEWAY_PODS)
def test_every_port_is_one_that_the_configuration_listens_on(name: str) -> None:
    box, config = box_and_config(name)
    settings = yaml.safe_load(config["data"]["gateway.yaml"])
    listened = {int(each["bind"].rpartition(":")[2]) for each in settings["listeners"]}
    health = int(settings["health"]["bind"].rpartition(":")[2])
    named = {each["name"]: each["containerPort"] for each in box["ports"]}
    assert set(named.values()) - {health} == listened
    probed = [box[kind]["httpGet"]["port"] for kind in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert {named.get(port, port) for port in probed} == {health}


def test_the_service_leads_to_the_deployment() -> None:
    service, deployment = FILES["front/service.yaml"]["spec"], FILES["front/deployment.yaml"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert service["selector"] == deployment["selector"]["matchLabels"] == labels
    [box] = deployment["template"]["spec"]["containers"]
    assert {each["targetPort"] for each in service["ports"]} <= {each["name"] for each in box["ports"]}


def test_the_front_s_backends_are_predictors_of_these_files() -> None:
    """KServe calls the Service NAME-predictor: port 80 is the first port, any other has the container's number."""
    services = {each["metadata"]["name"] for each in OF_KSERVE.values() if each["kind"] == "InferenceService"}
    settings = yaml.safe_load(FILES["front/configmap.yaml"]["data"]["gateway.yaml"])
    others = {each["containerPort"] for each in container(PODS[PAIRS[0]], "transformer-container")["ports"][1:]}
    for backend in settings["backends"].values():
        [(host, _, port)] = [endpoint.partition(":") for endpoint in backend["endpoints"]]
        assert host.removesuffix("-predictor") in services
        assert int(port) in {80, *others}


# --- the pod, run ---


class Pod:
    """The sidecar pair as processes on loopback."""

    def __init__(self, name: str, ports: Ports) -> None:
        self.ports = ports
        self._containers = PODS[name]["containers"]

    def probe(self, container: str, kind: str) -> bool:
        """Ask what the kubelet would."""
        [found] = [each[kind] for each in self._containers if each["name"] == container]
        if "tcpSocket" in found:
            return listens(self.ports.own(found["tcpSocket"]["port"]))
        return answers(f"http://127.0.0.1:{self.ports.own(found['httpGet']['port'])}{found['httpGet']['path']}")

    def probes(self) -> list[tuple[str, str]]:
        return [(each["name"], key) for each in self._containers for key in each if key.endswith("Probe")]


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def reference(folder: Path, port: int) -> Callable[[], object]:
    """Start a model server. What is returned stops it."""
    arguments = ["reference", "--protocol", "umbridge", "--bind", f"127.0.0.1:{port}", "--model", "posterior"]
    return started(arguments, folder, sys.executable).stop


def real(folder: Path, port: int) -> Callable[[], object]:
    return start_umbridge(folder, port).stop


STARTED = [
    pytest.param((name, server), marks=[pytest.mark.real] if server is real else [], id=f"{server.__name__}-{name}")
    for server in (reference, real)
    for name in PAIRS
]


@pytest.fixture(scope="module", params=STARTED)
def pod(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """The two containers: a server of UM-Bridge for the legacy one, the gateway with the manifest's own arguments."""
    name, server = request.param
    ports, folder = Ports(), tmp_path_factory.mktemp("pod")
    pod = Pod(name, ports)
    box = container(PODS[name], "transformer-container")
    config = FILES["sidecar/configmap.yaml"]["data"]
    for key, text in config.items():
        (folder / key).write_text(ports.local(text))
    [mount] = box["volumeMounts"]
    arguments = [each.replace(mount["mountPath"], str(folder)) for each in box["args"]]
    [environment] = container(PODS[name], "kserve-container")["env"]
    with ExitStack() as stack:
        assert not any(pod.probe(*each) for each in pod.probes())
        stack.callback(server(folder / "server", ports.own(environment["value"])))
        stack.callback(started(arguments, folder / "gateway", sys.executable).stop)
        yield pod


@pytest.mark.long
def test_its_probes_succeed(pod: Pod) -> None:
    assert len(pod.probes()) == 5
    assert [each for each in pod.probes() if not pod.probe(*each)] == []


def test_v2_over_rest_reaches_the_model(pod: Pod) -> None:
    theta = {"name": "input0", "datatype": "FP64", "shape": [1, 2], "data": [1, 2]}
    url = f"http://127.0.0.1:{pod.ports.own(8080)}"
    status, answer = post(url, "/v2/models/posterior/infer", inputs=[theta])
    assert (status, answer["outputs"][0]["data"]) == (200, [-5.0])


def test_v2_over_grpc_reaches_the_model(pod: Pod, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"inputs": [{"name": "input0", "datatype": "FP64", "shape": [1, 2], "data": [1, 2]}]}))
    address = f"127.0.0.1:{pod.ports.own(8081)}"
    result = gateway("call", "--protocol", "v2-grpc", "--address", address, "--model", "posterior", str(file))
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout)["outputs"][0]["data"] == [-5.0]
