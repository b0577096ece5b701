"""Rows about request members other than tensors."""

import numpy as np

from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError, Reason
from gateway.core.operations import Operation
from gateway.core.requests import Request
from gateway.core.tensors import tensor
from gateway.reference.bundled import KINDS
from tests.contract import expectations as expect
from tests.contract.comparing import numbers
from tests.contract.flavors import names_models
from tests.contract.matrix_rows.asked import NONE, POINT, REFUSED, Asked, word
from tests.contract.wire import or_error


async def config(asked: Asked) -> str:
    found = await asked.infer("double", POINT, parameters={"config": '{"scale":3}'})
    return word(found, lambda response: "carried" if numbers(response.outputs[0]) == [3.0, 6.0, 9.0] else "dropped")


async def parameter(asked: Asked) -> str:
    """Return whether a parameter reaches the model, which accepts no parameters."""
    found = await asked.infer("double", POINT, parameters={"nothing": 1})
    if isinstance(found, GatewayError):
        return "carried" if "takes no parameter" in found.message else REFUSED
    return NONE if found is None else "dropped"


async def identifier(asked: Asked) -> str:
    question = or_error(lambda: asked.front.asked(Request(Operation.INFER, "m", id="42", inputs=(POINT,))))
    if not isinstance(question, Request) or question.id != "42":
        return NONE
    found = await asked.infer("double", POINT, id="42")
    return word(found, lambda response: "kept" if response.id == "42" else "lost")


async def version(asked: Asked) -> str:
    if asked.front.traits.models.versions is None:
        return NONE
    found = await asked.infer("double", POINT, version="1")
    return word(found, lambda response: "carried")


async def derivatives(asked: Asked) -> str:
    if not names_models(asked.front.traits):
        return NONE
    theta = expect.as_sent(expect.CASES["posterior"].inputs, asked.front, asked.back)
    own = asked.front.traits.wire.derivatives
    vector = np.array([1.0]) if asked.front.traits.wire.points else np.array([[1.0]])
    extras = tensor("out_wrt", np.array([0])), tensor("in_wrt", np.array([0])), tensor("sens", vector)
    operation, model = (Operation.GRADIENT, "posterior") if own else (Operation.INFER, "posterior.gradient")
    found = await asked.tell(Request(operation, model, inputs=(*theta, *extras)))
    return word(found, lambda response: "operations" if own else "derivative models")


async def errors(asked: Asked) -> str:
    """Return how many errors of a model reach the client with the same reason."""
    if not expect.sendable(asked.front, expect.CASES["fail, at nothing"]):
        return NONE
    found = [await reason(asked, number) for number in KINDS]
    kept = sum(one is other for one, other in zip(found, KINDS.values(), strict=True))
    return "all" if kept == len(KINDS) else f"{kept} of {len(KINDS)}"


async def reason(asked: Asked, number: int) -> Reason | None:
    found = await asked.infer("fail", expect.array("kind", Datatype.INT32, [number]))
    return found.reason if isinstance(found, GatewayError) else None
