"""V2 REST's streams in the form of infer (MLServer's and gateways'), and how the form of a request is recognised."""

import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.requests import Request, RequestedOutput, Response
from gateway.core.tensors import tensor
from gateway.protocols.v2 import V2_REST
from tests.protocols.v2.rest.recorded import target
from tests.protocols.v2.rest.test_generate import decode_body, message
from tests.protocols.v2.rest.wire import AS_IS, LISTENER, reply, values

N = tensor("n", np.array([3], np.int32))
INFER = b'{"inputs":[{"name":"n","datatype":"INT32","shape":[1],"data":[3]}]}'
EVENT = (
    b'{"model_name":"repeat","id":"x","parameters":{"headers":{"Ce-Id":"x"}},'
    b'"outputs":[{"name":"OUTPUT0","shape":[1],"datatype":"INT32","data":[0]}]}'
)
"""As MLServer 1.7.1 writes it."""


@pytest.mark.parametrize(
    ("path", "operation"),
    [("generate", Operation.INFER), ("generate_stream", Operation.STREAM), ("infer_stream", Operation.STREAM)],
)
def test_a_list_of_inputs_is_the_form_of_infer(path: str, operation: Operation) -> None:
    request = decode_body(INFER, path)
    assert (request.operation, request.schemaless) == (operation, False)
    assert [(each.name, each.datatype, each.shape) for each in request.inputs] == [("n", Datatype.INT32, (1,))]


def test_generate_stream_accepts_binary_tensors() -> None:
    header = INFER.replace(b'"data":[3]', b'"parameters":{"binary_data_size":4}')
    headers = Headers(((b"inference-header-content-length", b"%d" % len(header)),))
    request = V2_REST.decode_request(message(header + b"\3\0\0\0", "generate_stream", headers), LISTENER)
    assert values(request.inputs[0]) == [3]


@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs":"hello"}',
        b'{"inputs":["hello"]}',
        b'{"inputs":[]}',
        b'{"text":"say \\"inputs\\": [{"}',
        b'{"text":"\\\\","x":"\\"inputs\\":[{"}',
        b'{"text":"inputs","other":["[{"]}',
    ],
)
def test_an_input_named_inputs_or_its_text_is_not_the_form_of_infer(body: bytes) -> None:
    assert decode_body(body).schemaless


def test_infer_stream_accepts_only_the_form_of_infer() -> None:
    with pytest.raises(DecodeError, match="inputs are missing"):
        decode_body(b'{"n":3}', "infer_stream")


# --- facing clients: responses ---

ZERO = Response((tensor("i", np.array([0], np.int32)),), "m", "1")
OF_EVENTS = [("content-type", "text/event-stream; charset=utf-8")]


def test_responses_to_the_form_of_infer_are_events_in_json() -> None:
    body = INFER.replace(b'{"inputs"', b'{"id":"a","parameters":{"binary_data_output":true},"inputs"')
    request = decode_body(body, "generate_stream")
    event = V2_REST.encode_response(ZERO, request, AS_IS)
    assert (event.status, list(event.headers)) == (200, OF_EVENTS)
    assert event.parts == (
        b'{"id":"a","model_name":"m","model_version":"1",'
        b'"outputs":[{"name":"i","datatype":"INT32","shape":[1],"data":[0]}]}',
    )


def test_responses_of_generate_are_events() -> None:
    event = V2_REST.encode_response(ZERO, decode_body(b'{"n":3}', "generate_stream"), AS_IS)
    assert list(event.headers) == OF_EVENTS
    assert event.body == b'{"i":0,"model_name":"m","model_version":"1"}'


def test_a_stream_without_a_response_has_a_status_and_headers() -> None:
    assert V2_REST.encode_end is not None
    end = V2_REST.encode_end(decode_body(b'{"n":0}', "generate_stream"))
    assert end is not None
    assert (end.status, list(end.headers), end.parts) == (200, OF_EVENTS, ())


@pytest.mark.parametrize(
    ("body", "expected"),
    [(b'{"n":3}', b'{"error":"no"}'), (INFER, b'{"error":"no","gateway_reason":"aborted"}')],
    ids=["generate", "infer"],
)
def test_errors_of_streams_have_the_form_of_the_request(body: bytes, expected: bytes) -> None:
    sent = message(body, "generate_stream")
    error_reply = V2_REST.encode_error(refusal(Reason.ABORTED, "no"), V2_REST.decode_request(sent, LISTENER), sent)
    assert (error_reply.status, error_reply.body) == (409, expected)
    assert list(error_reply.headers) == [("content-type", "application/json"), ("gateway-reason", "aborted")]


# --- facing backends ---


@pytest.mark.parametrize("flavor", ["mlserver", "binary"])
def test_mlserver_and_gateways_get_the_form_of_infer(flavor: str) -> None:
    given = V2_REST.encode_request(Request(Operation.STREAM, "m", "2", "a", (N,)), target(flavor))
    assert (given.method, given.path) == ("POST", "/v2/models/m/versions/2/generate_stream")
    assert list(given.headers) == [("content-type", "application/json")]
    assert given.body == b'{"id":"a",' + INFER[1:]


def test_mlserver_is_asked_for_some_outputs() -> None:
    request = Request(Operation.STREAM, "m", inputs=(N,), outputs=(RequestedOutput("y"),))
    assert bytes(V2_REST.encode_request(request, target("mlserver")).body).endswith(b',"outputs":[{"name":"y"}]}')
    top = RequestedOutput("y", {"classification": 2})
    with pytest.raises(GatewayError, match="needs V2's extension 'classification'"):
        V2_REST.encode_request(replace(request, outputs=(top,)), target("mlserver"))


def test_fp16_is_json_for_mlserver_and_widened_for_gateways() -> None:
    request = Request(Operation.STREAM, "m", inputs=(tensor("x", np.array([1.5], np.float16)),))
    assert b'"datatype":"FP16"' in V2_REST.encode_request(request, target("mlserver")).body
    widened = V2_REST.encode_request(request, target("binary")).body
    assert b'"datatype":"FP32","shape":[1],"parameters":{"gateway_datatype":"FP16"}' in widened


@pytest.mark.parametrize("flavor", ["kserve", "plain"])
def test_servers_without_streams_are_not_asked(flavor: str) -> None:
    with pytest.raises(GatewayError, match=rf"backend 'models' \({flavor}\) has no streams") as refused:
        V2_REST.encode_request(Request(Operation.STREAM, "m", inputs=(N,)), target(flavor))
    assert refused.value.reason is Reason.UNSUPPORTED


def read(answer: Message, flavor: str = "mlserver") -> Response:
    response = V2_REST.decode_response(answer, Request(Operation.STREAM, "m"), target(flavor))
    assert isinstance(response, Response)
    return response


def test_reads_an_event_of_mlserver() -> None:
    response = read(reply(EVENT))
    assert (response.model, response.id, response.parameters, response.schemaless) == ("repeat", "x", {}, False)
    assert [(each.name, values(each)) for each in response.outputs] == [("OUTPUT0", [0])]


@pytest.mark.parametrize(
    ("event", "reason", "text"),
    [
        (b'{"error":"half way"}', Reason.MODEL_ERROR, "half way"),
        (b'{"error":"half way","gateway_reason":"aborted"}', Reason.ABORTED, "half way"),
        (b'{"error":"half way","gateway_reason":["x"]}', Reason.MODEL_ERROR, "half way"),
        (b'{"error":""}', Reason.MODEL_ERROR, "an error without a text"),
    ],
)
def test_errors_in_events(event: bytes, reason: Reason, text: str) -> None:
    with pytest.raises(GatewayError) as raised:
        read(reply(event), "binary")
    assert (raised.value.reason, raised.value.message) == (reason, text)


@pytest.mark.parametrize("event", [b"", b"[DONE]", b'{"outputs":5}', b'{"error":null}'])
def test_events_that_are_neither_response_nor_error(event: bytes) -> None:
    with pytest.raises(DecodeError):
        read(reply(event))


def test_a_server_without_the_path_does_not_stream() -> None:
    """`infer` then finds out whether the model is unknown. Another gateway gives the Reason at once."""
    with pytest.raises(GatewayError) as raised:
        read(reply(b'{"detail":"Not Found"}', status=404))
    assert raised.value.reason is Reason.UNSUPPORTED
    known = Message(status=404, headers=Headers(((b"gateway-reason", b"model-not-found"),)), parts=(b"{}",))
    with pytest.raises(GatewayError) as raised:
        read(known)
    assert raised.value.reason is Reason.MODEL_NOT_FOUND
