"""`identity` gives back what it got."""

import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.models import TensorSpec
from gateway.core.operations import Operation
from gateway.core.requests import Request, Response
from gateway.core.tensors import Tensor
from gateway.reference import BUNDLED, handler

serve = handler([BUNDLED["identity"]])


@pytest.mark.parametrize("datatype", Datatype)
async def test_every_datatype_comes_back_bit_by_bit(datatype: Datatype) -> None:
    data = b"\2\0\0\0\0\xff" * 2 if datatype is Datatype.BYTES else bytes(range(datatype.size)) * 2
    given = Tensor("t", datatype, (2, 1), data, "image" if datatype is Datatype.BYTES else "")
    answer = await serve(Request(Operation.INFER, "identity", inputs=(given,)))
    assert isinstance(answer, Response)
    assert answer.outputs == (given,)


async def test_all_inputs_come_back_without_the_requests_parameters() -> None:
    empty = Tensor("empty", Datatype.FP32, (0, 3), b"", parameters={"binary_data_size": 0})
    scalar = Tensor("scalar", Datatype.INT8, (), b"\x07")
    answer = await serve(Request(Operation.INFER, "identity", inputs=(empty, scalar)))
    assert isinstance(answer, Response)
    assert answer.outputs == (Tensor("empty", Datatype.FP32, (0, 3), b""), scalar)
    assert answer.outputs[1].array == np.int8(7)


def test_one_point_protocols_are_shown_two_numbers() -> None:
    points = BUNDLED["identity"].points
    assert points is not None
    assert points.inputs == points.outputs == (TensorSpec("x", Datatype.FP64, (-1, 2)),)
