"""TensorFlow Serving over gRPC: the stubs of `tensorflow-serving-api` in front, and a server with these stubs behind.

The same steps go to the server itself and through the gateway: what the client gets must be the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.assembly.registry import protocols
from gateway.client import Client
from gateway.core.datatypes import Datatype
from gateway.core.messages import Message
from gateway.core.protocol import ListenerSettings
from gateway.core.requests import Response, Translate
from gateway.core.tensors import Tensor
from tests.interop.exchanges import Listen, post
from tests.interop.tensorflow_serving import TensorFlowServing, array, asked

TFS = protocols()["tfs-grpc"]

CONFIG = """
listeners:
  - {{name: tensorflow, bind: "127.0.0.1:{tensorflow}", protocols: [tfs-grpc]}}
  - {{name: http, bind: "127.0.0.1:{http}", protocols: [v2-rest, umbridge]}}
reference:
  - {{protocol: v2-grpc, bind: "127.0.0.1:{v2}", models: [double, identity, classify]}}
backends:
  tensorflow: {{protocol: tfs-grpc, endpoints: ["{server}"]}}
  v2: {{protocol: v2-grpc, endpoints: ["127.0.0.1:{v2}"]}}
routes:
  - {{match: {{model: "v2-*"}}, rewrite: {{model: "{{1}}"}}, backend: v2}}
  - match: {{model: classify-flowers}}
    backend: tensorflow
    rewrite: {{model: flowers}}
    translate: {{payload: classify}}
  - {{match: {{model: "*"}}, backend: tensorflow}}
"""


@dataclass
class Site:
    """The addresses of a gateway: for clients of TensorFlow Serving, and for those of HTTP."""

    tensorflow: str
    http: str
    server: TensorFlowServing


@pytest.fixture(scope="module")
def site(listen: Listen, tensorflow_server: TensorFlowServing) -> Site:
    fronts = listen(CONFIG, server=tensorflow_server.address)
    return Site(fronts["tensorflow"], fronts["http"], tensorflow_server)


def predict(model: str, inputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"op": "Predict", "spec": {"name": model, **more.pop("spec", {})}, "inputs": inputs, **more}


X = array("DT_FLOAT", [1, 2], 1, 2.5)
FLOWERS: dict[str, Any] = {"spec": {"name": "flowers"}, "examples": [{"x": [1.0, 2.0]}, {"x": [0.5, -4.0]}]}
SIZE: dict[str, Any] = {**FLOWERS, "spec": {"name": "flowers", "signatureName": "size"}}
TASKS = [
    ["tensorflow/serving/classify", {"name": "flowers"}],
    ["tensorflow/serving/regress", {"name": "flowers", "signatureName": "size"}],
]

SAME = {
    "predict": predict("double", {"x": X}),
    "one element": predict("double", {"x": array("DT_FLOAT", [1, 1], 3)}),
    "a short list": predict("double", {"x": array("DT_FLOAT", [2, 2], 1, 2, **{"as": "list"})}),
    "nothing in the list": predict("double", {"x": array("DT_FLOAT", [2, 2])}),
    "no rows": predict("double", {"x": array("DT_FLOAT", [0, 2])}),
    "a version": predict("double", {"x": X}, spec={"version": "1"}),
    "a signature": predict("double", {"x": X}, spec={"signatureName": "triple"}),
    "the default signature": predict("double", {"x": X}, spec={"signatureName": "serving_default"}),
    "strings": predict("upper", {"text": array("DT_STRING", [2], "a", "z\xf6")}),
    "two inputs": predict("add_sub", {"a": array("DT_INT32", [2], 1, 2), "b": array("DT_INT32", [2], 10, -20)}),
    "output_filter": predict(
        "add_sub", {"a": array("DT_INT32", [1], 1), "b": array("DT_INT32", [1], 2)}, filter=["difference"]
    ),
    "classify": {"op": "Classify", **FLOWERS},
    "regress": {"op": "Regress", **SIZE},
    "a context": {"op": "Regress", **SIZE, "examples": [{}, {"x": [3.0, 4.0]}], "context": {"x": [1.0, 2.0]}},
    "multi": {"op": "MultiInference", **FLOWERS, "tasks": TASKS},
    "status": {"op": "GetModelStatus", "spec": {"name": "double", "version": "2"}},
    "no such signature": predict("double", {"x": X}, spec={"signatureName": "none"}),
    "no such label": predict("double", {"x": X}, spec={"versionLabel": "none"}),
    "no such output": predict("double", {"x": X}, filter=["z"]),
    "a missing input": predict("add_sub", {"a": array("DT_INT32", [1], 1)}),
    "no name": {"op": "Predict", "inputs": {"x": X}, "spec": {"signatureName": "s"}},
    "no examples": {"op": "Classify", **FLOWERS, "examples": []},
    "not a signature for this": {"op": "Classify", **SIZE},
    "no field": {"op": "GetModelMetadata", "spec": {"name": "double"}, "fields": []},
    "another field": {"op": "GetModelMetadata", "spec": {"name": "double"}, "fields": ["f"]},
    "a status of nothing": {"op": "GetModelStatus"},
}


@pytest.fixture(scope="module")
def results(site: Site) -> dict[str, tuple[Any, Any]]:
    """What the client gets of each step: from the server itself, and through the gateway."""
    direct = asked(site.server.address, *SAME.values())
    through = asked(site.tensorflow, *SAME.values())
    return {name: pair for name, *pair in zip(SAME, direct, through, strict=True)}  # type: ignore[misc]


@pytest.mark.parametrize("name", SAME)
def test_a_client_gets_the_same_as_without_the_gateway(results: dict[str, tuple[Any, Any]], name: str) -> None:
    direct, through = results[name]
    assert through == direct


def test_a_label_is_asked_for_and_the_version_that_answered_is_told(site: Site) -> None:
    step = predict("double", {"x": X}, spec={"versionLabel": "stable"})
    [direct], [through] = asked(site.server.address, step), asked(site.tensorflow, step)
    assert through == direct
    assert through["spec"]["version"] == "1"


def test_the_model_was_called_as_the_client_called_it(site: Site) -> None:
    before = len(site.server.requests())
    asked(site.tensorflow, SAME["classify"], SAME["regress"], SAME["multi"])
    called = [each for each in site.server.requests()[before:] if not each.startswith("Get")]
    assert called == ["Classify", "Regress", "MultiInference"]


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("DT_FLOAT", [0.5, -1.25]),
        ("DT_DOUBLE", [0.1, -1e300]),
        ("DT_INT8", [-128, 127]),
        ("DT_INT16", [-(2**15), 2**15 - 1]),
        ("DT_INT32", [-(2**31), 2**31 - 1]),
        ("DT_INT64", [-(2**63), 2**63 - 1]),
        ("DT_UINT8", [0, 255]),
        ("DT_UINT16", [0, 2**16 - 1]),
        ("DT_UINT32", [0, 2**32 - 1]),
        ("DT_UINT64", [0, 2**64 - 1]),
        ("DT_BOOL", [True, False]),
        ("DT_HALF", [1.0, -0.5]),
        ("DT_STRING", ["", "\x00\xff"]),
    ],
)
def test_each_data_type_goes_there_and_back(site: Site, dtype: str, values: list[Any]) -> None:
    steps = [
        predict(model, {"x": array(dtype, shape, *chosen)})
        for model in (f"echo_{dtype}", "v2-identity")
        for shape, chosen in (([2], values), ([], values[:1]), ([0, 3], []))
    ]
    found = [next(iter(each["outputs"].values())) for each in asked(site.tensorflow, *steps)]
    told = [(each["dtype"], each["shape"], each["values"]) for each in found]
    assert told == [(dtype, [2], values), (dtype, [], values[:1]), (dtype, [0, 3], [])] * 2


def test_replies_are_lists_as_those_of_the_server(site: Site) -> None:
    [found] = asked(site.tensorflow, predict("v2-double", {"x": array("DT_DOUBLE", [1, 2], 1, 2)}))
    assert found["outputs"]["y"]["member"] == "double_val"
    assert found["spec"] == {"name": "v2-double", "signature_name": "serving_default", "version": "1"}


def test_metadata_of_both_kinds_of_servers(site: Site) -> None:
    steps = [{"op": "GetModelMetadata", "spec": {"name": name}} for name in ("double", "v2-double")]
    tensorflow, v2 = asked(site.tensorflow, *steps)
    assert tensorflow["spec"] == {"name": "double", "version": "2"}
    definition = tensorflow["signatures"]["serving_default"]
    assert definition["method_name"] == "tensorflow/serving/predict"
    assert definition["inputs"]["x"]["dtype"] == "DT_FLOAT"
    assert definition["inputs"]["x"]["tensor_shape"]["dim"] == [{"size": "-1"}, {"size": "-1"}]
    assert v2["signatures"]["serving_default"]["outputs"]["y"]["dtype"] == "DT_DOUBLE"


def test_unknown_models_are_told_in_the_servers_words(site: Site) -> None:
    steps = [
        predict("none", {"x": X}),
        {"op": "GetModelStatus", "spec": {"name": "none"}},
        predict("double", {"x": X}, spec={"version": "9"}),
    ]
    for direct, through in zip(asked(site.server.address, *steps), asked(site.tensorflow, *steps), strict=True):
        assert through["error"]["code"] == direct["error"]["code"] == "NOT_FOUND"
        assert through["error"]["text"].startswith(direct["error"]["text"])


def test_the_list_of_models_cannot_be_replaced(site: Site) -> None:
    [found] = asked(site.tensorflow, {"op": "HandleReloadConfigRequest"})
    assert found["error"]["code"] == "UNIMPLEMENTED"
    assert "HandleReloadConfigRequest" in found["error"]["text"]


def test_health_by_the_names_that_the_server_has(site: Site) -> None:
    names = ("", "PredictionService", "ModelService", "tensorflow.serving.PredictionService", "Other")
    *known, unknown = asked(site.tensorflow, *({"op": "health", "service": name} for name in names))
    assert known == [[8, 1]] * 4
    assert unknown["error"]["code"] == "NOT_FOUND"


def test_a_client_of_v2_reaches_every_method(site: Site) -> None:
    def infer(model: str, **body: Any) -> Any:
        return post(site.http, f"/v2/models/{model}/infer", **body)

    x = {"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 0.5, -4]}
    status, reply = infer("double", inputs=[x], parameters={"signature_name": "triple"})
    assert (status, reply["outputs"][0]["data"], reply["model_version"]) == (200, [3, 6, 1.5, -12], "2")
    status, reply = infer("classify-flowers", inputs=[x])
    outputs = {each["name"]: each["data"] for each in reply["outputs"]}
    assert outputs == {"classes": ["setosa", "virginica"] * 2, "scores": [3, -3, -3.5, 3.5]}
    status, reply = infer("double", inputs=[x], parameters={"other": 7})
    assert status == 400
    assert "'other'" in reply["error"]


@st.composite
def arrays(draw: st.DrawFn) -> dict[str, Any]:
    """An array of any data type; floats are those that FP32 and FP16 hold."""
    dtype = draw(st.sampled_from([*TYPES]))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    count = prod(shape)
    if dtype == "DT_STRING":
        element: st.SearchStrategy[Any] = st.text(st.characters(max_codepoint=255), max_size=4)
    elif TYPES[dtype].kind in "iu":
        bounds = np.iinfo(TYPES[dtype])
        element = st.integers(int(bounds.min), int(bounds.max))
    elif TYPES[dtype].kind == "b":
        element = st.booleans()
    else:
        element = st.floats(width=16, allow_nan=False)
    return array(dtype, shape, *draw(st.lists(element, min_size=count, max_size=count)))


TYPES: dict[str, np.dtype[Any]] = {
    "DT_FLOAT": np.dtype("f4"), "DT_DOUBLE": np.dtype("f8"), "DT_HALF": np.dtype("f2"), "DT_BOOL": np.dtype("?"),
    **{f"DT_{name.upper()}": np.dtype(name) for name in ("int8", "int16", "int32", "int64")},
    **{f"DT_{name.upper()}": np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64")},
    "DT_STRING": np.dtype(object),
}  # fmt: skip


@settings(max_examples=2)
@given(st.lists(st.dictionaries(st.text(min_size=1, max_size=4), arrays(), max_size=3), min_size=60, max_size=60))
def test_what_the_stubs_write_is_read_and_what_is_written_they_read(given_inputs: list[dict[str, Any]]) -> None:
    written = asked("127.0.0.1:1", *({"op": "write", "spec": {"name": "m"}, "inputs": each} for each in given_inputs))
    replies = []
    for sent, message in zip(given_inputs, written, strict=True):
        path = "/tensorflow.serving.PredictionService/Predict"
        request = TFS.decode_request(Message(pattern=path, parts=(bytes.fromhex(message),)), ListenerSettings())
        found = {each.name: (list(each.shape), _values(each)) for each in request.inputs}
        assert found == {name: (each["shape"], each["values"]) for name, each in sent.items()}
        reply = TFS.encode_response(Response(request.inputs, "m"), request, Translate())
        replies.append({"op": "read", "message": b"".join(map(bytes, reply.parts)).hex()})
    for sent, told in zip(given_inputs, asked("127.0.0.1:1", *replies), strict=True):
        assert {name: (each["dtype"], each["shape"], each["values"]) for name, each in told.items()} == {
            name: (each["dtype"], each["shape"], each["values"]) for name, each in sent.items()
        }


def _values(tensor: Tensor) -> list[Any]:
    elements = tensor.array.reshape(-1).tolist()
    return [each.decode("latin-1") for each in elements] if tensor.datatype is Datatype.BYTES else elements


def test_the_client_for_python(site: Site) -> None:
    with Client(f"tfs-grpc://{site.server.address}") as server:
        found = server.infer("double", x=np.array([[1, 2.5]], np.float32))
        assert found["y"].tolist() == [[2.0, 5.0]]
        assert server.signature("double").versions == ("2",)
