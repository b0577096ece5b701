import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.exchange import decoded
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.models import ModelEntry, ServerInfo, Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request
from gateway.protocols.v2 import V2_REST
from tests.protocols.v2.rest.wire import AS_IS, LISTENER, TARGET, reply

SIGNATURE = Signature(
    (TensorSpec("x", Datatype.FP64, (-1, 2)),),
    (TensorSpec("y", Datatype.BYTES, (1,)),),
    name="m",
    versions=("1", "2"),
    platform="python",
)
METADATA = (
    b'{"name":"m","versions":["1","2"],"platform":"python","inputs":[{"name":"x","datatype":"FP64","shape":[-1,2]}],'
    b'"outputs":[{"name":"y","datatype":"BYTES","shape":[1]}]}'
)
DERIVATIVES_ONLY = Signature(operations=frozenset(), name="m")
"""The metadata that a gateway gives for a UM-Bridge model without Evaluate."""
DERIVATIVES_ONLY_METADATA = (
    b'{"name":"m","versions":[],"platform":"","inputs":[],"outputs":[],"parameters":{"gateway_infer":false}}'
)
MODELS = (ModelEntry("a", "1", "READY"), ModelEntry("b", "", "UNAVAILABLE", "no weights"), ModelEntry("c"))
INDEX = (
    b'[{"name":"a","version":"1","state":"READY"},{"name":"b","state":"UNAVAILABLE","reason":"no weights"},'
    b'{"name":"c"}]'
)


@pytest.mark.parametrize(("flavor", "image"), [("openvino", True), ("triton", False)])
def test_an_input_of_openvino_with_the_shape_of_images_takes_files(flavor: str, image: bool) -> None:
    body = METADATA.replace(b"[-1,2]", b"[-1,224,224,3]")
    answer = V2_REST.decode_response(reply(body), Request(Operation.METADATA, "m"), replace(TARGET, flavor=flavor))
    assert isinstance(answer, Signature)
    assert [each.image for each in answer.inputs] == [image]


@pytest.mark.parametrize(
    ("operation", "answer", "status", "body"),
    [
        (Operation.LIVE, True, 200, b'{"live":true}'),
        (Operation.LIVE, False, 400, b'{"live":false}'),
        (Operation.READY, True, 200, b'{"ready":true}'),
        (Operation.READY, False, 400, b'{"ready":false}'),
        (Operation.MODEL_READY, True, 200, b'{"name":"m","ready":true}'),
        (Operation.MODEL_READY, False, 400, b'{"name":"m","ready":false,"error":"model \'m\' is not ready"}'),
        (Operation.METADATA, SIGNATURE, 200, METADATA),
        (Operation.METADATA, DERIVATIVES_ONLY, 200, DERIVATIVES_ONLY_METADATA),
        (Operation.METADATA, Signature(), 200, b'{"name":"m","versions":[],"platform":"","inputs":[],"outputs":[]}'),
        (
            Operation.SERVER_METADATA,
            ServerInfo("gateway", "0.1"),
            200,
            b'{"name":"gateway","version":"0.1","extensions":["binary_tensor_data","parameters"]}',
        ),
        (Operation.CONFIG, {}, 200, b"{}"),
        (Operation.MODELS, MODELS, 200, INDEX),
        (Operation.MODELS, (), 200, b"[]"),
    ],
)
def test_writes_answers(operation: Operation, answer: Answer, status: int, body: bytes) -> None:
    message = V2_REST.encode_response(answer, Request(operation, "m"), AS_IS)
    assert (message.status, message.body) == (status, body)
    assert list(message.headers) == [("content-type", "application/json")]


def index_request(body: bytes) -> Request:
    message = Message("POST", "/v2/repository/index", parts=(body,), pattern="POST /v2/repository/index")
    return decoded(message, V2_REST, LISTENER)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"ready":false}', b'{"repository_name":"r"}'])
def test_the_index_lists_every_model(body: bytes) -> None:
    assert V2_REST.encode_response(MODELS, index_request(body), AS_IS).body == INDEX


def test_the_index_of_ready_models_leaves_out_those_that_are_not() -> None:
    message = V2_REST.encode_response(MODELS, index_request(b'{"ready":true}'), AS_IS)
    assert message.body == b'[{"name":"a","version":"1","state":"READY"},{"name":"c"}]'


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"ready":1}'])
def test_refuses_an_index_request_with_another_body(body: bytes) -> None:
    with pytest.raises(DecodeError):
        index_request(body)


@pytest.mark.parametrize(
    ("operation", "body", "answer"),
    [
        (Operation.METADATA, METADATA, SIGNATURE),
        (Operation.METADATA, DERIVATIVES_ONLY_METADATA, DERIVATIVES_ONLY),
        (Operation.METADATA, b'{"name":"m","versions":[],"platform":"","parameters":{}}', Signature(name="m")),
        (
            Operation.SERVER_METADATA,
            b'{"name":"s","version":"2","extensions":["a","b"]}',
            ServerInfo("s", "2", ("a", "b")),
        ),
        (Operation.CONFIG, b'{"name":"m","data":[1,[2]],"x":1.5}', {"name": "m", "data": [1, [2]], "x": 1.5}),
        (Operation.MODELS, INDEX, MODELS),
        (Operation.MODELS, b"[]", ()),
    ],
)
def test_reads_answers(operation: Operation, body: bytes, answer: Answer) -> None:
    assert V2_REST.decode_response(reply(body), Request(operation, "m"), TARGET) == answer


@pytest.mark.parametrize("operation", [Operation.LIVE, Operation.READY, Operation.MODEL_READY])
@pytest.mark.parametrize(
    ("status", "body", "answer"),
    [(200, b"", True), (200, b'{"ready":true}', True), (400, b"", False), (404, b'{"error":"unknown model"}', False)],
)
def test_the_status_is_the_health(operation: Operation, status: int, body: bytes, answer: bool) -> None:
    assert V2_REST.decode_response(reply(body, status=status), Request(operation, "m"), TARGET) is answer


def test_a_failing_server_is_no_answer_about_health() -> None:
    with pytest.raises(GatewayError) as raised:
        V2_REST.decode_response(reply(b"", status=503), Request(Operation.READY), TARGET)
    assert raised.value.reason is Reason.UNREACHABLE


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        (Operation.METADATA, b""),
        (Operation.METADATA, b"[]"),
        (Operation.METADATA, b'{"name":1}'),
        (Operation.METADATA, b'{"versions":[1]}'),
        (Operation.METADATA, b'{"inputs":{}}'),
        (Operation.METADATA, b'{"inputs":["x"]}'),
        (Operation.METADATA, b'{"inputs":[{"name":"x","datatype":"fp64","shape":[1]}]}'),
        (Operation.METADATA, b'{"inputs":[{"name":"x","datatype":"FP64","shape":[-2]}]}'),
        (Operation.METADATA, b'{"inputs":[{"name":"x","datatype":"FP64","shape":[true]}]}'),
        (Operation.METADATA, b'{"inputs":[{"name":"x","datatype":"FP64"}]}'),
        (Operation.SERVER_METADATA, b'{"extensions":"all"}'),
        (Operation.CONFIG, b"[]"),
        (Operation.MODELS, b"{}"),
        (Operation.MODELS, b""),
        (Operation.MODELS, b'[{"version":"1"}]'),
        (Operation.MODELS, b'[{"name":"a","version":1}]'),
        (Operation.MODELS, b'[],"more":[]'),
    ],
)
def test_refuses_what_is_no_answer(operation: Operation, body: bytes) -> None:
    with pytest.raises(DecodeError):
        V2_REST.decode_response(reply(body), Request(operation, "m"), TARGET)


@pytest.mark.parametrize(
    ("operation", "body"), [(Operation.METADATA, METADATA), (Operation.MODELS, INDEX), (Operation.CONFIG, b'{"a":1}')]
)
def test_a_truncated_answer_is_refused(operation: Operation, body: bytes) -> None:
    for end in range(len(body)):
        with pytest.raises(DecodeError):
            V2_REST.decode_response(reply(body[:end]), Request(operation, "m"), TARGET)
