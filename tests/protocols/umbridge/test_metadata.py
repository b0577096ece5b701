"""Sizes, operations and models: from replies of backends, and in replies to clients."""

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.models import ModelEntry, ServerInfo, Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.protocol import merge
from gateway.core.requests import Answer, Request
from tests.protocols.umbridge.wire import answered, written


def metadata(part: str) -> Request:
    return Request(Operation.METADATA, "m", part=part)


INPUT_SIZES, OUTPUT_SIZES, MODEL_INFO = map(metadata, ("InputSizes", "OutputSizes", "ModelInfo"))

WRONG = [
    (INPUT_SIZES, '{"outputSizes":[1]}', 'no "inputSizes" in the reply'),
    (INPUT_SIZES, '{"inputSizes":3}', '"inputSizes" is 3, expected a list'),
    (INPUT_SIZES, '{"inputSizes":[1,-1]}', '"inputSizes" 1 is -1, expected the length of a vector'),
    (INPUT_SIZES, '{"inputSizes":[1.5]}', '"inputSizes" 0 is 1.5, expected the length of a vector'),
    (INPUT_SIZES, '{"inputSizes":["1"]}', "expected the length of a vector"),
    (INPUT_SIZES, '{"inputSizes":[true]}', "expected the length of a vector"),
    (INPUT_SIZES, '{"inputSizes":[1e300]}', "expected the length of a vector"),
    (MODEL_INFO, '{"support":[]}', r'"support" is \[\], expected an object of booleans'),
    (MODEL_INFO, "{}", 'no "support" in the reply'),
    (Request(Operation.MODELS), '{"protocolVersion":0.9}', 'no "models" in the reply'),
    (Request(Operation.MODELS), '{"models":[1]}', '"models" holds 1, expected names'),
    (Request(Operation.LIVE), '{"models":{}}', '"models" is {}, expected a list'),
]


@pytest.mark.parametrize(("request_", "body", "says"), WRONG)
def test_a_reply_that_is_not_what_was_asked_is_refused(request_: Request, body: str, says: str) -> None:
    with pytest.raises(DecodeError, match=says):
        answered(body, request_)


@pytest.mark.parametrize(
    ("body", "claimed"),
    [
        ('{"support":{}}', set()),
        ('{"support":{"Evaluate":true,"Gradient":false}}', {Operation.INFER}),
        ('{"support":{"ApplyHessian":true,"Binary":true}}', {Operation.APPLY_HESSIAN}),
    ],
)
def test_operations_missing_in_support_are_not_supported(body: str, claimed: set[Operation]) -> None:
    assert answered(body, MODEL_INFO) == Signature(operations=frozenset(claimed))


def test_the_parts_of_the_metadata_make_a_signature_in_any_order_of_sizes() -> None:
    inputs, outputs = answered('{"inputSizes":[3,0]}', INPUT_SIZES), answered('{"outputSizes":[1.0]}', OUTPUT_SIZES)
    info = answered('{"support":{"Gradient":true}}', MODEL_INFO)
    assert isinstance(inputs, Signature)
    assert isinstance(outputs, Signature)
    assert isinstance(info, Signature)
    whole = Signature(
        inputs=(TensorSpec("", Datatype.FP64, (3,)), TensorSpec("", Datatype.FP64, (0,))),
        outputs=(TensorSpec("", Datatype.FP64, (1,)),),
        operations=frozenset({Operation.GRADIENT}),
    )
    assert merge((inputs, outputs, info)) == whole


INFO = '{"protocolVersion": 1.0, "models": ["a", "b"]}'


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (Request(Operation.MODELS), (ModelEntry("a"), ModelEntry("b"))),
        (Request(Operation.LIVE), True),
        (Request(Operation.READY), True),
        (Request(Operation.MODEL_READY, "b"), True),
        (Request(Operation.MODEL_READY, "c"), False),
        (Request(Operation.SERVER_METADATA), ServerInfo("umbridge", "1.0")),
    ],
)
def test_info_answers_what_is_asked_of_the_server(request_: Request, answer: Answer) -> None:
    assert answered(INFO, request_) == answer


def test_a_server_without_models_is_well() -> None:
    assert answered('{"protocolVersion":1,"models":[]}', Request(Operation.READY)) is True


# Replies to clients


def spec(name: str, *shape: int) -> TensorSpec:
    return TensorSpec(name, Datatype.FP32, shape)


ANSWERS: list[tuple[Request, Answer, bytes]] = [
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


FREE, TEXT = Reason.FAILED_PRECONDITION, Reason.UNSUPPORTED


@pytest.mark.parametrize(
    ("answer", "reason", "says"),
    [
        (Signature(inputs=(spec("x", 2), spec("image", 3, -1))), FREE, "input 'image' has a free dimension, [3, -1]"),
        (Signature(outputs=(spec("y", -1, 0),)), FREE, "output 'y' has a free dimension, [-1, 0]"),
        (Signature(inputs=(spec("x", 2), TensorSpec("text", Datatype.BYTES, (-1,)))), TEXT, "input 'text' is BYTES"),
        (Signature(outputs=(TensorSpec("label", Datatype.BYTES, (1,)),)), TEXT, "output 'label' is BYTES"),
    ],
)
def test_a_free_dimension_and_bytes_have_no_size(answer: Signature, reason: Reason, says: str) -> None:
    with pytest.raises(GatewayError) as caught:
        written(answer, metadata("InputSizes" if answer.inputs else "OutputSizes"))
    remedy = (
        "; the route's `signature` must give its size" if reason is FREE else ", but UM-Bridge carries numbers only"
    )
    assert (caught.value.reason, caught.value.message) == (reason, says + remedy)
