"""What kubemo 0.0.dev2 really says, read and written: tests/wire/mip/record.py says how it was recorded."""

from math import inf, nan
from typing import Any

import pytest

from gateway.core import exchange
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.exchange import as_gateway_error
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import StreamBinding
from gateway.core.requests import DEFAULT_TRANSLATE, Request, Response
from tests.protocols.mip.wire import LISTENER, MIP, SPLIT, decoded, received, recorded, replied, sent, shown

GIF = bytes.fromhex("47494638396101000100800000000000ffffff2c00000000010001000002024401003b")

Shown = list[tuple[str, list[int], Any]]
INFERENCES: dict[str, tuple[Shown, Shown]] = {
    "json": ([("INT64~", [1, 2], [1, 2])], [("INT64~", [1, 2], [2, 4])]),
    "json_floats": ([("FP64~", [1, 4], [0.5, -0.0, nan, inf])], [("FP64~", [1, 4], [1.0, -0.0, nan, inf])]),
    "scalar": ([("INT64~", [1], [3])], [("INT64~", [1], [6])]),
    "batch": ([("INT64~", [2, 2], [1, 2, 3, 4])], [("INT64~", [2, 2], [2, 4, 6, 8])]),
    "two_inputs": (
        [("INT64~", [2, 1], [1, 3]), ("INT64~", [2, 1], [2, 4])],
        [("INT64~", [2, 1], [2, 6]), ("INT64~", [2, 1], [4, 8])],
    ),
    "two_outputs": ([("BYTES", [1], [b'{"outputs": 2}'])], [("INT64~", [1], [0]), ("INT64~", [1], [1])]),
    "labels": (
        [("BYTES", [1], [b'{"labels": {"cat": 0.9, "dog": 0.1}}'])],
        [("BYTES", [1], [b'{"cat": 0.9, "dog": 0.1}'])],
    ),
    "text": ([("BYTES", [2], ["kubemo é".encode(), b"x"])], [("BYTES", [2], ["KUBEMO É".encode(), b"X"])]),
    "image": ([("BYTES", [1], [GIF])], [("BYTES", [1], [GIF])]),
    "npy": ([("FP32", [1, 3], [0.5, 1.0, 2.0])], [("FP32", [1, 3], [1.0, 2.0, 4.0])]),
    "npy_scalar": ([("FP16", [1], [1.5])], [("FP16", [1], [3.0])]),
    "npy_integers": ([("UINT64", [1, 1, 2], [1, 2])], [("UINT64", [1, 1, 2], [2, 4])]),
    "no_inputs": ([], []),
}


@pytest.mark.parametrize("name", INFERENCES)
def test_requests_are_read(name: str) -> None:
    request = exchange.decoded(recorded(f"{name}.request"), MIP, LISTENER)
    assert (request.operation, request.model, request.listener, request.protocol) == (
        Operation.INFER, "classifier", "vision", "mip",
    )  # fmt: skip
    assert repr(shown(request.inputs)) == repr(INFERENCES[name][0])


@pytest.mark.parametrize("name", INFERENCES)
def test_replies_are_read(name: str) -> None:
    """Outputs are counted: a real server sends n-output 1 for two outputs of one input."""
    inputs = decoded(recorded(f"{name}.request"))
    assert repr(shown(replied(recorded(f"{name}.reply"), *inputs))) == repr(INFERENCES[name][1])


# JSON is written in our own way: no blanks, and integers as floats where the type is.
SAME = sorted(INFERENCES.keys() - {"json", "json_floats", "batch", "two_inputs", "two_outputs"})


@pytest.mark.parametrize("name", SAME)
def test_requests_are_written_as_the_client_writes_them(name: str) -> None:
    inputs = decoded(recorded(f"{name}.request"))
    message = MIP.encode_request(Request(Operation.INFER, inputs=inputs), SPLIT)
    assert sent(message) == sent(recorded(f"{name}.request"))


@pytest.mark.parametrize("name", SAME)
def test_replies_are_written_as_the_server_writes_them(name: str) -> None:
    request = exchange.decoded(recorded(f"{name}.request"), MIP, LISTENER)
    outputs = replied(recorded(f"{name}.reply"), *request.inputs)
    message = MIP.encode_response(Response(outputs), request, DEFAULT_TRANSLATE)
    assert sent(message) == sent(recorded(f"{name}.reply"))


@pytest.mark.parametrize("name", sorted(INFERENCES.keys() - set(SAME)))
def test_json_is_written_without_blanks(name: str) -> None:
    request = exchange.decoded(recorded(f"{name}.request"), MIP, LISTENER)
    assert repr(shown(decoded(received(sent(MIP.encode_request(request, SPLIT)))))) == repr(INFERENCES[name][0])
    outputs = replied(recorded(f"{name}.reply"), *request.inputs)
    reply = MIP.encode_response(Response(outputs), request, DEFAULT_TRANSLATE)
    assert repr(shown(replied(received(sent(reply)), *request.inputs))) == repr(INFERENCES[name][1])
    assert b" " not in sent(reply)


@pytest.mark.parametrize("name", ["ping", "ping_reserved"])
def test_a_ping_asks_whether_the_gateway_is_ready(name: str) -> None:
    request = exchange.decoded(recorded(f"{name}.request"), MIP, LISTENER)
    assert request.operation is Operation.READY
    reply = MIP.encode_response(True, request, DEFAULT_TRANSLATE)
    assert sent(reply) == sent(recorded(f"{name}.reply"))


def test_a_model_is_ready_if_its_server_answers_a_ping() -> None:
    request = Request(Operation.MODEL_READY, "m")
    assert sent(MIP.encode_request(request, SPLIT)) == sent(recorded("ping.request"))
    assert MIP.decode_response(recorded("ping.reply"), request, SPLIT) is True


ERRORS = {
    "error_protocol": (Reason.INVALID_OUTPUT, "the server answered with MIP error 0 (PROTOCOL)"),
    "error_subtype": (Reason.INVALID_OUTPUT, "the server answered with MIP error 1 (SUBTYPE)"),
    "error_method": (Reason.UNSUPPORTED, "the server answered with MIP error 2 (METHOD)"),
    "error_memory": (Reason.OVERLOADED, "the server answered with MIP error 3 (MEMORY)"),
    "error_shape": (Reason.INVALID_INPUT, "the server answered with MIP error 4 (SHAPE)"),
    "error_internal": (Reason.MODEL_ERROR, "the server answered with MIP error 5 (INTERNAL)"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_read(name: str) -> None:
    with pytest.raises(GatewayError) as failure:
        MIP.decode_response(recorded(f"{name}.reply"), Request(Operation.INFER), SPLIT)
    assert (failure.value.reason, failure.value.message) == ERRORS[name]


@pytest.mark.parametrize("name", ["error_protocol", "error_subtype", "error_method"])
def test_header_errors_have_the_codes_of_the_real_server(name: str) -> None:
    """Errors of the framing and of the codec become error packets, as in the transport and in `answer`."""
    message = recorded(f"{name}.request")
    reply = MIP.encode_error(refused(message), None, message)
    assert sent(reply)[:4] == sent(recorded(f"{name}.reply"))[:4]


def refused(message: Message) -> GatewayError:
    try:
        assert isinstance(MIP.binding, StreamBinding)
        MIP.binding.framing.size(message.parts[0])
        exchange.decoded(message, MIP, LISTENER)
    except (DecodeError, GatewayError) as error:
        return as_gateway_error(error)
    raise AssertionError("it was not refused")
