"""Replies: to clients and from backends, errors among them."""

import json

import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.operations import Operation
from gateway.core.types import (
    DEFAULT_TRANSLATE,
    Headers,
    Message,
    Request,
    RequestedOutput,
    Response,
    Signature,
    TensorSpec,
    tensor,
)
from tests.protocols.graphpipe.wire import GRAPHPIPE, TARGET, call, recorded, reply

INFER = Request(Operation.INFER)
SIGNATURE = Signature(
    (TensorSpec("x", Datatype.FP32, (-1, 3)), TensorSpec("flag", Datatype.BOOL, ())),
    (TensorSpec("y", Datatype.BF16, (2,)),),
    name="m",
    versions=("1", "2"),
    platform="onnxruntime",
)


def test_metadata_is_binary_to_post_and_json_to_get() -> None:
    def told(method: str) -> Message:
        request = Request(Operation.METADATA, "m", origin=call(b"", "m", method))
        return GRAPHPIPE.encode_response(SIGNATURE, request, DEFAULT_TRANSLATE)

    read = GRAPHPIPE.decode_response(reply(told("POST").body), Request(Operation.METADATA), TARGET)
    assert read == Signature(
        (TensorSpec("x", Datatype.FP32, (-1, 3)), TensorSpec("flag", Datatype.UINT8, ())),
        (TensorSpec("y", Datatype.FP32, (2,)),),
        name="m",
        platform="onnxruntime",
    )
    shown = told("GET")
    assert shown.headers.get("content-type") == "application/json"
    assert b'\n    "Name": "m",\n' in bytes(shown.body)
    assert json.loads(bytes(shown.body)) == {
        "Name": "m",
        "Version": "1, 2",
        "Server": "onnxruntime",
        "Description": "",
        "Inputs": [
            {"Name": "x", "Description": "", "Shape": [-1, 3], "Type": 10},
            {"Name": "flag", "Description": "", "Shape": [], "Type": 1},
        ],
        "Outputs": [{"Name": "y", "Description": "", "Shape": [2], "Type": 10}],
    }


STATUSES = {
    Reason.INVALID_INPUT: 400,
    Reason.MODEL_NOT_FOUND: 404,
    Reason.PATH_NOT_FOUND: 404,
    Reason.UNSUPPORTED: 501,
    Reason.UNAUTHENTICATED: 401,
    Reason.PERMISSION_DENIED: 403,
    Reason.TOO_LARGE: 413,
    Reason.OVERLOADED: 429,
    Reason.TIMEOUT: 504,
    Reason.UNREACHABLE: 503,
    Reason.CANCELLED: 499,
    Reason.FAILED_PRECONDITION: 400,
    Reason.INVALID_OUTPUT: 502,
    Reason.MODEL_ERROR: 500,
    Reason.INTERNAL: 500,
}


@pytest.mark.parametrize(("reason", "status"), STATUSES.items(), ids=lambda each: str(each))
def test_an_error_is_a_status_and_errors(reason: Reason, status: int) -> None:
    message = GRAPHPIPE.encode_error(refusal(reason, "wärum"), None, call(b""))
    assert message.status == status
    with pytest.raises(GatewayError) as caught:
        GRAPHPIPE.decode_response(message, INFER, TARGET)
    assert (caught.value.reason, caught.value.message) == (reason, "wärum")


def test_a_client_may_have_its_errors_under_status_200() -> None:
    """The one form whose message reaches a user of the Python client."""
    error = refusal(Reason.TOO_LARGE, "why")
    message = GRAPHPIPE.encode_error(error, None, call(b"", query="a=b&errors=200"))
    assert message.status == 200
    with pytest.raises(GatewayError, match="why") as caught:
        GRAPHPIPE.decode_response(reply(message.body), INFER, TARGET)
    assert caught.value.reason is Reason.TOO_LARGE  # by the code, 413
    assert GRAPHPIPE.encode_error(error, None, call(b"", query="errors=2000")).status == 413


def test_who_asks_with_get_reads_a_text() -> None:
    message = GRAPHPIPE.encode_error(refusal(Reason.MODEL_NOT_FOUND, "no \ud800"), None, call(b"", method="GET"))
    assert (message.status, bytes(message.body)) == (404, b"no ?")
    assert message.headers.get("content-type").startswith("text/plain")


@pytest.mark.parametrize(
    ("body", "status", "reason", "text"),
    [
        (b"Unexpected input for 'foo' was sent\n", 400, Reason.INVALID_INPUT, "Unexpected input for 'foo' was sent"),
        (b"Unhandled GET\n", 500, Reason.MODEL_ERROR, "Unhandled GET"),
        (b"", 503, Reason.UNREACHABLE, "status 503 without a message"),
        (b"\xff" * 20_000, 418, Reason.MODEL_ERROR, "\N{REPLACEMENT CHARACTER}" * 8192),
        (recorded("float32.reply"), 400, Reason.INVALID_INPUT, "."),
    ],
)
def test_other_servers_errors(body: bytes, status: int, reason: Reason, text: str) -> None:
    with pytest.raises(GatewayError, match=text) as caught:
        GRAPHPIPE.decode_response(reply(body, status), INFER, TARGET)
    assert caught.value.reason is reason


def test_what_another_gateway_says_counts_most() -> None:
    told = Message(headers=Headers(((b"gateway-reason", b"overloaded"),)), parts=(b"busy",), status=400)
    with pytest.raises(GatewayError) as caught:
        GRAPHPIPE.decode_response(told, INFER, TARGET)
    assert caught.value.reason is Reason.OVERLOADED


def test_a_model_is_ready_if_it_answers() -> None:
    ready = Request(Operation.MODEL_READY)
    assert GRAPHPIPE.decode_response(reply(b"anything"), ready, TARGET) is True
    assert GRAPHPIPE.decode_response(reply(b"", 404), ready, TARGET) is False
    with pytest.raises(GatewayError):
        GRAPHPIPE.decode_response(reply(b"", 503), ready, TARGET)


def test_another_number_of_outputs_than_asked_for_cannot_be_named() -> None:
    """Go's `Serve` ignores the names of outputs, and gives all."""
    one = recorded("float32.reply")
    asked = Request(Operation.INFER, outputs=(RequestedOutput("a"), RequestedOutput("b")))
    with pytest.raises(DecodeError, match="1 outputs for the 2 that were requested"):
        GRAPHPIPE.decode_response(reply(one), asked, TARGET)


@pytest.mark.parametrize("body", [b"", b"<html>Not a model</html>"])
def test_a_success_that_is_no_flatbuffer_is_the_backends_fault(body: bytes) -> None:
    for operation in (Operation.INFER, Operation.METADATA):
        with pytest.raises(DecodeError, match="the flatbuffer has"):
            GRAPHPIPE.decode_response(reply(body), Request(operation), TARGET)
    with pytest.raises(DecodeError, match="status 301, expected 200"):
        GRAPHPIPE.decode_response(reply(body, 301), INFER, TARGET)


def test_a_reply_without_outputs_is_one() -> None:
    empty = GRAPHPIPE.encode_response(Response(), Request(Operation.INFER, origin=call(b"")), DEFAULT_TRANSLATE)
    assert GRAPHPIPE.decode_response(reply(empty.body), INFER, TARGET) == Response(origin=reply(empty.body))


def test_outputs_in_a_datatype_without_a_type_are_refused() -> None:
    flags = Response((tensor("y", np.array([True])),))
    with pytest.raises(GatewayError, match="output 'y' is BOOL, which GraphPipe does not have"):
        GRAPHPIPE.encode_response(flags, Request(Operation.INFER, origin=call(b"")), DEFAULT_TRANSLATE)
