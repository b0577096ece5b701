"""Requests of clients, and what they are answered."""

import numpy as np
import pytest

from gateway.core.errors import GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings
from gateway.core.requests import DEFAULT_TRANSLATE, Request, Response
from gateway.core.tensors import tensor
from gateway.protocols.graphpipe.client import METADATA_REQUEST
from gateway.protocols.graphpipe.server import decode_request
from tests.protocols.graphpipe.wire import (
    GRAPHPIPE,
    LISTENER,
    TARGET,
    asked,
    call,
    recorded,
    reply,
    tensor_message,
    u32,
)


def test_the_model_is_that_of_the_path_else_that_of_the_listener() -> None:
    listener = replace(LISTENER, model="classifier")
    bare = Message("POST", "/", parts=(METADATA_REQUEST,), pattern="POST /")
    assert decode_request(call(METADATA_REQUEST, "m"), listener).model == "m"
    assert decode_request(bare, listener).model == "classifier"
    assert decode_request(bare, LISTENER).model == ""


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_get_asks_for_metadata_whatever_its_body_is(method: str) -> None:
    request = decode_request(call(b"", "m", method), LISTENER)
    assert (request.operation, request.model) == (Operation.METADATA, "m")


@pytest.mark.parametrize("path", ["/control/shutdown", "//control/is_ready", "/control"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_control_paths_are_not_served(path: str, method: str) -> None:
    with pytest.raises(GatewayError) as caught:
        decode_request(Message(method, path, parts=(METADATA_REQUEST,), pattern=f"{method} /*"), LISTENER)
    assert caught.value.reason is Reason.PATH_NOT_FOUND


def test_a_long_config_names_the_limit() -> None:
    listener = ListenerSettings("http", Limits(config=3))
    assert decode_request(call(tensor_message(config=[u32(3) + b"abc"])), listener).parameters == {"config": "abc"}
    with pytest.raises(GatewayError, match=r"config of 4 bytes; `limits: \{config: 3\}` of listener 'http'") as caught:
        decode_request(call(tensor_message(config=[u32(4) + b"abcd"])), listener)
    assert caught.value.reason is Reason.TOO_LARGE


def test_empty_names_are_no_names() -> None:
    """The JavaScript client writes every name it is given as a null offset."""
    request = asked(tensor_message(names=[u32(1), u32(0)], outputs=[u32(2), u32(0), u32(0)]))
    assert [each.name for each in request.inputs] == [""]
    assert request.outputs == ()


def test_large_data_is_a_view_of_the_message_at_any_alignment() -> None:
    body = recorded("float64.request")
    big = tensor_message(type_=11, shape=u32(1) + (64).to_bytes(8, "little"), data=u32(512) + np.arange(64.0).tobytes())
    (small,) = asked(body).inputs
    (large,) = asked(big).inputs
    assert isinstance(large.data, memoryview)
    assert large.data.obj is big
    assert large.array.tolist() == list(range(64))
    assert small.array.dtype == np.float64


def test_a_message_that_arrived_in_a_bytearray_is_read() -> None:
    assert asked(bytearray(recorded("several.request"))).parameters == {"config": '{"level": 2}'}
    assert asked(memoryview(recorded("unicode.request"))).inputs[0].array.tolist()[2] == b"abcd"


# Replies


def test_a_reply_without_outputs_is_read() -> None:
    empty = GRAPHPIPE.encode_response(Response(), Request(Operation.INFER, origin=call(b"")), DEFAULT_TRANSLATE)
    assert GRAPHPIPE.decode_response(reply(empty.body), Request(Operation.INFER), TARGET) == Response(
        origin=reply(empty.body)
    )


def test_outputs_in_a_datatype_without_a_type_are_refused() -> None:
    flags = Response((tensor("y", np.array([True])),))
    with pytest.raises(GatewayError, match="output 'y' is BOOL, which is not supported by GraphPipe"):
        GRAPHPIPE.encode_response(flags, Request(Operation.INFER, origin=call(b"")), DEFAULT_TRANSLATE)
