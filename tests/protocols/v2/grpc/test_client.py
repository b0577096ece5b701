"""V2 gRPC facing backends: requests written, responses read."""

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Status
from gateway.core.frozen import replace
from gateway.core.models import ServerInfo
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import NestedJson, Request, RequestedOutput
from gateway.core.tensors import Parameters, ParameterValue, Tensor
from gateway.protocols.v2 import V2_GRPC
from gateway.protocols.v2.grpc import metadata
from gateway.protocols.v2.grpc.schema import ModelInferRequest
from tests.protocols.v2.grpc.by_hand import HALF, INT64_MIN, UINT64_MAX, field, parameter, tensor
from tests.protocols.v2.grpc.wire import INFER, KSERVE, MLSERVER, TARGET, TRITON, decode, infer, values

X = Tensor("x", Datatype.INT16, (1, 2), b"\x01\x00\xff\xff", parameters={"k": 7})
X_HEAD, EMPTY_HEAD = tensor("x", "INT16", 1, 2, more=parameter(4, "k", field(2, 7))), tensor("e", "FP64", 0)
PLAIN = replace(TARGET, flavor="plain")
EMPTY = Tensor("e", Datatype.FP64, (0,), b"")
LARGE = Tensor("l", Datatype.FP64, (4096,), bytes(2**15))


def test_writes_large_inputs_raw_without_joining_them() -> None:
    written = V2_GRPC.encode_request(Request(Operation.INFER, "m", inputs=(X, LARGE, EMPTY, LARGE, X)), TARGET)
    small = b"\x3a\x04" + X.data
    assert bytes(written.parts[0]).endswith(small + b"\x3a\x80\x80\x02")
    assert written.parts[1:] == (LARGE.data, b"\x3a\x00\x3a\x80\x80\x02", LARGE.data, small)
    assert written.parts[1] is written.parts[3] is LARGE.data


def test_writes_inputs_raw() -> None:
    request = Request(Operation.INFER, "m", "2", "42", (EMPTY, X, EMPTY), (RequestedOutput("z"),))
    written = V2_GRPC.encode_request(request, TARGET)
    head = field(1, "m") + field(2, "2") + field(3, "42") + EMPTY_HEAD + X_HEAD + EMPTY_HEAD + field(6, field(1, "z"))
    assert written.parts == (head + b"\x3a\x00\x3a\x04" + X.data + b"\x3a\x00",)
    assert (written.path, written.pattern, written.method, list(written.headers)) == (INFER, INFER, "", [])


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


@pytest.mark.parametrize("target", [MLSERVER, KSERVE, TARGET, PLAIN, replace(PLAIN, extensions=frozenset({"trace"}))])
@pytest.mark.parametrize("given", [0.5, 2**63])
def test_parameters_that_the_server_would_lose_are_refused(target: Target, given: float | int) -> None:
    lost: Parameters = {"p": given}
    for request in (
        Request(Operation.INFER, parameters=lost),
        Request(Operation.INFER, inputs=(Tensor("x", Datatype.FP64, (0,), b"", parameters=lost),)),
        Request(Operation.INFER, outputs=(RequestedOutput("y", lost),)),
    ):
        lost_over_grpc = r"parameter 'p' is .*, for which not every server has a field over gRPC"
        with pytest.raises(GatewayError, match=lost_over_grpc) as raised:
            V2_GRPC.encode_request(request, target)
        assert raised.value.status is Status.INVALID_ARGUMENT


def test_a_gateway_lists_the_extension_that_has_all_types_of_parameters() -> None:
    info = ServerInfo("gateway", "1", metadata.OWN_EXTENSIONS)
    flavors = V2_GRPC.traits.servers.flavors
    assert flavors is not None
    gateway = replace(TARGET, flavor=flavors.detect(info), extensions=frozenset(info.extensions))
    request = Request(Operation.INFER, parameters={"p": 0.5})
    assert V2_GRPC.encode_request(request, gateway).body == parameter(4, "p", HALF)


def test_a_priority_is_for_servers_that_have_priorities() -> None:
    def sent(given: ParameterValue, target: Target) -> bytes:
        return bytes(V2_GRPC.encode_request(Request(Operation.INFER, parameters={"priority": given}), target).body)

    listing = replace(PLAIN, extensions=frozenset({"schedule_policy"}))
    for target in (TRITON, listing):
        assert sent(3, target) == parameter(4, "priority", field(5, 3))
        assert sent("high", target) == parameter(4, "priority", field(3, "high"))  # for the server to refuse
    for target in (MLSERVER, KSERVE, PLAIN, replace(TRITON, extensions=frozenset())):
        with pytest.raises(GatewayError, match="parameter priority needs V2's extension 'schedule_policy'") as refused:
            sent(3, target)
        assert refused.value.status is Status.UNIMPLEMENTED


def test_a_version_is_refused_for_kserve() -> None:
    with pytest.raises(GatewayError, match=r"a KServe, which has no versions, not '1'") as raised:
        V2_GRPC.encode_request(Request(Operation.INFER, "m", "1"), KSERVE)
    assert raised.value.status is Status.NOT_FOUND


@pytest.mark.parametrize("target", [KSERVE, MLSERVER])
def test_bf16_is_widened_for_servers_without_it(target: Target) -> None:
    half = Tensor("x", Datatype.BF16, (2,), b"\x80\x3f\xc0\x7f")  # 1.0 and NaN
    written = V2_GRPC.encode_request(Request(Operation.INFER, inputs=(half,)), target)
    (got,) = infer(b"".join(written.parts)).inputs
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
        Request(Operation.INFER, "m", inputs=(Tensor("\ud800", Datatype.FP32, (0,), b""),)),
        Request(Operation.METADATA, "\ud800"),
    ],
)
@pytest.mark.parametrize("flavor", ["plain", "typed"])
def test_refuses_strings_that_are_not_utf8(request_: Request, flavor: str) -> None:
    with pytest.raises(GatewayError, match="not UTF-8") as raised:
        V2_GRPC.encode_request(request_, replace(TARGET, flavor=flavor))
    assert raised.value.status is Status.INVALID_ARGUMENT


def test_a_request_with_typed_contents_is_raw_if_a_datatype_has_none() -> None:
    request = infer(tensor("x", "FP32", 1, contents=field(6, bytes(4))))
    half = Tensor("h", Datatype.FP16, (1,), b"\0\x3c")
    written = V2_GRPC.encode_request(replace(request, inputs=(*request.inputs, half)), TRITON)
    sent = ModelInferRequest.FromString(bytes(written.body))
    assert list(sent.raw_input_contents) == [bytes(4), b"\0\x3c"]


def test_an_object_among_the_parameters_is_refused_by_name() -> None:
    request = Request(Operation.INFER, "m", parameters={"tags": NestedJson('{"a":"b"}')})
    with pytest.raises(GatewayError, match="parameter 'tags' is an object or a list, which gRPC cannot carry"):
        V2_GRPC.encode_request(request, TRITON)


def test_a_parameter_beyond_64_bits_is_refused_by_name() -> None:
    with pytest.raises(GatewayError, match="parameter 'n' is an integer beyond 64 bits, which gRPC cannot carry"):
        V2_GRPC.encode_request(Request(Operation.INFER, "m", parameters={"n": 2**64}), TRITON)


CLIENT = infer(field(1, "m") + field(3, "42"))
HEAD = field(1, "m") + field(2, "1") + field(3, str(CLIENT.id))


def test_reads_raw_outputs() -> None:
    body = HEAD + parameter(4, "p", field(2, 5)) + tensor("a", "INT8", 2) + tensor("b", "INT8", 0)
    response = decode(body + field(6, b"\x01\xff") + field(6, b""), CLIENT)
    assert (response.model, response.version, response.id, response.parameters) == ("m", "1", CLIENT.id, {"p": 5})
    assert [(each.name, values(each)) for each in response.outputs] == [("a", [1, -1]), ("b", [])]


def test_reads_typed_outputs() -> None:
    response = decode(HEAD + tensor("a", "UINT16", 2, contents=field(4, b"\x01\xff\x01")), CLIENT)
    assert [values(each) for each in response.outputs] == [[1, 255]]


def test_skips_what_servers_add() -> None:
    # KServe adds binary_data_size; MLServer empty contents beside raw ones, and parameters without a value
    more = parameter(4, "binary_data_size", field(2, 2)) + field(5, b"")
    body = tensor("a", "INT8", 2, more=more) + parameter(4, "lost", b"") + field(6, b"\x01\x02")
    response = decode(body, CLIENT, MLSERVER)
    assert (response.parameters, response.outputs[0].parameters) == ({}, {})
    assert values(response.outputs[0]) == [1, 2]


@pytest.mark.parametrize(
    ("body", "error_text"),
    [
        (b"\x0a", "no inference.ModelInferResponse message"),
        (tensor("a", "INT8", 2) + field(6, b"\x01"), r"output 'a': 1 bytes, but INT8 of shape \[2\] takes 2"),
        (tensor("a", "INT8", 1) + tensor("a", "INT8", 1) + field(6, b"\x01") * 2, "output 'a' occurs twice"),
        (tensor("a", "FP8", 1) + field(6, b"\x01"), "output 'a': datatype must be one of"),
        (tensor("a", "INT8", 1) + tensor("b", "INT8", 1) + field(6, b"\x01"), "output 'b' has no raw contents"),
    ],
)
def test_refuses_what_is_no_response(body: bytes, error_text: str) -> None:
    with pytest.raises(DecodeError, match=error_text):
        decode(body, CLIENT)
