"""Bodies of requests and replies, valid and invalid, without a real server."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings
from gateway.core.requests import DEFAULT_TRANSLATE, Request, Response, Translate
from gateway.core.tensors import tensor
from tests.protocols.v1.wire import FACES, TARGET, TF_TARGET, V1, post

PREDICT = "/v1/models/m:predict"


def decoded(body: bytes, flavor: str = "kserve", limits: Limits | None = None) -> Request:
    face = FACES[flavor]
    return face.decode_request(post(PREDICT, body, face), ListenerSettings("t", limits or Limits()))


def sent(request: Request, **changes: Any) -> bytes:
    return b"".join(V1.encode_request(replace(request, **changes), TF_TARGET).parts)


NAMES = st.text(st.characters(codec="utf-8"), max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@given(rows=st.lists(JSON, max_size=4), others=st.dictionaries(st.sampled_from(["a", "b", "parameters"]), JSON))
def test_whatever_json_a_client_writes_arrives_or_is_refused(rows: list[Any], others: dict[str, Any]) -> None:
    """From V1 to V1: numbers of one tensor may become doubles; nothing else changes."""
    body = json.dumps({"instances": rows, **others}).encode()
    try:
        written = json.loads(sent(decoded(body)))
    except (DecodeError, GatewayError):
        return
    assert equal(written["instances"], rows)
    beside = {name: each for name, each in others.items() if name != "parameters" or each != {}}
    assert equal({name: each for name, each in written.items() if name != "instances"}, beside)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return float(one) == float(other)
    return bool(one == other)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "Unrecognized request format: empty body"),
        (b"[1]", "expected a JSON object, found an array"),
        (b"{}", "Missing 'inputs' or 'instances' key"),
        (b'{"instances":5}', 'Expected "instances" to be a list'),
        (b'{"instances":{"x":[1]}}', 'Expected "instances" to be a list'),
        (b'{"instances":[1],"inputs":[1]}', "both 'instances' and 'inputs' are there"),
        (b'{"instances":[1,]}', "Unrecognized request format"),
        (b'{"instances":[1]}x', "Unrecognized request format"),
        (b'{"instances":[1],"instances":[2]}', "'instances' occurs twice"),
        (b'{"instances":[{"x":1,"x":2}]}', "'x' occurs twice"),
        (b'{"instances":[1e400]}', "out of the range of a double"),
        (b'{"instances":[1],"signature_name":5}', "must be a string"),
        (b'{"instances":[1],"parameters":{"a":1},"a":2}', "'a' is a key of the body and of 'parameters'"),
        (b'{"instances":' + b"[" * 70 + b"]" * 70 + b"}", "nested deeper than 64"),
        (b'{"instances":["\xff"]}', "Unrecognized request format"),
    ],
)
def test_invalid_requests_are_refused_with_the_reason(body: bytes, text: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decoded(body)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        b'{"instances":[[1],[2,3]]}',
        b'{"instances":[[1],2]}',
        b'{"instances":[1,"a"]}',
        b'{"instances":[true,1]}',
        b'{"instances":[null]}',
        b'{"instances":[{"x":1},{"y":2}]}',
        b'{"instances":[{"x":1},2]}',
        b'{"instances":[{"x":[1]},{"x":[1,2]}]}',
        b'{"instances":[{"x":{"y":1}}]}',
        b'{"instances":[{"b64":"?"}]}',
        b'{"instances":[{"b64":"AA=="},1]}',
        b'{"instances":[18446744073709551616]}',
    ],
)
def test_rows_that_are_no_tensor_are_json_to_kserve_and_refused_by_tensorflow(body: bytes) -> None:
    request = decoded(body)
    assert {each.datatype for each in request.inputs} == {Datatype.BYTES}
    assert sent(request) == body
    with pytest.raises(DecodeError):
        decoded(body, "tensorflow")


def test_bytes_before_a_large_list_are_read() -> None:
    numbers = b"0," * 2**20 + b"0"
    [x, y] = decoded(b'{"inputs":{"x":[{"b64":"AAE="}],"y":[%b]}}' % numbers).inputs
    assert (x.array.tolist(), y.elements) == ([b"\0\1"], 2**20 + 1)


def test_large_base64_with_padding_before_its_end_is_refused() -> None:
    body = b'{"instances":[{"b64":"%b=%b"}]}' % (b"A" * (2**20 - 1), b"A" * 2**21)
    with pytest.raises(DecodeError, match='element 0 has a "b64" that is not base64'):
        decoded(body, "tensorflow")


def test_named_rows_keep_integers_whole() -> None:
    request = decoded(b'{"instances":[{"x":9007199254740993},{"x":18446744073709551615}]}')
    assert request.inputs[0].array.tolist() == [9007199254740993, 18446744073709551615]
    request = decoded(b'{"instances":[{"x":-1},{"x":18446744073709551615}]}')  # no datatype holds both
    assert sent(request) == b'{"instances":[{"x":-1},{"x":18446744073709551615}]}'


def test_values_beside_tensors_are_bounded() -> None:
    body = b'{"instances":[%b]}' % b",".join([b'{"x":1}'] * 200)
    with pytest.raises(DecodeError, match=r"limits\.json_values"):
        decoded(body, limits=Limits(json_values=100))
    [numbers] = decoded(b'{"instances":[%b1]}' % (b"1," * 10_000), limits=Limits(json_values=100)).inputs
    assert numbers.elements == 10_001


def test_rows_that_are_no_tensor_are_bounded_too() -> None:
    body = b'{"instances":[%b[1,2]]}' % (b"[1]," * 200)
    with pytest.raises(DecodeError, match=r"ragged.*limits\.json_values"):
        decoded(body, limits=Limits(json_values=100))


@pytest.mark.parametrize("blank", [b"", b" ", b"\n\t"])
def test_bytes_in_any_layout(blank: bytes) -> None:
    body = b'{"instances":[{X"b64"X:X"AAH/"X},"text",{"b64":""}]}'.replace(b"X", blank)
    [found] = decoded(body).inputs
    assert (found.array.tolist(), found.content_type) == ([b"\0\1\xff", b"text", b""], "image")


@pytest.mark.parametrize(
    "body",
    [
        b'{"instances":[{"b64":"AA=="}],"other":[{"b64":"AQ=="},{"x":{"b64":""}}]}',
        b'{"instances":[{"x":{"b64":"AA=="},"y":1}],"other":{"b64":"AQ=="}}',
        b'{"inputs":{"x":{"b64":"AA=="}},"parameters":{"k":{"b64":"AQ=="},"n":1}}',
    ],
)
def test_bytes_beside_tensors_stay_as_they_are(body: bytes) -> None:
    assert sent(decoded(body)) == body


def test_parameters_beside_many_named_numbers() -> None:
    body = b'{"inputs":{"x":[%b1.5]},"parameters":{"a":1,"b":"t","c":true,"d":2.5}}' % (b"1.5," * 20_000)
    request = decoded(body)
    assert request.inputs[0].elements == 20_001
    assert request.parameters == {"a": 1, "b": "t", "c": True, "d": 2.5}
    assert sent(request) == body


def test_a_string_that_looks_like_the_mark_of_bytes_stays_a_string() -> None:
    for text in ("\x7fb64:AAEC", '{"b64":"AAEC"}'):
        body = json.dumps({"instances": [text]}).encode()
        assert decoded(body).inputs[0].array.tolist() == [text.encode()]


@pytest.mark.parametrize(
    ("inputs", "payload", "body"),
    [
        ({"x": [[1.5]]}, "", b'{"instances":[[1.5]]}'),
        ({"x": [[1.5]]}, "named_rows", b'{"instances":[{"x":[1.5]}]}'),
        ({"x": [[1.5]]}, "columns", b'{"inputs":[[1.5]]}'),
        ({"x": [[1.5]]}, "named_columns", b'{"inputs":{"x":[[1.5]]}}'),
        ({"x": [[1, 2], [3, 4]], "y": [5, 6]}, "", b'{"instances":[{"x":[1,2],"y":5},{"x":[3,4],"y":6}]}'),
        (
            {"x": [[[1], [2]], [[3], [4]]], "y": [5, 6]},
            "",
            b'{"instances":[{"x":[[1],[2]],"y":5},{"x":[[3],[4]],"y":6}]}',
        ),
        ({"x": [1, 2], "y": [3]}, "", b'{"inputs":{"x":[1,2],"y":[3]}}'),
        ({"x": 5}, "", b'{"inputs":5}'),
        ({"x": [True]}, "", b'{"instances":[true]}'),
        ({"x": [["a", "\u00e9"]]}, "", '{"instances":[["a","é"]]}'.encode()),
        ({"x": [b"\xff", b"a"]}, "", b'{"instances":[{"b64":"/w=="},{"b64":"YQ=="}]}'),
    ],
)
def test_tensors_of_other_protocols(inputs: dict[str, Any], payload: str, body: bytes) -> None:
    tensors = tuple(tensor(name, np.array(each, object if holds_text(each) else None)) for name, each in inputs.items())
    request = Request(Operation.INFER, "m", inputs=tensors, translate=Translate(payload=payload))
    assert sent(request) == body


def holds_text(each: Any) -> bool:
    return isinstance(each, str | bytes) or (isinstance(each, list) and any(map(holds_text, each)))


def test_nan_is_refused_for_kserve_only() -> None:
    request = Request(Operation.INFER, "m", inputs=(tensor("x", np.array([math.nan])),))
    with pytest.raises(GatewayError, match="element 0 is nan"):
        V1.encode_request(request, TARGET)
    assert sent(request) == b'{"instances":[NaN]}'


def test_elements_of_content_type_json_must_be_json() -> None:
    """A route's signature may give a client's tensor that content type: it must not add members to the body."""
    raw = replace(tensor("x", np.array(['1],"signature_name":["s"'], object)), content_type="json")
    with pytest.raises(GatewayError, match="not JSON"):
        sent(Request(Operation.INFER, "m", inputs=(raw,)))


@pytest.mark.parametrize("part", ["parameters", "tensor"])
def test_parameters_that_v1_cannot_carry_are_refused_by_name(part: str) -> None:
    given = {"k": math.inf} if part == "parameters" else {"k": 1}
    x = tensor("x", np.array([1.0]))
    request = Request(Operation.INFER, "m", inputs=(x,), parameters=given)
    if part == "tensor":
        request = Request(Operation.INFER, "m", inputs=(replace(x, parameters=given),))
    with pytest.raises(GatewayError, match="'k'"):
        sent(request)


def answered(outputs: dict[str, Any], body: bytes, flavor: str) -> bytes:
    tensors = tuple(tensor(name, np.array(each)) for name, each in outputs.items())
    reply = FACES[flavor].encode_response(Response(tensors), decoded(body, flavor), DEFAULT_TRANSLATE)
    return b"".join(reply.parts)


def test_a_reply_takes_the_requests_form() -> None:
    one, two = {"y": [[1.0]]}, {"y": [1.0], "z": [2]}
    assert answered(one, b'{"instances":[1]}', "kserve") == b'{"predictions":[[1.0]]}'
    assert answered(one, b'{"inputs":[1]}', "kserve") == b'{"outputs":[[1.0]]}'
    assert answered(two, b'{"instances":[{"x":1}]}', "kserve") == b'{"predictions":[{"y":1.0,"z":2}]}'
    assert answered(two, b'{"inputs":{"x":1}}', "tensorflow") == b'{"outputs":{"y":[1.0],"z":[2]}}'


def test_outputs_that_cannot_be_rows() -> None:
    assert answered({"y": 1.0}, b'{"instances":[1]}', "kserve") == b'{"predictions":1.0}'
    with pytest.raises(GatewayError, match="cannot be rows"):
        answered({"y": 1.0}, b'{"instances":[1]}', "tensorflow")


def replied(body: bytes, status: int = 200) -> Any:
    request = Request(Operation.INFER, "m")
    return V1.decode_response(Message(status=status, parts=(body,)), request, TARGET)


def test_an_error_of_the_batcher_under_status_200_is_an_error() -> None:
    body = b'{"message":"{\\"error\\":\\"ValueError : no\\"}","batchId":"","predictions":null}'
    with pytest.raises(GatewayError) as caught:
        replied(body)
    assert (caught.value.reason, caught.value.message) == (Reason.MODEL_ERROR, "ValueError : no")
    found = replied(b'{"message":"","batchId":"7","predictions":[1]}')
    assert found.parameters == {"message": "", "batchId": "7"}


@pytest.mark.parametrize("body", [b"", b"null", b"[1]", b"{}", b"<html>", b'{"predictions":[1]'])
def test_invalid_replies_are_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        replied(body)


@pytest.mark.parametrize("flavor", ["kserve", "tensorflow"])
def test_the_default_signature_name_is_no_parameter_and_reaches_v1_servers(flavor: str) -> None:
    request = decoded(b'{"signature_name":"serving_default","instances":[1]}', flavor)
    assert request.parameters == {}
    assert bytes(sent(request)) == b'{"instances":[1],"signature_name":"serving_default"}'
    other = decoded(b'{"signature_name":"other","instances":[1]}', flavor)
    assert other.parameters == {"signature_name": "other"}
