"""V2 gRPC facing clients: requests read, responses written."""

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Status
from gateway.core.exchange import decoded
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.requests import Request, RequestedOutput, Response
from gateway.core.tensors import Tensor
from gateway.protocols.v2 import V2_GRPC
from tests.protocols.v2.grpc.by_hand import HALF, INT64_MIN, UINT64_MAX, field, parameter, tensor
from tests.protocols.v2.grpc.wire import AS_IS, LISTENER, STREAM, infer, message, one_input, values


def test_every_method_has_a_reader() -> None:
    for pattern in V2_GRPC.patterns:
        if "SharedMemory" in pattern:
            continue
        assert decoded(message(b"", pattern), V2_GRPC, LISTENER).operation in Operation


def test_reads_a_whole_request() -> None:
    body = (
        field(1, "m")
        + field(2, "v10")
        + field(3, "42")
        + parameter(4, "s", field(3, "größe"))
        + parameter(4, "b", field(1, 1))
        + parameter(4, "i", INT64_MIN)
        + parameter(4, "u", UINT64_MAX)
        + parameter(4, "d", HALF)
        + tensor("x", "INT16", 1, 2, more=parameter(4, "k", field(2, 7)))
        + tensor("y", "BYTES", 2)
        + field(6, field(1, "z") + parameter(2, "classification", field(2, 3)))
        + field(7, b"\x01\x00\xff\xff")
        + field(7, b"\x00\x00\x00\x00\x02\x00\x00\x00\xff\x00")
    )
    sent = message(body)
    request = decoded(sent, V2_GRPC, LISTENER)
    assert (request.operation, request.model, request.version, request.id) == (Operation.INFER, "m", "v10", "42")
    assert request.parameters == {"s": "größe", "b": True, "i": -(2**63), "u": 2**64 - 1, "d": 0.5}
    x, y = request.inputs
    assert (x.name, x.datatype, x.shape, x.parameters) == ("x", Datatype.INT16, (1, 2), {"k": 7})
    assert (values(x), values(y)) == ([[1, -1]], [b"", b"\xff\x00"])
    assert request.outputs == (RequestedOutput("z", {"classification": 3}),)
    assert (request.headers, request.origin) == (sent.headers, sent)


def test_an_empty_id_is_none_and_the_method_sets_the_operation() -> None:
    assert infer(field(1, "m")).id is None
    assert infer(field(1, "m"), STREAM).operation is Operation.STREAM


@pytest.mark.parametrize(
    ("timeout", "before", "deadline"),
    [(5, None, 100.000005), (0, None, None), (0, 101.0, 101.0), (127, 100.0001, 100.0001), (7, 101.0, 100.000007)],
)
def test_timeout_is_in_microseconds_and_the_earlier_deadline_holds(
    timeout: int, before: float | None, deadline: float | None
) -> None:
    request = infer(parameter(4, "timeout", field(2, timeout)), received=100.0, deadline=before)
    assert request.deadline == deadline
    assert request.parameters == {}


def test_parameters_of_the_binary_extension_are_dropped() -> None:
    output = field(6, field(1, "y") + parameter(2, "binary_data", field(1, 1)))
    request = infer(tensor("x", "INT8", 0, more=parameter(4, "binary_data_size", field(2, 0))) + output)
    assert (request.inputs[0].parameters, request.outputs[0].parameters) == ({}, {})


def test_consumed_parameters_are_not_forwarded() -> None:
    consumed = ("binary_data_output", "triton_enable_empty_final_response")
    body = b"".join(parameter(4, key, field(1, 1)) for key in consumed) + parameter(4, "other", field(1, 0))
    assert infer(body).parameters == {"other": False}


SHARED = parameter(4, "shared_memory_region", field(3, "r"))


@pytest.mark.parametrize(
    ("body", "error_text"),
    [
        (field(1, b"\xff"), "no inference.ModelInferRequest message"),
        (b"\x0a\x05m", "no inference.ModelInferRequest message"),
        (parameter(4, "p", b""), "the request: parameter 'p' has no value"),
        (tensor("x", "FP64", 0, more=parameter(4, "p", b"")), "input 'x': parameter 'p' has no value"),
        (parameter(4, "timeout", HALF), "timeout must be an integer"),
        (parameter(4, "timeout", field(1, 1)), "timeout must be an integer"),
        (parameter(4, "triton_enable_empty_final_response", field(2, 1)), "must be true or false"),
        (tensor("", "FP64", 0), "input 0 has no name"),
        (tensor("x", "FP64", 0) + tensor("x", "FP64", 0), "input 'x' occurs twice"),
        (field(6, b""), "requested output 0 has no name"),
        (field(6, field(1, "y")) * 2, "output 'y' is requested twice"),
        (parameter(4, "shared_memory_region", field(3, "r")), "the request: shared_memory_region cannot cross"),
        (tensor("x", "FP64", 0, more=SHARED), "input 'x': shared_memory_region cannot cross"),
        (field(6, field(1, "y") + parameter(2, "shared_memory_offset", field(2, 1))), "shared_memory_offset cannot"),
        (tensor("x", "fp64", 1) + field(7, bytes(8)), "input 'x': datatype must be one of"),
        (tensor("x", "", 1) + field(7, bytes(8)), "input 'x': datatype must be one of"),
        (tensor("x", "INT8", *[1] * 33) + field(7, b"\x00"), "shape must be a list of at most 32"),
        (field(5, field(1, "x") + field(2, "INT8") + b"\x18" + b"\xff" * 9 + b"\x01"), "not -1"),
        (
            field(5, field(1, "x") + field(2, "FP64") + b"\x18\x01\x18" + b"\x80" * 8 + b"\x40") + field(7, b""),
            "2\\^63",
        ),
        (tensor("x", "FP64", 1) + field(7, bytes(7)), "7 bytes, but FP64 of shape \\[1\\] takes 8"),
        (tensor("x", "BOOL", 2) + field(7, b"\x01\x02"), "is the byte 2, expected 0 or 1"),
        (tensor("x", "BYTES", 1) + field(7, b"\x02\x00\x00\x00a"), "reaches past the end"),
        (tensor("x", "BYTES", 2) + field(7, b"\x01\x00\x00\x00a"), "1 BYTES elements, but shape \\[2\\] takes 2"),
        (tensor("x", "INT8", 1) + tensor("y", "INT8", 1) + field(7, b"\x00"), "'y' has no raw contents: 1 "),
        (tensor("x", "INT8", 1) + field(7, b"\x00") * 2, "2 raw_input_contents for 1 inputs"),
        (field(7, b""), "1 raw_input_contents for 0 inputs"),
        (tensor("x", "INT8", 1, contents=field(2, b"\x01")) + field(7, b"\x01"), "contents beside raw_input_contents"),
        (
            tensor("x", "INT8", 1) + tensor("y", "INT8", 1, contents=field(2, b"\x02")) + field(7, b"\x01") * 2,
            "input 'y' has contents beside raw_input_contents",
        ),
        # raw contents leave it out
        (
            tensor("x", "INT8", 1) + tensor("y", "FP64", 1, more=SHARED) + field(7, b"\x00"),
            "input 'y': shared_memory_region",
        ),
    ],
)
def test_refuses_what_a_server_must_not_see(body: bytes, error_text: str) -> None:
    with pytest.raises(DecodeError, match=error_text):
        infer(body)


def test_typed_inputs_beside_an_empty_one() -> None:
    request = infer(tensor("x", "INT8", 2, contents=field(2, b"\x01\x02")) + tensor("y", "FP16", 0))
    assert [values(each) for each in request.inputs] == [[1, 2], []]


def test_typed_data_beyond_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(GatewayError, match=r"input 'x' takes 68719476736 bytes, limits.message is 67108864") as raised:
        one_input("FP64", *[64, 64, 64, 64, 64, 8], contents=field(7, bytes(8)))
    assert raised.value.status is Status.RESOURCE_EXHAUSTED


CLIENT = infer(field(1, "m") + field(3, "42"))
Y = Tensor("y", Datatype.FP64, (1, 2), b"\x00\x00\x00\x00\x00\x00\xf8?\x00\x00\x00\x00\x00\x00\x00\xc0")
EMPTY = Tensor("e", Datatype.BYTES, (0,), b"", parameters={"k": True})


def encode(response: Response, request: Request = CLIENT) -> Message:
    return V2_GRPC.encode_response(response, request, AS_IS)


def test_writes_large_outputs_raw_without_joining_them() -> None:
    large = Tensor("l", Datatype.FP64, (4096,), bytes(2**15))
    message = encode(Response((large, Y), "backend's", "3", "backend's id"))
    assert message.parts[1:] == (large.data, b"\x32\x10" + bytes(Y.data))
    assert message.parts[1] is large.data


def test_writes_outputs_raw() -> None:
    message = encode(Response((EMPTY, Y), "backend's", "3", "backend's id", {"p": 5}))
    head = field(1, "m") + field(2, "3") + field(3, "42") + parameter(4, "p", field(2, 5))
    tensors = tensor("e", "BYTES", 0, more=parameter(4, "k", field(1, 1))) + tensor("y", "FP64", 1, 2)
    assert message.parts == (head + tensors + b"\x32\x00\x32\x10" + bytes(Y.data),)
    assert (message.status, list(message.headers)) == (0, [])


def test_no_output_is_an_empty_message() -> None:
    assert encode(Response(), infer(b"")).body == b""


def test_a_string_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(GatewayError, match=r"the response: .* not UTF-8") as raised:
        encode(Response((Tensor("\ud800", Datatype.INT8, (0,), b""),)))
    assert raised.value.status is Status.INVALID_ARGUMENT
