"""tritonclient and the UM-Bridge client -> gateway -> the real Triton, MLServer and KServe, by REST."""

from __future__ import annotations

import base64
import json
import math
from struct import pack

import pytest

from tests.interop.exchanges import Addresses, Listen, call
from tests.interop.processes import Triton, V2Server
from tests.interop.real_clients import (
    SAMPLES,
    Step,
    doubles,
    elements,
    error_of,
    infer,
    packed,
    raw_of,
    tensor,
    tritonclient,
    umbridge,
)
from tests.interop.servers.functions import POSTERIOR
from tests.interop.servers.triton_models import repository
from tests.interop.servers.v2_models import TABLE

CONFIG = """
listeners:
  - {{name: triton, bind: "127.0.0.1:{triton}", protocols: [v2-rest, umbridge]}}
  - {{name: mlserver, bind: "127.0.0.1:{mlserver}", protocols: [v2-rest, umbridge]}}
  - {{name: kserve, bind: "127.0.0.1:{kserve}", protocols: [v2-rest, umbridge]}}
backends:
  triton: {{protocol: v2-rest, endpoints: ["{at_triton.http}"]}}
  mlserver: {{protocol: v2-rest, endpoints: ["{at_mlserver.http}"]}}
  kserve: {{protocol: v2-rest, endpoints: ["{at_kserve.http}"], flavor: kserve}}
routes:
  - {{match: {{listener: triton, header: {{x-check: "1"}}}}, backend: triton, check: full}}
  - {{match: {{listener: mlserver, header: {{x-check: "1"}}}}, backend: mlserver, check: full}}
  - {{match: {{listener: kserve, header: {{x-check: "1"}}}}, backend: kserve, check: full}}
  - match: {{listener: mlserver, model: base64}}
    backend: mlserver
    rewrite: {{model: undeclared}}
    translate: {{bytes: base64}}
  - {{match: {{listener: triton}}, backend: triton}}
  - {{match: {{listener: mlserver}}, backend: mlserver}}
  - {{match: {{listener: kserve}}, backend: kserve}}
"""
SERVERS = ("triton", "mlserver", "kserve")
WITHOUT_BF16 = ("mlserver", "kserve")
EXACT = {name: raw for name, raw in SAMPLES.items() if name != "BF16"}
AS_JSON: Step = {"binary_input": False, "binary_output": False}
SINGLE = tensor("x", "FP32", [1, 3], packed("f", 1, 2.5, -3))


@pytest.fixture(scope="module")
def fronts(listen: Listen, triton: Triton, mlserver: V2Server, kserve: V2Server) -> Addresses:
    return listen(CONFIG, at_triton=triton, at_mlserver=mlserver, at_kserve=kserve)


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def identity(datatype: str, raw: bytes, count: int = 2, **options: object) -> Step:
    """Under the one name that each server takes this datatype by."""
    model = "undeclared" if datatype == "BF16" else f"identity_{datatype}"
    return infer(model, tensor("INPUT0", datatype, [count], raw), **options)


def test_every_datatype_in_binary(fronts: Addresses, server: str, kind: str) -> None:
    results = tritonclient(fronts[server], kind, *(identity(name, raw) for name, raw in EXACT.items()))

    assert dict(zip(EXACT, map(raw_of, results), strict=True)) == EXACT
    assert all(result["outputs"][0]["binary"] for result in results)


def test_every_datatype_in_json(fronts: Addresses, server: str, kind: str) -> None:
    """MLServer and KServe refuse what this client sends itself: no Content-Type, or application/octet-stream."""
    steps = [identity(name, raw, **AS_JSON, outputs=["OUTPUT0"]) for name, raw in EXACT.items()]
    results = tritonclient(fronts[server], kind, *steps)

    assert dict(zip(EXACT, map(raw_of, results), strict=True)) == EXACT
    assert not any(result["outputs"][0]["binary"] for result in results)


def test_empty_tensors(fronts: Addresses, server: str, kind: str) -> None:
    results = tritonclient(fronts[server], kind, *(identity(name, b"", 0) for name in EXACT))

    assert [(result["outputs"][0]["shape"], raw_of(result)) for result in results] == [([0], b"")] * len(EXACT)


@pytest.mark.parametrize("server", WITHOUT_BF16, indirect=True)
def test_bf16_becomes_fp32_where_it_is_unknown(fronts: Addresses, server: str) -> None:
    (result,) = tritonclient(fronts[server], "sync", identity("BF16", b"\xcd\x3d\x80\x3f"))

    assert result["outputs"][0]["datatype"] == "FP32"
    assert raw_of(result) == packed("f", 0.10009765625, 1)


@pytest.mark.parametrize("form", ["q", "d"])
def test_a_large_tensor(fronts: Addresses, server: str, form: str) -> None:
    count, datatype = 200_000, {"q": "INT64", "d": "FP64"}[form]
    raw = pack(f"<{count}{form}", *(range(2**53 - count, 2**53) if form == "q" else (n / 7 for n in range(count))))
    (result,) = tritonclient(fronts[server], "sync", identity(datatype, raw, count))

    assert raw_of(result) == raw


NOT_FINITE = packed("d", math.inf, math.nan, -math.inf)


def test_what_json_cannot_carry(fronts: Addresses, server: str) -> None:
    """Exact where the server reads binary tensors; else refused by the gateway, which says what would help."""
    numbers, texts = tritonclient(
        fronts[server], "sync", identity("FP64", NOT_FINITE, 3), identity("BYTES", elements(b"\xff"), 1)
    )
    if server == "mlserver":
        assert "'INPUT0': element 0 is inf, for which JSON has no number" in error_of(numbers)[1]
        assert "'INPUT0' holds bytes that are not UTF-8" in error_of(texts)[1]
        assert "translate.bytes: base64" in error_of(texts)[1]
        return
    assert raw_of(numbers) == NOT_FINITE
    if server == "kserve":  # it reads binary strings as text, too
        assert error_of(texts)[0] == "500"
    else:
        assert raw_of(texts) == elements(b"\xff")


def test_mlserver_takes_any_bytes_as_base64(fronts: Addresses) -> None:
    raw = elements(b"\xff\0", b"")
    (result,) = tritonclient(fronts["mlserver"], "sync", infer("base64", tensor("t", "BYTES", [2, 1], raw)))

    assert raw_of(result) == raw


def test_what_mlserver_computes_that_is_not_finite_is_lost(fronts: Addresses, server: str) -> None:
    theta = doubles("theta", [2, 2], 101, 0, 0, -101)
    (result,) = tritonclient(fronts[server], "sync", infer("posterior", theta))

    if server == "mlserver":
        assert error_of(result)[0] == "502"
        assert "null" in error_of(result)[1]
    else:
        assert raw_of(result) == packed("d", -math.inf, math.inf)


def test_a_reply_that_is_read_holds_nothing_of_the_server(fronts: Addresses, server: str) -> None:
    given = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2.5, -3]}
    version = {"model_version": "1"} if server == "triton" else {}
    expected = {
        "model_name": "single",
        **version,
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [2.0, 5.0, -6.0]}],
    }
    for members in ({}, {"id": ""}, {"id": "request-7"}):
        status, headers, told = call(
            fronts[server], "/v2/models/single/infer", {**members, "inputs": [given]}, x_check="1"
        )
        assert (status, told) == (200, members | expected)
        assert not [name for name in headers if name.startswith("ce-")]


def test_kserve_models_that_answer_in_json_whatever_they_are_asked(fronts: Addresses) -> None:
    """They answer 500 to a request without an id."""
    data = tensor("INPUT0", "BYTES", [1], elements(b"text"))
    without, chosen = tritonclient(
        fronts["kserve"], "sync", infer("upper", data), infer("upper", data, id="7", outputs=["OUTPUT0"])
    )

    assert (raw_of(without), "id" in without["response"]) == (elements(b"TEXT"), False)
    assert (raw_of(chosen), chosen["response"]["id"]) == (elements(b"TEXT"), "7")


@pytest.mark.parametrize("server", WITHOUT_BF16, indirect=True)
def test_parameters_reach_the_model(fronts: Addresses, server: str) -> None:
    parameters = {"k": 1, "f": 1.5, "b": True, "s": "é"}
    (result,) = tritonclient(fronts[server], "sync", infer("single", SINGLE, parameters=parameters))

    assert result["response"]["parameters"] == parameters


def test_requested_outputs(fronts: Addresses, server: str) -> None:
    (result,) = tritonclient(fronts[server], "aio", infer("single", SINGLE, outputs=["y"]))

    assert [output["name"] for output in result["outputs"]] == ["y"]
    assert raw_of(result) == packed("f", 2, 5, -6)


ERRORS = {
    "triton": {4: 400, 3: 404, 5: 503},
    "mlserver": {400: 400, 422: 422, 503: 503, 9: 500},
    "kserve": {1: 400, 2: 500, 3: 503, 4: 501, 9: 500},
}
OTHER_WORDS = {
    ("mlserver", 9): "Internal Server Error",
    ("kserve", 3): "Model with name refused with code 3 is not ready.",
    ("kserve", 9): "RuntimeError : refused with code 9",
}


def test_errors_of_models_in_the_form_of_v2(fronts: Addresses, server: str) -> None:
    for code, status in ERRORS[server].items():
        text = OTHER_WORDS.get((server, code), f"refused with code {code}")
        given = {"name": "code", "datatype": "INT32", "shape": [1], "data": [code]}
        answered, headers, told = call(fronts[server], "/v2/models/fail/infer", {"inputs": [given]})
        assert (answered, headers["content-type"], told) == (status, "application/json", {"error": text})


def test_a_model_that_is_not_there(fronts: Addresses, server: str, kind: str) -> None:
    asked = [{"op": op, "model": "nobody"} for op in ("metadata", "model_ready")]
    inferred, described, ready = tritonclient(fronts[server], kind, infer("nobody", SINGLE), *asked)

    assert [error_of(inferred)[0], error_of(described)[0], ready] == ["404", "404", False]


def test_what_the_server_refuses_of_the_request(fronts: Addresses) -> None:
    """A body of FastAPI's own, `{"detail": [..]}`, told as V2 tells it."""
    asked = infer("fail", tensor("code", "INT32", [1], packed("i", 422)), parameters={"content_type": 5})
    (result,) = tritonclient(fronts["mlserver"], "sync", asked)

    assert error_of(result) == ("400", "body.parameters.content_type: Input should be a valid string")


def test_what_the_models_are(fronts: Addresses, server: str, kind: str) -> None:
    asked = [{"op": op, "model": "single"} for op in ("model_ready", "metadata", "config")]
    ready, metadata, config, index = tritonclient(fronts[server], kind, *asked, {"op": "index"})

    # Triton has a configuration of its own; that of other servers is written from their metadata
    assert (ready, config["name"]) == (True, "single")
    assert ("backend" in config) is (server == "triton")
    assert {key: metadata[key] for key in ("name", "inputs", "outputs")} == {
        "name": "single",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
    }
    served = {
        "triton": {model.name for model in repository.TABLE},
        "mlserver": {model.name for model in TABLE} | {"base64"},
        "kserve": {model.name for model in TABLE if not (model.version or model.streams)},
    }
    assert {entry["name"] for entry in index} == served[server]


def test_a_model_that_declares_nothing(fronts: Addresses) -> None:
    for name in WITHOUT_BF16:
        _, _, told = call(fronts[name], "/v2/models/undeclared")
        assert (told["inputs"], told["outputs"], told["versions"]) == ([], [], [])


def test_versions(fronts: Addresses) -> None:
    data = tensor("x", "INT32", [1], packed("i", 7))
    served, listed = tritonclient(
        fronts["mlserver"], "sync", infer("versioned", data, version="v10"), infer("versioned", data, version="v9")
    )
    assert (raw_of(served), served["response"]["model_version"]) == (packed("i", 7), "v10")
    assert error_of(listed) == ("404", "Model versioned with version v9 not found")

    (none,) = tritonclient(fronts["kserve"], "sync", infer("single", SINGLE, version="1"))
    assert error_of(none)[0] == "404"
    assert "a KServe, which has no versions" in error_of(none)[1]
    (text,) = tritonclient(fronts["triton"], "sync", infer("single", SINGLE, version="v1"))
    assert error_of(text)[0] == "404"
    assert "a Triton, whose versions are integers" in error_of(text)[1]


# --- UM-Bridge in front ---


@pytest.mark.parametrize("server", WITHOUT_BF16, indirect=True)
def test_umbridge_in_front(fronts: Addresses, server: str) -> None:
    info, sizes, doubled, posterior, length, unknown = umbridge(
        f"http://{fronts[server]}",
        {"op": "info", "model": "double"},
        {"op": "sizes", "model": "double"},
        {"op": "evaluate", "model": "double", "input": [[0.1, 2.5, -3]]},
        {"op": "evaluate", "model": "posterior", "input": [[0.5, -1.5]]},
        {"op": "raw", "path": "/Evaluate", "body": '{"name": "double", "input": [[1]]}'},
        {"op": "raw", "path": "/Evaluate", "body": '{"name": "nobody", "input": [[1]]}'},
    )

    assert [word for word, claimed in info.items() if claimed] == ["Evaluate"]
    assert sizes == {"inputs": [3], "outputs": [3]}
    assert doubled == [[0.2, 5.0, -6.0]]
    assert posterior == POSTERIOR.evaluate([[0.5, -1.5]])
    assert (length["status"], json.loads(length["body"])["error"]["type"]) == (400, "InvalidInput")
    assert (unknown["status"], json.loads(unknown["body"])["error"]["type"]) == (400, "ModelNotFound")


@pytest.mark.parametrize("server", WITHOUT_BF16, indirect=True)
def test_umbridge_in_front_of_what_is_not_finite(fronts: Addresses, server: str) -> None:
    body = json.dumps({"name": "posterior", "input": [[0, 101]]})
    (reply,) = umbridge(f"http://{fronts[server]}", {"op": "raw", "path": "/Evaluate", "body": body})

    if server == "mlserver":
        assert json.loads(reply["body"])["error"]["type"] == "InvalidOutput"
    else:
        assert math.isnan(json.loads(reply["body"])["output"][0][0])


def test_outputs_keep_their_order_and_forms(fronts: Addresses) -> None:
    """Several outputs, of which strings are among numbers, from a server of each form."""
    given = [tensor("b", "BYTES", [1], elements(b"text")), tensor("a", "INT8", [2], b"\x80\x7f")]
    for name in WITHOUT_BF16:
        (result,) = tritonclient(fronts[name], "sync", infer("undeclared", *given))
        outputs = [(each["name"], each["datatype"], base64.b64decode(each["raw"])) for each in result["outputs"]]
        assert outputs == [("b", "BYTES", elements(b"text")), ("a", "INT8", b"\x80\x7f")]
