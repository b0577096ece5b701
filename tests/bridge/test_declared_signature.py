"""In front of a wire form that itself declares the tensors of its models: nobody is asked for them."""

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.models import Signature
from gateway.core.operations import Operation
from gateway.core.protocol import Models, Traits, Wire
from gateway.core.requests import Request, Response
from gateway.transports.grpc.client.failures import http_answer
from gateway.transports.grpc.client.heads import ResponseHead
from tests.bridge.fakes import TENSORS, Backend, bridge, call, infer, named, signature, spec
from tests.bridge.values import FP32, FP64, shown
from tests.wires import Wires

MODEL = signature(spec("x", -1, 2, datatype=FP32), gives=(spec("y", -1, datatype=FP64),))
MODELS = Models(named=False, companions=False, metadata_parts=(), signature=MODEL)
DECLARED = replace(TENSORS, name="declared", traits=Traits(Wire(untyped=True, unnamed=True), MODELS))


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


PROXY = """
listeners: [{name: in, bind: "127.0.0.1:0", protocols: [v2-rest]}]
backends: {lab: {protocol: v2-grpc, endpoints: ["lab:1"], flavor: plain}}
routes:
  - match: {model: m}
    backend: lab
    signature: {inputs: [{name: x, datatype: FP32, shape: [1]}], outputs: [{name: y, datatype: FP32, shape: [1]}]}
"""


@pytest.mark.parametrize("is_server", [True, False])
async def test_a_declared_model_is_not_ready_because_a_proxy_answers(is_server: bool) -> None:
    """A proxy without a route to a gRPC server answers 404, which is UNIMPLEMENTED in gRPC's mapping."""

    async def lacks_method(message: Message) -> Message:
        if is_server:
            return Message(status=12, parts=(b"unknown method ModelReady",))
        raise http_answer(ResponseHead(404))

    wires = Wires(PROXY, lab=lacks_method)
    reply = await wires.send("v2-rest", Message("GET", "/v2/models/m/ready"))
    assert (reply.status == 200) is is_server
