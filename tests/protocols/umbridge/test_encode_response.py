from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError, Reason
from gateway.core.operations import Operation
from gateway.core.types import (
    DEFAULT_TRANSLATE,
    Answer,
    ModelEntry,
    Request,
    Response,
    Signature,
    TensorSpec,
    Translate,
    tensor,
)
from gateway.protocols.umbridge.encode_response import encode_response
from tests.protocols.umbridge.wire import floats, integers

EVALUATE = Request(Operation.INFER, "m")
GRADIENT = Request(Operation.GRADIENT, "m")


def written(answer: Answer, request: Request, translate: Translate = DEFAULT_TRANSLATE) -> bytes:
    message = encode_response(answer, request, translate)
    assert (message.status, message.headers.get("content-type")) == (200, "application/json")
    return bytes(message.body)


def metadata(part: str) -> Request:
    return Request(Operation.METADATA, "m", part=part)


def spec(name: str, *shape: int) -> TensorSpec:
    return TensorSpec(name, Datatype.FP32, shape)


ANSWERS: list[tuple[Request, Answer, bytes]] = [
    (EVALUATE, Response((floats(1.5, 2.0), integers(3))), b'{"output":[[1.5,2.0],[3]]}'),
    (EVALUATE, Response(), b'{"output":[]}'),
    (EVALUATE, Response((integers(),)), b'{"output":[[]]}'),
    (GRADIENT, Response((floats(0.1, 1e-300, name="output"),)), b'{"output":[0.1,1e-300]}'),
    (Request(Operation.APPLY_JACOBIAN), Response((integers(),)), b'{"output":[]}'),
    (Request(Operation.APPLY_HESSIAN), Response((floats(7.0, name="y"),)), b'{"output":[7.0]}'),
    (metadata("InputSizes"), Signature(inputs=(spec("x", 3, 4), spec("s"), spec("e", 0))), b'{"inputSizes":[12,1,0]}'),
    (metadata("InputSizes"), Signature(outputs=(spec("y", 2),)), b'{"inputSizes":[]}'),
    (metadata("OutputSizes"), Signature(outputs=(spec("y", 2),)), b'{"outputSizes":[2]}'),
    (
        metadata("ModelInfo"),
        Signature(operations=frozenset({Operation.INFER, Operation.APPLY_HESSIAN, Operation.STREAM})),
        b'{"support":{"Evaluate":true,"Gradient":false,"ApplyJacobian":false,"ApplyHessian":true}}',
    ),
    (
        Request(Operation.MODELS),
        (ModelEntry("a", "1", "READY"), ModelEntry("größe")),
        '{"protocolVersion":1.0,"models":["a","größe"]}'.encode(),
    ),
    (Request(Operation.MODELS), (), b'{"protocolVersion":1.0,"models":[]}'),
    (Request(Operation.LIVE, part="TestShMem"), True, b"{}"),
]


@pytest.mark.parametrize(("request_", "answer", "body"), ANSWERS)
def test_a_reply_has_the_members_of_the_interface_and_no_other(request_: Request, answer: Answer, body: bytes) -> None:
    assert written(answer, request_) == body


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array([[1, 2], [3, 4]], np.int32), b"[1,2,3,4]"),
        (np.array(2.5), b"[2.5]"),
        (np.array([[]]), b"[]"),
        (np.array([0.1], np.float32), b"[0.10000000149011612]"),
        (np.array([0.1], np.float16), b"[0.0999755859375]"),
        (np.array([0.1], ml_dtypes.bfloat16), b"[0.10009765625]"),
        (np.array([2**64 - 1], np.uint64), b"[18446744073709551615]"),
        (np.array([True, False]), b"[1,0]"),
        (np.array([np.nan, -np.inf]), b"[NaN,-Infinity]"),
    ],
)
def test_every_output_is_one_vector_of_exact_numbers(array: "np.ndarray[Any, Any]", text: bytes) -> None:
    assert written(Response((tensor("y", array),)), EVALUATE) == b'{"output":[' + text + b"]}"


def test_the_route_says_how_nan_is_written() -> None:
    answer = Response((tensor("y", np.array([np.nan])),))
    assert written(answer, EVALUATE, Translate(nan="null")) == b'{"output":[[null]]}'
    with pytest.raises(GatewayError, match="output 'y'"):
        written(answer, EVALUATE, Translate(nan="error"))


def test_outputs_that_are_no_numbers_are_refused_by_name() -> None:
    with pytest.raises(GatewayError, match="output 'label' is BYTES, but UM-Bridge carries numbers only") as caught:
        written(Response((floats(1.0), tensor("label", np.array(["cat"])))), EVALUATE)
    assert caught.value.reason is Reason.UNSUPPORTED


@pytest.mark.parametrize("outputs", [(), (floats(1.0, name="a"), floats(2.0, name="b"))])
def test_a_derivative_is_one_vector(outputs: tuple[Any, ...]) -> None:
    with pytest.raises(
        GatewayError, match=r"the derivative has [02] outputs \((none|'a', 'b')\), expected one"
    ) as caught:
        written(Response(outputs), GRADIENT)
    assert caught.value.reason is Reason.INVALID_OUTPUT


@pytest.mark.parametrize(
    ("part", "signature", "says"),
    [
        (
            "InputSizes",
            Signature(inputs=(spec("x", 2), spec("image", 3, -1))),
            "input 'image' has a free dimension, [3, -1]",
        ),
        ("OutputSizes", Signature(outputs=(spec("y", -1, 0),)), "output 'y' has a free dimension, [-1, 0]"),
    ],
)
def test_a_free_dimension_has_no_size(part: str, signature: Signature, says: str) -> None:
    with pytest.raises(GatewayError) as caught:
        written(signature, metadata(part))
    assert caught.value.reason is Reason.FAILED_PRECONDITION
    assert caught.value.message == f"{says}; the route's `signature` must tell its size"


@pytest.mark.parametrize(
    ("part", "signature", "says"),
    [
        ("InputSizes", Signature(inputs=(spec("x", 2), TensorSpec("text", Datatype.BYTES, (-1,)))), "input 'text'"),
        ("OutputSizes", Signature(outputs=(TensorSpec("label", Datatype.BYTES, (1,)),)), "output 'label'"),
    ],
)
def test_what_is_no_numbers_has_no_size(part: str, signature: Signature, says: str) -> None:
    with pytest.raises(GatewayError) as caught:
        written(signature, metadata(part))
    assert caught.value.reason is Reason.UNSUPPORTED
    assert caught.value.message == f"{says} is BYTES, but UM-Bridge carries numbers only"
