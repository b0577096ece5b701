"""The real clients against the real servers, without a gateway: habits that the other tests build on. What a gateway
in front of the same servers is asked as well is not repeated here."""

from __future__ import annotations

import math

import pytest

from tests.interop.processes import Triton
from tests.interop.real_clients import (
    FUNCTIONS,
    INPUTS,
    SAMPLES,
    Step,
    doubles,
    infer,
    packed,
    raw_of,
    tensor,
    tritonclient,
    umbridge,
)
from tests.interop.servers.functions import POSTERIOR, Function
from tests.interop.servers.triton_models.repository import DATATYPES
from tests.peers.umbridge_cpp import Model, serve


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


AS_JSON: Step = {"binary_input": False, "binary_output": False, "outputs": ["OUTPUT0"]}


def test_triton_returns_in_json_what_json_can_hold(triton: Triton, kind: str) -> None:
    assert set(SAMPLES) == set(DATATYPES)
    samples = {name: raw for name, raw in SAMPLES.items() if name not in ("FP16", "BF16")}
    steps = [infer(f"identity_{name}", tensor("INPUT0", name, [2], raw), **AS_JSON) for name, raw in samples.items()]
    results = tritonclient(triton.http, kind, *steps)

    assert dict(zip(samples, map(raw_of, results), strict=True)) == samples
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
    (result,) = tritonclient(triton.http, "sync", infer("identity_FP64", tensor("INPUT0", "FP64", [2], raw), **AS_JSON))

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
