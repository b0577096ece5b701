"""The size of messages, and the cache of their structures."""

import numpy as np
import pytest

from gateway.core.errors import GatewayError
from gateway.core.operations import Operation
from gateway.core.requests import Request, RequestedOutput
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.graphpipe import schema
from gateway.protocols.graphpipe.flatbuffers import Writer
from tests.protocols.graphpipe.wire import GRAPHPIPE, TARGET, asked

X = tensor("x", np.array([1, 2], np.float32))


def test_two_gigabytes_are_too_many() -> None:
    writer = Writer()
    writer.payload(
        writer.table(schema.NUMBERS_LAYOUT) + schema.NUMBERS_LAYOUT.offsets[schema.Tensor.DATA], 1, 2**31 - 64
    )
    with pytest.raises(GatewayError, match="smaller than 2 GiB"):
        writer.finish()


def test_cached_structures_differ_in_everything_but_the_data() -> None:
    def written(inputs: tuple[Tensor, ...], config: str = "", outputs: tuple[str, ...] = ()) -> Request:
        request = Request(
            Operation.INFER, inputs=inputs, parameters={"config": config}, outputs=tuple(map(RequestedOutput, outputs))
        )
        return asked(GRAPHPIPE.encode_request(request, TARGET).body)

    again = tensor("x", np.array([3, 4], np.float32))
    other = tensor("x", np.array([[3, 4]], np.int32))
    assert written((X,)).inputs == (X,)
    assert written((again,)).inputs == (again,)
    assert written((other,)).inputs == (other,)
    assert written((X,), "c", ("y",)).parameters == {"config": "c"}
    assert written((X,), "", ("y",)).parameters == {}
