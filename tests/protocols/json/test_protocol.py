"""One request end to end through the Protocol of a declared form, in literal bytes and both directions."""

from typing import Any

import pytest
import yaml

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings, Protocol, Target
from gateway.core.requests import Request, Response, Translate
from gateway.core.tensors import Tensor
from gateway.protocols.json.form import parse_form
from gateway.protocols.json.protocol import protocol_of

HOUSE_PRICES = """
infer:
  path: /predict
  request: {features: $x, "request_id?": $id}
  response: {prediction: $y, "took_ms?": $_}
ready: {path: /health}
error: {detail: $message}
tensors: {x: "FP64 [-1, 4]", y: "FP64 [-1]"}
"""


def protocol(text: str) -> Protocol:
    """The Protocol of the form in a YAML text."""
    document: Any = yaml.safe_load(text)
    return protocol_of("house-prices", parse_form(document))


def post(body: bytes) -> Message:
    """A client's request to `/predict`."""
    return Message("POST", "/predict", parts=(body,), pattern="POST /predict")


def test_a_request_is_read_and_written_again() -> None:
    house = protocol(HOUSE_PRICES)
    request = house.decode_request(post(b'{"request_id": "a", "features": [[1, 2, 3, 4.5]]}'), ListenerSettings())
    assert (request.operation, request.id) == (Operation.INFER, "a")
    [x] = request.inputs
    assert (x.name, x.datatype, x.shape, x.array.tolist()) == ("x", Datatype.FP64, (1, 4), [[1.0, 2.0, 3.0, 4.5]])
    message = house.encode_request(request, Target())
    assert (message.method, message.path) == ("POST", "/predict")
    assert message.body == b'{"features":[[1.0,2.0,3.0,4.5]],"request_id":"a"}'


def test_a_reply_is_read_and_written_again() -> None:
    house = protocol(HOUSE_PRICES)
    request = house.decode_request(post(b'{"features":[[1,2,3,4]]}'), ListenerSettings())
    reply = Message(status=200, parts=(b'{"prediction":[1.5],"took_ms":{"all":3}}',))
    answer = house.decode_response(reply, request, Target())
    assert isinstance(answer, Response)
    assert house.encode_response(answer, request, Translate()).body == b'{"prediction":[1.5]}'


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{}", "features"),
        (b'{"features":[[1,2,3,4]],"more":1}', "more"),
        (b'{"features":[[1,2,3,4]],"features":[[1,2,3,4]]}', "twice"),
        (b'{"features":[[1,2,3]]}', "expected [-1, 4]"),
        (b'{"features":[[1,2,3,4],[1]]}', "ragged"),
        (b'{"features":{"a":1}}', "object"),
        (b'{"features":[["a","b","c","d"]]}', "strings"),
        (b'{"features":[[1,2,3,4]]', "JSON"),
    ],
)
def test_a_request_that_is_not_as_the_form_says_is_refused(body: bytes, text: str) -> None:
    with pytest.raises(DecodeError, match=text.replace("[", r"\[")):
        protocol(HOUSE_PRICES).decode_request(post(body), ListenerSettings())


def test_readiness_and_errors() -> None:
    house = protocol(HOUSE_PRICES)
    ready = house.encode_request(Request(Operation.READY), Target())
    assert (ready.method, ready.path) == ("GET", "/health")
    assert house.decode_response(Message(status=200), Request(Operation.READY), Target()) is True
    not_ready = house.decode_response(Message(status=503), Request(Operation.READY), Target())
    assert not_ready is False
    error = house.encode_error(invalid_input("wrong"), None, Message())
    assert (error.status, error.body) == (400, b'{"detail":"wrong"}')


def test_one_object_for_each_row() -> None:
    rows = protocol(
        "infer: {path: /predict, request: {instances: [{sepal: $a, petal: $b}, ...]}, response: {predictions: $y}}"
    )
    request = rows.decode_request(
        post(b'{"instances":[{"sepal":1,"petal":[1,2]},{"petal":[3,4],"sepal":2.5}]}'), ListenerSettings()
    )
    assert [(each.name, each.shape, each.array.tolist()) for each in request.inputs] == [
        ("", (2,), [1.0, 2.5]),
        ("", (2, 2), [[1, 2], [3, 4]]),
    ]
    written = rows.encode_request(request, Target()).body
    assert written == b'{"instances":[{"sepal":1.0,"petal":[1,2]},{"sepal":2.5,"petal":[3,4]}]}'


def test_tensors_of_a_form_without_names_go_by_position() -> None:
    rows = protocol("infer: {path: /predict, request: {a: $a, b: $b}, response: {y: $y}}")
    one, two = (Tensor(name, Datatype.INT8, (1,), data) for name, data in (("p", b"\1"), ("q", b"\2")))
    assert rows.encode_request(Request(Operation.INFER, inputs=(one, two)), Target()).body == b'{"a":[1],"b":[2]}'
