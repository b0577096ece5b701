"""What is written is read as it was, whatever the tensors are."""

from struct import unpack_from
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.requests import DEFAULT_TRANSLATE, Request, RequestedOutput, Response
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.graphpipe.schema import TYPE_NUMBERS
from tests.protocols.graphpipe.wire import GRAPHPIPE, TARGET, asked, call, reply

NUMBERS = sorted(set(TYPE_NUMBERS) - {Datatype.BYTES})
SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@st.composite
def tensors(draw: Any) -> Tensor:
    shape, name = draw(SHAPES), draw(st.text(max_size=5))
    size = int(np.prod(shape, dtype=int))
    if draw(st.booleans()):
        elements = np.empty(size, object)
        elements[:] = draw(st.lists(st.binary(max_size=9), min_size=size, max_size=size))
        return tensor(name, elements.reshape(shape), Datatype.BYTES)
    datatype = draw(st.sampled_from(NUMBERS))
    raw = draw(st.binary(min_size=size * datatype.size, max_size=size * datatype.size))
    return Tensor(name, datatype, shape, raw)


TENSORS = st.lists(tensors(), max_size=4).map(tuple)
NAMES = st.lists(st.text(min_size=1, max_size=5), max_size=3, unique=True)


@settings(deadline=None)
@given(TENSORS, NAMES, st.text(max_size=20))
def test_requests(inputs: tuple[Tensor, ...], outputs: list[str], config: str) -> None:
    parameters = {"config": config} if config else {}
    wanted = tuple(map(RequestedOutput, outputs))
    message = GRAPHPIPE.encode_request(Request(Operation.INFER, "m", "", None, inputs, wanted, parameters), TARGET)
    request = asked(message.body)

    assert request.inputs == inputs
    assert (request.outputs, request.parameters) == (wanted, parameters)


@settings(deadline=None)
@given(TENSORS)
def test_replies(outputs: tuple[Tensor, ...]) -> None:
    """Outputs have no names in replies."""
    request = Request(Operation.INFER, origin=call(b""))
    message = GRAPHPIPE.encode_response(Response(outputs), request, DEFAULT_TRANSLATE)
    response = GRAPHPIPE.decode_response(reply(message.body), request, TARGET)

    assert message.status == 200
    assert isinstance(response, Response)
    assert response.outputs == tuple(replace(output, name="") for output in outputs)


@settings(deadline=None)
@given(TENSORS, st.text(max_size=90))
def test_every_payload_is_aligned_and_none_is_copied(inputs: tuple[Tensor, ...], config: str) -> None:
    parameters = {"config": config} if config else {}
    parts = GRAPHPIPE.encode_request(Request(Operation.INFER, inputs=inputs, parameters=parameters), TARGET).parts
    at, starts = 0, {}
    for part in parts:
        starts[id(part)] = at
        at += len(part)

    for each in inputs:
        if each.datatype is not Datatype.BYTES and len(each.data):
            assert starts[id(each.data)] % 64 == 0
            assert unpack_from("<I", b"".join(parts), starts[id(each.data)] - 4) == (len(each.data),)
