"""The real UM-Bridge client -> gateway -> the real Triton."""

from __future__ import annotations

from struct import pack, unpack
from typing import Any

import pytest

from tests.interop.exchanges import Listen, post
from tests.interop.processes import Triton
from tests.interop.real_clients import Step, operations, umbridge
from tests.interop.servers.functions import POSTERIOR
from tests.interop.servers.triton_models.repository import TABLE

CONFIG = """
listeners: [{{name: science, bind: "127.0.0.1:{http}", protocols: [umbridge]}}]
backends: {{triton: {{protocol: {protocol}, endpoints: ["{triton}"]}}}}
routes:
  # The model's own metadata leaves the length free.
  - match: {{model: pair}}
    backend: triton
    rewrite: {{model: add_sub}}
    signature:
      inputs: [{{name: INPUT0, datatype: INT32, shape: [2]}}, {{name: INPUT1, datatype: INT32, shape: [2]}}]
      outputs: [{{name: OUTPUT0, datatype: INT32, shape: [2]}}, {{name: OUTPUT1, datatype: INT32, shape: [2]}}]
  - {{match: {{model: last}}, backend: triton, rewrite: {{model: repeat}}, translate: {{stream: last}}}}
  - {{match: {{model: "*"}}, backend: triton}}
"""


@pytest.fixture(scope="module")
def url(listen: Listen, triton: Triton) -> str:
    return f"http://{listen(CONFIG, protocol='v2-rest', triton=triton.http)['http']}"


def test_models_and_what_they_offer(url: str) -> None:
    described = ("posterior", "single", "batched", "matrix", "pair")
    models, *infos = umbridge(
        url, {"op": "models"}, *({"op": what, "model": name} for name in described for what in ("info", "sizes"))
    )
    claimed = {
        name: [word for word, is_claimed in info.items() if is_claimed]
        for name, info in zip(described, infos[::2], strict=True)
    }

    companions = {f"posterior.{operation}" for operation in ("gradient", "apply_jacobian", "apply_hessian")}
    assert sorted(models) == sorted({"last", "pair", *(model.name for model in TABLE)} - companions)
    assert claimed == {
        "posterior": ["Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian"],
        **{name: ["Evaluate"] for name in described[1:]},
    }
    assert dict(zip(described, infos[1::2], strict=True)) == {
        "posterior": {"inputs": [2], "outputs": [1]},
        "single": {"inputs": [3], "outputs": [3]},
        "batched": {"inputs": [3], "outputs": [3]},
        "matrix": {"inputs": [6], "outputs": [6]},
        "pair": {"inputs": [2, 2], "outputs": [2, 2]},
    }


def test_all_four_operations_are_the_formulas(url: str) -> None:
    calls = operations("posterior")

    assert umbridge(url, *(step for step, _ in calls)) == [expected for _, expected in calls]


@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc"])
def test_a_model_that_only_streams_is_evaluated_where_the_route_makes_one_response_of_a_stream(
    listen: Listen, triton: Triton, protocol: str
) -> None:
    url = listen(CONFIG, protocol=protocol, triton=triton.http if protocol == "v2-rest" else triton.grpc)["http"]
    streams, last = (
        (post(url, "/ModelInfo", name=name), post(url, "/Evaluate", name=name, input=[[3]]))
        for name in ("repeat", "last")
    )

    assert streams[0][1]["support"]["Evaluate"] is False
    assert (streams[1][0], streams[1][1]["error"]["type"]) == (400, "UnsupportedFeature")
    assert last[0][1]["support"]["Evaluate"] is True
    assert last[1] == (200, {"output": [[2]]})


def single(number: float) -> float:
    """The nearest FP32."""
    (rounded,) = unpack("<f", pack("<f", number))
    assert isinstance(rounded, float)
    return rounded


def test_tensors_become_vectors(url: str) -> None:
    rounded, batched, matrix, pair, free = umbridge(
        url,
        {"op": "evaluate", "model": "single", "input": [[0.1, 1e-9, 16777217]]},
        {"op": "evaluate", "model": "batched", "input": [[1, 2, 3]]},
        {"op": "evaluate", "model": "matrix", "input": [[1, 2, 3, 4, 5, 6]]},
        {"op": "evaluate", "model": "pair", "input": [[5, 2.0], [1, 3]]},
        {"op": "evaluate", "model": "add_sub", "input": [[5, 2, 7], [1, 3, 9]]},
    )

    assert rounded == [[2 * single(0.1), 2 * single(1e-9), 33554432.0]]
    assert batched == [[2, 4, 6]]
    assert matrix == [[1, 4, 2, 5, 3, 6]]  # [2, 3] transposed to [3, 2]
    assert pair == [[6, 5], [4, -1]]
    assert free == [[6, 5, 16], [4, -1, -2]]


# --- Errors, as they are on the wire ---

AT = {"outWrt": 0, "inWrt": 0}

REFUSED: dict[str, tuple[str, str, dict[str, Any], str, str]] = {
    "unknown, ModelInfo": ("/ModelInfo", "nobody", {}, "ModelNotFound", "'nobody'"),
    "unknown, InputSizes": ("/InputSizes", "nobody", {}, "ModelNotFound", "'nobody'"),
    "unknown, Evaluate": ("/Evaluate", "nobody", {"input": [[1]]}, "ModelNotFound", "'nobody'"),
    "unknown, Gradient": ("/Gradient", "nobody", {**AT, "input": [[1]], "sens": [1]}, "ModelNotFound", "'nobody'"),
    "short": ("/Evaluate", "posterior", {"input": [[1]]}, "InvalidInput", "'theta' has length 1"),
    "long": ("/Evaluate", "matrix", {"input": [[1] * 7]}, "InvalidInput", "'x' has length 7"),
    "none": ("/Evaluate", "posterior", {"input": []}, "InvalidInput", "'theta'"),
    "two": ("/Evaluate", "posterior", {"input": [[1, 2], [3, 4]]}, "InvalidInput", "2 inputs given, expected 1"),
    "short, Gradient": ("/Gradient", "posterior", {**AT, "input": [[1]], "sens": [1]}, "InvalidInput", "'theta'"),
    "out of FP32": ("/Evaluate", "single", {"input": [[1, 1e39, 1]]}, "InvalidInput", "out of the range of FP32"),
    "not integral": ("/Evaluate", "pair", {"input": [[1, 2.5], [3, 4]]}, "InvalidInput", "2.5, is not integral"),
    "out of INT32": ("/Evaluate", "pair", {"input": [[1, 2**31], [3, 4]]}, "InvalidInput", "range of INT32"),
    "no numbers": ("/Evaluate", "upper", {"input": [[1]]}, "UnsupportedFeature", "is BYTES"),
    "free sizes": ("/InputSizes", "add_sub", {}, "InvalidInput", "`signature`"),
    "no companion": ("/Gradient", "single", {**AT, "input": [[1, 2, 3]], "sens": [1]}, "UnsupportedFeature", "single"),
}


@pytest.mark.parametrize(("path", "model", "body", "kind", "text"), REFUSED.values(), ids=REFUSED)
def test_refusals_have_the_form_of_umbridge(
    url: str, path: str, model: str, body: dict[str, Any], kind: str, text: str
) -> None:
    status, document = post(url, path, name=model, **body)
    message = document["error"]["message"]

    assert (status, document) == (400, {"error": {"type": kind, "message": message}})
    assert text in message


# What Triton's HTTP front makes of each code of its own is all that can be known: 1, 7 and 8 are a plain 400 there.
TOLD = {
    1: (400, "InvalidInput"),  # UNKNOWN
    2: (500, "ModelError"),  # INTERNAL
    3: (400, "ModelNotFound"),
    4: (400, "InvalidInput"),
    5: (503, "UpstreamUnavailable"),
    6: (400, "UnsupportedFeature"),
    7: (400, "InvalidInput"),  # ALREADY_EXISTS
    8: (400, "InvalidInput"),  # CANCELLED
}


def test_the_models_errors_are_told_in_its_words(url: str) -> None:
    answers = {code: post(url, "/Evaluate", name="fail", input=[[code]]) for code in TOLD}

    assert answers == {
        code: (status, {"error": {"type": kind, "message": f"refused with code {code}"}})
        for code, (status, kind) in TOLD.items()
    }
    assert post(url, "/Evaluate", name="fail", input=[[0]]) == (200, {"output": [[0]]})


def test_an_exception_is_told_without_paths_or_traceback(url: str) -> None:
    status, document = post(url, "/Evaluate", name="fail", input=[[9]])
    error = document["error"]

    assert (status, error["type"]) == (500, "ModelError")
    assert error["message"].endswith("RuntimeError: crashed with code 9")
    assert [mark for mark in ("Traceback", "File", ".py", "/", "\n") if mark in error["message"]] == []


def test_the_client_shows_the_errors(url: str) -> None:
    absent, length, unclaimed, crash = umbridge(
        url,
        {"op": "evaluate", "model": "nobody", "input": [[1]]},
        {"op": "evaluate", "model": "posterior", "input": [[1]]},
        {"op": "gradient", "model": "single", "out_wrt": 0, "in_wrt": 0, "input": [[1, 2, 3]], "sens": [1, 2, 3]},
        {"op": "evaluate", "model": "fail", "input": [[9]]},
    )

    assert "nobody not supported by server" in absent["error"]["text"]
    assert "InvalidInput" in length["error"]["text"]
    assert "'theta' has length 1" in length["error"]["text"]
    assert unclaimed["error"]["text"] == "Gradient not supported by model!"
    assert "ModelError" in crash["error"]["text"]
    assert "crashed with code 9" in crash["error"]["text"]


def test_parallel_clients_get_their_own_answers(url: str) -> None:
    """16 clients, each with points of its own, and an error between any two of them."""
    clients = [[evaluation(number / 8, -step) for step in range(6)] for number in range(16)]
    too_long = evaluation(0, 0, 0)
    spaced = [[each for step in steps for each in (step, too_long)] for steps in clients]
    (results,) = umbridge(url, {"op": "parallel", "clients": spaced})

    assert [answers[::2] for answers in results] == [
        [POSTERIOR.evaluate(step["input"]) for step in steps] for steps in clients
    ]
    errors = [error["error"]["text"] for answers in results for error in answers[1::2]]
    assert len(errors) == 16 * 6
    assert all("InvalidInput" in text for text in errors)


def evaluation(*theta: float) -> Step:
    return {"op": "evaluate", "model": "posterior", "input": [list(theta)]}
