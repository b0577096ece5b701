"""Requests to backends, and what their replies mean."""

import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, Target
from gateway.core.requests import Request, RequestedOutput
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.graphpipe import schema
from gateway.protocols.graphpipe.flatbuffers import Flatbuffer
from tests.protocols.graphpipe.wire import GRAPHPIPE, TARGET, asked, reply

X = tensor("x", np.array([1, 2], np.float32))


@pytest.mark.parametrize(
    ("address", "model", "path"),
    [
        ("127.0.0.1:9000", "m", "/graphpipe/m"),
        ("127.0.0.1:9000", "", "/"),
        ("http://models:9000", "a/b ü", "/graphpipe/a%2Fb%20%C3%BC"),
        ("http://models:9000/", "m", "/"),
        # the connector writes the prefix, without a trailing slash
        ("http://models:9000/api/squeezenet", "m", ""),
        ("http://models:9000/api/squeezenet/", "m", "/"),
    ],
)
def test_an_endpoints_url_is_used_as_it_is_given(address: str, model: str, path: str) -> None:
    message = GRAPHPIPE.encode_request(Request(Operation.METADATA, model), Target("b", address))
    assert (message.method, message.path) == ("POST", path)


@pytest.mark.parametrize("model", [".", ".."])
def test_a_model_without_a_url_is_refused(model: str) -> None:
    with pytest.raises(GatewayError, match="has no URL"):
        GRAPHPIPE.encode_request(Request(Operation.INFER, model), TARGET)


def test_metadata_and_readiness_are_the_same_request() -> None:
    messages = [GRAPHPIPE.encode_request(Request(each), TARGET) for each in (Operation.METADATA, Operation.MODEL_READY)]
    assert messages[0].parts == messages[1].parts
    assert asked(messages[0].body).operation is Operation.METADATA


def test_names_are_written_only_if_there_are_any() -> None:
    named = GRAPHPIPE.encode_request(Request(Operation.INFER, inputs=(X, replace(X, name=""))), TARGET)
    assert [each.name for each in asked(named.body).inputs] == ["x", ""]
    unnamed = GRAPHPIPE.encode_request(Request(Operation.INFER, inputs=(replace(X, name=""),)), TARGET)
    question = Flatbuffer(unnamed.body).root().table(schema.Request.REQ)
    assert question is not None
    assert question.count(schema.InferRequest.INPUT_NAMES) == 0  # Go's `Serve` refuses a name that it does not know


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (Request(Operation.INFER, parameters={"other": 1}), "parameter 'other' is not supported by GraphPipe"),
        (Request(Operation.INFER, parameters={"config": 1}), "parameter 'config' is 1, expected text"),
        (Request(Operation.INFER, parameters={"config": "\ud800"}), "config '\\\\ud800' is not UTF-8"),
        (Request(Operation.INFER, inputs=(replace(X, parameters={"p": 1}),)), "parameter 'p' of input 'x'"),
        (Request(Operation.INFER, outputs=(RequestedOutput("y", {"p": 3}),)), "parameter 'p' of output 'y'"),
        (Request(Operation.INFER, inputs=(Tensor("x", Datatype.BF16, (0,), b""),)), "input 'x' is BF16"),
        (Request(Operation.INFER, inputs=(replace(X, name="\ud800"),)), "'\\\\ud800' is not UTF-8"),
        (Request(Operation.GRADIENT), "operation 'gradient' is not supported by GraphPipe"),
        (Request(Operation.MODELS), "operation 'models' is not supported by GraphPipe"),
    ],
)
def test_what_graphpipe_cannot_carry_is_refused_by_name(request_: Request, text: str) -> None:
    with pytest.raises(GatewayError, match=text):
        GRAPHPIPE.encode_request(request_, TARGET)


def test_the_parameter_gateway_datatype_is_left_out() -> None:
    request = Request(Operation.INFER, inputs=(replace(X, parameters={"gateway_datatype": "BOOL"}),))
    assert asked(GRAPHPIPE.encode_request(request, TARGET).body).inputs == (X,)


def test_a_long_config_names_the_limit_of_the_backend() -> None:
    request = Request(Operation.INFER, parameters={"config": "abcd"})
    with pytest.raises(GatewayError, match="of backend 'b' allows no more") as caught:
        GRAPHPIPE.encode_request(request, Target("b", limits=Limits(config=3)))
    assert caught.value.reason is Reason.TOO_LARGE


# Replies

INFER = Request(Operation.INFER)


def test_a_model_is_ready_if_it_answers() -> None:
    ready = Request(Operation.MODEL_READY)
    assert GRAPHPIPE.decode_response(reply(b"anything"), ready, TARGET) is True
    assert GRAPHPIPE.decode_response(reply(b"", 404), ready, TARGET) is False
    with pytest.raises(GatewayError):
        GRAPHPIPE.decode_response(reply(b"", 503), ready, TARGET)


@pytest.mark.parametrize("body", [b"", b"<html>Not a model</html>"])
def test_a_success_that_is_not_a_flatbuffer_is_refused(body: bytes) -> None:
    for operation in (Operation.INFER, Operation.METADATA):
        with pytest.raises(DecodeError, match="the flatbuffer has"):
            GRAPHPIPE.decode_response(reply(body), Request(operation), TARGET)
    with pytest.raises(DecodeError, match="status 301, expected 200"):
        GRAPHPIPE.decode_response(reply(body, 301), INFER, TARGET)
