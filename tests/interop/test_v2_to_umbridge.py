"""tritonclient -> gateway -> the real UM-Bridge server: its models as tensors, its derivatives as companion models."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.interop.exchanges import Listen
from tests.interop.rawhttp import post
from tests.interop.real_clients import (
    FUNCTIONS,
    INPUTS,
    Step,
    doubles,
    elements,
    error_of,
    infer,
    operations,
    packed,
    raw_of,
    tensor,
    tritonclient,
)

CONFIG = """
listeners:
  - {{name: http, bind: "127.0.0.1:{http}", protocols: [v2-rest]}}
backends:
  science: {{protocol: umbridge, endpoints: ["{umbridge}"]}}
routes:
  - {{match: {{model: literal}}, backend: science, rewrite: {{model: posterior}}, translate: {{nan: literal}}}}
  - {{match: {{model: few}}, backend: science, rewrite: {{model: posterior}}, translate: {{max_rows: 3}}}}
  - {{match: {{model: "*"}}, backend: science}}
"""
SMOOTH = ("posterior", "double", "two")
DERIVATIVES = ("gradient", "apply_jacobian", "apply_hessian")
EXTRAS = {
    "gradient": ("out_wrt", "in_wrt", "sens"),
    "apply_jacobian": ("out_wrt", "in_wrt", "vec"),
    "apply_hessian": ("out_wrt", "in_wrt1", "in_wrt2", "sens", "vec"),
}

Ask = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def address(listen: Listen, umbridge_server: str) -> str:
    return listen(CONFIG, umbridge=umbridge_server)["http"]


@pytest.fixture
def ask(kind: str, address: str) -> Ask:
    """Runs steps in either client."""
    return partial(tritonclient, address, kind)


def numbers_of(result: Any) -> list[list[float]]:
    """Every output, flat."""
    assert "error" not in result, result
    flat = [base64.b64decode(output["raw"]) for output in result["outputs"]]
    return [list(struct.unpack(f"<{len(raw) // 8}d", raw)) for raw in flat]


def shapes_of(result: Any) -> list[list[int]]:
    return [output["shape"] for output in result["outputs"]]


# --- what the server serves ---


def test_health_and_readiness(ask: Ask) -> None:
    models = ("two", "two.gradient", "no_evaluate", "no_evaluate.gradient", "literal")
    others = ("nobody", "nobody.gradient", "no_evaluate.apply_hessian", "evaluate_only.gradient")
    live, ready, *found = ask(
        {"op": "live"}, {"op": "ready"}, *({"op": "model_ready", "model": model} for model in (*models, *others))
    )

    assert (live, ready) == (True, True)
    assert dict(zip((*models, *others), found, strict=True)) == {
        **dict.fromkeys(models, True),
        **dict.fromkeys(others, False),
    }


def test_the_index_lists_companions_where_the_model_claims_them(ask: Ask) -> None:
    (index,) = ask({"op": "index"})

    def with_companions(model: str, *claimed: str) -> list[str]:
        return [model, *(f"{model}.{operation}" for operation in claimed)]

    assert [entry["name"] for entry in index] == [
        *with_companions("literal", *DERIVATIVES),
        *with_companions("few", *DERIVATIVES),
        *(name for model in SMOOTH for name in with_companions(model, *DERIVATIVES)),
        "evaluate_only",
        *with_companions("no_evaluate", "gradient"),
        *("scaled", "crash", "wrong", "slow"),
    ]


def test_metadata(ask: Ask) -> None:
    models = ({"op": "metadata", "model": model} for model in ("two", "literal", "scaled", "nobody"))
    server, two, literal, scaled, unknown = ask({"op": "server_metadata"}, *models)

    assert server["name"] == "modelglot"
    assert two == {
        "name": "two",
        "versions": [],
        "platform": "umbridge",
        "inputs": [_spec("input0", 3), _spec("input1", 2)],
        "outputs": [_spec("output0", 2), _spec("output1", 1)],
    }
    assert (literal["name"], literal["inputs"]) == ("literal", [_spec("input0", 2)])
    assert scaled["inputs"] == [_spec("input0", 2)]  # that of the empty config
    assert error_of(unknown)[0] == "404"


def _spec(name: str, size: int, datatype: str = "FP64") -> dict[str, object]:
    return {"name": name, "datatype": datatype, "shape": [-1, size]}


def test_metadata_of_companions(ask: Ask) -> None:
    *companions, unclaimed = ask(
        *({"op": "metadata", "model": f"two.{operation}"} for operation in DERIVATIVES),
        {"op": "metadata", "model": "no_evaluate.apply_hessian"},
    )

    for operation, companion in zip(DERIVATIVES, companions, strict=True):
        assert companion["name"] == f"two.{operation}"
        inputs = {spec["name"]: (spec["datatype"], spec["shape"]) for spec in companion["inputs"]}
        assert list(inputs) == ["input0", "input1", *EXTRAS[operation]]
        assert {name: inputs[name] for name in inputs if "wrt" in name} == {
            name: ("INT64", [-1, 1]) for name in EXTRAS[operation] if "wrt" in name
        }
        assert [spec["name"] for spec in companion["outputs"]] == ["output"]
    assert error_of(unclaimed)[0] == "501"


def test_config_is_written_from_metadata(ask: Ask) -> None:
    """perf_analyzer ends without it."""
    *known, unknown = ask(*({"op": "config", "model": model} for model in ("two", "two.gradient", "literal", "nobody")))

    assert [each["name"] for each in known] == ["two", "two.gradient", "literal"]
    assert error_of(unknown)[0] == "404"


def test_versions_do_not_exist(ask: Ask) -> None:
    point = doubles("input0", [2], 1, 2)
    results = ask(infer("posterior", point, version="1"), {"op": "metadata", "model": "posterior", "version": "1"})

    assert [error_of(result)[0] for result in results] == ["404", "404"]
    assert "'posterior' has no version '1'" in error_of(results[0])[1]


# --- Evaluate ---


def in_json(outputs: int = 1) -> Step:
    """Inputs and outputs in JSON; without this both are binary."""
    return {"binary_input": False, "outputs": {f"output{at}": False for at in range(outputs)}}


def test_a_point_is_the_formula(ask: Ask) -> None:
    data = {
        model: [doubles(f"input{at}", [len(each)], *each) for at, each in enumerate(INPUTS[model])] for model in SMOOTH
    }
    binary = ask(*(infer(model, *data[model]) for model in SMOOTH))
    text = ask(*(infer(model, *data[model], **in_json(len(FUNCTIONS[model].output_sizes))) for model in SMOOTH))

    for results in (binary, text):
        assert [numbers_of(result) for result in results] == [FUNCTIONS[each].evaluate(INPUTS[each]) for each in SMOOTH]
        assert [shapes_of(result) for result in results] == [[[1]], [[3]], [[2], [1]]]
    assert [output["binary"] for result in (*binary, *text) for output in result["outputs"]] == [True] * 4 + [False] * 4


def test_a_batch_is_one_call_for_each_row(ask: Ask) -> None:
    counts = (0, 1, 3)
    batches = [[[[row + 0.5, -1.0, 2.0 * row], [3.0, row - 4.0]] for row in range(rows)] for rows in counts]
    inputs = [[_column(points, 0), _column(points, 1)] for points in batches]
    results = ask(*(infer("two", *pair, id="batch", **form) for form in ({}, in_json(2)) for pair in inputs))

    expected = [[FUNCTIONS["two"].evaluate(point) for point in points] for points in batches]
    columns = [[[number for value in values for number in value[at]] for at in (0, 1)] for values in expected]
    assert [numbers_of(result) for result in results] == columns * 2
    assert [shapes_of(result) for result in results] == [[[rows, 2], [rows, 1]] for rows in counts] * 2
    assert {result["response"]["id"] for result in results} == {"batch"}


def _column(points: list[list[list[float]]], at: int) -> Step:
    size = FUNCTIONS["two"].input_sizes[at]
    return doubles(f"input{at}", [len(points), size], *(number for point in points for number in point[at]))


def test_requested_outputs_come_alone_and_in_order(ask: Ask) -> None:
    data = [doubles(f"input{at}", [len(vector)], *vector) for at, vector in enumerate(INPUTS["two"])]
    one, swapped, unknown = ask(
        *(infer("two", *data, outputs=names) for names in (["output1"], ["output1", "output0"], ["output7"]))
    )

    first, second = FUNCTIONS["two"].evaluate(INPUTS["two"])
    assert numbers_of(one) == [second]
    assert numbers_of(swapped) == [second, first]
    assert (error_of(unknown)[0], "output7" in error_of(unknown)[1]) == ("400", True)


def test_compression(ask: Ask) -> None:
    rows = 50
    data = doubles("input0", [rows, 3], *range(3 * rows))
    codings: list[Step] = [{"request_compression": each, "response_compression": each} for each in ("gzip", "deflate")]
    results = ask(*(infer("double", data, **coding, **form) for coding in codings for form in ({}, in_json())))

    assert [raw_of(result) for result in results] == [packed("d", *(2 * number for number in range(3 * rows)))] * 4


def test_narrower_numbers_are_widened_where_that_is_exact(ask: Ask) -> None:
    given = (("FP32", packed("f", 1, 0.5, -2)), ("INT32", packed("i", 1, 2, 3)), ("INT64", packed("q", 1, 2, 3)))
    steps = [infer("double", tensor("input0", datatype, [3], raw)) for datatype, raw in given]
    widened, integers, refused = ask(*steps)

    assert (raw_of(widened), raw_of(integers)) == (packed("d", 2, 1, -4), packed("d", 2, 4, 6))
    assert error_of(refused)[0] == "400"
    assert all(word in error_of(refused)[1] for word in ("'input0'", "INT64", "FP64", "cast: round"))


def test_nan_and_infinities(ask: Ask) -> None:
    data = doubles("input0", [3, 2], 101, 0, 0, 101, 0, -101)
    binary, refused, literal = ask(
        infer("posterior", data), infer("posterior", data, **in_json()), infer("literal", data, **in_json())
    )

    for result in (binary, literal):
        beyond, diverged, overflown = numbers_of(result)[0]
        assert (beyond, math.isnan(diverged), overflown) == (-math.inf, True, math.inf)
    assert (error_of(refused)[0], "output 'output0': element 0 is -inf" in error_of(refused)[1]) == ("400", True)


def test_config_is_a_parameter(ask: Ask) -> None:
    data = doubles("input0", [3], 1, 2, 3)
    two = doubles("input0", [2], 1, 2)
    scaled, plain, text, other = ask(
        infer("scaled", data, parameters={"config": '{"n": 3, "scale": 2.5}'}),
        infer("scaled", two, parameters={"config": "{}"}),
        infer("scaled", two, parameters={"config": "n=3"}),
        infer("scaled", two, parameters={"n": 3}),
    )

    assert (numbers_of(scaled), numbers_of(plain)) == ([[2.5, 5, 7.5]], [[1, 2]])
    assert (error_of(text)[0], "'config'" in error_of(text)[1]) == ("400", True)
    assert (error_of(other)[0], "'n'" in error_of(other)[1]) == ("400", True)


def test_companions_are_the_formulas(ask: Ask) -> None:
    expected = [(step, value) for model in SMOOTH for step, value in operations(model) if step["op"] != "evaluate"]
    results = ask(*(_companion(step) for step, _value in expected))

    assert [numbers_of(result) for result in results] == [[value] for _step, value in expected]
    names = [f"{step['model']}.{step['op']}" for step, _value in expected]
    assert [result["response"]["model_name"] for result in results] == names


def _companion(step: Step) -> Step:
    """A step of the UM-Bridge client as the inference that means the same."""
    inputs = [doubles(f"input{at}", [len(vector)], *vector) for at, vector in enumerate(step["input"])]
    indices = [tensor(name, "INT64", [1], packed("q", step[name])) for name in step if "wrt" in name]
    vectors = [doubles(name, [len(step[name])], *step[name]) for name in ("sens", "vec") if name in step]
    return infer(f"{step['model']}.{step['op']}", *inputs, *indices, *vectors)


def test_a_batch_of_derivatives(ask: Ask) -> None:
    """One index holds for all rows, and left out it means 0."""
    points, sens = [[0.5, -1.5], [1.0, 2.0]], [[2.0], [3.0]]
    theta = doubles("input0", [2, 2], *points[0], *points[1])
    weights = doubles("sens", [2, 1], *sens[0], *sens[1])
    zero = packed("q", 0)
    indices = [tensor(name, "INT64", [1], zero) for name in ("out_wrt", "in_wrt")]
    results = ask(
        infer("posterior.gradient", theta, weights),
        infer("posterior.gradient", theta, *indices, weights),
        infer("posterior.gradient", theta, tensor("in_wrt", "INT64", [2, 1], 2 * zero), weights),
    )

    gradients = [FUNCTIONS["posterior"].gradient(0, 0, [point], each) for point, each in zip(points, sens, strict=True)]
    assert [numbers_of(result) for result in results] == [[[*gradients[0], *gradients[1]]]] * 3
    assert shapes_of(results[0]) == [[2, 2]]


def test_wrong_inputs(ask: Ask) -> None:
    good = doubles("input0", [3], 1, 2, 3)
    index = tensor("out_wrt", "INT64", [1], packed("q", 9))
    steps = {
        "'input1' has shape [3]": infer("two", good, doubles("input1", [3], 1, 2, 3)),
        "'input1' is missing": infer("two", good),
        "unknown input 'theta'": infer("double", {**good, "name": "theta"}),
        "[1, 1, 3]": infer("double", {**good, "shape": [1, 1, 3]}),
        "[4]": infer("double", doubles("input0", [4], 1, 2, 3, 4)),
        "3 rows": infer("two", doubles("input0", [2, 3], *range(6)), doubles("input1", [3, 2], *range(6))),
        "the route allows 3": infer("few", doubles("input0", [4, 2], *range(8))),
        "BYTES": infer("double", tensor("input0", "BYTES", [3], 3 * elements(b"1"))),
        "'out_wrt' is 9": infer("posterior.gradient", doubles("input0", [2], 1, 2), index, doubles("sens", [1], 1)),
    }
    results = ask(*steps.values())

    assert [error_of(result)[0] for result in results] == ["400"] * len(steps)
    missing = [
        (text, error_of(each)[1]) for text, each in zip(steps, results, strict=True) if text not in error_of(each)[1]
    ]
    assert missing == []


def test_unknown_names_and_what_is_not_claimed(ask: Ask) -> None:
    point = doubles("input0", [1], 1)
    one, hessian = doubles("sens", [1], 1), doubles("vec", [1], 1)
    unknown, unknown_companion, unclaimed, evaluate = ask(
        infer("nobody", point),
        infer("nobody.gradient", point, one),
        infer("evaluate_only.apply_hessian", point, one, hessian),
        infer("no_evaluate", *(doubles(f"input{at}", [len(each)], *each) for at, each in enumerate(INPUTS["two"]))),
    )

    statuses = [error_of(result)[0] for result in (unknown, unknown_companion, unclaimed, evaluate)]
    assert statuses == ["404", "404", "501", "501"]
    assert "nobody" in error_of(unknown)[1]
    assert "not supported" in error_of(evaluate)[1]


def test_errors_of_a_model(ask: Ask) -> None:
    crash, batch, wrong, after = ask(
        infer("crash", doubles("input0", [1], 1)),
        infer("crash", doubles("input0", [3, 1], 1, 2, 3)),
        infer("wrong", doubles("input0", [1], 1)),
        infer("double", doubles("input0", [3], 1, 2, 3)),
    )

    assert (error_of(crash)[0], "Traceback" in error_of(crash)[1]) == ("500", False)
    assert (error_of(batch)[0], error_of(batch)[1].startswith("row 0: ")) == ("500", True)
    assert error_of(wrong) == (
        "502",
        "Number of output vectors returned by model does not match number of model outputs declared by model!",
    )
    assert numbers_of(after) == [[2, 4, 6]]


@pytest.mark.parametrize(
    ("output", "parameter"), [({"classification": 1}, "classification"), ({"anything": "else"}, "anything")]
)
def test_parameters_of_outputs_are_not_lost_silently(address: str, output: dict[str, object], parameter: str) -> None:
    data = {"name": "input0", "datatype": "FP64", "shape": [2], "data": [1, 2]}
    document = {"inputs": [data], "outputs": [{"name": "output0", "parameters": output}]}
    reply = post(address, "/v2/models/posterior/infer", json.dumps(document).encode())

    assert (reply.status, parameter in reply.error) == (400, True)


def test_sixteen_clients_at_once(ask: Ask) -> None:
    """The server takes one call at a time; the others wait their turn."""
    steps = [infer("double", doubles("input0", [3], number, 0, 1), id=str(number)) for number in range(64)]
    results = ask(*steps, clients=16)

    assert [(result["response"]["id"], numbers_of(result)) for result in results] == [
        (str(number), [[2.0 * number, 0, 2]]) for number in range(64)
    ]
