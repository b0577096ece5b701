"""The chart's example of a fleet: what the gateway is told fits the Tritons beside it."""

from tests.deploy.rendered import rendered


def test_every_pod_of_the_tritons_is_an_endpoint_that_loads_models_when_it_is_told() -> None:
    release = rendered("fleet-values")
    backend = release.config.backends["tritons"]
    service, tritons = release.one("Service", "tritons"), release.one("StatefulSet")
    (endpoint,), (port,) = backend.endpoints, service["spec"]["ports"]
    assert endpoint.address == f"{service['metadata']['name']}:{port['port']}"
    assert service["spec"]["clusterIP"] == "None"
    assert backend.discovery is not None
    assert backend.discovery.dns == "all"
    template = tritons["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    (container,) = template["spec"]["containers"]
    assert port["targetPort"] in {each["name"] for each in container["ports"]}
    assert backend.placement is not None
    assert backend.placement.loading == "on_demand"
    assert "--model-control-mode=explicit" in container["args"]


def test_a_triton_that_could_not_load_a_model_stays_in_the_fleet() -> None:
    """After that it is live and not ready, for kubelet and for the gateway."""
    release = rendered("fleet-values")
    backend = release.config.backends["tritons"]
    (container,) = release.one("StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/v2/health/live"
    assert backend.health is not None
    assert backend.health.probe == "live"
