import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.messages import Headers, Message
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.tensors import Tensor, datatype_of, tensor


def test_headers_keep_order_and_repetitions() -> None:
    pairs = [(b"accept", b"a"), (b"x", b"\xe9"), (b"accept", b"b")]
    headers = Headers(pairs)
    assert headers.get("accept") == "a"
    assert headers.all("accept") == ["a", "b"]
    assert headers.get("x") == "é"
    assert headers.get("none") == ""
    assert headers.get("none", "default") == "default"
    assert list(headers) == [("accept", "a"), ("x", "é"), ("accept", "b")]
    assert {headers: 1}[Headers(tuple(pairs))] == 1
    assert headers not in (Headers(), Headers(pairs[::-1]))
    assert hash(Headers([])) == hash(Headers(()))


def test_a_single_part_is_not_copied() -> None:
    part = memoryview(b"abc")
    assert Message(parts=(part,)).body is part
    assert Message(parts=(b"ab", memoryview(b"c"))).body == b"abc"
    assert Message().body == b""


RAW: list[tuple[Datatype, tuple[int, ...], bytes, Any]] = [
    (Datatype.BOOL, (2,), b"\x00\x01", [False, True]),
    (Datatype.UINT8, (1, 2), b"\x01\xff", [[1, 255]]),
    (Datatype.UINT64, (1,), b"\xff" * 8, [2**64 - 1]),
    (Datatype.INT16, (2,), b"\x01\x00\xff\xff", [1, -1]),
    (Datatype.INT32, (), b"\x02\x00\x00\x00", 2),
    (Datatype.FP16, (1,), b"\x00\x3e", [1.5]),
    (Datatype.FP32, (0, 3), b"", []),
    (Datatype.FP64, (1,), b"\x00\x00\x00\x00\x00\x00\xf0\x7f", [math.inf]),
    (Datatype.BF16, (2,), b"\xc0\x3f\x00\xc0", [1.5, -2.0]),
    (Datatype.BYTES, (2, 1), b"\x02\x00\x00\x00a\x00\x00\x00\x00\x00", [[b"a\x00"], [b""]]),
    (Datatype.BYTES, (), b"\x01\x00\x00\x00a", b"a"),
    (Datatype.BYTES, (0,), b"", []),
]


@pytest.mark.parametrize(("datatype", "shape", "raw", "values"), RAW)
def test_raw_form_both_ways(datatype: Datatype, shape: tuple[int, ...], raw: bytes, values: Any) -> None:
    for data in (raw, bytearray(raw), memoryview(raw)):
        array = Tensor("x", datatype, shape, data).array
        assert array.shape == shape
        assert array.dtype == datatype.dtype
        assert array.tolist() == values
    made = tensor("x", array)
    assert (made.datatype, made.shape, bytes(made.data)) == (datatype, shape, raw)
    assert made.elements == math.prod(shape)


def test_numbers_are_a_view() -> None:
    data = bytearray(8)
    array = Tensor("x", Datatype.INT64, (1,), data).array
    data[0] = 7
    assert array.tolist() == [7]


def test_bytes_that_do_not_fill_the_shape_are_not_repeated() -> None:
    with pytest.raises(ValueError, match="reshape"):
        _ = Tensor("x", Datatype.BYTES, (2,), b"\x01\x00\x00\x00a").array


@pytest.mark.parametrize(
    ("array", "datatype", "raw"),
    [
        (np.array([1], ">i4"), Datatype.INT32, b"\x01\x00\x00\x00"),
        (np.array([[1, 2], [3, 4]], "i1").T, Datatype.INT8, b"\x01\x03\x02\x04"),
        (np.array(["é"]), Datatype.BYTES, b"\x02\x00\x00\x00\xc3\xa9"),
        (np.array([b"a"]), Datatype.BYTES, b"\x01\x00\x00\x00a"),
        (np.array(["a", b"b\x00"], object), Datatype.BYTES, b"\x01\x00\x00\x00a\x02\x00\x00\x00b\x00"),
        (np.array([1.5], ml_dtypes.bfloat16), Datatype.BF16, b"\xc0\x3f"),
    ],
)
def test_tensor_of_an_array(array: "np.ndarray[Any, Any]", datatype: Datatype, raw: bytes) -> None:
    made = tensor("x", array)
    assert (made.datatype, made.shape, bytes(made.data)) == (datatype, array.shape, raw)


@pytest.mark.parametrize("element", [3, None, 1.5, [1]])
def test_only_text_and_bytes_are_bytes(element: Any) -> None:
    array = np.empty(1, object)
    array[0] = element
    with pytest.raises(TypeError, match=f"{type(element).__name__}, expected text or bytes"):
        tensor("x", array)


@pytest.mark.parametrize("dtype", ["c16", "M8[s]", "V4"])
def test_dtypes_without_a_datatype(dtype: str) -> None:
    with pytest.raises(TypeError, match="has no datatype"):
        datatype_of(np.dtype(dtype))


def test_a_signature_is_printed_in_one_short_line() -> None:
    x, y = TensorSpec("x", Datatype.FP64, (-1, 3)), TensorSpec("y", Datatype.FP32, ())
    assert str(Signature((x, x), (y,), name="m", versions=("1",))) == "x FP64[-1,3], x FP64[-1,3] -> y FP32[]"
    derivatives = frozenset({Operation.INFER, Operation.GRADIENT})
    assert str(Signature((x,), operations=derivatives)) == "x FP64[-1,3] -> (unknown)  (gradient)"
