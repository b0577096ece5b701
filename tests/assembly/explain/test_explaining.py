"""The reply field `gateway-explanation`, over real sockets."""

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from gateway.assembly.explain.explaining import LONGEST
from gateway.auth.keys import new_key
from gateway.runtime.app import Gateway
from tests.admin.asking import key_file
from tests.interop.processes import free_port
from tests.observing.test_tracing import port, post
from tests.running_gateway import running_gateway

TEXT = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest], allow_explain: ALLOW}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc], allow_explain: ALLOW}
reference: [{protocol: umbridge, bind: "127.0.0.1:REFERENCE", models: [posterior]}]
backends: {lab: {protocol: umbridge, endpoints: ["http://127.0.0.1:REFERENCE"]}}
routes:
  - {match: {model: other}, backend: lab}
  - match: {model: science}
    backend: lab
    rewrite: {model: posterior}
    translate: {cast: round}
    signature:
      inputs: [{name: x, datatype: FP64, shape: [-1, 2]}]
      outputs: [{name: y, datatype: FP64, shape: [-1, 1]}]
"""
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "INT64", "shape": [1, 2], "data": [1, 2]}]}).encode()
INFER = "/v2/models/science/infer"


def running(*, allow: bool = True, text: str = TEXT) -> AbstractAsyncContextManager[Gateway]:
    text = text.replace("ALLOW", str(allow).lower()).replace("REFERENCE", str(free_port()))
    return running_gateway(text, drain=1)


def explanation(head: str) -> dict[str, Any]:
    (line,) = (line for line in head.split("\r\n") if line.lower().startswith("gateway-explanation: "))
    text = line.partition(": ")[2]
    assert len(text) <= LONGEST
    found: dict[str, Any] = json.loads(text)
    return found


async def test_it_tells_the_route_the_tensors_and_the_parts_of_the_work() -> None:
    async with running() as gateway:
        head, _ = await post(port(gateway, "http"), INFER, BODY, "Gateway-Explain: 1")
    found = explanation(head)
    assert (found["route"], found["backend"], found["model"]) == ("science", "lab", "posterior")
    assert found["routes"] == [["other", "model 'science' is not 'other'"]]
    (change,) = found["inputs"]
    assert (change["before"], change["after"]) == (["x", "INT64", [1, 2]], ["x", "FP64", [1, 2]])
    assert change["cast_error"] == 0
    (change,) = found["outputs"]
    assert change["after"] == ["y", "FP64", [1, 1]]
    names = [each["name"] for each in found["spans"]]
    assert names == ["decode", "fit", "try", "encode request", "decode reply", "fit reply", "encode"]
    sent = found["spans"][2]
    assert (sent["path"], sent["status"], found["tries"], found["status"]) == ("/Evaluate", 200, 1, "OK")
    assert sent["request_bytes"] > 0
    assert 0 <= sent["ms"] <= found["ms"]


async def test_an_error_is_explained_as_well() -> None:
    async with running() as gateway:
        head, _ = await post(port(gateway, "http"), "/v2/models/nobody/infer", BODY, "gateway-explain: 1")
    found = explanation(head)
    assert (found["status"], found["reason"], found["route"]) == ("NOT_FOUND", "model-not-found", "")
    assert [name for name, _ in found["routes"]] == ["other", "science"]


@pytest.mark.parametrize(("allow", "headers"), [(False, ["gateway-explain: 1"]), (True, [])])
async def test_it_is_told_only_where_allowed_and_asked_for(allow: bool, headers: list[str]) -> None:
    async with running(allow=allow) as gateway:
        head, _ = await post(port(gateway, "http"), INFER, BODY, *headers)
    assert head.startswith("HTTP/1.1 200")
    assert "gateway-explanation" not in head.lower()


async def test_over_grpc_it_is_metadata() -> None:
    async with running() as gateway, grpc.aio.insecure_channel(f"127.0.0.1:{port(gateway, 'grpc')}") as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelMetadata")(
            b"\n\x07science", metadata=[("gateway-explain", "1")]
        )
        await call
        metadata = dict([*await call.initial_metadata(), *await call.trailing_metadata()])
    found = json.loads(metadata["gateway-explanation"])
    assert (found["route"], found["operation"]) == ("science", "metadata")


async def test_it_is_bounded() -> None:
    """Many routes with long names, and a model of as many characters as one may have, outside ASCII."""
    routes = "".join(f"  - {{match: {{model: {'m' * 500}{at}}}, backend: lab}}\n" for at in range(30))
    async with running(text=TEXT.replace("routes:\n", f"routes:\n{routes}")) as gateway:
        path = "/v2/models/" + "%E2%82%AC" * 900 + "/infer"
        head, _ = await post(port(gateway, "http"), path, BODY, "gateway-explain: 1")
    assert head.startswith("HTTP/1.1 404")
    assert explanation(head)["shortened"] is True


ALICE, ALICE_ENTRY = new_key("alice")
BOB, BOB_ENTRY = new_key("bob")
WITH_KEYS = """
auth: {keys: {file: FILE}}
permissions: {explained: [{operations: [explain]}], whole: [{operations: [explain, details]}]}
principals: {alice: {permissions: [use, GIVEN]}, bob: {permissions: [use]}}
"""


@pytest.mark.parametrize(
    ("errors", "given", "is_told"),
    [("full", "explained", True), ("brief", "explained", False), ("brief", "whole", True)],
)
async def test_with_keys_of_clients_it_needs_a_permission(
    tmp_path: Path, errors: str, given: str, is_told: bool
) -> None:
    file = key_file(tmp_path, ALICE_ENTRY, BOB_ENTRY)
    listener = f"allow_explain: true, auth: {{}}, errors: {{detail: {errors}}}"
    text = TEXT.replace("allow_explain: ALLOW", listener) + WITH_KEYS.replace("FILE", str(file)).replace("GIVEN", given)
    async with running(text=text) as gateway:
        at = port(gateway, "http")
        for key, status, has_explanation in ((ALICE, 200, is_told), (BOB, 200, False), ("", 401, False)):
            headers = [f"x-api-key: {key}"] if key else []
            head, _ = await post(at, INFER, BODY, "gateway-explain: 1", *headers)
            assert head.startswith(f"HTTP/1.1 {status}")
            assert ("gateway-explanation" in head) is has_explanation


@pytest.mark.parametrize(("models", "routes"), [("[science]", []), ("[science, other]", ["other"])])
async def test_it_has_no_routes_to_models_that_the_client_may_not_use(
    tmp_path: Path, models: str, routes: list[str]
) -> None:
    keys = (
        WITH_KEYS.replace("FILE", str(key_file(tmp_path, ALICE_ENTRY)))
        .replace("[use, GIVEN]", "[few]")
        .replace("permissions: {", f"permissions: {{few: [{{operations: [infer, explain], models: {models}}}], ", 1)
    )
    text = TEXT.replace("allow_explain: ALLOW", "allow_explain: true, auth: {}") + keys
    async with running(text=text) as gateway:
        head, _ = await post(port(gateway, "http"), INFER, BODY, "gateway-explain: 1", f"x-api-key: {ALICE}")
    found = explanation(head)
    assert [name for name, _ in found["routes"]] == routes
    assert found["route"] == "science"


async def test_where_errors_are_brief_and_nobody_is_asked_it_is_not_told() -> None:
    text = TEXT.replace("allow_explain: ALLOW", "allow_explain: true, errors: {detail: brief}")
    async with running(text=text) as gateway:
        head, _ = await post(port(gateway, "http"), INFER, BODY, "gateway-explain: 1")
    assert head.startswith("HTTP/1.1 200")
    assert "gateway-explanation" not in head


GRAPH = """
models:
  twice:
    inputs: {theta: "FP64 [-1, 2]"}
    steps:
      first: {model: science, inputs: {x: $theta}}
      second: {model: science, inputs: {x: {sum: [$theta, $theta]}}}
    outputs: {y: {sum: [$first, $second]}}
"""


async def test_of_a_graph_each_step_has_its_tensors() -> None:
    body = json.dumps({"inputs": [{"name": "theta", "datatype": "FP64", "shape": [1, 2], "data": [1, 2]}]}).encode()
    async with running(text=TEXT + GRAPH) as gateway:
        head, _ = await post(port(gateway, "http"), "/v2/models/twice/infer", body, "Gateway-Explain: 1")
    found = explanation(head)
    assert found["route"] == "models.twice"
    assert "inputs" not in found
    steps = {each["step"]: each for each in found["spans"] if each["name"] == "step"}
    assert steps["first"]["inputs"] == "x FP64[1,2] 1 2"
    assert steps["first"]["outputs"] == "y FP64[1,1] -5"
    assert (steps["second"]["inputs"], steps["second"]["route"]) == ("x FP64[1,2] 2 4", "science")
