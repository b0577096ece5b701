"""What becomes of recorded requests: offline exactly the bytes that a gateway would send, and each stage's error."""

import gzip
import json
from base64 import b64encode
from collections.abc import Callable

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
from tests.protocols.grps.brpc.recorded import META, PAYLOAD, joined
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
MORE = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}
backends:
  started:
    protocol: v2-rest
    servers: {engine: process, command: [model]}
    policies: [{rate_limit: {requests: 1, seconds: 1, redis: "redis://a"}}]
  found: {protocol: umbridge, discovery: {files: "/nowhere/*.txt"}}
  texts: {protocol: grps-rest, endpoints: ["texts:1"]}
  tensors: {protocol: v2-grpc, flavor: triton, endpoints: ["tensors:1"]}
  points: {protocol: umbridge, endpoints: ["points:1"]}
routes:
  - {match: {model: started}, backend: started}
  - {match: {model: found}, backend: found}
  - {match: {model: texts}, backend: texts}
  - {match: {model: count}, backend: tensors}
  - match: {model: rows}
    backend: points
    signature:
      inputs: [{name: x, datatype: FP64, shape: [-1, 2]}]
      outputs: [{name: y, datatype: FP64, shape: [-1, 1]}]
  - match: {model: made}
    backend: tensors
    fallback: [points]
    translate: {drop: [z], constants: [{name: scale, datatype: FP32, shape: [1], data: [0.5]}]}
    signature:
      inputs: [{name: x, datatype: FP64, shape: [-1, 2]}, {name: scale, datatype: FP32, shape: [1]}]
      outputs: [{name: y, datatype: FP64, shape: [-1, 1]}]
"""
POINT = tensor("x", np.array([[0.1, 2.5]]))


async def test_a_body_without_its_length_is_noted() -> None:
    found = await explained(HEAD + b"\n" + b'{"inputs":[]}')
    assert any("with the header `Content-Length: 13` they are" in each for each in found.notes)


async def explained(
    data: bytes, protocol: str = "", path: str = "", *, listener: str = "", send: bool = False, text: str = TEXT
) -> Explanation:
    config = config_of(text)
    return await explain(arrive(data, config, protocols(), protocol, listener, path), config, protocols(), send=send)


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
    "a body that is too large": (HEAD + b"Content-Length: 9999999999\n\n", "transport", "larger than limits.message"),
    "chunks that have not ended": (
        HEAD + b"Transfer-Encoding: chunked\n\n2\r\n{}",
        "transport",
        "before its last chunk",
    ),
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
    ("data", "protocol", "listener", "text"),
    [
        (b"nothing", "", "", "no request found: expected an HTTP request"),
        (b'{"path"', "", "", "no request found: expected an HTTP request"),
        (
            b'{"inputs": []}',
            "",
            "",
            "inputs: Extra inputs are not permitted; a request in JSON has the keys protocol, ",
        ),
        (b'{"body": {}}', "", "", "a request over HTTP needs a `path`"),
        (b'{"path": "/v2", "body_base64": "%"}', "", "", "body_base64: Only base64 data is allowed"),
        (b"\0", "v2-grpc", "", "a request over gRPC needs a method"),
        (b'{"path": "/a/B"}', "v2-grpc", "", "v2-grpc has no method '/a/B'; expected one of /inference.GRPCInference"),
        (b"\0", "mip", "", "a message of mip has a header of "),
        (b"\0", "v3", "", "no protocol 'v3'; expected "),
        (b"\0", "", "web", "no listener 'web'; expected http, grpc, mip, brpc"),
        (b"\0", "mip", "grpc", "listener 'grpc' does not accept mip"),
        (b"\0", "", "grpc", "listener 'grpc' does not accept a protocol over HTTP; `--protocol` names another one"),
        (
            b'{"path": "/v2/models/point/infer"}',
            "v1-rest",
            "",
            "POST /v2/models/point/infer is v2-rest at listener 'http', not v1-rest",
        ),
    ],
)
async def test_a_file_without_a_request_is_told(data: bytes, protocol: str, listener: str, text: str) -> None:
    with pytest.raises(RecordingError) as failed:
        await explained(data, protocol, listener=listener)
    assert str(failed.value).startswith(text)


@pytest.mark.parametrize(
    ("headers", "encode"),
    [
        (b"Content-Encoding: gzip\nContent-Length: %d\n\n", gzip.compress),
        (b"Transfer-Encoding: chunked\n\n", lambda body: b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)),
    ],
)
async def test_a_body_in_a_coding_or_in_chunks_is_read(headers: bytes, encode: Callable[[bytes], bytes]) -> None:
    body = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[2],"data":[1,2.5]}]}'
    coded = encode(body)
    head = HEAD + (headers % len(coded) if b"%" in headers else headers)
    found = await explained(head + coded)
    assert (found.error, found.received.beginning) == (None, body.decode())
    assert '"data":[1.0,2.5]' in found.calls[0].message.beginning


MIP = bytes.fromhex("0002000000000012010000010000000200000006") + b"[1, 2]"
GZIPPED = joined(META + bytes.fromhex("1802"), gzip.compress(PAYLOAD))
BROKEN = joined(META + bytes.fromhex("1802"), PAYLOAD)
"""The compression type is a part of the meta."""


@pytest.mark.parametrize(
    ("data", "protocol", "limits", "error"),
    [
        (MIP[:-1], "mip", "{}", "the message's header announces 18 bytes, but 17 follow; give the whole message"),
        (MIP, "mip", "{message: 10}", "18 bytes; limits.message is 10"),
        (MIP + b"abc", "mip", "{}", ""),
        (GZIPPED, "grps-brpc", "{}", "unknown model 'twice-1.0.0'"),
        (BROKEN, "grps-brpc", "{}", "the payload is not gzip data: "),
    ],
)
async def test_a_message_of_a_byte_stream_is_cut_and_decompressed(
    data: bytes, protocol: str, limits: str, error: str
) -> None:
    text = TEXT.replace("protocols: [mip]", f"protocols: [mip], limits: {limits}")
    found = await explained(data, protocol, text=text.replace("grps-brpc]", f"grps-brpc], limits: {limits}"))
    assert (found.error.text if found.error else "").startswith(error)
    assert (found.error is None) == (not error)
    assert found.notes == (("3 bytes behind the first message are not looked at",) if not error else ())


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


MADE = """
request: infer of model 'made' version '3'
  input 'x' FP64 [1, 2]
  input 'z' FP64 [1, 2]
  asks for the outputs 'y'
  parameter 'steps': 3
infer for model 'made' version '3' over v2-rest at listener 'http'
  started: model 'made' is not 'started'
  found: model 'made' is not 'found'
  texts: model 'made' is not 'texts'
  count: model 'made' is not 'count'
  rows: model 'made' is not 'rows'
  made: matches
  backend 'tensors' (v2-grpc): model 'made' version '3'
  fallback 'points' (umbridge): model ''
    refused: model 'made' has no version '3': backend 'points' (umbridge) has no versions like this; \
`rewrite: {version: ""}` on the route drops the client's version
  the gateway decodes messages because of backends.tensors.protocol
signature: the route's `signature`
inputs, before and after
  'x' FP64 [1, 2] -> unchanged
  'scale' FP32 [1]: added
  'z' FP64 [1, 2]: left out"""


async def test_the_text_has_what_is_added_left_out_and_refused() -> None:
    body = {
        "inputs": [{"name": name, "datatype": "FP64", "shape": [1, 2], "data": [1, 2]} for name in ("x", "z")],
        "outputs": [{"name": "y"}],
        "parameters": {"steps": 3},
    }
    found = await explained(json.dumps({"path": "/v2/models/made/versions/3/infer", "body": body}).encode(), text=MORE)
    lines = "\n".join(each for each in explanation_lines(found) if "times: " not in each)
    assert f"{MADE}\ninfer would be sent to tensors:1 of backend 'tensors': " in lines


OFFLINE = [
    ("started", "", ["policy rate_limit of started needs Redis, so this explanation leaves it out",
        "backend 'started': assumed server type 'plain'; the gateway would query the server",
        "backend 'started': only a running gateway starts its servers"]),
    ("found", "", ["backend 'found': only a running gateway discovers its endpoints"]),
    ("texts", "unknown: the gateway does not use the metadata of these servers, so tensors keep their datatypes", []),
]  # fmt: skip


@pytest.mark.parametrize(("model", "signature", "notes"), OFFLINE)
async def test_what_only_the_network_knows_is_assumed(model: str, signature: str, notes: list[str]) -> None:
    found = await explained(request(model, "x", 1, 2), text=MORE)
    assert found.error is None
    assert list(found.notes) == notes
    assert signature in found.signature


async def test_rows_of_which_each_is_a_call_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """None but the first is made, so none fails unseen."""
    found = await explained(request("rows", "x", *range(100)), text=MORE)
    assert (found.rows, len(found.calls)) == (50, 1)
    assert "  50 calls: the backend takes one row each; not all are shown" in list(explanation_lines(found))
    assert caplog.text == ""


async def test_what_the_gateway_answers_itself_takes_no_route() -> None:
    found = await explained(b'{"method": "GET", "path": "/v2/health/live"}')
    assert list(explanation_lines(found))[5:-1] == [
        "request: live of model ''",
        "live for no model over v2-rest at listener 'http'",
        "  the gateway answers this operation itself; it takes no route",
        "reply to the client: status 200, 13 bytes",
        "  content-type: application/json",
        '  {"live":true}',
    ]


def of_stream(count: int) -> tuple[bytes, str]:
    inputs = (tensor("n", np.array([[count]], np.int32)),)
    message = protocols()["v2-grpc"].encode_request(
        Request(Operation.STREAM, "count", inputs=inputs, protocol="v2-grpc"), Target("gateway", "gateway:1")
    )
    return bytes(message.body), message.path


async def test_a_stream_is_sent_and_its_first_responses_are_read() -> None:
    data, path = of_stream(20)
    offline = await explained(data, "v2-grpc", path, text=MORE)
    assert (offline.error, offline.reply, offline.calls[0].message.path) == (None, None, path)
    async with reference("v2-grpc", "count") as address:
        found = await explained(data, "v2-grpc", path, send=True, text=MORE.replace("tensors:1", address))
    assert found.error is None
    assert found.reply is not None
    assert found.reply.beginning.endswith("\\x0f\\x00\\x00\\x00")  # the sixteenth is 15


async def test_a_stream_that_fails_is_told() -> None:
    data, path = of_stream(20)
    found = await explained(data, "v2-grpc", path, send=True, text=MORE.replace("tensors:1", "127.0.0.1:1"))
    lines = list(explanation_lines(found))
    assert "  failed: connection refused" in lines
    error = "backend 'tensors' at 127.0.0.1:1: connection refused"
    assert f"error in stage backend: UNAVAILABLE (unreachable): {error}" in lines


async def test_a_reply_that_passes_as_it_came_is_shown() -> None:
    async with reference("v2-rest", "identity") as address:
        text = TEXT.replace("lab:1", address).replace("model: same", "model: identity")
        found = await explained(request("identity", "x", 1, 2), send=True, text=text)
    output = '{"name":"x","datatype":"FP64","shape":[2],"data":[1.0,2.0]}'
    answer = f'{{"model_name":"identity","model_version":"1","outputs":[{output}]}}'
    lines = [each for each in explanation_lines(found) if "times: " not in each]
    assert lines[-7:] == [
        "  its reply: status 200, 117 bytes",
        "  content-type: application/json",
        "  content-length: 117",
        f"  {answer}",
        "reply to the client: status 200, 117 bytes",
        "  content-type: application/json",
        f"  {answer}",
    ]


async def test_a_body_that_goes_on_as_it_came_is_named() -> None:
    body = b'{"inputs": [{"name": "x", "datatype": "FP64", "shape": [2], "data": [0.10, 2.5]}]}'
    head = b"POST /v2/models/%b/infer HTTP/1.1\nHost: a\nContent-Type: application/json\nContent-Length: %d\n\n"
    same = await explained(head % (b"same", len(body)) + body)
    sent = "message would be sent to lab:1 of backend 'lab': POST /v2/models/same/infer"
    line = f"{sent}, {len(body)} bytes, sent unchanged"
    assert line in "\n".join(explanation_lines(same)).splitlines()
    fitted = await explained(head % (b"point", len(body)) + body)
    assert "as it came" not in "\n".join(explanation_lines(fitted))
