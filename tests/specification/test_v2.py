"""V2: what the specification says, over REST and gRPC."""

import json
from struct import pack
from typing import Any

import pytest

from gateway.core.messages import Message
from gateway.reference.loading import find
from tests.protocols.v2.grpc.by_hand import field, tensor
from tests.protocols.v2.grpc.wire import INFER
from tests.wires import Server, Wires, reference, replying

REST = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
backends: {lab: {protocol: v2-rest, flavor: plain, endpoints: ["lab:1"]}}
check: full
routes: [{match: {model: "*"}, backend: lab}]
"""
GRPC = REST.replace("v2-rest, flavor: plain", "v2-grpc")


def output(name: str, number: float) -> dict[str, Any]:
    return {"name": name, "datatype": "FP64", "shape": [1], "data": [number]}


X = {"name": "x", "datatype": "FP64", "shape": [1], "data": [1.0]}
FIRST, SECOND = output("o", 1.0), output("z", 2.0)


def over_rest(*outputs: dict[str, Any]) -> Server:
    return replying(json.dumps({"model_name": "m", "outputs": outputs}).encode())


def over_grpc(*outputs: dict[str, Any]) -> Server:
    tensors = [tensor(each["name"], "FP64", 1, contents=field(7, pack("<d", *each["data"]))) for each in outputs]
    return replying(field(1, "m") + b"".join(tensors), status=0)


BACKENDS = [pytest.param(REST, over_rest, id="rest"), pytest.param(GRPC, over_grpc, id="grpc")]


async def infer(wires: Wires, *names: str) -> tuple[int, dict[str, Any]]:
    body = {"inputs": [X], "outputs": [{"name": name} for name in names]}
    reply = await wires.post("v2-rest", "/v2/models/m/infer", json.dumps(body).encode())
    return reply.status, json.loads(bytes(reply.body))


@pytest.mark.parametrize(("config", "reply"), BACKENDS)
async def test_outputs_are_the_output_tensors_requested(config: str, reply: Any) -> None:
    """MLServer and some models of KServe ignore the list."""
    status, answer = await infer(Wires(config, lab=reply(FIRST, SECOND)), "o")
    assert (status, answer["outputs"]) == (200, [FIRST])


@pytest.mark.parametrize(("config", "reply"), BACKENDS)
async def test_an_output_that_was_requested_and_is_missing_is_an_error(config: str, reply: Any) -> None:
    status, answer = await infer(Wires(config, lab=reply(SECOND)), "o")
    assert status == 502
    assert answer["error"] == "backend 'lab': output 'o' is missing; the reply has 'z'"


@pytest.mark.parametrize(("config", "reply"), BACKENDS)
@pytest.mark.parametrize("flavor", ["triton", "mlserver", "kserve", "plain", "binary"])
async def test_a_priority_reaches_a_server_that_has_priorities_and_no_other(
    config: str, reply: Any, flavor: str
) -> None:
    """Triton's extension `schedule_policy`, which the configured flavor stands for."""
    text = config.replace(", flavor: plain", "").replace("endpoints", f"flavor: {flavor}, endpoints")
    wires = Wires(text, lab=reply(FIRST))
    for _ in range(3):
        body = json.dumps({"inputs": [X], "parameters": {"priority": 3}}).encode()
        answer = await wires.post("v2-rest", "/v2/models/m/infer", body)
        if flavor in ("triton", "binary"):
            assert answer.status == 200
            assert b"priority" in b"".join(map(bytes, wires.sent["lab"][-1].parts))
        else:
            assert answer.status == 501
            assert b"parameter priority needs V2's extension 'schedule_policy'" in answer.body
            assert wires.sent["lab"] == []


async def test_the_same_for_a_client_of_grpc() -> None:
    wires = Wires(GRPC.replace("protocols: [v2-rest]", "protocols: [v2-grpc]"), lab=over_grpc(FIRST, SECOND))
    asked = field(1, "m") + tensor("x", "FP64", 1, contents=field(7, bytes(8))) + field(6, field(1, "o"))
    reply = await wires.send("v2-grpc", Message(path=INFER, parts=(asked,)))
    assert reply.status == 0
    assert b"o" in reply.body
    assert b"z" not in reply.body


VERSIONS = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest, v2-grpc, v1-rest, grps-rest]}]
backends: {lab: {protocol: v2-rest, flavor: binary, endpoints: ["lab:1"]}}
routes:
  - {match: {model: renamed, version: new}, backend: lab, rewrite: {model: double, version: "1"}}
  - {match: {model: renamed, header: {x-canary: a}}, backend: lab, rewrite: {model: double, version: "1"}}
  - {match: {model: rank}, backend: lab, rewrite: {model: double, version: "1"}}
  - {match: {model: "any-*", version: new}, backend: lab, rewrite: {model: "{1}", version: "1"}}
"""
POINT = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 1], "data": [1.0]}]}


VERSIONED = [("rank", "", True), ("rank", "1", True), ("rank", "2.0.0", False)]
VERSIONED += [("renamed", "new", True), ("any-double", "new", True)]


@pytest.mark.parametrize(("model", "version", "is_there"), VERSIONED)
async def test_a_version_that_the_route_does_not_call_is_not_found(model: str, version: str, is_there: bool) -> None:
    """`rewrite: {version: ...}` leaves one version, under the name that the route's `match` gives it."""
    wires = Wires(VERSIONS, lab=reference("v2-rest", find("double")))
    path = f"/v2/models/{model}" + (f"/versions/{version}" if version else "")
    for ending in ("", "/ready", "/infer"):
        if ending == "/infer":
            reply = await wires.post("v2-rest", path + ending, json.dumps(POINT).encode())
        else:
            reply = await wires.send("v2-rest", Message("GET", path + ending))
        assert reply.status == (200 if is_there else 404), (ending, bytes(reply.body))
        if not is_there:
            assert f"model '{model}' has no version '{version}'" in json.loads(bytes(reply.body))["error"]
        elif ending == "":
            assert version in ("", *json.loads(bytes(reply.body))["versions"])
        elif ending == "/infer":
            assert json.loads(bytes(reply.body))["model_version"] == (version or "1")
    if not is_there:
        assert wires.sent["lab"] == []


async def test_a_version_in_a_model_s_name_is_one_that_the_route_calls() -> None:
    wires = Wires(VERSIONS, lab=reference("v2-rest", find("double")))
    for name, status in (("rank", 200), ("rank-1", 200), ("rank-2.0.0", 404)):
        body = {
            "model": name,
            "gtensors": {"tensors": [{"name": "x", "dtype": "DT_FLOAT64", "shape": [1, 1], "flat_float64": [1.0]}]},
        }
        reply = await wires.post("grps-rest", "/grps/v1/infer/predict", json.dumps(body).encode())
        assert reply.status == status, bytes(reply.body)
