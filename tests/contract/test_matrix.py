"""Clients of every protocol call servers of every protocol over loopback sockets: clients based on the codecs, one
gateway, and the bundled models behind it. The tests contain no protocol names: Traits determine the expected results.
"""

import math
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio

from gateway.core.datatypes import DATATYPES, Datatype
from gateway.core.errors import GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import DERIVATIVES, SERVER_OPERATIONS, Operation
from gateway.core.protocol import Rows, merge
from gateway.core.requests import Request, RequestedOutput, Response
from gateway.core.tensors import tensor
from gateway.reference.bundled import KINDS
from tests.contract import expectations as expect
from tests.contract.cases import Rules, each_pair
from tests.contract.comparing import numbers
from tests.contract.flavors import Dialect, names_models
from tests.contract.installed import toys
from tests.contract.matrix import MODELS, NOBODY, Matrix, running, serves
from tests.contract.wire import LITERAL, or_error

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def matrix() -> AsyncIterator[Matrix]:
    with toys():
        async with running() as found:
            yield found


def infer(model: str, *inputs: object, outputs: tuple[RequestedOutput, ...] = ()) -> Request:
    return Request(Operation.INFER, model, inputs=inputs, outputs=outputs, translate=LITERAL)  # type: ignore[arg-type]


def sends(front: Dialect, datatype: Datatype) -> bool:
    return datatype in front.traits.wire.datatypes


async def answered(matrix: Matrix, front: Dialect, back: Dialect, request: Request) -> Response:
    answer = await matrix.ask(front, back, request)
    assert isinstance(answer, Response)
    return answer


async def refused(matrix: Matrix, front: Dialect, back: Dialect, request: Request) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        await matrix.ask(front, back, request)
    return caught.value


# --- Inference ---


@each_pair(
    {
        "no server of this protocol has such a model": lambda _, back, case: (
            not serves(back.protocol, MODELS[case.model])
        ),
        "the client cannot send such inputs": lambda front, _, case: not expect.sendable(front, case),
    },
    case=expect.CASES,
)
async def test_a_model_answers_or_the_tensor_is_refused(
    matrix: Matrix, front: Dialect, back: Dialect, case: expect.Case
) -> None:
    request = infer(case.model, *expect.as_sent(case.inputs, front, back))
    if expect.is_refused(case, front, back):
        # protocols with only numbers cannot serve a model with BYTES
        reason = Reason.UNSUPPORTED if expect.has_no_text(case, front, back) else Reason.INVALID_INPUT
        assert (await refused(matrix, front, back, request)).reason is reason
        return
    response = await answered(matrix, front, back, request)
    expect.check_outputs(response.outputs, case, front, back)


@each_pair(
    {"the client does not have the datatype": lambda front, _, datatype: datatype not in front.traits.wire.datatypes},
    datatype=DATATYPES,
)
async def test_a_tensor_comes_back_as_it_was(matrix: Matrix, front: Dialect, back: Dialect, datatype: Datatype) -> None:
    sent = expect.pair(datatype)
    [named] = expect.as_sent((sent,), front, back)
    request = infer("identity", named)
    expected = expect.identical(sent, front, back)
    if expected is None:
        assert (await refused(matrix, front, back, request)).reason is Reason.INVALID_INPUT
        return
    [found] = (await answered(matrix, front, back, request)).outputs
    expect.check_identical(found, expected, front, back)


@each_pair()
async def test_what_is_not_finite_comes_back_unless_a_wire_refuses_it(
    matrix: Matrix, front: Dialect, back: Dialect
) -> None:
    [sent] = expect.as_sent((expect.infinite(front),), front, back)
    request = infer("identity", sent)
    if back.traits.wire.nan == "null":
        # the server's output is not a number: the result is the JSON text, or an error
        try:
            [found] = (await answered(matrix, front, back, request)).outputs
            told = b"null" in bytes(found.data)
        except GatewayError as error:
            told = error.reason in (Reason.INVALID_OUTPUT, Reason.INVALID_INPUT)
        assert told
        return
    if not (expect.asks_what_is_not_finite(back) and expect.tells_what_is_not_finite(front)):
        assert (await refused(matrix, front, back, request)).reason is Reason.INVALID_INPUT
        return
    [found] = (await answered(matrix, front, back, request)).outputs
    if front.traits.wire.nan == "null":
        assert b"null" in bytes(found.data)  # not a number, so it is read as JSON text
        return
    first, second = found.array.reshape(-1).tolist()
    assert math.isnan(first)
    assert second == -math.inf


@each_pair(
    {
        "no request says which outputs it wants": lambda front, _: not front.traits.wire.selects,
        "no server of this protocol has such a model": lambda _, back: not serves(back.protocol, MODELS["add_sub"]),
    }
)
async def test_outputs_are_those_that_were_asked_for(matrix: Matrix, front: Dialect, back: Dialect) -> None:
    case = expect.CASES["add_sub"]
    inputs = expect.as_sent(case.inputs, front, back)
    request = infer(case.model, *inputs, outputs=(RequestedOutput("OUTPUT1"),))
    response = await answered(matrix, front, back, request)
    expect.check_outputs(response.outputs, expect.Case(case.model, (), case.outputs[1:]), front, back)


CLIENT_CANNOT_SEND = "the client cannot send the input"
CLIENT_TAKES_NO_STREAMS: Rules = {"the client takes no streams": lambda front, _: not front.traits.wire.streams}
NO_SERVER_STREAMS: Rules = {"no server of this protocol streams": lambda _, back: not back.traits.wire.streams}

each_streaming_client = each_pair(CLIENT_TAKES_NO_STREAMS)
each_streaming_pair = each_pair({**CLIENT_TAKES_NO_STREAMS, **NO_SERVER_STREAMS})


async def streamed(
    matrix: Matrix, front: Dialect, back: Dialect, request: Request
) -> tuple[list[Response], GatewayError | None]:
    """Return the responses, and the error that followed them."""
    found: list[Response] = []
    try:
        async for response in matrix.stream(front, back, replace(request, operation=Operation.STREAM)):
            found.append(response)
    except GatewayError as error:
        return found, error
    return found, None


@each_streaming_client
async def test_a_stream_has_one_response_of_a_model_that_gives_one(
    matrix: Matrix, front: Dialect, back: Dialect
) -> None:
    case = expect.CASES["double"]
    request = infer(case.model, *expect.as_sent(case.inputs, front, back))
    [response], error = await streamed(matrix, front, back, request)
    assert error is None
    expect.check_outputs(response.outputs, case, front, back)


@each_streaming_pair
async def test_a_stream_has_every_response_where_the_backend_streams(
    matrix: Matrix, front: Dialect, back: Dialect
) -> None:
    responses, error = await streamed(matrix, front, back, count(3, front, back))
    assert error is None
    assert [numbers(each.outputs[0]) for each in responses] == [[0], [1], [2]]


@each_streaming_client
async def test_an_error_in_a_stream_is_told_as_what_it_is(matrix: Matrix, front: Dialect, back: Dialect) -> None:
    kind = expect.array("kind", Datatype.INT32, [5])
    responses, error = await streamed(matrix, front, back, infer("fail", *expect.as_sent((kind,), front, back)))
    assert responses == []
    assert error is not None
    assert f"model 'fail' fails on request with {KINDS[5].value}" in error.message


@each_streaming_pair
async def test_an_error_comes_after_the_responses_before_it(matrix: Matrix, front: Dialect, back: Dialect) -> None:
    responses, error = await streamed(matrix, front, back, count(-2, front, back))
    assert [numbers(each.outputs[0]) for each in responses] == [[0], [1]]
    assert error is not None
    assert "model 'count' fails on request after 2 responses" in error.message


@each_pair({**NO_SERVER_STREAMS, CLIENT_CANNOT_SEND: lambda front, _: not sends(front, Datatype.INT32)})
async def test_a_client_of_one_response_gets_what_the_route_makes_of_many(
    matrix: Matrix, front: Dialect, back: Dialect
) -> None:
    last = await answered(matrix, front, back, count(3, front, back, "last"))
    assert numbers(last.outputs[0]) == [2]
    collect = count(3, front, back, "collect")
    if front.traits.wire.rows is Rows.FIRST:  # three rows are not a valid answer to one row
        assert (await refused(matrix, front, back, collect)).reason is Reason.INVALID_OUTPUT
    else:
        assert numbers((await answered(matrix, front, back, collect)).outputs[0]) == [0, 1, 2]
    error = await refused(matrix, front, back, count(3, front, back))
    assert error.reason is expect.told(front, expect.told(back, Reason.UNSUPPORTED))


def count(n: int, front: Dialect, back: Dialect, model: str = "count") -> Request:
    return infer(model, *expect.as_sent((expect.array("n", Datatype.INT32, [n]),), front, back))


# --- Versions ---


@each_pair({"the client cannot name a version": lambda front, _: front.traits.models.versions is None})
async def test_a_version_is_that_of_the_model(matrix: Matrix, front: Dialect, back: Dialect) -> None:
    case = expect.CASES["double"]
    request = infer(case.model, *expect.as_sent(case.inputs, front, back))
    if back.traits.models.versions is None:
        error = await refused(matrix, front, back, replace(request, version="1"))
        assert error.reason is Reason.MODEL_NOT_FOUND
        return
    response = await answered(matrix, front, back, replace(request, version="1"))
    expect.check_outputs(response.outputs, case, front, back)
    error = await refused(matrix, front, back, replace(request, version="2"))
    assert error.reason is expect.told(front, expect.told(back, Reason.MODEL_NOT_FOUND))


# --- Derivatives ---


DERIVED: dict[Operation, tuple[dict[str, list[float]], list[float]]] = {
    Operation.GRADIENT: ({"sens": [1.0]}, [20.0, -10.0]),
    Operation.APPLY_JACOBIAN: ({"vec": [1.0, 2.0]}, [0.0]),
    Operation.APPLY_HESSIAN: ({"sens": [1.0], "vec": [1.0, 2.0]}, [19.9, 0.0]),
}
"""The inputs of each operation, and the expected outputs."""


@each_pair(
    {
        "the client cannot name a companion model": lambda front, *_: not names_models(front.traits),
        "the client cannot send the position of a tensor": lambda front, *_: not sends(front, Datatype.INT64),
    },
    operation={each.value: each for each in DERIVED},
)
async def test_derivatives_are_operations_or_companions(
    matrix: Matrix, front: Dialect, back: Dialect, operation: Operation
) -> None:
    given, expected = DERIVED[operation]
    theta = expect.as_sent(expect.CASES["posterior"].inputs, front, back)
    vectors = (tensor(name, np.array([given.get(name, [0])])) for name in DERIVATIVES[operation])
    indices = (each if each.name in given else tensor(each.name, np.array([0])) for each in vectors)
    extras = [tensor(each.name, each.array.reshape(-1)) if front.traits.wire.points else each for each in indices]
    companion = infer(f"posterior.{operation.value}", *theta, *extras)
    own = Request(operation, "posterior", inputs=(*theta, *extras))
    request = own if front.traits.wire.derivatives else companion
    if not (back.traits.wire.derivatives or back.traits.models.companions):
        assert (await refused(matrix, front, back, request)).reason is Reason.UNSUPPORTED
        return
    response = await answered(matrix, front, back, request)
    [output] = response.outputs
    assert output.array.reshape(-1).tolist() == pytest.approx(expected)
    assert output.shape == (len(expected),) if front.traits.wire.points else (1, len(expected))


# --- Errors ---


@each_pair(
    {
        CLIENT_CANNOT_SEND: lambda front, *_: not sends(front, Datatype.INT32),
        "the model's tensors have no form on the way": lambda front, back, _: expect.is_refused(
            expect.CASES["fail, at nothing"], front, back
        ),
    },
    number={str(number): number for number in KINDS},
)
async def test_an_error_is_told_as_what_it_is(matrix: Matrix, front: Dialect, back: Dialect, number: int) -> None:
    kind = expect.array("kind", Datatype.INT32, [number])
    error = await refused(matrix, front, back, infer("fail", *expect.as_sent((kind,), front, back)))
    reason = expect.told(front, expect.told(back, KINDS[number]))
    assert (error.status, error.reason) == (reason.status, reason)
    assert f"model 'fail' fails on request with {KINDS[number].value}" in error.message


MODELS_HAVE_NO_NAMES: Rules = {
    "models have no names": lambda front, back: not (names_models(front.traits) and names_models(back.traits))
}


@each_pair(MODELS_HAVE_NO_NAMES)
async def test_a_model_that_is_not_there_is_not_found(matrix: Matrix, front: Dialect, back: Dialect) -> None:
    sent = expect.as_sent(expect.CASES["double"].inputs, front, back)
    error = await refused(matrix, front, back, infer(NOBODY, *sent))
    assert error.reason is Reason.MODEL_NOT_FOUND
    assert NOBODY in error.message


@each_pair()
async def test_inputs_that_do_not_fit_are_refused(matrix: Matrix, front: Dialect, back: Dialect) -> None:
    [theta] = expect.as_sent(expect.CASES["posterior"].inputs, front, back)
    for inputs in ((), (theta, expect.array("further", Datatype.FP64, 1.0))):
        error = await refused(matrix, front, back, infer("posterior", *inputs))
        assert error.reason is Reason.INVALID_INPUT


# --- Metadata of models and of the gateway ---


def asks(front: Dialect, operation: Operation) -> bool:
    return not isinstance(or_error(lambda: front.asked(Request(operation, "posterior"))), GatewayError)


def as_read(dialect: Dialect, operation: Operation) -> Operation | None:
    """Return the operation that the protocol sends for the request, which can be another operation. Return None if the
    protocol cannot express the request."""
    asked = or_error(lambda: dialect.asked(Request(operation, "posterior")))
    return None if isinstance(asked, GatewayError) else asked.operation


CLIENT_DOES_NOT_ASK = "the client does not ask"


@each_pair({CLIENT_DOES_NOT_ASK: lambda front, _: not front.traits.models.metadata_parts})
async def test_metadata_is_that_of_the_model(matrix: Matrix, front: Dialect, back: Dialect) -> None:
    questions = [Request(Operation.METADATA, "posterior", part=part) for part in front.traits.models.metadata_parts]
    parts = [await matrix.ask(front, back, each) for each in questions]
    found = merge(tuple(each for each in parts if isinstance(each, Signature)))
    case = expect.CASES["posterior"]
    for specs, prefix, tensors in (
        (found.inputs, "input", expect.as_sent(case.inputs, front, back)),
        (found.outputs, "output", case.outputs),
    ):
        [each] = tensors
        size = each.shape[-1]
        name = expect.told_name(each.name, f"{prefix}0", back)
        shape = (size,) if front.traits.wire.points else (-1, size)
        assert specs == (TensorSpec("" if front.traits.wire.points else name, Datatype.FP64, shape),)
    if front.traits.wire.derivatives and (back.traits.models.trusted_metadata or not back.traits.models.companions):
        assert found.operations == {Operation.INFER, *(DERIVATIVES if back.traits.models.companions else ())}


@each_pair(
    {CLIENT_DOES_NOT_ASK: lambda front, _, operation: not asks(front, operation)},
    operation={each.value: each for each in (Operation.LIVE, Operation.READY, Operation.MODEL_READY)},
)
async def test_what_runs_is_ready(matrix: Matrix, front: Dialect, back: Dialect, operation: Operation) -> None:
    assert await matrix.ask(front, back, Request(operation, "posterior")) is True


@each_pair(
    {
        CLIENT_DOES_NOT_ASK: lambda front, _: not asks(front, Operation.MODEL_READY),
        **MODELS_HAVE_NO_NAMES,
        "the client asks the server as a whole: whether it is ready, or what it lists": lambda front, _: (
            as_read(front, Operation.MODEL_READY) in SERVER_OPERATIONS
        ),
        "the backend can only be asked as a whole": lambda _, back: (
            as_read(back, Operation.MODEL_READY) in (Operation.READY, Operation.LIVE)
        ),
    }
)
async def test_a_model_that_is_not_there_is_not_ready(matrix: Matrix, front: Dialect, back: Dialect) -> None:
    try:
        ready = await matrix.ask(front, back, Request(Operation.MODEL_READY, NOBODY))
    except GatewayError as error:
        # some protocols distinguish an unknown model from a model that is not ready
        ready = error.reason is not expect.told(front, Reason.MODEL_NOT_FOUND)
    assert ready is False


@each_pair({CLIENT_DOES_NOT_ASK: lambda front, _: not asks(front, Operation.MODELS)})
async def test_models_are_listed_as_the_routes_name_them(matrix: Matrix, front: Dialect, back: Dialect) -> None:
    listed = await matrix.ask(front, back, Request(Operation.MODELS))
    assert isinstance(listed, tuple)
    assert f"{back.name}-posterior" in [entry.name for entry in listed]
