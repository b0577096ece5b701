"""`deploy/compose.yaml`: a compose file by the specification, and what its services do together."""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.cli.commands import ROOT, gateway
from tests.deploy.dockerfile import stages
from tests.deploy.local import Ports, started, succeeds
from tests.interop.exchanges import post
from tests.interop.processes import Process

pytestmark = pytest.mark.long

DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
SERVERS = [name for name in SERVICES if name != "gateway"]
CONFIG = yaml.safe_load((DEPLOY / "gateway.yaml").read_text())
SCHEMA = json.loads((files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text())
"""The compose specification's own."""
VALIDATOR = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)


def test_it_is_a_compose_file() -> None:
    VALIDATOR.validate(COMPOSE)


def test_a_misspelt_key_is_no_compose_file() -> None:
    wrong = COMPOSE | {"services": {"gateway": {"image": "a", "read_olny": True}}}
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(wrong)


def test_the_gateway_s_configuration_is_right_and_where_the_image_reads_it() -> None:
    result = gateway("check", "--config", str(DEPLOY / "gateway.yaml"))
    assert (result.exit_code, result.output) == (0, "")
    [mounted] = SERVICES["gateway"]["configs"]
    assert DEPLOY / COMPOSE["configs"][mounted["source"]]["file"] == DEPLOY / "gateway.yaml"
    assert "command" not in SERVICES["gateway"]
    assert mounted["target"] == stages(DEPLOY / "Dockerfile")[-1].words("CMD")[-1]


def test_every_listener_is_published_on_this_machine_and_nothing_else() -> None:
    listening = {each["bind"].rpartition(":")[2] for each in CONFIG["listeners"]}
    assert set(SERVICES["gateway"]["ports"]) == {f"127.0.0.1:{port}:{port}" for port in listening}
    assert all("ports" not in SERVICES[name] for name in SERVERS)


def test_every_service_has_no_rights() -> None:
    for service in SERVICES.values():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_the_gateway_waits_for_every_server_and_names_no_other() -> None:
    assert SERVICES["gateway"]["depends_on"] == {name: {"condition": "service_healthy"} for name in SERVERS}
    endpoints = [url for backend in CONFIG["backends"].values() for url in backend["endpoints"]]
    assert sorted(url.rpartition("/")[2].partition(":")[0] for url in endpoints) == sorted(SERVERS)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    """All services as processes, the servers healthy by their own checks before the gateway starts."""
    ports = Ports(SERVERS)
    folder = tmp_path_factory.mktemp("compose")
    with ExitStack() as stack:

        def start(name: str, arguments: list[str]) -> Process:
            process = started([ports.local(each) for each in arguments], folder / name, sys.executable)
            stack.callback(process.stop)
            return process

        for name in SERVERS:
            assert not healthy(name, ports)
            start(name, SERVICES[name]["command"])
            assert healthy(name, ports)
        config = folder / "gateway.yaml"
        config.write_text(ports.local((DEPLOY / "gateway.yaml").read_text()))
        start("gateway", ["serve", "--config", str(config)])
        yield ports


def healthy(name: str, ports: Ports) -> bool:
    kind, program, *arguments = SERVICES[name]["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "python")
    return succeeds([sys.executable, *(ports.local(each) for each in arguments)])


CALLS = {
    "posterior": ({"name": "input0", "datatype": "FP64", "shape": [1, 2], "data": [1, 2]}, [-5.0]),
    "double": ({"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [1, 2.5]}, [2.0, 5.0]),
    "upper": ({"name": "text", "datatype": "BYTES", "shape": [1], "data": ["hello"]}, ["HELLO"]),
}


@pytest.mark.parametrize("model", CALLS)
def test_every_server_is_reached(running: Ports, model: str) -> None:
    tensor, expected = CALLS[model]
    url = f"http://127.0.0.1:{running.own(8080)}"
    status, answer = post(url, f"/v2/models/{model}/infer", inputs=[tensor])
    assert (status, answer["outputs"][0]["data"]) == (200, expected)


def test_an_umbridge_client_reaches_a_v2_model(running: Ports) -> None:
    url = f"http://127.0.0.1:{running.own(8080)}"
    assert post(url, "/Evaluate", name="double", input=[[1, 2, 3]], config={}) == (200, {"output": [[2.0, 4.0, 6.0]]})


@pytest.mark.parametrize("port", [8081, 9100, 9200])
def test_every_other_published_port_is_listened_on(running: Ports, port: int, tmp_path: Path) -> None:
    asked = {"inputs": [{"name": "scores", "datatype": "FP32", "shape": [1, 2], "data": [0, 1000]}]}
    file = tmp_path / "request.json"
    file.write_text(json.dumps(asked))
    protocol = {8081: "v2-grpc", 9100: "mip", 9200: "grps-brpc"}[port]
    address = f"{'tcp://' if protocol == 'mip' else ''}127.0.0.1:{running.own(port)}"
    result = gateway("call", "--protocol", protocol, "--address", address, "--model", "classify", str(file))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "class_1" in result.stdout
