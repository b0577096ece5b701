"""V2 REST facing clients: requests read, responses written."""

import json
import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.exchange import decoded
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings
from gateway.core.requests import Request, RequestedOutput, Response, Translate
from gateway.core.tensors import Tensor
from gateway.protocols.v2 import V2_REST
from gateway.protocols.v2.rest.server import BinaryOutputMessage
from tests.protocols.v2.rest.wire import AS_IS, LISTENER, Y, decode, infer, infer_message, received, values

MODEL = {"model": "a/b"}
VERSION = {"model": "a/b", "version": "v10"}


@pytest.mark.parametrize(
    ("pattern", "captures", "operation"),
    [
        ("GET /v2", {}, Operation.SERVER_METADATA),
        ("GET /v2/health/live", {}, Operation.LIVE),
        ("GET /v2/health/ready", {}, Operation.READY),
        ("GET /v2/models/{model}", MODEL, Operation.METADATA),
        ("GET /v2/models/{model}/versions/{version}", VERSION, Operation.METADATA),
        ("GET /v2/models/{model}/ready", MODEL, Operation.MODEL_READY),
        ("GET /v2/models/{model}/versions/{version}/ready", VERSION, Operation.MODEL_READY),
        ("GET /v2/models/{model}/config", MODEL, Operation.CONFIG),
        ("GET /v2/models/{model}/versions/{version}/config", VERSION, Operation.CONFIG),
    ],
)
def test_reads_requests_from_their_paths(pattern: str, captures: dict[str, str], operation: Operation) -> None:
    assert pattern in V2_REST.patterns
    headers = Headers(((b"x-tenant", b"t"),))
    message = Message("GET", headers=headers, pattern=pattern, captures=captures)
    request = decoded(message, V2_REST, LISTENER)
    assert request.operation is operation
    assert (request.model, request.version) == (captures.get("model", ""), captures.get("version", ""))
    assert (request.headers, request.origin) == (headers, message)


def test_every_pattern_has_a_reader() -> None:
    for pattern in V2_REST.patterns:
        if "sharedmemory" in pattern:
            continue
        body = b"{}" if pattern.endswith(("setting", "logging", "load")) else b'{"inputs":[]}'
        message = Message(pattern=pattern, captures=VERSION, parts=(body,))
        assert decoded(message, V2_REST, LISTENER).operation in Operation


# Recorded from tritonclient.http 2.73.
DEFAULT_HEADER = (
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP64","parameters":{"binary_data_size":16}}],'
    b'"parameters":{"binary_data_output":true}}'
)
DEFAULT = DEFAULT_HEADER + b"\x00\x00\x00\x00\x00\x00\xf8?\x00\x00\x00\x00\x00\x00\x00\xc0"
JSON_INPUT = (
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP64","data":[1.5,-2.0]}],'
    b'"parameters":{"binary_data_output":true}}'
)
ALL_JSON = (
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP64","data":[1.5,-2.0]}],'
    b'"outputs":[{"name":"y","parameters":{"binary_data":false}}]}'
)
MIXED_HEADER = (
    b'{"id":"r1","inputs":[{"name":"x","shape":[1,2],"datatype":"FP64","parameters":{"binary_data_size":16}},'
    b'{"name":"s","shape":[3],"datatype":"BYTES","parameters":{"binary_data_size":16}},'
    b'{"name":"j","shape":[2],"datatype":"INT32","data":[1,2]}],'
    b'"outputs":[{"name":"y","parameters":{"binary_data":true}},'
    b'{"name":"z","parameters":{"classification":3,"binary_data":false}}],'
    b'"parameters":{"sequence_id":7,"sequence_start":true,"sequence_end":false,'
    b'"priority":2,"timeout":1500,"a":"b","f":0.5}}'
)
MIXED = (
    MIXED_HEADER
    + b"\x00\x00\x00\x00\x00\x00\xf8?\x00\x00\x00\x00\x00\x00\x00\xc0"
    + b"\x02\x00\x00\x00ab\x00\x00\x00\x00\x02\x00\x00\x00\x00\xff"
)
STRINGS = (
    b'{"inputs":[{"name":"s","shape":[1,2],"datatype":"BYTES","data":["a","\\u00FC"]}],'
    b'"outputs":[{"name":"y","parameters":{"binary_data":false}}]}'
)
EMPTY = (
    b'{"inputs":[{"name":"e","shape":[0,3],"datatype":"FP32","parameters":{"binary_data_size":0}}],'
    b'"parameters":{"binary_data_output":true}}'
)
BOOLEANS = b'{"inputs":[{"name":"b","shape":[2],"datatype":"BOOL","data":[true,false]}]}'
BF16_HEADER = b'{"inputs":[{"name":"b","shape":[2],"datatype":"BF16","parameters":{"binary_data_size":4}}]}'
ONE = b'{"name":"x","datatype":"INT8","shape":[1],"data":[1]}'


@pytest.mark.parametrize(
    ("body", "header_length", "datatype", "shape", "expected"),
    [
        (DEFAULT, 135, Datatype.FP64, (1, 2), [[1.5, -2.0]]),
        (JSON_INPUT, None, Datatype.FP64, (1, 2), [[1.5, -2.0]]),
        (ALL_JSON, None, Datatype.FP64, (1, 2), [[1.5, -2.0]]),
        (STRINGS, None, Datatype.BYTES, (1, 2), [[b"a", "ü".encode()]]),
        (EMPTY, 134, Datatype.FP32, (0, 3), []),
        (BOOLEANS, None, Datatype.BOOL, (2,), [True, False]),
        (BF16_HEADER + b"\xc0?\x00@", len(BF16_HEADER), Datatype.BF16, (2,), [1.5, 2.0]),
    ],
)
def test_reads_what_tritonclient_sends(
    body: bytes, header_length: int | None, datatype: Datatype, shape: tuple[int, ...], expected: list[object]
) -> None:
    request = infer(body, header_length)
    (tensor,) = request.inputs
    assert (tensor.datatype, tensor.shape, values(tensor)) == (datatype, shape, expected)
    assert (request.operation, request.model, request.version) == (Operation.INFER, "m", "")
    assert (request.id, request.parameters, request.protocol) == (None, {}, "v2-rest")


def test_reads_json_and_binary_inputs_side_by_side() -> None:
    request = infer(MIXED, 486)
    assert [(each.name, values(each)) for each in request.inputs] == [
        ("x", [[1.5, -2.0]]),
        ("s", [b"ab", b"", b"\x00\xff"]),
        ("j", [1, 2]),
    ]


def test_large_binary_inputs_are_views_on_the_body() -> None:
    size = 2**18
    entry = b'{"name":"x","datatype":"UINT8","shape":[%d],"parameters":{"binary_data_size":%d}}' % (size, size)
    header = b'{"inputs":[' + entry + b"]}"
    body = header + bytes(size)
    for _ in range(2):  # the second one is not taken for one like the first
        (tensor,) = infer(body, len(header)).inputs
        assert isinstance(tensor.data, memoryview)
        assert tensor.data.obj is body


def test_carries_the_id_and_parameters_except_consumed_ones() -> None:
    request = infer(MIXED, 486)
    assert request.id == "r1"
    sequence = {"sequence_id": 7, "sequence_start": True, "sequence_end": False}
    assert request.parameters == {**sequence, "a": "b", "f": 0.5, "priority": 2}
    assert request.outputs == (RequestedOutput("y", {}), RequestedOutput("z", {"classification": 3}))


@pytest.mark.parametrize(
    ("members", "forwarded"),
    [
        (b'"parameters":{"priority":3}', {"priority": 3}),
        (b'"parameters":{"priority":"high"}', {"priority": "high"}),
        (b'"parameters":{"priority":0}', {}),
        (b'"parameters":{"triton_enable_empty_final_response":true}', {}),
        (rb'"parameters":{"config":"{\"a\":1}"}', {"config": '{"a":1}'}),
        (b'"parameters":{"data":"d"},"data":{}', {"data": "d"}),
    ],
    ids=["a priority", "one for the server to refuse", "no priority", "perf_analyzer's", "UM-Bridge's config", "data"],
)
def test_parameters_that_are_forwarded(members: bytes, forwarded: dict[str, object]) -> None:
    for _ in range(3):  # the later ones are like the first
        assert infer(b'{"inputs":[%b],%b}' % (ONE, members)).parameters == forwarded


@pytest.mark.parametrize(
    ("parameters", "before", "deadline"),
    [
        (b'{"timeout":1500000}', None, 101.5),  # microseconds
        (b'{"timeout":1500000}', 101.0, 101.0),
        (b'{"timeout":1500000}', 102.0, 101.5),
        (b'{"timeout":0}', None, None),
        (b"{}", 102.0, 102.0),
    ],
)
def test_timeout_becomes_the_deadline(parameters: bytes, before: float | None, deadline: float | None) -> None:
    body = b'{"inputs":[],"parameters":%b}' % parameters
    request = infer(body, received=100.0, deadline=before)
    assert request.deadline == deadline
    assert request.parameters == {}


@pytest.mark.parametrize(
    ("body", "wants"),
    [
        (b'{"inputs":[]}', {"y": False, "z": False}),
        (b'{"inputs":[],"parameters":{"binary_data_output":true}}', {"y": True, "z": True}),
        (b'{"inputs":[],"outputs":[{"name":"y","parameters":{"binary_data":true}}]}', {"y": True, "z": False}),
        (
            b'{"inputs":[],"parameters":{"binary_data_output":true},'
            b'"outputs":[{"name":"y","parameters":{"binary_data":false}},{"name":"z"}]}',
            {"y": False, "z": True},
        ),
    ],
)
def test_binary_data_of_an_output_overrides_binary_data_output(body: bytes, wants: dict[str, bool]) -> None:
    origin = infer(body).origin
    found = {name: isinstance(origin, BinaryOutputMessage) and origin.wants_binary(name) for name in wants}
    assert found == wants


def test_keeps_the_messages_origin_and_the_version() -> None:
    pattern = "POST /v2/models/{model}/versions/{version}/infer"
    request = infer(DEFAULT, 135, pattern=pattern, captures=VERSION, path="/p")
    assert (request.model, request.version) == ("a/b", "v10")
    assert request.origin is not None
    assert request.origin.path == "/p"


@pytest.mark.parametrize(
    ("body", "request_id"), [(b'{"inputs":[],"id":""}', ""), (b'{"inputs":[],"id":null,"extra":{}}', None)]
)
def test_keeps_an_empty_id_and_ignores_unknown_members(body: bytes, request_id: str | None) -> None:
    assert infer(body).id == request_id


REGION, OFFSET = b'"parameters":{"shared_memory_region":"r"}', b'"parameters":{"shared_memory_offset":0}'


@pytest.mark.parametrize(
    ("body", "error_text"),
    [
        (b"", ""),
        (b"[]", ""),
        (b"{}", "inputs are missing"),
        (b'{"inputs":null}', "inputs are missing"),
        (b'{"inputs":{}}', "inputs must be a list"),
        (b'{"inputs":[1]}', "input 0 must be an object"),
        (b'{"inputs":[{"datatype":"FP64","shape":[1],"data":[1]}]}', "input 0: name must be a string"),
        (b'{"inputs":[{"name":7,"datatype":"FP64","shape":[1],"data":[1]}]}', "input 0: name must be a string"),
        (b'{"inputs":[%b,%b]}' % (ONE, ONE), "input 'x' occurs twice"),
        (b'{"inputs":[],"id":7}', "id must be a string"),
        (b'{"inputs":[],"id":{"a":1}}', "id must be a string"),
        (b'{"inputs":[],"parameters":[]}', "parameters must be an object"),
        (b'{"inputs":[],"parameters":{"k":{"data":[1]}}}', "parameter 'k' has a list `data`; rename it"),
        (b'{"inputs":[],"parameters":{"timeout":"1"}}', "timeout must be an integer"),
        (b'{"inputs":[],"parameters":{"timeout":-1}}', "timeout must be an integer"),
        (b'{"inputs":[],"parameters":{"timeout":true}}', "timeout must be an integer"),
        (b'{"inputs":[],"parameters":{"binary_data_output":1}}', "binary_data_output must be true or false"),
        (b'{"inputs":[],"outputs":{}}', "outputs must be a list"),
        (b'{"inputs":[],"outputs":["y"]}', "output 0 must be an object"),
        (b'{"inputs":[],"outputs":[{"name":"y"},{"name":"y"}]}', "output 'y' is requested twice"),
        (b'{"inputs":[],"outputs":[{"name":"y","parameters":{"binary_data":"yes"}}]}', "binary_data must be true"),
        (b'{"inputs":[],"outputs":[{"name":"y",%b}]}' % REGION, "output 'y': shared_memory_region cannot cross"),
        (b'{"inputs":[%b,%b}]}' % (ONE[:-1], OFFSET), "input 'x': shared_memory_offset cannot cross"),
        (
            # as tritonclient's set_shared_memory sends it: no data at all
            b'{"inputs":[{"name":"x","datatype":"INT8","shape":[1],'
            b'"parameters":{"shared_memory_region":"r","shared_memory_byte_size":1}}]}',
            "input 'x': shared_memory_region cannot cross",
        ),
        (b'{"inputs":[],%b}' % REGION, "the request: shared_memory_region cannot cross"),
        (b'{"inputs":[],"inputs":[]}', ""),
        (b'{"inputs":[]} {}', ""),
        (b"[" * 100_000, ""),
        (b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1],"data":' + b"[" * 100_000, ""),
    ],
)
def test_refuses_what_is_no_inference_request(body: bytes, error_text: str) -> None:
    with pytest.raises(DecodeError) as refused:
        infer(body)
    assert error_text in str(refused.value)


def test_refuses_a_tensor_that_grows_beyond_the_limit() -> None:
    body = b'{"inputs":[{"name":"x","shape":[64],"datatype":"FP64","data":[' + b"0," * 63 + b"0]}]}"
    small = ListenerSettings("http", Limits(message=511))
    with pytest.raises(GatewayError, match=r"input 'x' takes 512 bytes, limits\.message is 511") as refused:
        V2_REST.decode_request(infer_message(body), small)
    assert refused.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize(("body", "header_length"), [(MIXED, 486), (DEFAULT, 135), (STRINGS, None), (EMPTY, 134)])
def test_a_truncated_request_is_refused(body: bytes, header_length: int | None) -> None:
    for end in range(len(body)):
        with pytest.raises(DecodeError):
            infer(body[:end], header_length)


def in_memory(datatype: Datatype, data: object) -> bytes:
    """The elements of `data`, as the json module read it, in memory."""
    flat = [data]
    while any(isinstance(each, list) for each in flat):
        flat = [element for each in flat for element in (each if isinstance(each, list) else [each])]
    if datatype is not Datatype.BYTES:
        return np.array(flat).astype(datatype.dtype).tobytes()
    texts = [str(each).encode() for each in flat]
    return b"".join(struct.pack("<I", len(each)) + each for each in texts)


@given(
    st.sampled_from([(MIXED, 486), (DEFAULT, 135), (STRINGS, None), (JSON_INPUT, None), (BOOLEANS, None)]),
    st.integers(0, len(MIXED)),
    st.integers(0, 8),
    st.one_of(st.binary(max_size=4), st.sampled_from([b"null", b"-1", b"[]", b"{}", b"1e400", b'"', b"9" * 30])),
)
def test_a_damaged_request_is_read_or_refused(
    sent: tuple[bytes, int | None], at: int, length: int, damage: bytes
) -> None:
    body, header_length = sent
    damaged = body[:at] + damage + body[at + length :]
    with suppress(DecodeError, GatewayError):
        found = infer(damaged, header_length).inputs
        described = json.loads(damaged[:header_length])["inputs"]
        assert [(each.name, each.datatype.value, list(each.shape)) for each in found] == [
            (each["name"], each["datatype"], each["shape"]) for each in described
        ]
        sizes = [each.get("parameters", {}).get("binary_data_size") for each in described]
        binary = b"".join(bytes(each.data) for each, size in zip(found, sizes, strict=True) if size is not None)
        assert binary == (b"" if header_length is None else damaged[header_length:])
        for each, entry, size in zip(found, described, sizes, strict=True):
            assert size is not None or bytes(each.data) == in_memory(each.datatype, entry["data"])


JSON_CLIENT = infer(b'{"inputs":[]}')
BINARY_CLIENT = infer(b'{"inputs":[],"parameters":{"binary_data_output":true}}')
MIXED_CLIENT = infer(
    b'{"id":"","inputs":[],"parameters":{"binary_data_output":true},'
    b'"outputs":[{"name":"y","parameters":{"binary_data":false}},{"name":"z"}]}'
)
Z = Tensor("z", Datatype.UINT8, (3,), b"\x01\x02\xff")


def encode(request: Request, *outputs: Tensor, translate: Translate = AS_IS) -> Message:
    return V2_REST.encode_response(Response(outputs, "m", "1"), request, translate)


def test_outputs_are_json_by_default() -> None:
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


def test_binary_outputs_follow_the_header_without_being_joined() -> None:
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


def test_texts_are_strings_in_json() -> None:
    tensor = Tensor("y", Datatype.BYTES, (2,), b"\x02\x00\x00\x00\xc3\xbc\x01\x00\x00\x00\x00")
    body = bytes(encode(JSON_CLIENT, tensor).body)
    assert b'"datatype":"BYTES","shape":[2],"data":["\xc3\xbc","\\u0000"]}' in body


def test_fp16_is_numbers_in_json_both_ways() -> None:
    text = b'"datatype":"FP16","shape":[3],"data":[1.5,-65504.0,0.0999755859375]'
    request = infer(b'{"inputs":[{"name":"x",%b}]}' % text)
    assert request.inputs == (Tensor("x", Datatype.FP16, (3,), b"\x00\x3e\xff\xfb\x66\x2e"),)
    assert text in bytes(encode(JSON_CLIENT, *request.inputs).body)


def test_bf16_is_widened_in_json_only() -> None:
    tensor = Tensor("y", Datatype.BF16, (1,), b"\xc0?", parameters={"k": "v"})
    assert bytes(encode(JSON_CLIENT, tensor).body).endswith(
        b'"datatype":"FP32","shape":[1],"parameters":{"k":"v","gateway_datatype":"BF16"},"data":[1.5]}]}'
    )
    assert decode(received(encode(BINARY_CLIENT, tensor))).outputs == (tensor,)


NOT_TEXT = Tensor("y", Datatype.BYTES, (1,), b"\x02\x00\x00\x00\x00\xff")


def test_bytes_that_are_not_utf8_are_refused_in_json_unless_translated() -> None:
    with pytest.raises(GatewayError, match="output 'y' holds bytes that are not UTF-8"):
        encode(JSON_CLIENT, NOT_TEXT)
    message = encode(JSON_CLIENT, NOT_TEXT, translate=Translate(bytes="base64"))
    assert b'"parameters":{"content_type":"base64"},"data":["AP8="]' in bytes(message.body)
    assert decode(received(message)).outputs == (replace(NOT_TEXT, content_type="base64"),)
    assert encode(BINARY_CLIENT, NOT_TEXT).parts[1] == NOT_TEXT.data
