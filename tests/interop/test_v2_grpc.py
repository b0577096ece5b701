"""tritonclient.grpc, sync and aio -> gateway -> the real umbridge server, Triton, MLServer and KServe: names, versions,
errors, questions, and tensors as large as the limits. The datatypes are in test_v2_grpc_datatypes.py."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping

import pytest

from tests.interop.exchanges import Addresses, Listen
from tests.interop.processes import Triton
from tests.interop.real_clients import (
    Step,
    doubles,
    error_of,
    infer,
    number,
    packed,
    raw_of,
    status_of,
    tensor,
    tritonclient,
    tritonclient_grpc,
)
from tests.interop.servers.functions import POSTERIOR
from tests.interop.servers.triton_models import repository
from tests.interop.servers.v2_models import TABLE
from tests.interop.v2_fronts import SERVERS, V2

ROUTES = """
  - {match: {model: first}, backend: triton, rewrite: {model: versioned, version: "1"}}
  - {match: {listener: mlserver, model: single}, backend: mlserver, check: full}
  - {match: {listener: kserve, model: single}, backend: kserve, check: full}
"""
TRITONS = ("triton", "by_rest")
LARGE = 2**26


@pytest.fixture(scope="module")
def fronts(in_front: Listen) -> Addresses:
    return in_front(ROUTES, LARGE + 4096)


@pytest.mark.parametrize("front", SERVERS)
def test_health(fronts: Addresses, front: str, kind: str) -> None:
    """Of an unknown model too, where KServe's NOT_FOUND and MLServer's UNKNOWN would make this client raise."""
    live, ready, server, known, unknown = tritonclient_grpc(
        fronts[front],
        kind,
        {"op": "live"},
        {"op": "ready"},
        {"op": "server_metadata"},
        {"op": "model_ready", "model": "posterior"},
        {"op": "model_ready", "model": "nobody"},
    )

    assert (live, ready, known, unknown) == (True, True, True, False)
    assert server["name"] == "modelglot"


def port(name: str, datatype: str, *shape: int) -> Step:
    """As protobuf's JSON has it: an int64 is a text."""
    return {"name": name, "datatype": datatype, "shape": list(map(str, shape))}


@pytest.mark.parametrize("front", V2)
def test_metadata_and_config(fronts: Addresses, front: str, kind: str) -> None:
    metadata, config, unknown = tritonclient_grpc(
        fronts[front],
        kind,
        {"op": "metadata", "model": "single"},
        {"op": "config", "model": "single"},
        {"op": "metadata", "model": "nobody"},
    )

    assert (metadata["name"], metadata["inputs"]) == ("single", [port("x", "FP32", -1, 3)])
    assert metadata["outputs"] == [port("y", "FP32", -1, 3)]
    assert config["config"]["name"] == "single"
    assert status_of(unknown) == "NOT_FOUND"


def test_metadata_of_umbridge(fronts: Addresses, kind: str) -> None:
    steps = [{"op": "metadata", "model": name} for name in ("two", "posterior.gradient")]
    two, gradient = tritonclient_grpc(fronts["umbridge"], kind, *steps)

    assert two["platform"] == "umbridge"
    assert two["inputs"] == [port("input0", "FP64", -1, 3), port("input1", "FP64", -1, 2)]
    assert two["outputs"] == [port("output0", "FP64", -1, 2), port("output1", "FP64", -1, 1)]
    assert [each["name"] for each in gradient["inputs"]] == ["input0", "out_wrt", "in_wrt", "sens"]


def test_the_repository_index(fronts: Addresses, kind: str) -> None:
    served = {
        "triton": {model.name for model in repository.TABLE},
        "mlserver": {model.name for model in TABLE},
        "umbridge": {"posterior", "posterior.gradient"},
    }
    for front, names in served.items():
        (index,) = tritonclient_grpc(fronts[front], kind, {"op": "index"})
        assert {entry["name"] for entry in index["models"]} >= names


@pytest.mark.parametrize("front", TRITONS)
def test_versions(fronts: Addresses, front: str, kind: str) -> None:
    data = number("x", 0)
    steps = [infer("versioned", data, version=version) for version in ("", "1", "2", "3", "abc")]
    latest, first, second, unknown, word, rewritten = tritonclient_grpc(
        fronts[front], kind, *steps, infer("first", data)
    )

    answers = [(raw_of(result), result["response"]["model_version"]) for result in (latest, first, second, rewritten)]
    assert answers == [(packed("i", number), str(number)) for number in (2, 1, 2, 1)]
    assert rewritten["response"]["model_name"] == "first"
    assert [status_of(result) for result in (unknown, word)] == ["NOT_FOUND"] * 2
    assert "a Triton, whose versions are integers, not 'abc'" in word["error"]["message"]


def test_versions_of_the_others(fronts: Addresses, kind: str) -> None:
    """KServe by itself answers whichever version it is asked for."""
    data = number("x", 7)
    served, listed = (infer("versioned", data, version=version) for version in ("v10", "v9"))
    known, unknown = tritonclient_grpc(fronts["mlserver"], kind, served, listed)
    (none,) = tritonclient_grpc(fronts["kserve"], kind, infer("double", doubles("x", [1, 3], 1, 2, 3), version="1"))

    assert (raw_of(known), known["response"]["model_version"]) == (packed("i", 7), "v10")
    assert error_of(unknown) == ("NOT_FOUND", "Model versioned with version v9 not found")
    assert status_of(none) == "NOT_FOUND"
    assert "a KServe, which has no versions" in none["error"]["message"]


@pytest.mark.parametrize("front", TRITONS)
def test_unknown_names(fronts: Addresses, front: str, kind: str) -> None:
    data = number("INPUT0", 0)
    model, unknown_input, unknown_output = tritonclient_grpc(
        fronts[front],
        kind,
        infer("nobody", data),
        infer("identity_INT32", {**data, "name": "other"}),
        infer("identity_INT32", data, outputs=["other"]),
    )

    assert [status_of(model), status_of(unknown_input)] == ["NOT_FOUND", "INVALID_ARGUMENT"]
    assert status_of(unknown_output) == "INVALID_ARGUMENT"
    assert "unexpected inference input 'other'" in unknown_input["error"]["message"]
    assert "unexpected inference output 'other'" in unknown_output["error"]["message"]


def test_outputs_id_and_parameters(fronts: Addresses, kind: str) -> None:
    inputs = [number("INPUT0", 5), number("INPUT1", 3)]
    given = {"text": "é", "integer": -(2**63), "number": 1.5, "flag": True}
    both, one, parameters = tritonclient_grpc(
        fronts["triton"],
        kind,
        infer("add_sub", *inputs),
        infer("add_sub", *inputs, outputs=["OUTPUT1"], id="request-7"),
        infer(
            "parameters", number("x", 0), parameters=given, headers={"x-secret": "1"}, priority=3, timeout=30_000_000
        ),
    )

    sums = [packed("i", 8), packed("i", 2)]
    assert [base64.b64decode(output["raw"]) for output in both["outputs"]] == sums
    assert [(output["name"], base64.b64decode(output["raw"])) for output in one["outputs"]] == [("OUTPUT1", sums[1])]
    assert (both["response"].get("id"), one["response"]["id"]) == (None, "request-7")
    assert raw_of(parameters)[4:].decode().count(":") == len(given)


@pytest.mark.parametrize("front", ["mlserver", "kserve"])
def test_replies_that_are_read_hold_nothing_of_the_server(fronts: Addresses, front: str, kind: str) -> None:
    step = infer("single", tensor("x", "FP32", [1, 3], packed("f", 1, 2.5, -3)))
    plain, named = tritonclient_grpc(fronts[front], kind, step, {**step, "id": "request-7", "outputs": ["y"]})

    output = port("y", "FP32", 1, 3)
    assert plain["response"] == {"model_name": "single", "outputs": [output]}
    assert named["response"] == {"model_name": "single", "id": "request-7", "outputs": [output]}
    assert raw_of(named) == packed("f", 2, 5, -6)


def test_umbridge_batches_and_derivatives(fronts: Addresses, kind: str) -> None:
    thetas, sens = [[0.5, -1.5], [2.0, 0.25]], [[2.0], [-3.0]]
    theta = doubles("input0", [2, 2], *thetas[0], *thetas[1])
    values, gradients, short = tritonclient_grpc(
        fronts["umbridge"],
        kind,
        infer("posterior", theta),
        infer("posterior.gradient", theta, doubles("sens", [2, 1], *sens[0], *sens[1])),
        infer("posterior", doubles("input0", [3], 1, 2, 3)),
    )

    assert raw_of(values) == packed("d", *(POSTERIOR.evaluate([each])[0][0] for each in thetas))
    rows = zip(thetas, sens, strict=True)
    expected = [partial for theta_, sens_ in rows for partial in POSTERIOR.gradient(0, 0, [theta_], sens_)]
    assert raw_of(gradients) == packed("d", *expected)
    assert status_of(short) == "INVALID_ARGUMENT"
    assert "'input0'" in short["error"]["message"]


OF_TRITON = {
    2: ("INTERNAL", "refused with code 2"),
    3: ("NOT_FOUND", "refused with code 3"),
    4: ("INVALID_ARGUMENT", "refused with code 4"),
    5: ("UNAVAILABLE", "refused with code 5"),
    6: ("UNIMPLEMENTED", "refused with code 6"),
}
ERRORS: Mapping[str, Mapping[int, tuple[str, str]]] = {
    "triton": OF_TRITON,
    "by_rest": OF_TRITON,
    "mlserver": {
        400: ("INVALID_ARGUMENT", "refused with code 400"),
        404: ("NOT_FOUND", "refused with code 404"),
        422: ("FAILED_PRECONDITION", "refused with code 422"),
    },
    "kserve": {1: ("INVALID_ARGUMENT", "refused with code 1"), 2: ("INVALID_ARGUMENT", "refused with code 2")},
}


@pytest.mark.parametrize("front", ERRORS)
def test_errors_of_a_model(fronts: Addresses, front: str, kind: str) -> None:
    results = tritonclient_grpc(fronts[front], kind, *(infer("fail", number("code", code)) for code in ERRORS[front]))

    assert dict(zip(ERRORS[front], map(error_of, results), strict=True)) == ERRORS[front]


def test_codes_that_rest_lacks(fronts: Addresses, kind: str) -> None:
    results = tritonclient_grpc(fronts["triton"], kind, *(infer("fail", number("code", code)) for code in (1, 7, 8)))

    assert list(map(status_of, results)) == ["UNKNOWN", "ALREADY_EXISTS", "CANCELLED"]


@pytest.mark.parametrize("front", V2)
def test_a_crash_shows_no_source(fronts: Addresses, front: str, kind: str) -> None:
    (crash,) = tritonclient_grpc(fronts[front], kind, infer("fail", number("code", 9)))

    assert status_of(crash) == "INTERNAL"
    assert not any(mark in crash["error"]["message"] for mark in ("Traceback", "model.py", "\n"))


def test_errors_of_umbridge(fronts: Addresses, kind: str) -> None:
    crash, wrong, unknown = tritonclient_grpc(
        fronts["umbridge"], kind, *(infer(name, doubles("input0", [1], 1)) for name in ("crash", "wrong", "nobody"))
    )

    assert [status_of(each) for each in (crash, wrong, unknown)] == ["INTERNAL", "INTERNAL", "NOT_FOUND"]


@pytest.mark.parametrize("front", [*TRITONS, "rest"])
def test_a_tensor_of_64_mib(fronts: Addresses, front: str) -> None:
    large = random.Random(1).randbytes(LARGE)
    client = tritonclient if front == "rest" else tritonclient_grpc
    (result,) = client(fronts[front], "sync", infer("identity_UINT8", tensor("INPUT0", "UINT8", [LARGE], large)))

    assert raw_of(result) == large


SMALL = """
listeners:
  - {{name: large, bind: "127.0.0.1:{large}", protocols: [v2-grpc]}}
  - {{name: small, bind: "127.0.0.1:{small}", protocols: [v2-grpc], limits: {{message: 100000}}}}
backends: {{triton: {{protocol: v2-grpc, endpoints: ["{triton}"], limits: {{message: 100000}}}}}}
routes: [{{match: {{model: "*"}}, backend: triton}}]
"""


def test_what_is_larger_than_a_limit_is_rejected(triton: Triton, listen: Listen, kind: str) -> None:
    fronts = listen(SMALL, triton=triton.grpc)
    step = infer("identity_UINT8", tensor("INPUT0", "UINT8", [150_000], bytes(150_000)))
    (request,) = tritonclient_grpc(fronts["small"], kind, step)
    (reply,) = tritonclient_grpc(fronts["large"], kind, step)

    assert status_of(request) == "RESOURCE_EXHAUSTED"
    assert "100000" in request["error"]["message"]
    assert status_of(reply) == "INTERNAL"
    assert "at most 100000 are allowed (limits.message)" in reply["error"]["message"]
