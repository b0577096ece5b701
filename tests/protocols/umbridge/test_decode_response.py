import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.operations import Operation
from gateway.core.protocol import merge
from gateway.core.types import (
    Answer,
    Headers,
    Message,
    ModelEntry,
    Request,
    Response,
    ServerInfo,
    Signature,
    Tensor,
    TensorSpec,
)
from gateway.protocols.umbridge.client import decode_response
from tests.protocols.umbridge.wire import TARGET, floats, integers, numbers, reply

EVALUATE = Request(Operation.INFER, "m")
GRADIENT = Request(Operation.GRADIENT, "m")
INPUT_SIZES = Request(Operation.METADATA, "m", part="InputSizes")
OUTPUT_SIZES = Request(Operation.METADATA, "m", part="OutputSizes")
MODEL_INFO = Request(Operation.METADATA, "m", part="ModelInfo")


def answered(body: str, request: Request) -> Answer:
    return decode_response(reply(body), request, TARGET)


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ('{"output": [[1.5, 2], [3]] }', (floats(1.5, 2), integers(3))),
        ('{"time":[1,"s"],"output":[[1]],"log":{"output":null}}', (integers(1),)),
        ('{"output":[]}', ()),
        ('{"output":[[]]}', (integers(),)),
        ('{"output":[2.5,[1]]}', (floats(2.5), integers(1))),
    ],
    ids=["spaces", "other keys", "no outputs", "empty vector", "scalar for a vector"],
)
def test_the_outputs_of_evaluate_are_vectors_without_names(body: str, outputs: tuple[Tensor, ...]) -> None:
    assert answered(body, EVALUATE) == Response(outputs)


@pytest.mark.parametrize("literals", ["NaN, Infinity, -Infinity", "nan, inf, -inf"])
def test_what_servers_print_for_nan_and_infinities_is_read(literals: str) -> None:
    answer = answered(f'{{"output": [[{literals}, 0.5]]}}', EVALUATE)
    assert isinstance(answer, Response)
    assert str(numbers(answer.outputs[0])) == "[nan, inf, -inf, 0.5]"


@pytest.mark.parametrize(
    ("body", "output"),
    [
        ('{"output":[1.5,2.5]}', floats(1.5, 2.5, name="output")),
        ('{"output":[]}', integers(name="output")),
        ('{"output":7}', integers(7, name="output")),
    ],
)
def test_a_derivative_is_one_tensor_of_the_companion_s_name(body: str, output: Tensor) -> None:
    for operation in (Operation.GRADIENT, Operation.APPLY_JACOBIAN, Operation.APPLY_HESSIAN):
        assert answered(body, Request(operation, "m")) == Response((output,))


WRONG = [
    (EVALUATE, '{"output":[[null]]}', "null"),
    (EVALUATE, '{"output":[[1.0],[np.float64(1.5)]]}', "."),
    (EVALUATE, '{"output":[[None]]}', "."),
    (EVALUATE, '{"output":[["a"]]}', "."),
    (EVALUATE, '{"output":[[true]]}', "output 0 holds booleans, expected a vector of numbers"),
    (EVALUATE, '{"output":[[[1,2]]]}', "."),
    (EVALUATE, '{"output":null}', "."),
    (EVALUATE, '{"output":1}', "."),
    (EVALUATE, '{"outputs":[[1]]}', "no \"output\" in the reply; it has 'outputs'"),
    (EVALUATE, "{}", 'no "output" in the reply; it has no keys'),
    (EVALUATE, "", "."),
    (EVALUATE, "<html>", "."),
    (EVALUATE, "[[1]]", "."),
    (GRADIENT, '{"output":[[1,2]]}', r"output has shape \[1, 2\], expected a vector of numbers"),
    (GRADIENT, '{"output":null}', "."),
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
def test_what_is_not_in_support_is_not_claimed(body: str, claimed: set[Operation]) -> None:
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


@pytest.mark.parametrize("content_type", [b"", b"text/plain; charset=utf-8", b"application/octet-stream"])
def test_the_content_type_is_not_looked_at(content_type: bytes) -> None:
    message = Message(headers=Headers([(b"content-type", content_type)]), parts=(b'{"output":[[1]]}',), status=200)
    assert decode_response(message, EVALUATE, TARGET) == Response((integers(1),))
