"""Each built-in form as client and as server with every protocol, over loopback sockets, with the models of the matrix.

A form can represent only the values that its templates contain. The tests determine these values from the codec,
without sockets. A call through the gateway must then return the model's answer, or be refused.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway.core.errors import GatewayError, Reason
from gateway.core.operations import Operation
from gateway.core.requests import Request, Response
from gateway.core.tensors import Tensor
from gateway.reference.bundled import KINDS
from tests.contract import expectations as expect
from tests.contract.cases import each
from tests.contract.comparing import numbers
from tests.contract.flavors import Dialect
from tests.contract.matrix import MODELS, Matrix, running, serves
from tests.contract.ready_forms import EVERY, FORMS, OTHERS
from tests.contract.wire import LITERAL, or_error

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]

KIND = expect.array("kind", expect.INT32, [0])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def matrix() -> AsyncIterator[Matrix]:
    async with running({dialect.name: dialect for dialect in EVERY.values()}) as found:
        yield found


def infer(model: str, inputs: tuple[Tensor, ...]) -> Request:
    return Request(Operation.INFER, model, inputs=inputs, translate=LITERAL)


def asked(dialect: Dialect, inputs: tuple[Tensor, ...]) -> Request:
    """Return the request that a server reads from a call with these inputs. Raises GatewayError if the protocol cannot
    represent it."""
    return dialect.asked(infer("m", tuple(expect.shaped(each, dialect) for each in inputs)))


def can_ask(dialect: Dialect, inputs: tuple[Tensor, ...]) -> bool:
    return not isinstance(or_error(lambda: asked(dialect, inputs)), GatewayError)


def carries(dialect: Dialect, case: expect.Case) -> bool:
    """Return whether the protocol can represent a call and its answer."""
    inputs, outputs = (tuple(expect.fitted(each, dialect) for each in some) for some in (case.inputs, case.outputs))
    request, response = infer("m", inputs), Response(outputs)
    answer = or_error(lambda: dialect.answered(response, dialect.asked(request), request))
    return not isinstance(answer, GatewayError)


each_pair = each(
    {
        "both are ready forms, or none is": lambda front, back, case: (
            (front in FORMS.values()) is (back in FORMS.values())
        ),
        "no server of this protocol has such a model": lambda _, back, case: (
            not serves(back.protocol, MODELS[case.model])
        ),
        "the client cannot send such inputs": lambda front, _, case: (
            not (expect.sendable(front, case) and can_ask(front, case.inputs))
        ),
    },
    "{front}-to-{back}",
    ("case",),
    front=EVERY,
    back=EVERY,
    case=expect.CASES,
)


@each_pair
async def test_a_model_answers_or_the_call_is_refused(
    matrix: Matrix, front: Dialect, back: Dialect, case: expect.Case
) -> None:
    call = matrix.ask(front, back, infer(case.model, expect.as_sent(case.inputs, front, back)))
    if not (carries(front, case) and carries(back, case)):
        with pytest.raises(GatewayError) as caught:
            await call
        assert caught.value.reason in (Reason.INVALID_INPUT, Reason.INVALID_OUTPUT, Reason.UNSUPPORTED)
        return
    answer = await call
    assert isinstance(answer, Response)
    assert [numbers(found) for found in answer.outputs] == [numbers(expected) for expected in case.outputs]


@each({}, "{front}-to-{back}", front=FORMS, back=OTHERS)
async def test_a_gateway_is_ready_in_the_words_of_the_form(matrix: Matrix, front: Dialect, back: Dialect) -> None:
    for operation in (Operation.LIVE, Operation.READY):
        assert await matrix.ask(front, back, Request(operation, "double")) is True


@each(
    {"the client cannot send the input": lambda front, *_: not can_ask(front, (KIND,))},
    "{front}-to-{back}",
    ("number",),
    front=FORMS,
    back={"v2-rest": OTHERS["v2-rest"]},
    number={str(number): number for number in KINDS},
)
async def test_an_error_is_told_in_the_words_of_the_form(
    matrix: Matrix, front: Dialect, back: Dialect, number: int
) -> None:
    kind = expect.array("kind", expect.INT32, [number])
    with pytest.raises(GatewayError) as caught:
        await matrix.ask(front, back, infer("fail", expect.as_sent((kind,), front, back)))
    reason = expect.told(front, KINDS[number], (kind,))
    assert (caught.value.status, caught.value.reason) == (reason.status, reason)
    assert f"model 'fail' fails on request with {KINDS[number].value}" in caught.value.message
