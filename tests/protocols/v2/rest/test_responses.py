import math

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.operations import Operation
from gateway.core.types import Message, Request, Response, Tensor, Translate
from tests.protocols.v2.rest.wire import AS_IS, V2_REST, decode, infer, received, reply, values

JSON_CLIENT = infer(b'{"inputs":[]}')
BINARY_CLIENT = infer(b'{"inputs":[],"parameters":{"binary_data_output":true}}')
MIXED_CLIENT = infer(
    b'{"id":"","inputs":[],"parameters":{"binary_data_output":true},'
    b'"outputs":[{"name":"y","parameters":{"binary_data":false}},{"name":"z"}]}'
)
Y = Tensor("y", Datatype.FP64, (1, 2), b"\x00\x00\x00\x00\x00\x00\xf8?\x00\x00\x00\x00\x00\x00\x00\xc0")
Z = Tensor("z", Datatype.UINT8, (3,), b"\x01\x02\xff")


def encode(request: Request, *outputs: Tensor, translate: Translate = AS_IS) -> Message:
    return V2_REST.encode_response(Response(outputs, "m", "1"), request, translate)


def test_a_client_that_asks_nothing_gets_json() -> None:
    message = encode(JSON_CLIENT, Y)
    assert (message.status, list(message.headers)) == (200, [("content-type", "application/json")])
    assert message.parts == (
        b'{"model_name":"m","model_version":"1",'
        b'"outputs":[{"name":"y","datatype":"FP64","shape":[1,2],"data":[1.5,-2.0]}]}',
    )


def test_a_parameter_beyond_64_bits_is_written_with_all_its_digits() -> None:
    message = V2_REST.encode_response(Response((Y,), "m", "1", None, {"n": 2**64}), JSON_CLIENT, AS_IS)
    assert message.parts == (
        b'{"model_name":"m","model_version":"1","parameters":{"n":18446744073709551616},'
        b'"outputs":[{"name":"y","datatype":"FP64","shape":[1,2],"data":[1.5,-2.0]}]}',
    )


def test_binary_outputs_follow_the_header_unjoined() -> None:
    message = encode(BINARY_CLIENT, Y, Z)
    header = (
        b'{"model_name":"m","model_version":"1","outputs":['
        b'{"name":"y","datatype":"FP64","shape":[1,2],"parameters":{"binary_data_size":16}},'
        b'{"name":"z","datatype":"UINT8","shape":[3],"parameters":{"binary_data_size":3}}]}'
    )
    assert message.parts == (header, Y.data, Z.data)
    assert message.parts[1] is Y.data
    assert list(message.headers) == [
        ("content-type", "application/octet-stream"),
        ("inference-header-content-length", str(len(header))),
    ]


def test_json_and_binary_outputs_side_by_side_and_an_empty_id() -> None:
    message = encode(MIXED_CLIENT, Y, Z)
    assert message.parts == (
        b'{"id":"","model_name":"m","model_version":"1","outputs":['
        b'{"name":"y","datatype":"FP64","shape":[1,2],"data":[1.5,-2.0]},'
        b'{"name":"z","datatype":"UINT8","shape":[3],"parameters":{"binary_data_size":3}}]}',
        b"\x01\x02\xff",
    )


def test_without_binary_bytes_there_is_no_header() -> None:
    message = encode(BINARY_CLIENT, Tensor("e", Datatype.FP32, (0, 3), b""))
    assert list(message.headers) == [("content-type", "application/json")]
    assert message.parts == (
        b'{"model_name":"m","model_version":"1","outputs":['
        b'{"name":"e","datatype":"FP32","shape":[0,3],"parameters":{"binary_data_size":0}}]}',
    )


def test_the_reply_carries_the_names_version_and_id_of_the_client() -> None:
    request = Request(Operation.INFER, "client's", "7", "mine")
    response = Response((), "backend's", "1", "a fresh UUID", {"k": 1})
    assert V2_REST.encode_response(response, request, AS_IS).parts == (
        b'{"id":"mine","model_name":"client\'s","model_version":"7","parameters":{"k":1},"outputs":[]}',
    )
    anonymous = Request(Operation.INFER, "m")
    assert V2_REST.encode_response(Response((), "m", "", "a UUID"), anonymous, AS_IS).parts == (
        b'{"model_name":"m","outputs":[]}',
    )


@pytest.mark.parametrize(
    ("datatype", "data", "text"),
    [
        (Datatype.BOOL, b"\x01\x00", b"[true,false]"),
        (Datatype.INT64, b"\xff" * 7 + b"\x7f" + b"\x00" * 7 + b"\x80", b"[9223372036854775807,-9223372036854775808]"),
        (Datatype.UINT64, b"\xff" * 8 + bytes(8), b"[18446744073709551615,0]"),
        (Datatype.FP32, b"\xcd\xcc\xcc\x3d" * 2, b"[0.10000000149011612,0.10000000149011612]"),
        (Datatype.BYTES, b"\x02\x00\x00\x00\xc3\xbc\x01\x00\x00\x00\x00", b'["\xc3\xbc","\\u0000"]'),
    ],
)
def test_writes_json_data(datatype: Datatype, data: bytes, text: bytes) -> None:
    body = bytes(encode(JSON_CLIENT, Tensor("y", datatype, (2,), data)).body)
    assert b'"datatype":"%b","shape":[2],"data":%b}' % (datatype.encode(), text) in body


@pytest.mark.parametrize(("datatype", "data"), [(Datatype.FP16, b"\x00\x3e"), (Datatype.BF16, b"\xc0?")])
def test_half_floats_are_widened_and_marked_in_json_but_not_in_binary(datatype: Datatype, data: bytes) -> None:
    tensor = Tensor("y", datatype, (1,), data, parameters={"k": "v"})
    assert bytes(encode(JSON_CLIENT, tensor).body).endswith(
        b'"datatype":"FP32","shape":[1],"parameters":{"k":"v","gateway_datatype":"%b"},"data":[1.5]}]}'
        % datatype.encode()
    )
    assert decode(received(encode(BINARY_CLIENT, tensor))).outputs == (tensor,)


NAN = Tensor("y", Datatype.FP64, (1,), b"\x00\x00\x00\x00\x00\x00\xf8\x7f")


def test_nan_is_refused_by_the_output_s_name_unless_the_route_says_how() -> None:
    with pytest.raises(GatewayError, match="output 'y'"):
        encode(JSON_CLIENT, NAN)
    assert b'"data":[NaN]' in bytes(encode(JSON_CLIENT, NAN, translate=Translate(nan="literal")).body)
    assert encode(BINARY_CLIENT, NAN).parts[1] == NAN.data


NOT_TEXT = Tensor("y", Datatype.BYTES, (1,), b"\x02\x00\x00\x00\x00\xff")


def test_bytes_that_are_no_text_are_refused_in_json_unless_the_route_says_base64() -> None:
    with pytest.raises(GatewayError, match="output 'y' holds bytes that are not UTF-8"):
        encode(JSON_CLIENT, NOT_TEXT)
    message = encode(JSON_CLIENT, NOT_TEXT, translate=Translate(bytes="base64"))
    assert b'"parameters":{"content_type":"base64"},"data":["AP8="]' in bytes(message.body)
    assert decode(received(message)).outputs == (NOT_TEXT,)
    assert encode(BINARY_CLIENT, NOT_TEXT).parts[1] == NOT_TEXT.data


# Replies as Triton 2.51, KServe 0.21 and MLServer 1.7.1 write them.
TRITON_HEADER = (
    b'{"id":"r1","model_name":"m","model_version":"1","outputs":['
    b'{"name":"y","datatype":"FP64","shape":[1,2],"parameters":{"binary_data_size":16}}]}'
)
TRITON = TRITON_HEADER + bytes(Y.data)
TRITON_JSON = (
    b'{"model_name":"m","model_version":"1","outputs":[{"name":"y","datatype":"FP64","shape":[1,2],"data":[1.5,-2.0]}]}'
)
KSERVE = (
    b'{"model_name":"m","model_version":null,"id":"","parameters":null,'
    b'"outputs":[{"name":"y","shape":[1,2],"datatype":"FP64","parameters":null,"data":[1.5,-2.0]}]}'
)
MLSERVER = (
    b'{"model_name":"m","id":"8e9b","parameters":{"content_type":null},'
    b'"outputs":[{"name":"y","shape":[1,2],"datatype":"FP64","data":[[1.5,-2.0]]}]}'
)


@pytest.mark.parametrize(
    ("body", "header_length", "version", "response_id"),
    [
        (TRITON, len(TRITON_HEADER), "1", "r1"),
        (TRITON_JSON, None, "1", None),
        (KSERVE, None, "", ""),
        (MLSERVER, None, "", "8e9b"),
    ],
)
def test_reads_replies(body: bytes, header_length: int | None, version: str, response_id: str | None) -> None:
    response = decode(reply(body, header_length))
    assert (response.model, response.version, response.id, response.parameters) == ("m", version, response_id, {})
    assert response.outputs == (Y,)


def test_binary_outputs_are_views_on_the_reply() -> None:
    (output,) = decode(reply(TRITON, len(TRITON_HEADER))).outputs
    assert isinstance(output.data, memoryview)
    assert output.data.obj is TRITON


def test_reads_the_literals_of_triton() -> None:
    body = b'{"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[3],"data":[NaN,-Infinity,1e0]}]}'
    assert str(values(decode(reply(body)).outputs[0])) == "[nan, -inf, 1.0]"


def test_reads_an_empty_binary_output_without_a_header() -> None:
    body = b'{"outputs":[{"name":"e","datatype":"FP32","shape":[0],"parameters":{"binary_data_size":0}}]}'
    assert decode(reply(body)).outputs == (Tensor("e", Datatype.FP32, (0,), b""),)


def test_reads_fp16_in_json_as_mlserver_writes_it() -> None:
    body = b'{"outputs":[{"name":"y","datatype":"FP16","shape":[2],"data":[1.5,-2.0]}]}'
    assert decode(reply(body)).outputs == (Tensor("y", Datatype.FP16, (2,), b"\x00\x3e\x00\xc0"),)


@pytest.mark.parametrize(
    ("body", "header_length", "says"),
    [
        (b"", None, ""),
        (b"<html>", None, ""),
        (b"{}", None, "outputs are missing"),
        (b'{"model_name":7,"outputs":[]}', None, "model_name must be a string"),
        (b'{"outputs":[],"parameters":{"tags":{"a":"b"}}}', None, "parameter 'tags' must be"),
        (TRITON[:-1], len(TRITON_HEADER), "output 'y': binary_data_size is 16, but 15 bytes are left"),
        (TRITON + b"\x00", len(TRITON_HEADER), "1 bytes follow the last tensor"),
        (TRITON, len(TRITON) + 1, "the body has"),
        (b'{"outputs":[{"name":"y","datatype":"FP64","shape":[3],"data":[1.0]}]}', None, "output 'y': 1 elements"),
        (b'{"outputs":[{"name":"y","datatype":"FP64","shape":[-1],"data":[1.0]}]}', None, "output 'y': each dimension"),
        (b'{"outputs":[{"name":"y","datatype":"FP64","shape":[1],"data":["1"]}]}', None, "output 'y' holds strings"),
    ],
)
def test_refuses_what_is_no_inference_response(body: bytes, header_length: int | None, says: str) -> None:
    with pytest.raises(DecodeError) as refused:
        decode(reply(body, header_length))
    assert says in str(refused.value)


def test_a_reply_cut_anywhere_is_refused_and_nothing_worse() -> None:
    for body, header_length in ((TRITON, len(TRITON_HEADER)), (KSERVE, None)):
        for end in range(len(body)):
            with pytest.raises(DecodeError):
                decode(reply(body[:end], header_length))


def test_negative_zero_and_denormals_survive_json() -> None:
    tensor = Tensor("y", Datatype.FP64, (2,), b"\x00" * 7 + b"\x80" + b"\x01" + b"\x00" * 7)
    (output,) = decode(received(encode(JSON_CLIENT, tensor))).outputs
    assert bytes(output.data) == tensor.data
    assert math.copysign(1, output.array[0]) == -1
