"""Rows about tensors and streams."""

import numpy as np

from gateway.core.datatypes import NUMBERS, Datatype
from gateway.core.operations import Operation
from gateway.core.requests import Request, Response
from gateway.core.tensors import Tensor, tensor
from tests.contract import expectations as expect
from tests.contract.comparing import numbers
from tests.contract.matrix import REDUCTIONS
from tests.contract.matrix_rows.asked import FP64, NONE, POINT, REFUSED, ROUNDED, SAME, VALUE, Asked, word
from tests.contract.wire import LITERAL


async def datatype(asked: Asked, datatype: Datatype) -> str:
    if datatype not in asked.front.traits.wire.datatypes:
        return NONE
    sent = expect.pair(datatype)
    return word(await asked.infer("identity", sent), lambda response: _compared(response.outputs[0], sent))


def _compared(found: Tensor, sent: Tensor) -> str:
    if numbers(found) != numbers(sent):
        assert numbers(found) == numbers(tensor("", sent.array.astype(np.float64)))
        return ROUNDED
    if found.untyped and found.datatype in NUMBERS:
        return VALUE
    return SAME if found.datatype is sent.datatype else f"as {found.datatype}"


async def not_text(asked: Asked) -> str:
    sent = expect.array("x", Datatype.BYTES, [b"\xff\x00", b""])
    found = await asked.infer("identity", sent) if sent.datatype in asked.front.traits.wire.datatypes else None
    return word(found, lambda response: SAME if numbers(response.outputs[0]) == numbers(sent) else "changed")


async def not_finite(asked: Asked) -> str:
    found = await asked.infer("identity", expect.infinite(asked.front))
    expected = ["nan", "-inf"]
    return word(found, lambda response: SAME if [*map(str, numbers(response.outputs[0]))] == expected else "changed")


async def shape(asked: Asked) -> str:
    """Return whether a model that accepts any shape gets three dimensions."""
    sent = tensor("x", np.arange(6.0).reshape(3, 1, 2))
    found = None if asked.front.traits.wire.points else await asked.infer("identity", sent)
    return word(found, lambda response: "kept" if response.outputs[0].shape == sent.shape else "another")


async def batch(asked: Asked) -> str:
    """Return whether two rows reach the backend in one call, or in one call per row."""
    sent = expect.array("x", FP64, [1, 2], [3, 4])
    found = None if asked.front.traits.wire.points else await asked.infer("rows", sent)
    return word(
        found, lambda response: "one call" if numbers(response.outputs[0]) == [2.0, 2.0] else "one call per row"
    )


A, B = expect.array("a", FP64, [1, 2]), expect.array("b", FP64, [10, 20])


async def input_names(asked: Asked) -> str:
    """Return whether two inputs in another order are matched by name or by position."""
    a, b = expect.as_sent((A, B), asked.front, asked.back)
    found = await asked.tell(Request(Operation.INFER, "sums", inputs=(b, a), translate=LITERAL))
    by_name = [-9.0, -18.0]
    return word(found, lambda response: "by name" if numbers(response.outputs[1]) == by_name else "by position")


async def output_names(asked: Asked) -> str:
    found = await asked.infer("sums", A, B)
    return word(found, lambda response: ", ".join(f"`{each.name}`" for each in response.outputs if each.name) or "none")


async def selection(asked: Asked) -> str:
    """Return whether a client that requests one of two outputs gets only this output."""
    if not asked.front.traits.wire.selects:
        return NONE
    found = await asked.infer("sums", A, B, names=(expect.told_name("difference", "output1", asked.back),))
    return word(found, lambda response: "honored" if len(response.outputs) == 1 else "ignored")


THREE = expect.array("n", Datatype.INT32, [3])


async def stream(asked: Asked) -> str:
    """Return how many responses a streaming client gets. A backend without streams sends one."""
    if not asked.front.traits.wire.streams:
        return NONE
    model, sent = ("count", THREE) if asked.back.traits.wire.streams else ("double", POINT)
    request = Request(Operation.STREAM, model, inputs=expect.as_sent((sent,), asked.front, asked.back))
    found = [each async for each in asked.matrix.stream(asked.front, asked.back, request)]
    return {1: "one response", 3: "all responses"}[len(found)]


async def reduction(asked: Asked) -> str:
    """Return which of several responses a client gets that accepts only one."""
    if not asked.back.traits.wire.streams:
        return NONE
    found = {each: await asked.infer(each, THREE) for each in REDUCTIONS}
    return " or ".join(f"`{each}`" for each in REDUCTIONS if isinstance(found[each], Response)) or REFUSED
