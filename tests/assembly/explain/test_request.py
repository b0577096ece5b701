"""What becomes of recorded requests: offline exactly the bytes that a gateway would send, and each stage's error."""

import json
from base64 import b64encode

import numpy as np
import pytest

from gateway.assembly.explain.recorded import RecordingError, arrive
from gateway.assembly.explain.request import Explanation, explain
from gateway.assembly.explain.text import explanation_lines
from gateway.assembly.registry import protocols
from gateway.core.operations import Operation
from gateway.core.protocol import HttpBinding, StreamBinding, Target
from gateway.core.requests import Request
from gateway.core.tensors import tensor
from tests.running_gateway import config_of, reference
from tests.wires import Wires, replying

TEXT = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest, v1-rest, umbridge, graphpipe, grps-rest]}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc, grps-grpc, tfs-grpc]}
  - {name: mip, bind: "tcp://127.0.0.1:0", protocols: [mip], model: point}
  - {name: brpc, bind: "tcp://127.0.0.1:0", protocols: [grps-brpc]}
backends:
  lab: {protocol: v2-rest, flavor: plain, endpoints: ["lab:1"]}
  science: {protocol: umbridge, endpoints: ["science:1"]}
routes:
  - match: {model: point}
    backend: lab
    rewrite: {model: renamed}
    translate: {cast: round, rename: {inputs: [{client: x, backend: a}]}}
    signature:
      inputs: [{name: a, datatype: FP32, shape: [-1, 2]}]
      outputs: [{name: y, datatype: FP32, shape: [-1, 2]}]
  - {match: {model: far}, backend: science}
  - {match: {model: same, protocol: v2-rest}, backend: lab}
"""
POINT = tensor("x", np.array([[0.1, 2.5]]))


async def test_a_body_without_its_length_is_noted() -> None:
    found = await explained(HEAD + b"\n" + b'{"inputs":[]}')
    assert any("with the header `Content-Length: 13` they are" in each for each in found.notes)


async def explained(
    data: bytes, protocol: str = "", path: str = "", *, send: bool = False, text: str = TEXT
) -> Explanation:
    config = config_of(text)
    return await explain(arrive(data, config, protocols(), protocol, "", path), config, protocols(), send=send)


def recorded(protocol: str, model: str = "point") -> tuple[bytes, str]:
    """A client's request for `model` as a file would hold it, and its path over gRPC."""
    spoken = protocols()[protocol]
    request = Request(Operation.INFER, model, inputs=(POINT,), protocol=protocol)
    message = spoken.encode_request(request, Target("gateway", "gateway:1"))
    body = b"".join(map(bytes, message.parts))
    if isinstance(spoken.binding, StreamBinding):
        return body, ""
    if not isinstance(spoken.binding, HttpBinding):
        return body, message.path
    path = f"{message.path}?{message.query}" if message.query else message.path
    if protocol == "graphpipe":
        path = f"/graphpipe/{model}"  # its messages name no model
    lines = [f"{message.method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {text}" for name, text in message.headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body, ""


@pytest.mark.parametrize("client", sorted(protocols()))
async def test_a_request_of_every_protocol_is_explained_up_to_the_bytes_for_the_backend(client: str) -> None:
    data, path = recorded(client)
    is_http = protocols()[client].transport == "http"
    found = await explained(data, "" if is_http else client, path)
    assert found.error is None
    assert (found.protocol, found.decision and found.decision.route) == (client, "point")
    (change,) = found.inputs
    assert change.after is not None
    assert (change.after.name, change.after.datatype, change.after.shape) == ("a", "FP32", (1, 2))
    assert change.cast is not None
    assert change.cast.error == pytest.approx(float(np.float32(0.1)) - 0.1)
    (call,) = found.calls
    assert (call.message.method, call.message.path) == ("POST", "/v2/models/renamed/infer")
    assert '"datatype":"FP32"' in call.message.beginning
    assert call.reply is None
    assert found.signature == "the route's `signature`"


async def test_offline_it_shows_the_bytes_that_a_gateway_sends() -> None:
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP64", "shape": [2], "data": [0.1, 2.5]}]})
    wires = Wires(TEXT, lab=replying(b"{}"), science=replying(b"{}"))
    await wires.post("v2-rest", "/v2/models/point/infer", body.encode())
    (sent,) = wires.sent["lab"]
    found = await explained(json.dumps({"path": "/v2/models/point/infer", "body": body}).encode())
    (call,) = found.calls
    assert call.message.beginning.encode() == bytes(sent.body)
    assert call.message.headers == tuple(sent.headers)


def request(model: str, name: str, *data: float) -> bytes:
    """A request in JSON, with rows of two numbers."""
    shape = [len(data) // 2, 2] if len(data) > 2 else [2]
    tensor = {"name": name, "datatype": "FP64", "shape": shape, "data": data}
    return json.dumps({"path": f"/v2/models/{model}/infer", "body": {"inputs": [tensor]}}).encode()


async def test_where_metadata_is_needed_it_says_so_and_stops() -> None:
    found = await explained(request("far", "x", 1, 2, 3, 4))
    assert found.signature.startswith("the backend's metadata, which would be asked for first")
    assert [(call.operation, call.message.path) for call in found.calls] == [("metadata", "/InputSizes")]
    assert found.error is None


async def test_sent_it_shows_every_call_and_the_reply() -> None:
    data = request("posterior", "input0", 1, 2, 3, 4)
    async with reference("umbridge", "posterior") as address:
        text = TEXT.replace("science:1", address).replace("model: far", "model: posterior")
        found = await explained(data, send=True, text=text)
    assert found.error is None
    assert found.signature == "the backend's metadata"
    assert [call.operation for call in found.calls] == ["metadata", "metadata", "metadata", "infer", "infer"]
    assert found.rows == 2
    for call in found.calls:
        assert call.reply is not None
        assert (call.reply.status, call.error) == (200, "")
        assert call.exchange is not None
    assert found.reply is not None
    assert '"shape":[2,1]' in found.reply.beginning
    assert dict(found.seconds).keys() == {"decode", "route", "backend", "encode"}


async def test_a_backend_that_cannot_be_reached_is_an_error_of_its_stage() -> None:
    found = await explained(request("point", "x", 1, 2), send=True, text=TEXT.replace("lab:1", "127.0.0.1:1"))
    assert found.error is not None
    assert (found.error.stage, found.error.status) == ("backend", "UNAVAILABLE")
    assert found.reply is not None
    assert found.reply.status == 503


HEAD = b"POST /v2/models/point/infer HTTP/1.1\nHost: x\n"
NO_INPUTS = b"Content-Length: 13\n\n" + b'{"inputs":[]}'
WRONG: dict[str, tuple[bytes, str, str]] = {
    "another path": (b"POST /v9 HTTP/1.1\nHost: x\n\n", "transport", "unknown path"),
    "another method": (HEAD.replace(b"POST", b"GET") + b"\n", "transport", "GET is not allowed"),
    "no host": (HEAD.replace(b"Host: x\n", b"") + b"\n", "transport", "no Host header"),
    "a body that has not ended": (HEAD + b"Content-Length: 9\n\n{}", "transport", "add the rest of the body"),
    "no JSON": (HEAD + b"Content-Length: 1\n\n{", "decode", ""),
    "no route": (HEAD.replace(b"point", b"nobody") + NO_INPUTS, "route", "unknown model"),
    "an input is missing": (HEAD + NO_INPUTS, "fit", "input 'x' is missing"),
}


@pytest.mark.parametrize(("data", "stage", "text"), WRONG.values(), ids=list(WRONG))
async def test_an_error_names_its_stage_and_has_the_reply_of_the_protocol(data: bytes, stage: str, text: str) -> None:
    found = await explained(data)
    assert found.error is not None
    assert found.error.stage == stage
    assert text in found.error.text
    assert found.reply is not None
    assert found.reply.status >= 400
    assert json.loads(found.reply.beginning)["error"]


@pytest.mark.parametrize(
    ("data", "protocol", "text"),
    [
        (b"nothing", "", "no request found: expected an HTTP request"),
        (b'{"inputs": []}', "", "inputs: Extra inputs are not permitted; a request in JSON has the keys protocol, "),
        (b'{"body": {}}', "", "a request over HTTP needs a `path`"),
        (b"\0", "v2-grpc", "a request over gRPC needs a method"),
        (b"\0", "mip", "a message of mip has a header of "),
        (b"\0", "v3", "no protocol 'v3'; expected "),
    ],
)
async def test_a_file_without_a_request_is_told(data: bytes, protocol: str, text: str) -> None:
    with pytest.raises(RecordingError) as failed:
        await explained(data, protocol)
    assert text in str(failed.value)


async def test_a_grpc_message_may_have_its_prefix_and_may_be_base64() -> None:
    data, path = recorded("v2-grpc")
    prefixed = b"\0" + len(data).to_bytes(4) + data
    document = json.dumps({"protocol": "v2-grpc", "path": path, "body_base64": b64encode(data).decode()}).encode()
    expected = await explained(data, "v2-grpc", path)
    for found in (await explained(prefixed, "v2-grpc", path), await explained(document)):
        assert found.calls[0].message == expected.calls[0].message


async def test_secrets_in_headers_are_not_shown() -> None:
    found = await explained(HEAD + b"Authorization: Bearer hidden\n" + NO_INPUTS)
    lines = "\n".join(explanation_lines(found))
    assert "hidden" not in lines
    assert "  authorization: ***\n" in lines


async def test_the_text_for_people() -> None:
    explanation = await explained(request("point", "x", 0.1, 2.5))
    (call,) = explanation.calls
    found = "\n".join(explanation_lines(explanation))
    for line in (
        "v2-rest over http at listener 'http'",
        "  pattern POST /v2/models/{model}/infer",
        "request: infer of model 'point'",
        "  point: matches",
        "  backend 'lab' (v2-rest): model 'renamed'",
        "  'x' FP64 [2] -> 'a' FP32 [1, 2]",
        "    FP64 to FP32: the largest error is 1.49012e-09, element 0: 0.1 became 0.10000000149011612",
        f"infer would be sent to lab:1 of backend 'lab': POST /v2/models/renamed/infer, {call.message.size} bytes",
    ):
        assert line in found.splitlines()


async def test_a_body_that_goes_on_as_it_came_is_named() -> None:
    body = b'{"inputs": [{"name": "x", "datatype": "FP64", "shape": [2], "data": [0.10, 2.5]}]}'
    head = b"POST /v2/models/%b/infer HTTP/1.1\nHost: a\nContent-Type: application/json\nContent-Length: %d\n\n"
    same = await explained(head % (b"same", len(body)) + body)
    sent = "message would be sent to lab:1 of backend 'lab': POST /v2/models/same/infer"
    line = f"{sent}, {len(body)} bytes, sent unchanged"
    assert line in "\n".join(explanation_lines(same)).splitlines()
    fitted = await explained(head % (b"point", len(body)) + body)
    assert "as it came" not in "\n".join(explanation_lines(fitted))
