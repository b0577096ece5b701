"""V2 REST facing backends: requests written, responses read."""

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request, RequestedOutput, Translate
from gateway.core.tensors import Tensor
from gateway.protocols.v2 import V2_REST
from tests.protocols.v2.rest.wire import TARGET, Y, decode, reply, values


@pytest.mark.parametrize(
    ("request_", "method", "path"),
    [
        (Request(Operation.LIVE), "GET", "/v2/health/live"),
        (Request(Operation.METADATA, "m", "3"), "GET", "/v2/models/m/versions/3"),
        (Request(Operation.MODEL_READY, "a b/ü"), "GET", "/v2/models/a%20b%2F%C3%BC/ready"),
        (Request(Operation.MODEL_READY, "m", "v/1"), "GET", "/v2/models/m/versions/v%2F1/ready"),
        (Request(Operation.CONFIG, "m"), "GET", "/v2/models/m/config"),
        (Request(Operation.INFER, "M.gradient"), "POST", "/v2/models/M.gradient/infer"),
    ],
)
def test_asks_at_the_right_path(request_: Request, method: str, path: str) -> None:
    message = V2_REST.encode_request(request_, TARGET)
    assert (message.method, message.path) == (method, path)


@pytest.mark.parametrize("status", [100, 201, 204, 301, 307])
def test_only_200_is_success(status: int) -> None:
    with pytest.raises(DecodeError, match=f"status {status}, expected 200"):
        V2_REST.decode_response(reply(b'{"outputs":[]}', status=status), Request(Operation.INFER, "m"), TARGET)


X = replace(Y, name="x")


def test_writes_the_binary_form() -> None:
    message = V2_REST.encode_request(Request(Operation.INFER, "m", inputs=(X,)), TARGET)
    header = (
        b'{"parameters":{"binary_data_output":true},'
        b'"inputs":[{"name":"x","datatype":"FP64","shape":[1,2],"parameters":{"binary_data_size":16}}]}'
    )
    assert (message.method, message.path, message.parts) == ("POST", "/v2/models/m/infer", (header, X.data))
    assert list(message.headers) == [
        ("content-type", "application/octet-stream"),
        ("inference-header-content-length", str(len(header))),
    ]
    assert message.parts[1] is X.data


def test_writes_id_parameters_and_requested_outputs() -> None:
    outputs = (RequestedOutput("y"), RequestedOutput("z", {"classification": 3}))
    request = Request(Operation.INFER, "m", "3", "r1", (X,), outputs, {"sequence_id": 7, "a": "b"})
    message = V2_REST.encode_request(request, TARGET)
    assert message.path == "/v2/models/m/versions/3/infer"
    assert bytes(message.parts[0]) == (
        b'{"id":"r1","parameters":{"sequence_id":7,"a":"b"},'
        b'"inputs":[{"name":"x","datatype":"FP64","shape":[1,2],"parameters":{"binary_data_size":16}}],'
        b'"outputs":[{"name":"y","parameters":{"binary_data":true}},'
        b'{"name":"z","parameters":{"classification":3,"binary_data":true}}]}'
    )


def test_empty_tensors_add_no_buffer() -> None:
    empty = Tensor("e", Datatype.FP32, (0, 3), b"")
    message = V2_REST.encode_request(Request(Operation.INFER, "m", inputs=(empty,)), TARGET)
    assert len(message.parts) == 1
    assert b'"binary_data_size":0' in bytes(message.parts[0])


MLSERVER = Target("models", "127.0.0.1:8000", flavor="mlserver")


def test_bytes_are_written_for_mlserver_as_translate_says() -> None:
    tensor = Tensor("s", Datatype.BYTES, (1,), b"\x02\x00\x00\x00\x00\xff")
    request = Request(Operation.INFER, "m", inputs=(tensor,))
    with pytest.raises(GatewayError, match=r"input 's' holds bytes that are not UTF-8.*translate\.bytes: base64"):
        V2_REST.encode_request(request, MLSERVER)
    written = V2_REST.encode_request(replace(request, translate=Translate(bytes="base64")), MLSERVER)
    assert b'"parameters":{"content_type":"base64"},"data":["AP8="]' in bytes(written.body)


def test_parameters_that_json_cannot_carry_are_refused_by_name() -> None:
    request = Request(Operation.INFER, "m", inputs=(X,), parameters={"t": float("nan")})
    with pytest.raises(GatewayError, match="parameter 't' is nan"):
        V2_REST.encode_request(request, TARGET)


@pytest.mark.parametrize("flavor", ["plain", "triton"])
def test_a_parameter_beyond_64_bits_is_written_with_all_its_digits(flavor: str) -> None:
    x = Tensor("x", Datatype.UINT8, (1,), b"\x07")
    request = Request(Operation.INFER, "m", inputs=(x,), parameters={"n": -(2**64)})
    message = V2_REST.encode_request(request, Target("lab", flavor=flavor))
    assert b'"n":-18446744073709551616' in b"".join(message.parts)


# Replies as Triton 2.51, KServe 0.21 and MLServer 1.7.1 write them.
TRITON_HEADER = (
    b'{"id":"r1","model_name":"m","model_version":"1","outputs":['
    b'{"name":"y","datatype":"FP64","shape":[1,2],"parameters":{"binary_data_size":16}}]}'
)
TRITON_REPLY = TRITON_HEADER + bytes(Y.data)
TRITON_JSON_REPLY = (
    b'{"model_name":"m","model_version":"1","outputs":[{"name":"y","datatype":"FP64","shape":[1,2],"data":[1.5,-2.0]}]}'
)
KSERVE_REPLY = (
    b'{"model_name":"m","model_version":null,"id":"","parameters":null,'
    b'"outputs":[{"name":"y","shape":[1,2],"datatype":"FP64","parameters":null,"data":[1.5,-2.0]}]}'
)
MLSERVER_REPLY = (
    b'{"model_name":"m","id":"8e9b","parameters":{"content_type":null},'
    b'"outputs":[{"name":"y","shape":[1,2],"datatype":"FP64","data":[[1.5,-2.0]]}]}'
)


@pytest.mark.parametrize(
    ("body", "header_length", "version", "response_id"),
    [
        (TRITON_REPLY, len(TRITON_HEADER), "1", "r1"),
        (TRITON_JSON_REPLY, None, "1", None),
        (KSERVE_REPLY, None, "", ""),
        (MLSERVER_REPLY, None, "", "8e9b"),
    ],
)
def test_reads_replies(body: bytes, header_length: int | None, version: str, response_id: str | None) -> None:
    response = decode(reply(body, header_length))
    assert (response.model, response.version, response.id, response.parameters) == ("m", version, response_id, {})
    assert response.outputs == (Y,)


def test_binary_outputs_are_views_on_the_reply() -> None:
    (output,) = decode(reply(TRITON_REPLY, len(TRITON_HEADER))).outputs
    assert isinstance(output.data, memoryview)
    assert output.data.obj is TRITON_REPLY


def test_reads_the_literals_of_triton() -> None:
    body = b'{"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[3],"data":[NaN,-Infinity,1e0]}]}'
    assert str(values(decode(reply(body)).outputs[0])) == "[nan, -inf, 1.0]"


def test_reads_an_empty_binary_output_without_a_header() -> None:
    body = b'{"outputs":[{"name":"e","datatype":"FP32","shape":[0],"parameters":{"binary_data_size":0}}]}'
    assert decode(reply(body)).outputs == (Tensor("e", Datatype.FP32, (0,), b""),)


@pytest.mark.parametrize(
    ("body", "header_length", "error_text"),
    [
        (b"", None, ""),
        (b"<html>", None, ""),
        (b"{}", None, "outputs are missing"),
        (b'{"model_name":7,"outputs":[]}', None, "model_name must be a string"),
        (b'{"outputs":[],"parameters":{"tags":{"a":"b"}}}', None, "parameter 'tags' is an object or a list"),
        (TRITON_REPLY[:-1], len(TRITON_HEADER), "output 'y': binary_data_size is 16, but 15 bytes are left"),
        (TRITON_REPLY + b"\x00", len(TRITON_HEADER), "1 bytes follow the last tensor"),
        (TRITON_REPLY, len(TRITON_REPLY) + 1, "the body has"),
        (b'{"outputs":[{"name":"y","datatype":"FP64","shape":[3],"data":[1.0]}]}', None, "output 'y': 1 elements"),
        (b'{"outputs":[{"name":"y","datatype":"FP64","shape":[-1],"data":[1.0]}]}', None, "output 'y': each dimension"),
        (b'{"outputs":[{"name":"y","datatype":"FP64","shape":[1],"data":["1"]}]}', None, "output 'y' holds strings"),
    ],
)
def test_refuses_what_is_no_inference_response(body: bytes, header_length: int | None, error_text: str) -> None:
    with pytest.raises(DecodeError) as refused:
        decode(reply(body, header_length))
    assert error_text in str(refused.value)


def test_a_truncated_reply_is_refused() -> None:
    for body, header_length in ((TRITON_REPLY, len(TRITON_HEADER)), (KSERVE_REPLY, None)):
        for end in range(len(body)):
            with pytest.raises(DecodeError):
                decode(reply(body[:end], header_length))
