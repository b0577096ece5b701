"""Forms of servers that take one row a call (`batch: each`)."""

import json

import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.protocol import Rows
from gateway.core.requests import DEFAULT_TRANSLATE, Response
from gateway.core.tensors import tensor
from gateway.protocols.json.form import FormError
from tests.protocols.json.declared import declared, read, response, without_origin, written

IRIS = declared("""
batch: each
infer: {path: /p, request: {a: $a|scalar, xs: $xs, "k?": $k|scalar}, response: {y: $y|text, p: [{q: $q}, ...]}}
tensors: {a: "FP64 [-1]", xs: "INT64 [-1, 2]", k: "INT64 [1]", y: "BYTES [-1]", q: "FP64 [-1, -1]"}
""")
BODY = b'{"a":1.5,"xs":[1,2],"k":3}'
REPLY = b'{"y":"b","p":[{"q":0.5},{"q":0.25}]}'


def test_one_row_in_front_is_a_batch_of_one() -> None:
    request = read(IRIS, "POST /p", BODY)
    assert [(each.name, each.shape) for each in request.inputs] == [("a", (1,)), ("xs", (1, 2)), ("k", (1,))]


def test_a_call_of_a_server_has_the_tensors_of_a_row() -> None:
    inputs = (tensor("a", np.array(1.5)), tensor("xs", np.array([1, 2])), tensor("k", np.array([3])))
    request = replace(without_origin(read(IRIS, "POST /p", BODY)), inputs=inputs)
    assert written(IRIS, request).body == BODY
    found = response(IRIS, request, REPLY)
    assert [(each.name, each.shape) for each in found.outputs] == [("y", ()), ("q", (2,))]


def answered(*shape: int) -> bytes:
    request = read(IRIS, "POST /p", BODY)
    outputs = (
        tensor("y", np.array([[b"b"]] * shape[0], object).reshape(shape[:1]), Datatype.BYTES),
        tensor("q", np.full(shape, 0.5)),
    )
    return bytes(IRIS.encode_response(Response(outputs), request, DEFAULT_TRANSLATE).body)


def test_the_only_row_of_a_response_is_the_reply() -> None:
    assert answered(1, 2) == b'{"y":"b","p":[{"q":0.5},{"q":0.5}]}'


@pytest.mark.parametrize("rows", [0, 2])
def test_a_response_of_other_rows_is_refused(rows: int) -> None:
    with pytest.raises(GatewayError, match=f"output 'y' has the shape \\[{rows}\\], expected one row") as caught:
        answered(rows, 2)
    assert caught.value.reason is Reason.INVALID_OUTPUT


def test_rows_of_unequal_length_are_no_row() -> None:
    form = declared("""
batch: each
infer: {path: /p, request: {x: $x}, response: {y: $y}}
tensors: {x: "FP64 [-1, -1, -1]", y: "FP64 [-1]"}
""")
    with pytest.raises(DecodeError, match="input 'x': ragged"):
        read(form, "POST /p", b'{"x":[[1],[1,2]]}')


def test_an_answer_without_tensors_is_no_row() -> None:
    form = declared("""
batch: each
infer: {path: /p, request: {x: $x}, response: {y: $y}}
ready: {path: /ready, response: {ok: true}}
tensors: {x: "FP64 [-1]", y: "FP64 [-1]"}
""")
    assert form.encode_response(True, read(form, "GET /ready"), DEFAULT_TRANSLATE).body == b'{"ok":true}'


def test_the_signature_is_that_of_batches() -> None:
    traits = IRIS.traits
    assert traits.models.signature is not None
    assert [each.shape for each in traits.models.signature.inputs] == [(-1,), (-1, 2), (1,)]
    assert traits.wire.rows is Rows.ONE


def test_the_document_describes_one_row() -> None:
    assert IRIS.describer is not None
    operation = IRIS.describer()("POST /p", None, "")
    assert operation is not None
    [body] = operation.body.values()
    assert list(body.example) == ["a", "xs"]
    assert read(IRIS, "POST /p", json.dumps(body.example).encode()).inputs[0].shape == (1,)


ONE = "infer: {path: /p, request: {x: REQUEST}, response: {y: RESPONSE}}\n"
REFUSED = {
    "no tensors": ("$x", "$y", "batch: each", "batch", "`batch: each` needs `tensors`"),
    "no input in rows": (
        "$x", "$y", 'batch: each\ntensors: {x: "FP64 [2]", y: "FP64 [-1]"}', "batch", "no input of x has a first dim",
    ),
    "an output that is not in rows": (
        "$x", "$y", 'batch: each\ntensors: {x: "FP64 [-1]", y: "FP64 [2]"}', "tensors", "$y has one value for each row",
    ),
    "a list for one element of a row": (
        "$x|scalar", "$y", 'batch: each\ntensors: {x: "FP64 [-1, 3]", y: "FP64 [-1]"}', "tensors",
        "$x|scalar is one element of each row: expected FP64 [-1]",
    ),
    "another word": ("$x", "$y", "batch: every", "batch", "'every' is none of each"),
    "any number for one element": (
        "$x|scalar", "$y", 'tensors: {x: "FP64 [-1]", y: "FP64 [-1]"}', "tensors",
        "add `batch: each` to the form: the gateway then calls it once for each row. Otherwise declare FP64 [1]",
    ),
    "the same in a response": (
        "$x", "$y|text", 'tensors: {x: "FP64 [-1]", y: "BYTES [-1]"}', "tensors", "Otherwise declare BYTES [1]",
    ),
    "three for one element": (
        "$x|scalar", "$y", 'tensors: {x: "FP64 [3]", y: "FP64 [-1]"}', "tensors", "expected FP64 [1], not [3]",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("request_", "reply", "more", "key", "expected"), REFUSED.values(), ids=REFUSED)
def test_forms_that_do_not_say_what_a_row_is_are_refused(
    request_: str, reply: str, more: str, key: str, expected: str
) -> None:
    with pytest.raises(FormError) as caught:
        declared(ONE.replace("REQUEST", request_).replace("RESPONSE", reply) + more)
    assert caught.value.path[0] == key
    assert expected in caught.value.message


@pytest.mark.parametrize("tensors", ['{x: "FP64 [1]", y: "FP64 [-1]"}', '{x: "FP64 [1, 1]", y: "FP64 []"}'])
def test_one_element_is_declared_in_any_number_of_dimensions(tensors: str) -> None:
    form = declared(ONE.replace("REQUEST", "$x|scalar").replace("RESPONSE", "$y") + f"tensors: {tensors}")
    assert read(form, "POST /p", b'{"x": 1}').inputs[0].elements == 1


@pytest.mark.parametrize("media_type", ["image/*", "text/plain"])
def test_a_whole_body_is_one_element_of_a_row(media_type: str) -> None:
    form = declared(f"""
batch: each
infer: {{path: /p, media_type: {media_type}, request: $x, response_type: text/plain, response: $y|numbers}}
tensors: {{x: "BYTES [-1]", y: "FP64 [-1]"}}
""")
    request = read(form, "POST /p", b"abc", content_type=media_type.replace("*", "png"))
    assert [each.shape for each in request.inputs] == [(1,)]
    row = replace(without_origin(request), inputs=(replace(request.inputs[0], shape=()),))
    assert bytes(written(form, row).body) == b"abc"
    assert response(form, row, b"2.5", content_type="text/plain").outputs[0].array.tolist() == 2.5


def test_elements_in_rows_may_be_any_number() -> None:
    form = declared("""
infer: {path: /p, request: [{x: $x|scalar}, ...], response: [$y|text, ...]}
tensors: {x: "FP64 [-1]", y: "BYTES [-1]"}
""")
    assert read(form, "POST /p", b'[{"x": 1}, {"x": 2}]').inputs[0].shape == (2,)
