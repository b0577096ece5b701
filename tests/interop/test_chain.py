"""UM-Bridge client -> gateway (-> V2, REST or gRPC -> gateway) -> UM-Bridge server: nothing may change on the way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.interop.exchanges import Listen, exchange, get, post
from tests.interop.processes import free_port
from tests.interop.real_clients import FUNCTIONS, INPUTS, Step, operations, umbridge

BACK = """
listeners:
  - {{name: both, bind: "127.0.0.1:{v2-rest}", protocols: [umbridge, v2-rest]}}
  - {{name: grpc, bind: "127.0.0.1:{v2-grpc}", protocols: [v2-grpc]}}
backends:
  science: {{protocol: umbridge, endpoints: ["{server}"]}}
  down: {{protocol: umbridge, endpoints: ["http://127.0.0.1:{down}"]}}
routes:
  - {{match: {{model: "down*"}}, backend: down}}
  - {{match: {{model: "*"}}, backend: science}}
"""
FRONT = """
listeners:
  - {{name: front, bind: "127.0.0.1:{front}", protocols: [umbridge]}}
  - {{name: any_size, bind: "127.0.0.1:{any_size}", protocols: [umbridge]}}
backends:
  tensors: {{protocol: {middle}, endpoints: ["{back}"]}}
  front_down: {{protocol: {middle}, endpoints: ["127.0.0.1:{down}"]}}
routes:
  - {{match: {{model: "front_down*"}}, backend: front_down}}
  # V2 metadata knows no config, so the sizes that depend on it are left to the server.
  - match: {{listener: any_size, model: "*"}}
    backend: tensors
    signature:
      inputs: [{{name: input0, datatype: FP64, shape: [-1, -1]}}]
      outputs: [{{name: output0, datatype: FP64, shape: [-1, -1]}}]
  - {{match: {{model: "*"}}, backend: tensors}}
"""
MIDDLES = ("v2-rest", "v2-grpc")


@dataclass(frozen=True)
class Row:
    """The addresses of the server, and of it behind one gateway, and behind two with either protocol between them."""

    server: str
    one: str
    two: Mapping[str, str]
    two_any_size: Mapping[str, str]
    down: int
    """The port of backends that are down."""


@pytest.fixture(scope="module")
def row(listen: Listen, umbridge_server: str) -> Row:
    down = free_port()
    back = listen(BACK, server=umbridge_server, down=down)
    fronts = {middle: listen(FRONT, middle=middle, back=back[middle], down=down) for middle in MIDDLES}
    two, any_size = ({middle: f"http://{fronts[middle][name]}" for middle in MIDDLES} for name in ("front", "any_size"))
    return Row(umbridge_server, f"http://{back['v2-rest']}", two, any_size, down)


@pytest.fixture(params=MIDDLES)
def middle(request: pytest.FixtureRequest) -> str:
    """What the two gateways speak with each other."""
    found: str = request.param
    return found


@pytest.fixture(params=["one", *MIDDLES])
def url(row: Row, request: pytest.FixtureRequest) -> str:
    """Behind one gateway, and behind two."""
    return row.two.get(request.param, row.one)


# --- The real client ---

MODELS = ("posterior", "double", "two", "evaluate_only", "no_evaluate", "scaled", "crash", "wrong", "slow")
ABOUT: tuple[Step, ...] = (
    {"op": "models"},
    *({"op": operation, "model": model} for model in MODELS for operation in ("info", "sizes")),
)
CALLS = [pair for model in FUNCTIONS for pair in operations(model)]
REFUSED: tuple[Step, ...] = (
    {"op": "info", "model": "nobody"},
    {"op": "evaluate", "model": "no_evaluate", "input": INPUTS["two"]},
    {"op": "evaluate", "model": "wrong", "input": [[1]]},
)
UNFIT_STEP: Step = {
    "op": "gradient", "model": "two", "out_wrt": 0, "in_wrt": 2, "input": INPUTS["two"], "sens": [1, 2]
}  # fmt: skip


@pytest.fixture(scope="module")
def direct(row: Row) -> list[Any]:
    return umbridge(row.server, *ABOUT, *REFUSED)


def test_the_client_sees_the_server(url: str, direct: list[Any]) -> None:
    *results, unfit = umbridge(url, *ABOUT, *REFUSED, *(step for step, _ in CALLS), UNFIT_STEP)

    assert results[: len(direct)] == direct
    assert results[len(direct) :] == [expected for _, expected in CALLS]
    assert unfit["error"]["text"].startswith("Model returned error of type InvalidInput: ")
    assert "2" in unfit["error"]["text"]  # in the words of the server, or of the gateway where it reads the call


def test_what_is_not_finite_arrives_as_floats(url: str) -> None:
    """The client and the server alone cannot do this."""
    thetas = [[101, 0], [0, 101], [0, -101]]
    results = umbridge(url, *({"op": "evaluate", "model": "posterior", "input": [theta]} for theta in thetas))
    below, nan, above = (result[0][0] for result in results)

    assert (below, above) == (-math.inf, math.inf)
    assert math.isnan(nan)


# --- The wire ---


def test_v2_metadata_says_that_only_a_derivative_can_be_inferred(row: Row) -> None:
    """Between gateways; else ModelInfo would claim an Evaluate that the server does not."""
    told = {name: get(row.one, f"/v2/models/{name}") for name in ("two", "no_evaluate", "no_evaluate.gradient")}

    assert {name: document.get("parameters") for name, (_, document) in told.items()} == {
        "two": None,
        "no_evaluate": {"gateway_infer": False},
        "no_evaluate.gradient": None,
    }


TWO = {"name": "two", "input": INPUTS["two"]}
AT = {**TWO, "outWrt": 0}
ONE = {"name": "evaluate_only", "input": [[1]], "outWrt": 0}
NOBODY = {"name": "nobody", "input": [[1]], "outWrt": 0}

# What the server itself raises: the gateways must neither notice it first nor say it in other words.
RAISED: dict[str, tuple[str, dict[str, Any]]] = {
    "no such model, of ModelInfo": ("/ModelInfo", NOBODY),
    "no such model, of InputSizes": ("/InputSizes", NOBODY),
    "no such model, of OutputSizes": ("/OutputSizes", NOBODY),
    "no such model, of Evaluate": ("/Evaluate", NOBODY),
    "no such model, of Gradient": ("/Gradient", {**NOBODY, "inWrt": 0, "sens": [1]}),
    "no such model, of ApplyJacobian": ("/ApplyJacobian", {**NOBODY, "inWrt": 0, "vec": [1]}),
    "no such model, of ApplyHessian": ("/ApplyHessian", {**NOBODY, "inWrt1": 0, "inWrt2": 0, "sens": [1], "vec": [1]}),
    "a name that paths must escape": ("/Evaluate", {**NOBODY, "name": "a/b c?d#e%2F\N{SNOWMAN}"}),
    "Evaluate is not claimed": ("/Evaluate", {**TWO, "name": "no_evaluate"}),
    "Gradient is not claimed": ("/Gradient", {**ONE, "inWrt": 0, "sens": [1]}),
    "ApplyJacobian is not claimed": ("/ApplyJacobian", {**ONE, "inWrt": 0, "vec": [1]}),
    "ApplyHessian is not claimed": ("/ApplyHessian", {**ONE, "inWrt1": 0, "inWrt2": 0, "sens": [1], "vec": [1]}),
    "the model's output": ("/Evaluate", {"name": "wrong", "input": [[1]]}),
}


@pytest.mark.parametrize(("path", "body"), RAISED.values(), ids=RAISED)
def test_an_error_is_the_servers(row: Row, url: str, path: str, body: dict[str, Any]) -> None:
    status, raised = post(row.server, path, **body)

    assert status >= 400
    found, told = post(url, path, **body)
    assert (found, told["error"]["type"]) == (status, raised["error"]["type"])
    if path == "/Evaluate":  # derivatives that a server does not claim are not sent to it
        assert told == raised


def test_a_crash_is_told_in_the_form_of_an_error(row: Row, url: str) -> None:
    """The server's answer to it is a text that its own client cannot read."""
    status, text = post(row.server, "/Evaluate", name="crash", input=[[1]])

    told = "the server's error is only 'Server got itself in trouble'; read the exception in the server's output"
    assert (status, text[:3]) == (500, "500")
    error = {"type": "ModelError", "message": told}
    assert post(url, "/Evaluate", name="crash", input=[[1]]) == (500, {"error": error})


# What a gateway refuses without asking the server: in its own words, but as the server would.
UNFIT: dict[str, tuple[str, dict[str, Any], str]] = {
    "a long input": ("/Evaluate", {"name": "double", "input": [[1, 2, 3, 4]]}, "'input0'"),
    "an empty input": ("/Evaluate", {"name": "double", "input": [[]]}, "'input0'"),
    "no inputs": ("/Evaluate", {"name": "double", "input": []}, "'input0'"),
    "two inputs": ("/Evaluate", {"name": "double", "input": [[1, 2, 3], [4]]}, "expected 1"),
    "the second input": ("/Gradient", {**AT, "input": [[1, 2, 3], [4]], "inWrt": 0, "sens": [1, 2]}, "'input1'"),
    "inputs of ApplyJacobian": ("/ApplyJacobian", {**AT, "input": [[1]], "inWrt": 0, "vec": [1, 2, 3]}, "expected 2"),
    "outWrt of Gradient": ("/Gradient", {**AT, "outWrt": 2, "inWrt": 0, "sens": [1, 2]}, "'out_wrt' is 2"),
    "inWrt of Gradient": ("/Gradient", {**AT, "inWrt": 2, "sens": [1, 2]}, "'in_wrt' is 2"),
    "a negative inWrt": ("/Gradient", {**AT, "inWrt": -1, "sens": [1, 2]}, "'in_wrt' is -1"),
    "sens of Gradient": ("/Gradient", {**AT, "inWrt": 0, "sens": [1, 2, 3]}, "'sens'"),
    "an empty sens": ("/Gradient", {**AT, "inWrt": 0, "sens": []}, "'sens'"),
    "outWrt of ApplyJacobian": (
        "/ApplyJacobian",
        {**AT, "outWrt": -1, "inWrt": 0, "vec": [1, 2, 3]},
        "'out_wrt' is -1",
    ),
    "inWrt of ApplyJacobian": ("/ApplyJacobian", {**AT, "inWrt": 9, "vec": [1, 2, 3]}, "'in_wrt' is 9"),
    "vec of ApplyJacobian": ("/ApplyJacobian", {**AT, "inWrt": 1, "vec": [1, 2, 3]}, "'vec'"),
    "inWrt1 of ApplyHessian": (
        "/ApplyHessian",
        {**AT, "inWrt1": 2, "inWrt2": 0, "sens": [1, 2], "vec": [1, 2, 3]},
        "'in_wrt1' is 2",
    ),
    "inWrt2 of ApplyHessian": (
        "/ApplyHessian",
        {**AT, "inWrt1": 0, "inWrt2": 2, "sens": [1, 2], "vec": [1, 2, 3]},
        "'in_wrt2' is 2",
    ),
}


@pytest.mark.parametrize(("path", "body", "what"), UNFIT.values(), ids=UNFIT)
def test_sizes_are_checked_by_the_gateway(row: Row, url: str, path: str, body: dict[str, Any], what: str) -> None:
    status, raised = post(row.server, path, **body)
    answered, error = post(url, path, **body)

    assert (answered, error["error"]["type"]) == (status, raised["error"]["type"]) == (400, "InvalidInput")
    assert what in error["error"]["message"]


def test_a_vector_that_the_server_does_not_check_is_checked_by_the_gateway(row: Row, url: str) -> None:
    """The package does not check the lengths of ApplyHessian's vectors before the model does."""
    body: dict[str, Any] = {**AT, "inWrt1": 0, "inWrt2": 0, "sens": [1, 2], "vec": [1]}

    assert post(row.server, "/ApplyHessian", **body)[0] == 500
    status, answer = post(url, "/ApplyHessian", **body)
    assert (status, answer["error"]["type"]) == (400, "InvalidInput")


CONFIGS: tuple[Any, ...] = (None, {}, {"scale": 2.5}, {"scale": -1e-3, "other": [{"key": 'é"'}, None, True, 10**20]})


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_config_reaches_the_model(row: Row, url: str, config: Any) -> None:
    """The server fails on null, which the gateway reads as no config."""
    body: dict[str, Any] = {"name": "scaled", "input": [[1, -2]]}
    given = post(url, "/Evaluate", **body, config=config)

    assert given == post(row.server, "/Evaluate", **body, config={} if config is None else config)
    assert given[0] == 200


def test_sizes_may_depend_on_the_config(row: Row, middle: str) -> None:
    body: dict[str, Any] = {"name": "scaled", "input": [[1, 2, 3]], "config": {"scale": 2.5, "n": 3}}
    direct = post(row.server, "/Evaluate", **body)

    assert direct == (200, {"output": [[2.5, 5.0, 7.5]]})
    assert post(row.one, "/Evaluate", **body) == direct
    assert post(row.two_any_size[middle], "/Evaluate", **body) == direct
    assert post(row.one, "/InputSizes", **body) == (200, {"inputSizes": [3]})
    assert post(row.one, "/OutputSizes", **body) == (200, {"outputSizes": [3]})


def test_doubles_are_the_same_behind_two_gateways(row: Row, middle: str) -> None:
    numbers = [5e-324, -0.0, 0.1, 1.7976931348623157e308, 2.0**53, -1.0]
    status, document = post(
        row.two_any_size[middle], "/Evaluate", name="scaled", input=[numbers], config={"n": len(numbers)}
    )

    assert (status, repr(document["output"])) == (200, repr([numbers]))


def test_inputs_need_not_be_finite(url: str) -> None:
    """The Python client refuses to send such numbers; Julia's does not."""
    assert post(url, "/Evaluate", name="evaluate_only", input=[[math.inf]]) == (200, {"output": [[math.inf]]})
    status, document = post(url, "/Evaluate", name="evaluate_only", input=[[math.nan]])
    assert (status, repr(document)) == (200, "{'output': [[nan]]}")


def test_a_backend_that_is_down_is_named_by_the_gateway_before_it(row: Row, url: str) -> None:
    assert_down(url, "down", f"http://127.0.0.1:{row.down}")


def test_a_v2_backend_that_is_down_is_named(row: Row, middle: str) -> None:
    assert_down(row.two[middle], "front_down", f"127.0.0.1:{row.down}")


def assert_down(url: str, backend: str, address: str) -> None:
    """For the model of the backend's name."""
    error = {"type": "UpstreamUnavailable", "message": f"backend '{backend}' at {address}: connection refused"}
    for path in ("/ModelInfo", "/InputSizes", "/Evaluate"):
        assert post(url, path, name=backend, input=[[1]]) == (503, {"error": error})


def test_large_vectors_pass(row: Row, middle: str) -> None:
    """Far more than a socket takes at once, in JSON and in binary."""
    numbers = [number / 7 for number in range(50_000)]
    body: dict[str, Any] = {"name": "scaled", "input": [numbers], "config": {"n": len(numbers), "scale": -3}}

    assert post(row.two_any_size[middle], "/Evaluate", **body) == (
        200,
        {"output": [[-3 * number for number in numbers]]},
    )


@pytest.mark.parametrize("body", ["", "{", "[]", '"text"', '{"name": 1, "input": []}', '{"input": []}'])
def test_what_crashes_the_server_is_refused(row: Row, url: str, body: str) -> None:
    crashed = exchange(row.server, "POST", "/Evaluate", body)
    status, document = exchange(url, "POST", "/Evaluate", body)

    assert crashed[0] >= 400
    assert (status, document["error"]["type"]) == (400, "InvalidInput")
