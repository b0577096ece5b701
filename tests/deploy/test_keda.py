"""ScaledObjects of the chart fit the gateway that they ask."""

import helm_python
import pytest

from gateway.admin.scaler import trigger
from tests.deploy.rendered import NAMESPACE, render, rendered

CONFIG = "config: {scaler: {bind: 'BIND', open: true}}\nkeda: {enabled: true}\n"


def test_the_trigger_asks_the_scaler_s_service_for_a_backend_of_the_configuration() -> None:
    release = rendered("keda-values")
    scaled, service = release.one("ScaledObject"), release.one_of("Service", "scaler")
    read = release.config
    (wanted,) = scaled["spec"]["triggers"]
    assert read.scaler is not None
    address = f"{service['metadata']['name']}.{NAMESPACE}.svc:{read.scaler.bind.port}"
    assert (wanted["type"], wanted["metadata"]["scalerAddress"]) == ("external-push", address)
    asked = trigger(wanted["metadata"])
    assert (asked.backend in read.backends, asked.target, asked.idle) == (True, 1.0, 120.0)
    assert scaled["spec"]["scaleTargetRef"]["name"] in {each["metadata"]["name"] for each in release.all("Deployment")}
    (port,) = service["spec"]["ports"]
    ports = {each["name"]: each["containerPort"] for each in release.container["ports"]}
    assert (port["port"], ports[port["targetPort"]]) == (read.scaler.bind.port, read.scaler.bind.port)


def test_only_keda_s_operator_reaches_the_scaler() -> None:
    rules = rendered("keda-values").one("NetworkPolicy")["spec"]["ingress"]
    (rule,) = [each for each in rules if {"protocol": "TCP", "port": "scaler"} in each["ports"]]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "keda"}}}]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ("keda: {enabled: true}", "must be a port of the pod"),
        (CONFIG.replace("BIND", "127.0.0.1:9092"), "must be a port of the pod"),
        (CONFIG.replace("BIND", "0.0.0.0:9092") + "replicaCount: 2", "each replica of the gateway knows its own calls"),
    ],
)
def test_what_cannot_work_is_refused(values: str, text: str) -> None:
    with pytest.raises(helm_python.HelmError, match=text):
        render(values)
