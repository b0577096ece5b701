"""The real clients against the real servers, without a gateway: the baseline, and the proof of the plumbing."""

from __future__ import annotations

import base64
import math
from pathlib import Path

import pytest

from tests.interop.processes import Triton
from tests.interop.real_clients import (
    FUNCTIONS,
    INPUTS,
    SAMPLES,
    Step,
    doubles,
    elements,
    infer,
    operations,
    packed,
    raw_of,
    tensor,
    tritonclient,
    umbridge,
)
from tests.interop.servers.functions import POSTERIOR, Function
from tests.interop.servers.triton_models.repository import DATATYPES
from tests.peers.umbridge_cpp import Model, serve

# --- UM-Bridge ---


def test_umbridge_lists_and_describes_its_models(umbridge_server: str) -> None:
    models, everything, gradient_only, sizes, scaled = umbridge(
        umbridge_server,
        {"op": "models"},
        {"op": "info", "model": "two"},
        {"op": "info", "model": "no_evaluate"},
        {"op": "sizes", "model": "two"},
        {"op": "sizes", "model": "scaled", "config": {"n": 5}},
    )

    names = ["posterior", "double", "two", "evaluate_only", "no_evaluate", "scaled", "crash", "wrong", "slow"]
    assert models == names
    assert set(everything.values()) == {True}
    assert [name for name, claimed in gradient_only.items() if claimed] == ["Gradient"]
    assert sizes == {"inputs": [3, 2], "outputs": [2, 1]}
    assert scaled == {"inputs": [5], "outputs": [5]}


@pytest.mark.parametrize("model", FUNCTIONS)
def test_umbridge_operations_are_the_formulas(umbridge_server: str, model: str) -> None:
    steps = operations(model)
    results = umbridge(umbridge_server, *(step for step, _expected in steps))

    assert results == [expected for _step, expected in steps]


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_the_formulas_are_each_others_derivatives(function: Function) -> None:
    """By central differences: the expected values of all other tests come from these formulas."""
    point = [0.3 + 0.4 * number for number in range(sum(function.input_sizes))]
    step = 1e-5
    for column in range(len(point)):
        above, below = ([x + sign * step * (i == column) for i, x in enumerate(point)] for sign in (1, -1))
        for row, (high, low) in enumerate(zip(function.value(above), function.value(below), strict=True)):
            assert function.jacobian(point)[row][column] == pytest.approx((high - low) / (2 * step), abs=1e-7)
            difference = [
                (up - down) / (2 * step)
                for up, down in zip(function.jacobian(above)[row], function.jacobian(below)[row], strict=True)
            ]
            assert [line[column] for line in function.hessian(point)[row]] == pytest.approx(difference, abs=1e-7)


def test_umbridge_config_reaches_the_model(umbridge_server: str, tmp_path: Path) -> None:
    released = tmp_path / "released"
    released.touch()
    results = umbridge(
        umbridge_server,
        {"op": "evaluate", "model": "scaled", "input": [[1, 2, 3]], "config": {"scale": 2.5, "n": 3}},
        {"op": "evaluate", "model": "slow", "input": [[4]], "config": {"file": str(released)}},
        {"op": "evaluate", "model": "slow", "input": [[4]], "config": {"seconds": 0.01}},
    )

    assert results == [[[2.5, 5.0, 7.5]], [[8]], [[8]]]


def test_umbridge_errors_are_those_of_the_package(umbridge_server: str) -> None:
    absent, unclaimed, length, shape, crash, raw = umbridge(
        umbridge_server,
        {"op": "evaluate", "model": "nobody", "input": [[1]]},
        {"op": "evaluate", "model": "no_evaluate", "input": INPUTS["two"]},
        {"op": "evaluate", "model": "double", "input": [[1]]},
        {"op": "evaluate", "model": "wrong", "input": [[1]]},
        {"op": "evaluate", "model": "crash", "input": [[1]]},
        {"op": "raw", "path": "/Evaluate", "body": '{"name": "crash", "input": [[1]]}'},
    )

    assert "nobody not supported by server" in absent["error"]["text"]
    assert unclaimed["error"]["text"] == "Evaluation not supported by model!"
    assert "InvalidInput" in length["error"]["text"]
    assert "InvalidOutput" in shape["error"]["text"]
    assert crash["error"]["type"] == "JSONDecodeError"  # the server's text/plain 500
    assert (raw["status"], raw["body"][:3]) == (500, "500")


@pytest.mark.parametrize(("theta", "text"), [([101, 0], "-inf"), ([0, 101], "nan"), ([0, -101], "inf")])
def test_the_umbridge_pair_cannot_carry_what_is_not_finite(umbridge_server: str, theta: list[float], text: str) -> None:
    evaluated, raw = umbridge(
        umbridge_server,
        {"op": "evaluate", "model": "posterior", "input": [theta]},
        {"op": "raw", "path": "/Evaluate", "body": f'{{"name": "posterior", "input": [{theta}]}}'},
    )

    assert evaluated["error"]["type"] == "JSONDecodeError"
    assert raw["body"] == f'{{"output": [[{text}]] }}'


def test_the_umbridge_client_accepts_the_cpp_habits() -> None:
    model = Model("nan", [2], [2], evaluate=lambda inputs, config: [[inputs[0][0], math.nan]])
    with serve([model]) as server:
        sizes, output, missing = umbridge(
            server.url,
            {"op": "sizes", "model": "nan"},
            {"op": "evaluate", "model": "nan", "input": [[18, 1]]},
            {"op": "gradient", "model": "nan", "out_wrt": 0, "in_wrt": 0, "input": [[1, 2]], "sens": [1, 2]},
        )

    assert sizes == {"inputs": [2], "outputs": [2]}
    assert output == [[18.0, None]]
    assert missing["error"]["text"] == "Gradient not supported by model!"
    assert server.connections == len(server.requests)  # this client opens a connection for each call


# --- Triton ---


NOT_IN_JSON = {"FP16", "BF16"}


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_triton_returns_every_datatype_in_binary(triton: Triton, kind: str) -> None:
    assert set(SAMPLES) == set(DATATYPES)
    steps = [infer(f"identity_{name}", tensor("INPUT0", name, [2], raw)) for name, raw in SAMPLES.items()]
    results = tritonclient(triton.http, kind, *steps)

    assert dict(zip(SAMPLES, map(raw_of, results), strict=True)) == SAMPLES
    assert all(result["outputs"][0]["binary"] for result in results)


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_triton_returns_in_json_what_json_can_hold(triton: Triton, kind: str) -> None:
    names = [name for name in SAMPLES if name not in NOT_IN_JSON]
    as_json: Step = {"binary_input": False, "binary_output": False, "outputs": ["OUTPUT0"]}
    steps = [infer(f"identity_{name}", tensor("INPUT0", name, [2], SAMPLES[name]), **as_json) for name in names]
    results = tritonclient(triton.http, kind, *steps)

    assert {name: raw_of(result) for name, result in zip(names, results, strict=True)} == {
        name: SAMPLES[name] for name in names
    }
    assert not any(result["outputs"][0]["binary"] for result in results)


def test_triton_refuses_half_floats_in_json(triton: Triton) -> None:
    data = tensor("INPUT0", "FP16", [2], SAMPLES["FP16"])
    refused_in, refused_out = tritonclient(
        triton.http,
        "sync",
        infer("identity_FP16", data, binary_input=False),
        infer("identity_FP16", data, binary_output=False, outputs=["OUTPUT0"]),
    )

    assert (refused_in["error"]["status"], refused_out["error"]["status"]) == ("400", "400")


def test_triton_writes_nan_literals_which_its_client_reads(triton: Triton) -> None:
    raw = packed("d", math.inf, -math.inf)
    as_json: Step = {"binary_input": False, "binary_output": False, "outputs": ["OUTPUT0"]}
    (result,) = tritonclient(triton.http, "sync", infer("identity_FP64", tensor("INPUT0", "FP64", [2], raw), **as_json))

    assert raw_of(result) == raw


def test_triton_posterior_and_its_companions_are_the_formulas(triton: Triton) -> None:
    theta = doubles("theta", [2, 2], 0.5, -1.5, 1, 2)
    zero = packed("q", 0)
    one_row = {name: tensor(name, "INT64", [1, 1], zero) for name in ("out_wrt", "in_wrt", "in_wrt1", "in_wrt2")}
    per_row = {name: tensor(name, "INT64", [2, 1], 2 * zero) for name in one_row}
    sens, vec = doubles("sens", [2, 1], 2, 3), doubles("vec", [2, 2], 1, 2, 3, 4)
    hessian = (one_row["out_wrt"], one_row["in_wrt1"], one_row["in_wrt2"], sens, vec)
    results = tritonclient(
        triton.http,
        "sync",
        infer("posterior", theta),
        infer("posterior.gradient", theta, one_row["out_wrt"], one_row["in_wrt"], sens),
        infer("posterior.gradient", theta, per_row["out_wrt"], per_row["in_wrt"], sens),
        infer("posterior.apply_jacobian", theta, one_row["out_wrt"], one_row["in_wrt"], vec),
        infer("posterior.apply_hessian", theta, *hessian),
    )

    rows = (([0.5, -1.5], [2.0], [1.0, 2.0]), ([1.0, 2.0], [3.0], [3.0, 4.0]))
    evaluated = [POSTERIOR.evaluate([point])[0] for point, _sens, _vec in rows]
    gradient = [POSTERIOR.gradient(0, 0, [point], sens) for point, sens, _vec in rows]
    jacobian = [POSTERIOR.apply_jacobian(0, 0, [point], vec) for point, _sens, vec in rows]
    applied = [POSTERIOR.apply_hessian(0, 0, 0, [point], sens, vec) for point, sens, vec in rows]
    expected = [evaluated, gradient, gradient, jacobian, applied]
    assert list(map(raw_of, results)) == [packed("d", *values[0], *values[1]) for values in expected]


def test_triton_refuses_an_index_of_another_rank_than_published(triton: Triton) -> None:
    index = {name: tensor(name, "INT64", [1], packed("q", 0)) for name in ("out_wrt", "in_wrt")}
    (result,) = tritonclient(
        triton.http,
        "sync",
        infer("posterior.gradient", doubles("theta", [1, 2], 1, 2), *index.values(), doubles("sens", [1, 1], 1)),
    )

    assert result["error"]["status"] == "400"
    assert "Expected [-1,1], got [1]" in result["error"]["message"]


def test_triton_other_models(triton: Triton) -> None:
    single, batched, added, upper, matrix, empty = tritonclient(
        triton.http,
        "aio",
        infer("single", tensor("x", "FP32", [1, 3], packed("f", 1, 2, 3))),
        infer("batched", tensor("x", "FP32", [2, 3], packed("f", *range(6))), response_compression="gzip"),
        infer("add_sub", *(tensor(f"INPUT{number}", "INT32", [2], packed("i", 5, number)) for number in (0, 1))),
        infer("upper", tensor("INPUT0", "BYTES", [2], elements(b"ab", b"\xffc")), request_compression="deflate"),
        infer("matrix", doubles("x", [1, 2, 3], *range(6))),
        infer("posterior", doubles("theta", [0, 2])),
    )

    assert raw_of(single) == packed("f", 2, 4, 6)
    assert raw_of(batched) == packed("f", 0, 2, 4, 6, 8, 10)
    assert [base64.b64decode(output["raw"]) for output in added["outputs"]] == [packed("i", 10, 1), packed("i", 0, -1)]
    assert raw_of(upper) == elements(b"AB", b"\xffC")
    assert (matrix["outputs"][0]["shape"], raw_of(matrix)) == ([1, 3, 2], packed("d", 0, 3, 1, 4, 2, 5))
    assert (empty["outputs"][0]["shape"], raw_of(empty)) == ([0, 1], b"")


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_triton_describes_itself(triton: Triton, kind: str) -> None:
    live, ready, server, index, known, unknown, metadata, config = tritonclient(
        triton.http,
        kind,
        {"op": "live"},
        {"op": "ready"},
        {"op": "server_metadata"},
        {"op": "index"},
        {"op": "model_ready", "model": "versioned", "version": "2"},
        {"op": "model_ready", "model": "nobody"},
        {"op": "metadata", "model": "batched"},
        {"op": "config", "model": "batched"},
    )

    assert (live, ready, known, unknown) == (True, True, True, False)
    assert server["version"] == "2.51.0"
    assert {entry["state"] for entry in index} == {"READY"}
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    assert (config["max_batch_size"], config["input"][0]["dims"]) == (8, [3])


def test_triton_versions(triton: Triton) -> None:
    data = tensor("x", "INT32", [1], packed("i", 0))
    latest, first, absent, echo = tritonclient(
        triton.http,
        "sync",
        infer("versioned", data),
        infer("versioned", data, version="1"),
        infer("versioned", data, version="3"),
        infer("versioned", data, id="request-7", parameters={"anything": "goes"}),
    )

    assert (raw_of(latest), latest["response"]["model_version"]) == (packed("i", 2), "2")
    assert (raw_of(first), first["response"]["model_version"]) == (packed("i", 1), "1")
    assert absent["error"]["status"] == "404"
    assert echo["response"]["id"] == "request-7"


def test_triton_errors(triton: Triton) -> None:
    steps = [infer("fail", tensor("code", "INT32", [1], packed("i", code))) for code in range(10)]
    fine, *failures, crash = tritonclient(triton.http, "sync", *steps)
    (unknown,) = tritonclient(triton.http, "sync", infer("nobody", doubles("x", [1], 1)))

    assert raw_of(fine) == packed("i", 0)
    statuses = [int(failure["error"]["status"]) for failure in failures]
    assert statuses == [400, 500, 404, 400, 503, 501, 400, 400]
    assert [failure["error"]["message"] for failure in failures] == [f"refused with code {n}" for n in range(1, 9)]
    assert crash["error"]["status"] == "500"
    assert "RuntimeError: crashed with code 9" in crash["error"]["message"]
    assert unknown["error"]["status"] == "404"
