"""What callables return, against what they declared."""

from typing import Any

import numpy as np
import pytest

from gateway.core.errors import GatewayError, Reason
from gateway.core.operations import Operation
from gateway.reference import Model, from_callable, signature
from tests.reference.calls import call, doubles, objects

X = doubles([[1, 2], [3, 4]])


def returning(result: Any, *outputs: tuple[str, str, list[int]]) -> Model:
    async def model(x: Any) -> Any:
        return result

    declared = signature(inputs=[("x", "FP64", [-1, 2])], outputs=outputs)(model) if outputs else model
    return from_callable("m", declared)


ACCEPTED: list[tuple[Any, str, list[int], str, list[Any]]] = [
    ([[1], [2]], "FP64", [-1, 1], "float64", [[1], [2]]),
    ([[1.0], [2.0]], "INT32", [-1, 1], "int32", [[1], [2]]),
    ([0.1, 0.2], "FP32", [-1], "float32", [np.float32(0.1), np.float32(0.2)]),
    (7, "UINT8", [], "uint8", 7),  # type: ignore[list-item]
    (np.array([1.5, 2.5], "f4"), "FP64", [2], "float64", [1.5, 2.5]),
    (np.array([1, 2], ">i2"), "INT64", [2], "int64", [1, 2]),
    ([True, False], "BOOL", [-1], "bool", [True, False]),
    (["ä", "b\0"], "BYTES", [-1], "object", ["ä".encode(), b"b\0"]),
    ([b"a", b"b\0"], "BYTES", [-1], "object", [b"a", b"b\0"]),
    (objects([b"a", "b"]), "BYTES", [2], "object", [b"a", b"b"]),
    (np.array(["a", "bc"]), "BYTES", [2], "object", [b"a", b"bc"]),
    (doubles([np.nan, -np.inf]), "FP64", [2], "float64", [np.nan, -np.inf]),
]


@pytest.mark.parametrize(("result", "datatype", "shape", "dtype", "expected"), ACCEPTED)
async def test_results_that_fit_become_tensors(
    result: Any, datatype: str, shape: list[int], dtype: str, expected: list[Any]
) -> None:
    answer = (await call(returning(result, ("y", datatype, shape)), {"x": X}))["y"]
    assert answer.dtype.name == dtype
    np.testing.assert_array_equal(answer, np.array(expected, answer.dtype))


REFUSED: list[tuple[Any, str, list[int], str]] = [
    ((X, X), "FP64", [-1, 2], "model 'm' returned 2 outputs; expected 1: y"),
    (None, "FP64", [], "output 'y' of model 'm' holds a NoneType; expected FP64"),
    (["a", "b"], "FP64", [2], "output 'y' of model 'm' is BYTES [2]; expected FP64"),
    (X[:, 0], "FP64", [-1, 1], "output 'y' of model 'm' has shape [2]; expected [2, 1]"),
    (X, "FP64", [-1, 3], "output 'y' of model 'm' has shape [2, 2]; expected [2, 3]"),
    (X[:1], "FP64", [-1, 2], "output 'y' of model 'm' has shape [1, 2]; expected [2, 2]"),
    (X, "FP32", [-1, 2], "output 'y' of model 'm' is FP64 [2,2]; expected FP32, which cannot represent every FP64"),
    (X.astype("<i8"), "FP64", [-1, 2], "output 'y' of model 'm' is INT64 [2,2]; expected FP64"),
    ([1.5], "INT32", [-1], "output 'y' of model 'm': element 0, 1.5, is not integral, so no INT32"),
    ([300], "UINT8", [-1], "output 'y' of model 'm': element 0, 300, is out of the range of UINT8"),
    ([1, 2], "BYTES", [-1], "output 'y' of model 'm' holds a int; expected str or bytes"),
    ([["a"], ["b", "c"]], "BYTES", [-1], "output 'y' of model 'm' holds a list; expected str or bytes"),
    ([[1], [2, 3]], "FP64", [-1, 1], "output 'y' of model 'm' is not an array"),
    (np.array([1j]), "FP64", [1], "output 'y' of model 'm': numpy dtype complex128 has no datatype"),
]


@pytest.mark.parametrize(("result", "datatype", "shape", "text"), REFUSED, ids=[text for *_, text in REFUSED])
async def test_results_that_do_not_fit_are_model_errors(
    result: Any, datatype: str, shape: list[int], text: str
) -> None:
    with pytest.raises(GatewayError) as caught:
        await call(returning(result, ("y", datatype, shape)), {"x": X})
    assert caught.value.reason is Reason.INVALID_OUTPUT
    assert caught.value.message.startswith(text)


async def test_too_few_outputs_are_refused() -> None:
    model = returning(X, ("a", "FP64", [-1, 2]), ("b", "FP64", [-1, 2]))
    with pytest.raises(GatewayError, match="model 'm' returned 1 outputs; expected 2: a, b"):
        await call(model, {"x": X})


UNDECLARED: list[tuple[Any, str]] = [
    (np.array([1j]), "output 'output0' of model 'm': numpy dtype complex128 has no datatype"),
    ((X, objects([1])), "output 'output1' of model 'm' holds a int; expected str or bytes"),
    ([1, "a"], "output 'output0' of model 'm' holds a int; expected str or bytes"),
]


@pytest.mark.parametrize(("result", "text"), UNDECLARED, ids=[text for _, text in UNDECLARED])
async def test_undeclared_results_must_have_a_datatype(result: Any, text: str) -> None:
    with pytest.raises(GatewayError) as caught:
        await call(returning(result), {"x": X})
    assert caught.value.message.startswith(text)


async def test_undeclared_text_keeps_its_nuls() -> None:
    assert (await call(returning(["a\0"]), {"x": X}))["output0"].tolist() == [b"a\0"]


DERIVATIVES = [
    (Operation.GRADIENT, {"sens": doubles([[1], [1]])}, 2),
    (Operation.APPLY_JACOBIAN, {"vec": X}, 1),
    (Operation.APPLY_HESSIAN, {"sens": doubles([[1], [1]]), "vec": X}, 2),
]


@pytest.mark.parametrize(("operation", "vectors", "width"), DERIVATIVES, ids=[key.value for key, *_ in DERIVATIVES])
async def test_derivatives_have_the_size_of_what_they_are_taken_by(
    operation: Operation, vectors: dict[str, Any], width: int
) -> None:
    def wide(*arguments: Any) -> Any:
        return np.ones((2, 5))

    async def total(x: Any) -> Any:
        return x.sum(axis=1, keepdims=True)

    declare = signature(
        inputs=[("x", "FP64", [-1, 2])],
        outputs=[("y", "FP64", [-1, 1])],
        **{operation.value: wide},  # type: ignore[arg-type]
    )
    with pytest.raises(GatewayError) as caught:
        await call(from_callable("total", declare(total)), {"x": X, **vectors}, operation)
    assert caught.value.message == f"output 'output' of model 'total' has shape [2, 5]; expected [2, {width}]"
