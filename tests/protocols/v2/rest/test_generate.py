"""Triton's generate: literal bytes of Triton 2.51, and what cannot be written in its form."""

from typing import Any

import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.exchange import decoded
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings, Target
from gateway.core.requests import MissingNumbers, Request, RequestedOutput, Response, Translate
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.v2 import V2_REST
from tests.protocols.v2.rest.wire import AS_IS, LISTENER, values

MODEL = "/v2/models/{model}"
TRITON = Target("models", "127.0.0.1:8000", "triton")
STREAM = Request(Operation.STREAM, "m")


def message(body: bytes, path: str = "generate", headers: Headers = Headers()) -> Message:  # noqa: B008
    return Message(
        "POST", f"/v2/models/m/{path}", headers, (body,), pattern=f"POST {MODEL}/{path}", captures={"model": "m"}
    )


def decode_body(body: bytes, path: str = "generate", listener: ListenerSettings = LISTENER) -> Request:
    return decoded(message(body, path), V2_REST, listener)


def encode_body(request: Request, *outputs: Tensor, translate: Translate = AS_IS, **fields: Any) -> bytes:
    answer = Response(outputs, "m", "1", request.id, **fields)
    return bytes(V2_REST.encode_response(answer, request, translate).body)


def array(name: str, given: Any, datatype: Datatype = Datatype.INT32) -> Tensor:
    return tensor(name, np.array(given, datatype.dtype), datatype)


# --- facing clients: requests ---


def test_scalars_are_parameters_and_lists_are_inputs_without_a_signature() -> None:
    request = decode_body(b'{"text_input":"hello","temperature":0.5,"stream":true,"n":3,"stop":["a","b"],"x":[1,2.5]}')
    assert (request.operation, request.model, request.schemaless) == (Operation.INFER, "m", True)
    assert request.parameters == {"text_input": "hello", "temperature": 0.5, "stream": True, "n": 3}
    assert [(each.name, each.datatype, each.shape, each.untyped) for each in request.inputs] == [
        ("stop", Datatype.BYTES, (2,), True),
        ("x", Datatype.FP64, (2,), True),
    ]
    assert values(request.inputs[1]) == [1.0, 2.5]


def test_the_object_of_parameters_and_the_id() -> None:
    request = decode_body(b'{"id":"7","parameters":{"top_k":5},"n":[1]}')
    assert (request.id, request.parameters) == ("7", {"top_k": 5})
    assert [each.name for each in request.inputs] == ["n"]


@pytest.mark.parametrize("path", ["generate_stream", "infer_stream"])
def test_stream_paths_want_a_stream(path: str) -> None:
    assert V2_REST.http.wants_stream is not None
    assert V2_REST.http.wants_stream(message(b"", path))
    assert not V2_REST.http.wants_stream(message(b""))
    assert not V2_REST.http.wants_stream(message(b"", "infer"))


def test_generate_stream_is_the_same_as_a_stream() -> None:
    request = decode_body(b'{"n":3}', "generate_stream")
    assert (request.operation, request.parameters, request.schemaless) == (Operation.STREAM, {"n": 3}, True)


def test_consumed_parameters_are_not_forwarded() -> None:
    received = message(b'{"n":3,"timeout":500000,"priority":0,"triton_enable_empty_final_response":true}')
    request = decoded(replace(received, received=10.0), V2_REST, LISTENER)
    assert (request.parameters, request.deadline) == ({"n": 3}, 10.5)


def test_null_in_place_of_a_number_is_a_flaw_that_some_routes_take() -> None:
    request = decode_body(b'{"n":null,"x":[1,null]}')
    assert isinstance(request.flaw, MissingNumbers)
    assert "'n' at byte 5: element 0: null is not a number" in request.flaw


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", "empty body"),
        (b"[1]", "expected a JSON object"),
        (b'{"n":null,"s":["a",null]}', "'n' at byte 5: element 0: null is not a number"),
        (b'{"n":null,"parameters":{"k":null}}', "'n' at byte 5: element 0: null is not a number"),
        (b'{"n":{"a":1}}', "an object at byte 5"),
        (b'{"n":[1,"a"]}', "a string next to a number"),
        (b'{"n":1,"n":2}', "key 'n' occurs twice"),
        (b'{"n":1,"parameters":{"n":2}}', "'n' occurs twice, inside of parameters and beside it"),
        (b'{"parameters":5}', "parameters must be an object"),
        (b'{"parameters":{"l":[1]}}', "parameter 'l' is an object or a list"),
        (b'{"id":5}', "id must be a string"),
        (b'{"n":18446744073709551616}', "an integer beyond 64 bits"),
        (b'{"shared_memory_region":"r"}', "shared_memory_region cannot cross the gateway"),
        (b'{"timeout":"soon"}', "timeout must be an integer number of microseconds"),
    ],
)
def test_refuses_malformed_requests_of_generate(body: bytes, fault: str) -> None:
    with pytest.raises(DecodeError, match=fault):
        decode_body(body)


def test_a_list_beyond_the_limit_is_refused() -> None:
    listener = ListenerSettings("http", Limits(message=100))
    for body in (b'{"x":[%b]}' % b",".join([b"0"] * 13), b'{"x":[%b]}' % b",".join([b'""'] * 26)):
        with pytest.raises(GatewayError, match="input 'x' takes 104 bytes") as refused:
            decode_body(body, listener=listener)
        assert refused.value.reason is Reason.TOO_LARGE


# --- facing clients: responses ---

SENT = decode_body(b'{"n":3}')


def test_a_tensor_is_a_flat_list_or_a_scalar() -> None:
    outputs = array("OUTPUT0", [[4, 6]]), array("OUTPUT1", [[-2]]), array("e", np.zeros((0, 3)))
    assert encode_body(SENT, *outputs) == b'{"OUTPUT0":[4,6],"OUTPUT1":-2,"e":[],"model_name":"m","model_version":"1"}'


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (array("y", [0.1], Datatype.FP32), b"0.10000000149011612"),
        (array("y", [1.0, 2.5], Datatype.FP16), b"[1.0,2.5]"),
        (array("y", [True], Datatype.BOOL), b"true"),
        (array("y", [2**63 - 1], Datatype.INT64), b"9223372036854775807"),
        (tensor("y", np.array(["é\n"], object)), '"é\\n"'.encode()),
        (tensor("y", np.array([b"a", b""], object)), b'["a",""]'),
    ],
)
def test_each_datatype_has_its_json(output: Tensor, expected: bytes) -> None:
    assert encode_body(SENT, output) == b'{"model_name":"m","model_version":"1","y":%b}' % expected


def test_the_id_and_the_responses_parameters_are_members() -> None:
    parameters = {"triton_final_response": False, "score": 0.5}
    request = decode_body(b'{"id":"q","n":3}')
    assert encode_body(request, array("i", [0]), parameters=parameters) == (
        b'{"i":0,"id":"q","model_name":"m","model_version":"1","score":0.5}'
    )


def test_what_json_cannot_carry_is_refused_by_name() -> None:
    nan, octets = array("y", [np.nan], Datatype.FP32), tensor("y", np.array([b"\xff"], object))
    with pytest.raises(GatewayError, match="output 'y': element 0 is nan"):
        encode_body(SENT, nan)
    with pytest.raises(GatewayError, match="output 'y' holds bytes that are not UTF-8"):
        encode_body(SENT, octets)
    assert b'"y":NaN' in encode_body(SENT, nan, translate=Translate(nan="literal"))
    assert b'"y":"/w=="' in encode_body(SENT, octets, translate=Translate(bytes="base64"))


# --- facing Triton: requests ---


def ask(*inputs: Tensor, **fields: Any) -> Message:
    return V2_REST.encode_request(replace(STREAM, inputs=inputs, **fields), TRITON)


def test_inputs_are_flat_members_for_triton() -> None:
    given = ask(array("n", [3]), array("x", [[0.5, np.inf]], Datatype.FP64), id="a", parameters={"beam": 2})
    assert (given.method, given.path) == ("POST", "/v2/models/m/generate_stream")
    assert list(given.headers) == [("content-type", "application/json")]
    assert given.body == b'{"id":"a","parameters":{"beam":2},"n":[3],"x":[0.5,Infinity]}'


def test_a_version_is_in_the_path_for_triton() -> None:
    assert ask(version="2").path == "/v2/models/m/versions/2/generate_stream"


def test_strings_for_triton_are_never_base64() -> None:
    given = ask(tensor("t", np.array([b"ab"], object)), translate=Translate(bytes="base64"))
    assert given.body == b'{"t":["ab"]}'


@pytest.mark.parametrize(
    ("inputs", "fields", "fault"),
    [
        ([array("x", [[1, 2], [3, 4]])], {}, r"shape \[2, 2\], but Triton's generate_stream takes vectors only"),
        ([array("x", [[1], [2]])], {}, r"shape \[2, 1\]"),
        ([array("x", np.zeros((1, 0)))], {}, r"shape \[1, 0\]"),
        ([array("x", [1], Datatype.FP16)], {}, "input 'x' is FP16"),
        ([array("x", [1], Datatype.BF16)], {}, "input 'x' is BF16"),
        ([tensor("x", np.array([b"\xff"], object))], {}, "not UTF-8"),
        ([array("id", [1])], {}, "reads 'id' as its own member"),
        ([array("x", [1])], {"parameters": {"x": 1}}, "cannot distinguish parameter 'x' from the input"),
        ([], {"parameters": {"sequence_id": 7}}, "no sequences"),
        ([], {"parameters": {"priority": 1}}, "no priorities, and the request has the parameter 'priority'"),
        ([], {"parameters": {"p": float("nan")}}, "parameter 'p' is nan"),
        ([], {"outputs": (RequestedOutput("y", {"classification": 2}),)}, "no parameters of outputs"),
    ],
)
def test_what_generate_stream_cannot_carry_is_unsupported(
    inputs: list[Tensor], fields: dict[str, Any], fault: str
) -> None:
    with pytest.raises(GatewayError, match=fault) as refused:
        ask(*inputs, **fields)
    assert refused.value.reason is Reason.UNSUPPORTED


# --- facing Triton: responses ---


def answered(body: bytes, status: int = 200, content_type: bytes = b"text/event-stream; charset=utf-8") -> Response:
    reply = Message(status=status, headers=Headers(((b"content-type", content_type),)), parts=(body,))
    response = V2_REST.decode_response(reply, STREAM, TRITON)
    assert isinstance(response, Response)
    return response


def test_scalars_of_a_response_are_parameters_without_a_signature() -> None:
    response = answered(b'{"OUTPUT0":0,"t":"a","y":[1.5,NaN],"id":"q","model_name":"repeat","model_version":"1"}')
    assert (response.model, response.version, response.id) == ("repeat", "1", "q")
    assert response.schemaless
    assert response.parameters == {"OUTPUT0": 0, "t": "a"}
    assert [(each.name, each.datatype, each.untyped) for each in response.outputs] == [("y", Datatype.FP64, True)]


@pytest.mark.parametrize("body", [b'{"OUTPUT0":0}', b"{}", b"[DONE]", b'{"error":5}'])
def test_refuses_malformed_responses_of_generate(body: bytes) -> None:
    with pytest.raises(DecodeError):
        answered(body)


def test_a_model_may_have_an_output_named_error() -> None:
    assert answered(b'{"error":"none","model_name":"m"}').parameters == {"error": "none"}


@pytest.mark.parametrize(
    ("body", "status", "reason", "text"),
    [
        (b'{"error":"refused after 2 responses"}', 200, Reason.MODEL_ERROR, "refused after 2 responses"),
        # before its first response, with the status of the error
        (b'data: {"error":"refused with code 3"}\n\n', 400, Reason.INVALID_INPUT, "refused with code 3"),
        (b'{"error":"Request for unknown model"}', 404, Reason.UNSUPPORTED, "Request for unknown model"),
        (b'{"error":"Method Not Allowed"}', 405, Reason.UNSUPPORTED, "Method Not Allowed"),
    ],
)
def test_errors_of_triton(body: bytes, status: int, reason: Reason, text: str) -> None:
    with pytest.raises(GatewayError) as raised:
        answered(body, status)
    assert (raised.value.reason, raised.value.message) == (reason, text)
