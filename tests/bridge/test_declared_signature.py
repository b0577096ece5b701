"""In front of a wire form that itself declares the tensors of its models: nobody is asked for them."""

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Models, Traits, Wire
from gateway.core.types import Request, Response, Signature
from tests.bridge.fakes import FP32, FP64, TENSORS, Backend, bridge, call, infer, named, shown, signature, spec

MODEL = signature(spec("x", -1, 2, datatype=FP32), gives=(spec("y", -1, datatype=FP64),))
DECLARED = replace(
    TENSORS,
    name="declared",
    traits=Traits(
        Wire(untyped=True, unnamed=True), Models(named=False, companions=False, metadata_parts=(), signature=MODEL)
    ),
)


async def test_the_tensors_of_a_call_are_fitted_to_the_declared_ones() -> None:
    backend = Backend({}, lambda _: Response((named("", [3.5], FP64),)))
    response = await call(bridge(TENSORS, DECLARED, backend), infer(named("x", [[1, 2]], Datatype.INT8)))
    [asked] = backend.asked
    assert shown(asked.inputs) == [("x", "FP32", [[1.0, 2.0]])]
    assert shown(response.outputs) == [("y", "FP64", [3.5])]


async def test_a_call_that_contradicts_the_declared_tensors_is_refused_before_it_is_sent() -> None:
    backend = Backend({})
    for inputs in ((named("x", [[1, 2, 3]], FP32),), (named("z", [[1, 2]], FP32),), ()):
        with pytest.raises(DecodeError, match="x"):
            await call(bridge(TENSORS, DECLARED, backend), infer(*inputs))
    assert backend.asked == []


async def test_a_question_for_the_metadata_is_answered_without_a_call() -> None:
    backend = Backend({})
    answer = await bridge(TENSORS, DECLARED, backend)(Request(Operation.METADATA, "m"))
    assert isinstance(answer, Signature)
    assert (answer.name, answer.inputs, answer.outputs) == ("m", MODEL.inputs, MODEL.outputs)
    assert backend.asked == []
