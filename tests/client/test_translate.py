"""Bytes to canonical values and back, without a server: each wire form by its literal bytes, in both directions."""

from contextlib import suppress
from struct import pack

import numpy as np
import pytest

from gateway.assembly.registry import protocols
from gateway.client import ModelEntry, translate
from gateway.client.translate import (
    Answer,
    DecodeError,
    GatewayError,
    Message,
    Operation,
    Reason,
    Request,
    Response,
    Status,
    decode_request,
    decode_response,
    encode_error,
    encode_request,
    encode_response,
    tensor,
)
from gateway.core.frozen import replace
from gateway.core.operations import CALLS

ONE_TWO, TWO_FOUR = pack("<2f", 1, 2), pack("<2f", 2, 4)
GRPS = b"\x12\x06double*\x14\n\x12\n\x01x\x10\x07\x1a\x01\x02R\x08" + ONE_TWO
GRPS_REPLY = b"\n\t\x08\xc8\x01\x12\x02OK\x18\x01\x12\x06double*\x14\n\x12\n\x01y\x10\x07\x1a\x01\x02R\x08" + TWO_FOUR
META = b"\n)\n\x1egrps.protos.v1.GrpsBrpcService\x12\x07Predict\x18\x00"
BRPC_GRPS = META + GRPS

REQUESTS = {
    "v2-rest": (
        b'{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1,2]}]}',
        {"path": "/v2/models/double/infer"},
    ),
    "v2-grpc": (
        b"\n\x06double*\x0c\n\x01x\x12\x04FP32\x1a\x01\x02:\x08" + ONE_TWO,
        {"path": "/inference.GRPCInferenceService/ModelInfer"},
    ),
    "v1-rest": (b'{"instances":[1.0,2.0]}', {"path": "/v1/models/double:predict"}),
    "umbridge": (b'{"name":"double","input":[[1.0,2.0]],"config":{}}', {"path": "/Evaluate"}),
    "grps-rest": (
        b'{"model":"double","gtensors":{"tensors":[{"name":"x","dtype":"DT_FLOAT32","shape":[2],'
        b'"flat_float32":[1.0,2.0]}]}}',
        {"path": "/grps/v1/infer/predict"},
    ),
    "grps-grpc": (GRPS, {"path": "/grps.protos.v1.GrpsService/Predict"}),
    "grps-brpc": (b"PRPC" + pack(">II", len(BRPC_GRPS), len(META)) + BRPC_GRPS, {}),
    "mip": (
        b"\x00\x02\x00\x00\x00\x00\x00\x1a\x01\x00\x00\x02"
        b"\x00\x00\x00\x02\x00\x00\x00\x031.0\x00\x00\x00\x02\x00\x00\x00\x032.0",
        {"model": "double"},
    ),
}
"""What a client sends to double the numbers 1 and 2, and where."""

RESPONSES = {
    "v2-rest": b'{"model_name":"double","outputs":[{"name":"y","datatype":"FP32","shape":[2],"data":[2.0,4.0]}]}',
    "v2-grpc": b"\n\x06double*\x0c\n\x01y\x12\x04FP32\x1a\x01\x022\x08" + TWO_FOUR,
    "v1-rest": b'{"predictions":[2.0,4.0]}',
    "umbridge": b'{"output":[[2.0,4.0]]}',
    "grps-rest": b'{"status":{"code":200,"msg":"OK","status":"SUCCESS"},"model":"double","gtensors":{"tensors":['
    b'{"name":"y","dtype":"DT_FLOAT32","shape":[2],"flat_float32":[2.0,4.0]}]}}',
    "grps-grpc": GRPS_REPLY,
    "grps-brpc": b"PRPC" + pack(">II", len(GRPS_REPLY) + 8, 8) + b"\x12\x02\x08\x00\x18\x00 \x00" + GRPS_REPLY,
    "mip": b"\x00\x02\x01\x00\x00\x00\x00\x1a\x01\x01\x00\x02"
    b"\x00\x00\x00\x02\x00\x00\x00\x032.0\x00\x00\x00\x02\x00\x00\x00\x034.0",
}
"""What it gets."""

CANONICAL = Request(Operation.INFER, "double", inputs=(tensor("x", np.array([1, 2], np.float32)),))
ANSWER = Response((tensor("y", np.array([2, 4], np.float32)),), "double")

WRITTEN_OTHERWISE = {"v2-rest"}
"""Towards servers tensors go in binary."""


def test_text_is_refused() -> None:
    with pytest.raises(TypeError, match="the body is text, expected bytes"):
        decode_request("umbridge", '{"name": "m"}', path="/Evaluate")  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", REQUESTS)
def test_a_client_s_bytes_are_read(protocol: str) -> None:
    body, where = REQUESTS[protocol]
    request = decode_request(protocol, body, **where)  # type: ignore[arg-type]
    (given,) = request.inputs
    assert (request.operation, request.model) == (Operation.INFER, "double")
    assert (given.array.tolist(), given.name or "x") == ([1.0, 2.0], "x")


@pytest.mark.parametrize("protocol", sorted(REQUESTS.keys() - WRITTEN_OTHERWISE))
def test_a_request_is_written_as_its_client_would(protocol: str) -> None:
    body, where = REQUESTS[protocol]
    message = encode_request(protocol, CANONICAL)
    assert bytes(message.body) == body
    assert message.path == where.get("path", "")


def test_a_request_to_a_v2_server_is_binary_and_to_mlserver_json() -> None:
    message = encode_request("v2-rest", CANONICAL)
    length = int(message.headers.get("inference-header-content-length"))
    assert bytes(message.body)[length:] == ONE_TWO
    assert b'"data":[1.0,2.0]' in bytes(encode_request("v2-rest", CANONICAL, flavor="mlserver").body)


@pytest.mark.parametrize("protocol", RESPONSES)
def test_a_server_s_bytes_are_read(protocol: str) -> None:
    answer = decode_response(protocol, RESPONSES[protocol], CANONICAL)
    assert isinstance(answer, Response)
    assert answer.outputs[0].array.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("protocol", RESPONSES)
@pytest.mark.parametrize("request_is_read", [True, False])
def test_an_answer_is_written_as_its_server_would(protocol: str, request_is_read: bool) -> None:
    """Also to a request that was made by hand, or came in another protocol."""
    body, where = REQUESTS[protocol]
    request = decode_request(protocol, body, **where) if request_is_read else CANONICAL  # type: ignore[arg-type]
    message = encode_response(protocol, ANSWER, request)
    assert bytes(message.body) == RESPONSES[protocol]
    assert message.status == (200 if protocols()[protocol].transport == "http" else 0)


@pytest.mark.parametrize("front", protocols())
@pytest.mark.parametrize("back", protocols())
def test_what_one_protocol_reads_another_one_writes(front: str, back: str) -> None:
    sent = encode_request(front, CANONICAL)
    where = {"path": sent.path, "headers": sent.headers, "model": "double"} if sent.path else {"model": "double"}
    request = decode_request(front, sent.body, **where)
    named = [replace(each, name="x") for each in request.inputs]  # several protocols have no names
    message = encode_request(back, replace(request, inputs=tuple(named)))
    where = {"path": message.path, "headers": message.headers} if message.path else {}
    back_again = decode_request(back, message.body, **where, model="double")  # type: ignore[arg-type]
    assert back_again.inputs[0].array.reshape(-1).tolist() == [1.0, 2.0]
    reply = encode_response(front, ANSWER, request)
    answer = decode_response(front, reply.body, request, headers=reply.headers)
    assert isinstance(answer, Response)
    assert answer.outputs[0].array.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("protocol", protocols())
def test_an_error_comes_back_as_what_it_was(protocol: str) -> None:
    error = GatewayError(Status.NOT_FOUND, Reason.MODEL_NOT_FOUND, "no model 'double'")
    message = encode_error(protocol, error, CANONICAL)
    with pytest.raises(GatewayError) as caught:
        decode_response(protocol, message.body, CANONICAL, status=message.status, headers=message.headers)
    assert "no model 'double'" in caught.value.message
    assert caught.value.status is Status.NOT_FOUND


@pytest.mark.parametrize("protocol", protocols())
@pytest.mark.parametrize("operation", Operation)
def test_what_a_protocol_does_not_have_is_a_gateway_error(protocol: str, operation: Operation) -> None:
    request = Request(operation, "double", inputs=CANONICAL.inputs)
    possible: list[Message] = []
    with suppress(GatewayError):
        possible.append(encode_request(protocol, request))
    assert operation is not Operation.INFER or possible
    answers: dict[Operation, Answer] = dict.fromkeys(CALLS, ANSWER)
    if operation in answers:
        with suppress(GatewayError):
            possible.append(encode_response(protocol, answers[operation], request))
            assert isinstance(possible[-1], Message)


def test_an_answer_to_a_request_that_is_no_call() -> None:
    message = encode_response("umbridge", (ModelEntry("m"),), Request(Operation.MODELS, ""))
    assert bytes(message.body) == b'{"protocolVersion":1.0,"models":["m"]}'
    with pytest.raises(GatewayError, match="umbridge clients have no request for 'model-ready'"):
        encode_response("umbridge", True, Request(Operation.MODEL_READY, "m"))


def test_paths_and_protocols_that_are_not_there() -> None:
    with pytest.raises(GatewayError, match="umbridge has no POST /nowhere; it has "):
        decode_request("umbridge", b"{}", path="/nowhere")
    with pytest.raises(GatewayError, match="v2-grpc has no ModelInfer; it has /inference"):
        decode_request("v2-grpc", b"", path="ModelInfer")
    with pytest.raises(ValueError, match="no protocol 'v2'; expected "):
        encode_request("v2", CANONICAL)


@pytest.mark.parametrize("cut", [b"", b"PRPC", REQUESTS["grps-brpc"][0][:-1], REQUESTS["grps-brpc"][0] + b"!"])
def test_a_packet_that_is_not_whole(cut: bytes) -> None:
    with pytest.raises(DecodeError, match=r"the packet has \d+ bytes"):
        decode_request("grps-brpc", cut)


def test_what_is_exported_is_there() -> None:
    assert [name for name in translate.__all__ if not hasattr(translate, name)] == []
