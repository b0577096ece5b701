import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, Status, invalid_input, not_found
from gateway.core.operations import Operation
from gateway.core.requests import Request, Response
from gateway.core.tensors import Tensor
from gateway.protocols.v2 import V2_GRPC
from tests.protocols.v2.grpc.by_hand import field, parameter, tensor
from tests.protocols.v2.grpc.wire import AS_IS, MLSERVER, STREAM, TRITON, decode, exchanged, infer, message, reply

ASKS = parameter(4, "triton_enable_empty_final_response", field(1, 1))
PLAIN_CLIENT = infer(field(1, "m") + field(3, "42"), STREAM)
COUNTING_CLIENT = infer(field(1, "m") + field(3, "42") + ASKS, STREAM)
HEAD = field(1, "m") + field(3, "42")
OUTPUT = Tensor("y", Datatype.INT8, (1,), b"\x07")
TAIL = tensor("y", "INT8", 1) + field(6, b"\x07")


def final(value: int) -> bytes:
    return parameter(4, "triton_final_response", field(1, value) if value else b"\x08\x00")


def encode(request: Request, **parameters: bool) -> bytes:
    response = Response((OUTPUT,), "m", parameters=parameters)
    return bytes(V2_GRPC.encode_response(response, request, AS_IS).body)


def test_a_response_is_wrapped_in_the_streams_message() -> None:
    assert encode(PLAIN_CLIENT) == field(2, HEAD + TAIL)


def test_large_data_is_not_copied_when_wrapped() -> None:
    data = bytes(2**20)
    response = Response((Tensor("y", Datatype.INT8, (2**20,), data),))
    parts = V2_GRPC.encode_response(response, PLAIN_CLIENT, AS_IS).parts
    assert parts[1] is data
    assert decode(b"".join(parts), PLAIN_CLIENT).outputs[0].data == data


def test_an_empty_response_is_wrapped_too() -> None:
    assert V2_GRPC.encode_response(Response(), infer(b"", STREAM), AS_IS).body == b"\x12\x00"


@pytest.mark.parametrize("flag", [0, 1])
def test_the_backends_final_response_parameter_is_forwarded(flag: int) -> None:
    assert encode(PLAIN_CLIENT, triton_final_response=bool(flag)) == field(2, HEAD + final(flag) + TAIL)
    assert end(PLAIN_CLIENT) is None


def end(request: Request) -> bytes | None:
    assert V2_GRPC.encode_end is not None
    ended = V2_GRPC.encode_end(request)
    return None if ended is None else bytes(ended.body)


@pytest.mark.parametrize("parameters", [{}, {"triton_final_response": True}, {"triton_final_response": False}])
def test_a_client_that_counts_gets_one_final_response(parameters: dict[str, bool]) -> None:
    assert encode(COUNTING_CLIENT, **parameters) == field(2, HEAD + final(0) + TAIL)
    assert end(COUNTING_CLIENT) == field(2, HEAD + final(1))


def test_the_empty_final_response_is_as_in_triton() -> None:
    _, (request_body,), replies = exchanged("triton", "repeat_empty_final")
    assert end(infer(request_body, STREAM)) == replies[-1].body


def test_the_empty_final_parameter_is_consumed_and_ignored_on_unary_calls() -> None:
    assert COUNTING_CLIENT.parameters == {}
    unary = infer(HEAD + ASKS)
    assert end(unary) is None
    assert bytes(V2_GRPC.encode_response(Response((OUTPUT,), "m"), unary, AS_IS).body) == HEAD + TAIL


def error(request: Request | None, error: GatewayError) -> bytes:
    encoded = V2_GRPC.encode_error(error, request, message(b"", STREAM))
    assert (encoded.status, list(encoded.headers)) == (0, [])
    return bytes(encoded.body)


def reason(text: str) -> bytes:
    return parameter(4, "gateway_reason", field(3, text))


def test_an_error_in_a_stream_has_the_requests_id_and_no_status() -> None:
    expected = field(1, "größe?") + field(2, field(3, "42") + reason("invalid-input"))
    assert error(PLAIN_CLIENT, invalid_input("größe?")) == expected
    assert error(None, invalid_input("größe?")) == field(1, "größe?") + field(2, reason("invalid-input"))


@pytest.mark.parametrize(
    ("body", "response"), [(field(3, "42") + tensor("x", "FP8", 1), field(3, "42")), (b"\x0a", b"")]
)
def test_the_error_of_an_unreadable_request_has_its_id(body: bytes, response: bytes) -> None:
    answer = V2_GRPC.encode_error(invalid_input("why"), None, message(body, STREAM))
    assert answer.body == field(1, "why") + field(2, response + reason("invalid-input"))


def test_an_error_without_a_text_has_its_reason_as_text() -> None:
    assert error(None, invalid_input("")).startswith(field(1, "invalid-input"))


def test_an_error_is_the_final_response_for_a_client_that_counts() -> None:
    assert final(1) in error(COUNTING_CLIENT, invalid_input("why"))
    assert final(1) not in error(PLAIN_CLIENT, invalid_input("why"))


def test_outside_a_stream_an_error_is_a_status() -> None:
    assert V2_GRPC.encode_error(invalid_input("why"), None, message(b"")).status == Status.INVALID_ARGUMENT


STREAMED = Request(Operation.STREAM, "m")


def test_between_gateways_the_reason_is_kept() -> None:
    with pytest.raises(GatewayError, match="no such model") as raised:
        V2_GRPC.decode_response(reply(error(PLAIN_CLIENT, not_found("no such model"))), STREAMED, TRITON)
    assert (raised.value.status, raised.value.reason) == (Status.NOT_FOUND, Reason.MODEL_NOT_FOUND)


def test_an_error_in_a_servers_stream_is_a_model_error() -> None:
    _, _, replies = exchanged("triton", "repeat_failing")
    with pytest.raises(GatewayError, match="below zero") as raised:
        V2_GRPC.decode_response(replies[0], STREAMED, TRITON)
    assert (raised.value.status, raised.value.reason) == (Status.INTERNAL, Reason.MODEL_ERROR)


def test_reads_tritons_responses() -> None:
    _, _, replies = exchanged("triton", "repeat")
    responses = [decode(bytes(each.body), STREAMED, TRITON) for each in replies]
    assert [each.outputs[0].array.tolist() for each in responses] == [[0], [1]]
    assert [each.parameters for each in responses] == [{"triton_final_response": False}] * 2


def test_reads_mlservers_responses_which_lack_the_message_around() -> None:
    _, _, replies = exchanged("mlserver", "stream")
    response = decode(bytes(replies[0].body), STREAMED, MLSERVER)
    assert [each.array.tolist() for each in response.outputs] == [[1.5]]


@pytest.mark.parametrize("body", [b"\x12", b"\x12\x05\x0a", field(2, b"\x0a"), field(1, b"\xff"), b"\x0b"])
def test_refuses_what_is_no_response(body: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(body, STREAMED)
