import struct

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Status
from gateway.core.exchange import decoded
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.protocol import Target
from gateway.core.types import Parameters, Request, RequestedOutput, Tensor
from tests.protocols.v2.grpc.wire import (
    INFER,
    KSERVE,
    LISTENER,
    MLSERVER,
    STREAM,
    TARGET,
    TRITON,
    field,
    infer,
    message,
    one_input,
    parameter,
    tensor,
)
from tests.protocols.v2.rest.wire import V2_GRPC, values

INT64_MIN = bytes((2 << 3,)) + b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"
UINT64_MAX = bytes((5 << 3,)) + b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
HALF = bytes((4 << 3 | 1,)) + struct.pack("<d", 0.5)


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
    asked = message(body, peer="10.0.0.1:5", deadline=9.0)
    request = decoded(asked, V2_GRPC, LISTENER)
    assert (request.operation, request.model, request.version, request.id) == (Operation.INFER, "m", "v10", "42")
    assert request.parameters == {"s": "größe", "b": True, "i": -(2**63), "u": 2**64 - 1, "d": 0.5}
    x, y = request.inputs
    assert (x.name, x.datatype, x.shape, x.parameters) == ("x", Datatype.INT16, (1, 2), {"k": 7})
    assert (values(x), values(y)) == ([[1, -1]], [b"", b"\xff\x00"])
    assert request.outputs == (RequestedOutput("z", {"classification": 3}),)
    assert (request.listener, request.protocol, request.peer, request.deadline) == (
        "grpc",
        "v2-grpc",
        "10.0.0.1:5",
        9.0,
    )
    assert (request.headers, request.origin) == (asked.headers, asked)


def test_an_empty_id_is_none_and_the_stream_is_an_operation_of_its_own() -> None:
    assert infer(field(1, "m")).id is None
    assert infer(field(1, "m"), STREAM).operation is Operation.STREAM


def test_unknown_fields_are_skipped() -> None:
    assert infer(field(1, "m") + field(15, b"\xff") + b"\x80\x7d\x01").model == "m"


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


def test_the_binary_extensions_parameters_mean_nothing_here() -> None:
    output = field(6, field(1, "y") + parameter(2, "binary_data", field(1, 1)))
    request = infer(tensor("x", "INT8", 0, more=parameter(4, "binary_data_size", field(2, 0))) + output)
    assert (request.inputs[0].parameters, request.outputs[0].parameters) == ({}, {})


def test_what_is_meant_for_the_server_goes_no_further() -> None:
    consumed = ("priority", "binary_data_output", "triton_enable_empty_final_response")
    body = b"".join(parameter(4, key, field(1, 1)) for key in consumed) + parameter(4, "other", field(1, 0))
    assert infer(body).parameters == {"other": False}


SHARED = parameter(4, "shared_memory_region", field(3, "r"))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (field(1, b"\xff"), "no inference.ModelInferRequest message"),
        (b"\x0a\x05m", "no inference.ModelInferRequest message"),
        (parameter(4, "p", b""), "the request: parameter 'p' has no value"),
        (tensor("x", "FP64", 0, more=parameter(4, "p", b"")), "input 'x': parameter 'p' has no value"),
        (parameter(4, "timeout", HALF), "timeout must be an integer"),
        (parameter(4, "timeout", field(1, 1)), "timeout must be an integer"),
        (parameter(4, "triton_enable_empty_final_response", field(2, 1)), "must be true or false"),
        (tensor("", "FP64", 0), "input 0 has no name"),
        (tensor("x", "FP64", 0) + tensor("x", "FP64", 0), "input 'x' is given twice"),
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
    ],
)
def test_refuses_what_a_server_must_not_see(body: bytes, told: str) -> None:
    with pytest.raises(DecodeError, match=told):
        infer(body)


def test_shared_memory_is_named_where_raw_contents_leave_it_out() -> None:
    body = tensor("x", "INT8", 1) + tensor("y", "FP64", 1, more=SHARED) + field(7, b"\x00")
    with pytest.raises(DecodeError, match="input 'y': shared_memory_region"):
        infer(body)


def test_one_form_for_the_whole_request() -> None:
    body = tensor("x", "INT8", 1) + tensor("y", "INT8", 1, contents=field(2, b"\x02")) + field(7, b"\x01") * 2
    with pytest.raises(DecodeError, match="input 'y' has contents beside raw_input_contents"):
        infer(body)


def test_typed_inputs_beside_an_empty_one() -> None:
    request = infer(tensor("x", "INT8", 2, contents=field(2, b"\x01\x02")) + tensor("y", "FP16", 0))
    assert [values(each) for each in request.inputs] == [[1, 2], []]


def test_typed_data_beyond_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(GatewayError, match=r"input 'x' takes 68719476736 bytes, limits.message is 67108864") as raised:
        one_input("FP64", *[64, 64, 64, 64, 64, 8], contents=field(7, bytes(8)))
    assert raised.value.status is Status.RESOURCE_EXHAUSTED


X = Tensor("x", Datatype.INT16, (1, 2), b"\x01\x00\xff\xff", parameters={"k": 7})
EMPTY = Tensor("e", Datatype.FP64, (0,), b"")


def test_writes_raw_one_entry_a_tensor_and_never_joins() -> None:
    request = Request(Operation.INFER, "m", "2", "42", (EMPTY, X, EMPTY), (RequestedOutput("z"),))
    asked = V2_GRPC.encode_request(request, TARGET)
    head = (
        field(1, "m")
        + field(2, "2")
        + field(3, "42")
        + tensor("e", "FP64", 0)
        + tensor("x", "INT16", 1, 2, more=parameter(4, "k", field(2, 7)))
        + tensor("e", "FP64", 0)
        + field(6, field(1, "z"))
    )
    assert asked.parts == (head + b"\x3a\x00\x3a\x04", X.data, b"\x3a\x00")
    assert asked.parts[1] is X.data
    assert (asked.path, asked.pattern, asked.method, list(asked.headers)) == (INFER, INFER, "", [])


def test_streams_by_the_streams_method() -> None:
    asked = V2_GRPC.encode_request(Request(Operation.STREAM, "m"), TARGET)
    assert (asked.path, asked.body) == (STREAM, field(1, "m"))


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        (True, field(1, 1)),
        (5, field(2, 5)),
        (-(2**63), INT64_MIN),
        ("größe", field(3, "größe")),
        (0.5, HALF),
        (2**64 - 1, UINT64_MAX),
    ],
)
def test_parameters_take_the_field_of_their_type(given: object, choice: bytes) -> None:
    request = Request(Operation.INFER, parameters={"p": given})  # type: ignore[dict-item]
    assert V2_GRPC.encode_request(request, TRITON).body == parameter(4, "p", choice)


@pytest.mark.parametrize("target", [MLSERVER, KSERVE])
@pytest.mark.parametrize("given", [0.5, 2**63])
def test_parameters_that_the_server_would_lose_are_refused(target: Target, given: float | int) -> None:
    lost: Parameters = {"p": given}
    for request in (
        Request(Operation.INFER, parameters=lost),
        Request(Operation.INFER, inputs=(Tensor("x", Datatype.FP64, (0,), b"", parameters=lost),)),
        Request(Operation.INFER, outputs=(RequestedOutput("y", lost),)),
    ):
        with pytest.raises(GatewayError, match=r"parameter 'p' is .* cannot read over gRPC") as raised:
            V2_GRPC.encode_request(request, target)
        assert raised.value.status is Status.INVALID_ARGUMENT


def test_kserve_has_no_versions_and_would_answer_all_the_same() -> None:
    with pytest.raises(GatewayError, match=r"a KServe, which has no versions, not '1'") as raised:
        V2_GRPC.encode_request(Request(Operation.INFER, "m", "1"), KSERVE)
    assert raised.value.status is Status.NOT_FOUND


@pytest.mark.parametrize("target", [KSERVE, MLSERVER])
def test_bf16_is_widened_for_servers_without_it(target: Target) -> None:
    half = Tensor("x", Datatype.BF16, (2,), b"\x80\x3f\xc0\x7f")  # 1.0 and NaN
    asked = V2_GRPC.encode_request(Request(Operation.INFER, inputs=(half,)), target)
    (got,) = infer(b"".join(asked.parts)).inputs
    assert (got.datatype, got.parameters) == (Datatype.FP32, {"gateway_datatype": "BF16"})
    assert bytes(got.data) == b"\x00\x00\x80\x3f\x00\x00\xc0\x7f"
    (kept,) = infer(b"".join(V2_GRPC.encode_request(Request(Operation.INFER, inputs=(half,)), TRITON).parts)).inputs
    assert kept == half


@pytest.mark.parametrize("operation", [Operation.INFER, Operation.STREAM, Operation.METADATA])
def test_triton_has_no_versions_but_integers(operation: Operation) -> None:
    request = Request(operation, "m", "v10")
    with pytest.raises(GatewayError, match=r"rewrite\.version") as raised:
        V2_GRPC.encode_request(request, TRITON)
    assert raised.value.status is Status.NOT_FOUND
    assert field(2, "v10") in V2_GRPC.encode_request(request, TARGET).body


@pytest.mark.parametrize(
    "request_",
    [
        Request(Operation.INFER, "\ud800"),
        Request(Operation.INFER, "m", parameters={"p": "\ud800"}),
        Request(Operation.METADATA, "\ud800"),
    ],
)
def test_refuses_texts_that_protobuf_lacks(request_: Request) -> None:
    with pytest.raises(GatewayError, match="not UTF-8") as raised:
        V2_GRPC.encode_request(request_, TARGET)
    assert raised.value.status is Status.INVALID_ARGUMENT


@pytest.mark.parametrize("operation", DERIVATIVES)
def test_has_no_words_for_derivatives(operation: Operation) -> None:
    with pytest.raises(GatewayError, match=operation.value) as raised:
        V2_GRPC.encode_request(Request(operation, "m"), TARGET)
    assert raised.value.status is Status.UNIMPLEMENTED


def test_a_parameter_beyond_64_bits_is_refused_by_name() -> None:
    with pytest.raises(GatewayError, match="parameter 'n' is an integer beyond 64 bits, which gRPC cannot carry"):
        V2_GRPC.encode_request(Request(Operation.INFER, "m", parameters={"n": 2**64}), TRITON)
