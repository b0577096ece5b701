"""Tensors of any datatype and shape as vectors of a body."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.operations import INFER
from gateway.core.requests import Request
from gateway.core.tensors import Tensor
from tests.protocols.umbridge.wire import TARGET, UMBRIDGE

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def sent(*tensors: Tensor, model: str = "m") -> bytes:
    return bytes(UMBRIDGE.encode_request(Request(INFER, model, inputs=tensors), TARGET).body)


def test_a_matrix_is_written_flat() -> None:
    tensors = Tensor("x", Datatype.FP64, (1, 2), bytes(16)), Tensor("y", Datatype.FP64, (0, 2), b"")
    assert sent(*tensors) == b'{"name":"m","input":[[0.0,0.0],[]],"config":{}}'


def test_any_name_is_written_as_json() -> None:
    assert sent(model='m"\0') == b'{"name":"m\\"\\u0000","input":[],"config":{}}'


@given(st.lists(st.lists(FINITE, max_size=70), max_size=3), st.sampled_from([Datatype.FP64, Datatype.FP32]))
def test_any_floats_are_written_exactly(vectors: list[list[float]], datatype: Datatype) -> None:
    with np.errstate(over="ignore"):
        arrays = [np.nan_to_num(np.array(vector, np.float64).astype(datatype.dtype)) for vector in vectors]
    tensors = [Tensor("", datatype, each.shape, each.tobytes()) for each in arrays]
    assert json.loads(sent(*tensors))["input"] == [each.astype(np.float64).tolist() for each in arrays]


@pytest.mark.parametrize("count", [1, 63, 64, 65, 40_000])
def test_literals_stand_for_what_json_lacks(count: int) -> None:
    data = np.full(count, np.nan)
    data[-1] = -np.inf
    written = sent(Tensor("", Datatype.FP64, (count,), data.tobytes()))
    assert written.endswith(b'-Infinity]],"config":{}}')
    assert written.count(b"NaN") == count - 1
