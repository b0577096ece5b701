"""Values of Python as tensors and back: datatypes are kept, text keeps every byte."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gateway.client.outputs import as_array, as_parameters, as_tensor, as_tensors
from gateway.client.requests import typed
from gateway.core.datatypes import DATATYPES, Datatype
from gateway.core.errors import GatewayError
from gateway.core.frozen import replace
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request


class Unreadable:
    """An array that cannot be read."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise ValueError("the file is closed")


NUMERIC = [each for each in DATATYPES.values() if each is not Datatype.BYTES]


@pytest.mark.parametrize("datatype", NUMERIC, ids=str)
def test_an_array_keeps_its_datatype(datatype: Datatype) -> None:
    array = np.array([[0, 1], [1, 0]]).astype(datatype.dtype)
    tensor = as_tensor("x", array)
    assert (tensor.datatype, tensor.shape, tensor.untyped) == (datatype, (2, 2), False)
    back = as_array(tensor)
    assert (back.dtype, back.tolist()) == (array.dtype, array.tolist())


def test_bf16_is_that_of_ml_dtypes_and_uint16_is_uint16() -> None:
    assert as_tensor("x", np.ones(1, ml_dtypes.bfloat16)).datatype is Datatype.BF16
    assert as_tensor("x", np.ones(1, np.uint16)).datatype is Datatype.UINT16


def test_the_byte_order_of_an_array_does_not_matter() -> None:
    assert as_tensor("x", np.array([1, 2], ">i4")).array.tolist() == [1, 2]


@pytest.mark.parametrize(
    "value", [[b"a\0", b"\0"], [["a\0"], [""]], np.array(["a\0", b"\xff"], object)], ids=["bytes", "text", "objects"]
)
def test_text_and_bytes_keep_every_byte(value: Any) -> None:
    tensor = as_tensor("x", value)
    assert tensor.datatype is Datatype.BYTES
    flat = [each.encode() if isinstance(each, str) else each for each in np.array(value, object).reshape(-1)]
    assert as_array(tensor).reshape(-1).tolist() == flat


@pytest.mark.parametrize(
    ("value", "is_untyped"),
    [
        ([1, 2], True),
        (1.5, True),
        ([[1, 2.5]], True),
        (np.array([1, 2]), False),
        (np.float32(1), False),
        ([np.float64(1)], False),
        ([np.ones(2), np.ones(2)], False),
        ([True, False], False),
    ],
)
def test_only_plain_numbers_have_no_datatype(value: Any, is_untyped: bool) -> None:
    assert as_tensor("x", value).untyped is is_untyped


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (np.array([1j]), "complex128 has no datatype"),
        (np.array(["2024-01-01"], "datetime64[D]"), "has no datatype"),
        ([[1], [1, 2]], "rows have different lengths; pass each input as a separate argument"),
        ([None], "it holds NoneType; expected only numbers, or only str and bytes"),
        ([1, "a"], "it holds int and str; expected only numbers"),
        (np.zeros(1, [("a", "f4")]), "has no datatype"),
        (np.zeros((1,) * 40), "it has 40 dimensions, expected at most 32"),
        (Unreadable(), "the file is closed"),
    ],
)
def test_what_has_no_datatype_is_refused_by_name(value: Any, why: str) -> None:
    with pytest.raises(GatewayError) as caught:
        as_tensor("theta", value)
    assert caught.value.message.startswith("input 'theta': ")
    assert why in caught.value.message


def test_an_input_without_a_name_is_refused_by_its_position() -> None:
    with pytest.raises(GatewayError, match=r"^the input at position 1: it holds NoneType"):
        as_tensors([[1.0], [None]], {})


def test_a_mapping_is_no_input_and_the_refusal_says_where_it_belongs() -> None:
    """`config={"scale": 2}` is how UM-Bridge's own client takes a config."""
    with pytest.raises(GatewayError, match=r"^input 'config' is a mapping.*`parameters=\{\"config\": \{...\}\}`"):
        as_tensor("config", {"scale": 2})


async def test_plain_numbers_get_the_datatypes_of_the_model() -> None:
    """Except those that do not fit, which the server refuses."""

    async def ask() -> Answer:
        return Signature(tuple(TensorSpec(name, Datatype.INT8, (-1,)) for name in "nx"), ())

    request = Request(Operation.INFER, "m", inputs=(as_tensor("n", [300]), as_tensor("x", [3])))
    found = [(each.datatype, each.untyped, each.array.tolist()) for each in (await typed(request, ask)).inputs]
    assert found == [(Datatype.INT64, True, [300]), (Datatype.INT8, False, [3])]


def test_outputs_may_be_changed_in_place() -> None:
    received = replace(as_tensor("y", np.array([1.0, 2.0])), data=np.array([1.0, 2.0]).tobytes())
    array = as_array(received)
    array += 1
    assert array.tolist() == [2.0, 3.0]


def test_objects_in_parameters_are_sent_as_json() -> None:
    sent = as_parameters({"config": {"a": [1]}, "n": np.int32(3), "flag": True})
    assert sent == {"config": '{"a":[1]}', "n": 3, "flag": True}
    assert type(sent["n"]) is int
    with pytest.raises(GatewayError, match="parameter 'n' is object, expected a bool, int, float, str, dict or list"):
        as_parameters({"n": object()})
    with pytest.raises(GatewayError, match=r"^parameter 'n': "):
        as_parameters({"n": [object()]})
