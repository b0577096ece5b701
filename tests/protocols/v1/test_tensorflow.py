"""Messages of TensorFlow Serving, copied from its documentation and sources, read and written."""

import json
import math
from functools import partial

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, Status, refusal
from gateway.core.messages import Headers, Message
from gateway.core.models import ServerInfo, Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.requests import DEFAULT_TRANSLATE, Answer, Request, Response
from gateway.protocols.v1.schema import STATUS
from tests.protocols.v1.wire import FACES, LISTENER, TF_TARGET, V1, post, received
from tests.wires import Wires

TF = FACES["tensorflow"]

METADATA = (
    b'{"model_spec":{"name":"m","signature_name":"","version":"123"},"metadata":{"signature_def":{"signature_def":'
    b'{"serving_default":{"inputs":{"x":{"dtype":"DT_FLOAT","tensor_shape":{"dim":[{"size":"-1","name":""}],'
    b'"unknown_rank":false},"name":"x:0"}},"outputs":{"y":{"dtype":"DT_STRING","tensor_shape":{"dim":[],'
    b'"unknown_rank":false},"name":"y:0"}},"method_name":"tensorflow/serving/predict"}}}}}'
)
VERSIONS = (
    b'{"model_version_status":[{"version":"123","state":"AVAILABLE","status":{"error_code":"OK","error_message":""}},'
    b'{"version":"122","state":"END","status":{"error_code":"OK","error_message":""}}]}'
)


def read(body: bytes, operation: Operation = Operation.INFER, part: str = "", status: int = 200) -> Answer:
    request = Request(operation, "m", part=part)
    return V1.decode_response(Message(status=status, parts=(body,)), request, TF_TARGET)


def outputs(body: bytes) -> list[tuple[str, list[object]]]:
    answer = read(body)
    assert isinstance(answer, Response)
    return [(each.name, each.array.tolist()) for each in answer.outputs]


def test_predictions_in_its_layout() -> None:
    assert outputs(b'{\n    "predictions": [2.5, 3.0, 4.5\n    ]\n}') == [("", [2.5, 3.0, 4.5])]
    named = b'{\n    "predictions": [{"a": 1.0, "b_bytes": {"b64": "AAE="}}\n    ]\n}'
    assert outputs(named) == [("a", [1.0]), ("b_bytes", [b"\0\1"])]
    assert outputs(b'{\n    "outputs": [\n        [1.0]\n    ]\n}') == [("", [[1.0]])]
    assert outputs(b'{\n    "outputs": {"a": [1.0], "b": [[2], [3]]}\n}') == [("a", [1.0]), ("b", [[2], [3]])]
    [(_, [first, second, third])] = outputs(b'{"predictions": [NaN, Infinity, -Infinity]}')
    assert math.isnan(first)  # type: ignore[arg-type]
    assert (second, third) == (math.inf, -math.inf)


def test_metadata_both_ways() -> None:
    signature = Signature(
        (TensorSpec("x", Datatype.FP32, (-1,)),), (TensorSpec("y", Datatype.BYTES, ()),), name="m", versions=("123",)
    )
    assert read(METADATA, Operation.METADATA) == signature
    for face in FACES.values():
        asked = received(Message("GET", "/v1/models/m/metadata"), face)
        reply = face.encode_response(signature, face.decode_request(asked, LISTENER), DEFAULT_TRANSLATE)
        assert json.loads(bytes(reply.body)) == json.loads(METADATA)


@pytest.mark.parametrize(
    ("old", "new"), [(b"DT_FLOAT", b"DT_COMPLEX64"), (b'"unknown_rank":false', b'"unknown_rank":true')]
)
def test_tensors_that_have_no_specification_here_leave_their_side_unknown(old: bytes, new: bytes) -> None:
    found = read(METADATA.replace(old, new, 1), Operation.METADATA)
    assert isinstance(found, Signature)
    assert (found.inputs, [spec.name for spec in found.outputs]) == ((), ["y"])


def test_of_several_signatures_none_of_which_is_the_default_none_is_taken() -> None:
    document = json.loads(METADATA)
    definitions = document["metadata"]["signature_def"]["signature_def"]
    definitions["other"] = definitions["another"] = definitions.pop("serving_default")
    assert read(json.dumps(document).encode(), Operation.METADATA) == Signature(name="m", versions=("123",))


def test_invalid_metadata_is_refused() -> None:
    for body in (b"{}", b'{"model_spec":5,"metadata":5}'):
        with pytest.raises(DecodeError, match="signature_def"):
            read(body, Operation.METADATA)


def test_the_status_of_versions() -> None:
    assert read(VERSIONS, Operation.METADATA, STATUS) == Signature(name="m", versions=("123",))
    assert read(VERSIONS, Operation.MODEL_READY) is True
    assert read(VERSIONS.replace(b"AVAILABLE", b"LOADING"), Operation.MODEL_READY) is False
    resting = b'{"error":"Model with name m is not ready."}'
    assert read(resting, Operation.METADATA, STATUS, 503) == Signature(name="m")
    with pytest.raises(GatewayError, match="overloaded"):
        read(b'{"error":"overloaded"}', Operation.MODEL_READY, status=503)
    question = TF.decode_request(received(Message("GET", "/v1/models/m/versions/123"), TF), LISTENER)
    reply = TF.encode_response(True, question, DEFAULT_TRANSLATE)
    assert bytes(reply.body) == VERSIONS.partition(b",{")[0] + b"]}"


def test_how_it_answers_where_it_has_no_path() -> None:
    html = b"<html>404</html>"
    assert read(html, Operation.SERVER_METADATA, status=404) == ServerInfo("tensorflow", "")
    assert read(html, Operation.LIVE, status=404) is True
    for operation, status in ((Operation.SERVER_METADATA, 502), (Operation.LIVE, 500)):
        with pytest.raises(GatewayError) as caught:
            read(html, operation, status=status)
        assert caught.value.message == "<html>404</html>"
    with pytest.raises(DecodeError, match="status 204, expected 200"):
        read(b"", Operation.METADATA, status=204)


def test_another_gateway_is_known_by_its_header() -> None:
    asked = V1.decode_request(received(Message("GET", "/")), LISTENER)
    reply = V1.encode_response(True, asked, DEFAULT_TRANSLATE)
    question = Request(Operation.SERVER_METADATA)
    assert V1.decode_response(reply, question, TF_TARGET) == ServerInfo("gateway", "")
    bare = Message(headers=Headers(), parts=reply.parts, status=200)
    assert V1.decode_response(bare, question, TF_TARGET) == ServerInfo("kserve", "")


ERRORS = {
    Reason.INVALID_INPUT: 400,
    Reason.MODEL_NOT_FOUND: 404,
    Reason.TOO_LARGE: 429,
    Reason.INVALID_OUTPUT: 500,
    Reason.UNREACHABLE: 503,
    Reason.TIMEOUT: 504,
    Reason.ABORTED: 409,
}


@pytest.mark.parametrize("reason", ERRORS)
def test_errors_in_its_layout(reason: Reason) -> None:
    message = post("/v1/models/m:predict", b"", TF)
    reply = TF.encode_error(refusal(reason, 'a "b"'), None, message)
    assert (reply.status, bytes(reply.body)) == (ERRORS[reason], b'{\n    "error": "a \\"b\\""\n}')


def test_a_path_that_it_lacks_is_a_malformed_request() -> None:
    message = Message("POST", "/v1/models/m:foo")
    reply = TF.encode_error(refusal(Reason.METHOD_NOT_ALLOWED, "no"), None, message)
    assert (reply.status, bytes(reply.body)) == (400, b'{\n    "error": "Malformed request: POST /v1/models/m:foo"\n}')


PAGES = {
    "Express": (404, b"<pre>Cannot GET /v1/models/m</pre>"),
    "FastAPI": (404, b'{"detail":"Not Found"}'),
    "Flask": (404, b"<!doctype html>\n<title>404 Not Found</title>"),
    "Go": (404, b"404 page not found\n"),
    "nothing": (404, b""),
    "only POST": (405, b'{"detail":"Method Not Allowed"}'),
    "its own error": (404, b'{"error": "Not found"}'),
    "its own error, with the path": (404, b'{"error": "no route for GET /v1/models/m"}'),
    "TensorFlow Serving's error": (400, b'{"error": "Malformed request: GET /v1/models/m"}'),
    "its own 501": (501, b'{"error": "not implemented"}'),
}
"""The responses of web frameworks and handwritten servers to paths that the server lacks."""


async def only_predict(message: Message, status: int, page: bytes) -> Message:
    if message.path == "/v1/models/m:predict":
        return Message(headers=Headers(), parts=(b'{"predictions": [[3.0]]}',), status=200)
    return Message(headers=Headers(), parts=(page,), status=status)


@pytest.mark.parametrize("framework", PAGES)
async def test_a_server_that_has_only_predict_serves_clients_of_every_protocol(framework: str) -> None:
    status, page = PAGES[framework]
    wires = Wires(ONLY_PREDICT, server=partial(only_predict, status=status, page=page))
    reply = await wires.post("v2-rest", "/v2/models/m/infer", V2_REQUEST)
    assert json.loads(bytes(reply.body))["outputs"] == [
        {"name": "output0", "datatype": "FP64", "shape": [1, 1], "data": [3.0]}
    ]
    reply = await wires.post("umbridge", "/Evaluate", b'{"name": "m", "input": [[2.0]], "config": {}}')
    assert json.loads(bytes(reply.body)) == {"output": [[3.0]]}
    assert next(bytes(sent.body) for sent in wires.sent["server"] if sent.method == "POST") == b'{"instances":[[2.0]]}'
    reply = await wires.send("v2-rest", Message("GET", "/v2/models/m/ready"))
    assert reply.status != 200, "nobody knows"


@pytest.mark.parametrize("framework", PAGES)
async def test_a_declared_signature_describes_a_model_whose_server_has_only_predict(framework: str) -> None:
    status, page = PAGES[framework]
    wires = Wires(DECLARED, server=partial(only_predict, status=status, page=page))
    reply = await wires.send("v2-rest", Message("GET", "/v2/models/m"))
    assert reply.status == 200
    assert json.loads(bytes(reply.body))["inputs"] == [{"name": "x", "datatype": "FP64", "shape": [-1, 1]}]
    assert (await wires.send("v2-rest", Message("GET", "/v2/models/m/ready"))).status == 200


@pytest.mark.parametrize(
    ("status", "page"),
    [
        (404, b'{"error": "Model with name m does not exist."}'),  # KServe
        (404, b'{"error": "Could not find any versions of model m"}'),  # TensorFlow Serving
        (404, b'{"error": "Model with requested name is not found"}'),  # OpenVINO Model Server
        (404, b'{"error": "m is retired"}'),
    ],
)
async def test_a_declared_signature_does_not_hide_that_the_server_lacks_the_model(status: int, page: bytes) -> None:
    wires = Wires(DECLARED, server=partial(only_predict, status=status, page=page))
    for path in ("/v2/models/m", "/v2/models/m/ready"):
        assert (await wires.send("v2-rest", Message("GET", path))).status == 404


ONLY_PREDICT = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge]}]
backends: {server: {protocol: v1-rest, endpoints: ["server:1"]}}
routes: [{match: {model: "*"}, backend: server}]
"""
DECLARED = ONLY_PREDICT.replace(
    "backend: server}]",
    """backend: server, signature: {inputs: [{name: x, datatype: FP64, shape: [-1, 1]}],
    outputs: [{name: y, datatype: FP64, shape: [-1, 1]}]}}]""",
)
V2_REQUEST = b'{"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 1], "data": [2.0]}]}'


@pytest.mark.parametrize(
    ("status", "body", "expected", "text"),
    [
        (404, b'{"error":"Servable not found for request: Latest(m)"}', Status.NOT_FOUND, "Servable not found"),
        (400, b'{ "error": "JSON Parse error" }', Status.INVALID_ARGUMENT, "JSON Parse error"),
        (429, b'{"detail":"slow down"}', Status.RESOURCE_EXHAUSTED, "slow down"),
        (422, b'{"detail":[{"loc":["body"]}]}', Status.INVALID_ARGUMENT, '[{"loc":["body"]}]'),
        (400, b"Invalid HTTP request received.", Status.INVALID_ARGUMENT, "Invalid HTTP"),
        (503, b"", Status.UNAVAILABLE, "status 503 without a body"),
    ],
)
def test_errors_of_servers(status: int, body: bytes, expected: Status, text: str) -> None:
    with pytest.raises(GatewayError) as caught:
        read(body, status=status)
    assert caught.value.status is expected
    assert text in caught.value.message
