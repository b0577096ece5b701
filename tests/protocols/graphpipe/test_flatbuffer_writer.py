"""What is written: its alignment, its size, and the cache of its structures."""

from struct import unpack_from
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError
from gateway.core.operations import Operation
from gateway.core.requests import Request, RequestedOutput
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.graphpipe import schema
from gateway.protocols.graphpipe.flatbuffers import Writer
from gateway.protocols.graphpipe.schema import TYPE_NUMBERS
from tests.protocols.graphpipe.wire import GRAPHPIPE, TARGET, asked

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


def test_two_gigabytes_are_too_many() -> None:
    writer = Writer()
    writer.payload(
        writer.table(schema.NUMBERS_LAYOUT) + schema.NUMBERS_LAYOUT.offsets[schema.Tensor.DATA], 1, 2**31 - 64
    )
    with pytest.raises(GatewayError, match="smaller than 2 GiB"):
        writer.finish()


def test_cached_structures_differ_in_everything_but_the_data() -> None:
    def written(each: Tensor, config: str = "", outputs: tuple[RequestedOutput, ...] = ()) -> Request:
        request = Request(Operation.INFER, inputs=(each,), parameters={"config": config}, outputs=outputs)
        return asked(GRAPHPIPE.encode_request(request, TARGET).body)

    for array in (np.array([1, 2], np.float32), np.array([3, 4], np.float32), np.array([[3, 4]], np.int32)):
        x = tensor("x", array)
        assert written(x).inputs == (x,)
    for config in ("c", ""):
        assert written(x, config, (RequestedOutput("y"),)).parameters == ({"config": "c"} if config else {})
