import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Status
from gateway.core.types import Message, Request, Response, Tensor
from tests.protocols.v2.grpc.wire import AS_IS, MLSERVER, decode, field, infer, parameter, tensor
from tests.protocols.v2.rest.wire import V2_GRPC, values

CLIENT = infer(field(1, "m") + field(3, "42"))
Y = Tensor("y", Datatype.FP64, (1, 2), b"\x00\x00\x00\x00\x00\x00\xf8?\x00\x00\x00\x00\x00\x00\x00\xc0")
EMPTY = Tensor("e", Datatype.BYTES, (0,), b"", parameters={"k": True})


def encode(response: Response, request: Request = CLIENT) -> Message:
    return V2_GRPC.encode_response(response, request, AS_IS)


def test_always_raw_one_entry_an_output_and_never_joined() -> None:
    message = encode(Response((EMPTY, Y), "backend's", "3", "backend's id", {"p": 5}))
    head = (
        field(1, "m")
        + field(2, "3")
        + field(3, "42")
        + parameter(4, "p", field(2, 5))
        + tensor("e", "BYTES", 0, more=parameter(4, "k", field(1, 1)))
        + tensor("y", "FP64", 1, 2)
    )
    assert message.parts == (head + b"\x32\x00\x32\x10", Y.data)
    assert message.parts[1] is Y.data
    assert (message.status, list(message.headers)) == (0, [])


def test_names_version_and_id_are_the_clients() -> None:
    client = infer(field(2, "v1"))
    assert encode(Response((), "m", "3", "b3d1-uuid"), client).body == field(1, "m") + field(2, "v1")


def test_no_output_is_an_empty_message() -> None:
    assert encode(Response(), infer(b"")).body == b""


def test_a_text_that_protobuf_lacks_is_named() -> None:
    with pytest.raises(GatewayError, match=r"the response: .* not UTF-8") as raised:
        encode(Response((Tensor("\ud800", Datatype.INT8, (0,), b""),)))
    assert raised.value.status is Status.INVALID_ARGUMENT


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
    # KServe's binary_data_size; MLServer's empty contents beside raw, and a parameter that its schema lost the value of
    more = parameter(4, "binary_data_size", field(2, 2)) + field(5, b"")
    body = tensor("a", "INT8", 2, more=more) + parameter(4, "lost", b"") + field(6, b"\x01\x02")
    response = decode(body, CLIENT, MLSERVER)
    assert (response.parameters, response.outputs[0].parameters) == ({}, {})
    assert values(response.outputs[0]) == [1, 2]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"\x0a", "no inference.ModelInferResponse message"),
        (tensor("a", "INT8", 2) + field(6, b"\x01"), r"output 'a': 1 bytes, but INT8 of shape \[2\] takes 2"),
        (tensor("a", "INT8", 1) + tensor("a", "INT8", 1) + field(6, b"\x01") * 2, "output 'a' is given twice"),
        (tensor("a", "FP8", 1) + field(6, b"\x01"), "output 'a': datatype must be one of"),
        (tensor("a", "INT8", 1) + tensor("b", "INT8", 1) + field(6, b"\x01"), "output 'b' has no raw contents"),
    ],
)
def test_refuses_what_is_no_response(body: bytes, told: str) -> None:
    with pytest.raises(DecodeError, match=told):
        decode(body, CLIENT)
