"""A request's tensors against the model's Signature."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.core.errors import GatewayError, Reason
from gateway.core.operations import Operation
from gateway.core.tensors import Tensor, tensor
from gateway.reference import Model, from_callable, signature
from tests.reference.calls import call, doubles, objects

Array = NDArray[Any]


def weighted_gradient(x: Array, z: Array, out_wrt: int, in_wrt: int, sens: Array) -> Array:
    return np.full((len(x), (2, 3)[in_wrt]), 10.0 * out_wrt + in_wrt) * sens[:, :1]


def product_jacobian(x: Array, z: Array, out_wrt: int, in_wrt: int, vec: Array) -> Array:
    return np.repeat(vec.sum(axis=1, keepdims=True), (1, 2)[out_wrt], axis=1)


def mixed_hessian(x: Array, z: Array, out_wrt: int, in_wrt1: int, in_wrt2: int, sens: Array, vec: Array) -> Array:
    return np.full((len(x), (2, 3)[in_wrt1]), 100.0 * out_wrt + 10 * in_wrt1 + in_wrt2)


@signature(
    inputs=[("x", "FP64", [-1, 2]), ("z", "FP64", [-1, 3])],
    outputs=[("one", "FP64", [-1, 1]), ("two", "FP64", [-1, 2])],
    gradient=weighted_gradient,
    apply_jacobian=product_jacobian,
    apply_hessian=mixed_hessian,
)
async def two_by_two(x: Array, z: Array) -> tuple[Array, Array]:
    return x[:, :1] - z[:, :1], x


MODEL = from_callable("m", two_by_two)
X, Z = doubles([[1, 2]]), doubles([[3, 4, 5]])


def index(value: int) -> Array:
    return np.array([value], "<i8")


async def test_inputs_are_taken_by_name_in_any_order() -> None:
    answer = await call(MODEL, {"z": Z, "x": X})
    assert answer["one"].tolist() == [[-2]]


REFUSED: list[tuple[dict[str, Array], str]] = [
    ({"x": X}, "input 'z' of model 'm' is missing; expected FP64 [-1,3]"),
    ({"x": X, "z": Z, "w": X}, "model 'm' has no input 'w'; its inputs are x, z"),
    ({"x": X.astype("f4"), "z": Z}, "input 'x' of model 'm' is FP32 [1,2]; expected FP64 [-1,2]"),
    ({"x": objects([[b"a", b"b"]]), "z": Z}, "input 'x' of model 'm' is BYTES [1,2]; expected FP64 [-1,2]"),
    ({"x": X[0], "z": Z}, "input 'x' of model 'm' is FP64 [2]; expected FP64 [-1,2]"),
    ({"x": Z, "z": Z}, "input 'x' of model 'm' is FP64 [1,3]; expected FP64 [-1,2]"),
    ({"x": X, "z": np.repeat(Z, 2, axis=0)}, "model 'm' needs inputs with the same number of rows: x has 1, z has 2"),
]


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "any tensors"])
async def test_a_name_given_twice_is_refused(declared: bool) -> None:
    async def anything(*arrays: Array) -> Array:
        return arrays[0]

    twice: tuple[Tensor, ...] = (tensor("x", X), tensor("z", Z), tensor("z", Z))
    model: Model = MODEL if declared else from_callable("m", anything)
    with pytest.raises(GatewayError, match="input 'z' of model 'm' occurs twice"):
        await call(model, twice)


@pytest.mark.parametrize(
    ("out_wrt", "in_wrt", "expected"),
    [(0, 0, [[0, 0]]), (0, 1, [[7, 7, 7]]), (1, 0, [[70, 70]]), (1, 1, [[77, 77, 77]])],
)
async def test_positions_choose_output_and_input(out_wrt: int, in_wrt: int, expected: list[list[float]]) -> None:
    sens = doubles([[7, 7]])[:, : out_wrt + 1]
    inputs = {"x": X, "z": Z, "out_wrt": index(out_wrt), "in_wrt": index(in_wrt), "sens": sens}
    assert (await call(MODEL, inputs, Operation.GRADIENT))["output"].tolist() == expected


async def test_positions_left_out_are_zero() -> None:
    inputs = {"x": X, "z": Z, "vec": doubles([[3, 4]])}
    assert (await call(MODEL, inputs, Operation.APPLY_JACOBIAN))["output"].tolist() == [[7]]


async def test_a_position_may_be_given_for_each_row() -> None:
    inputs = {"x": np.repeat(X, 2, 0), "z": np.repeat(Z, 2, 0), "in_wrt": doubles([[1], [1]]).astype("<i8")}
    inputs |= {"sens": doubles([[1], [2]])}
    assert (await call(MODEL, inputs, Operation.GRADIENT))["output"].tolist() == [[1, 1, 1], [2, 2, 2]]


async def test_the_hessian_is_applied_to_a_vector_of_the_second_position() -> None:
    inputs = {"x": X, "z": Z, "in_wrt1": index(0), "in_wrt2": index(1), "sens": doubles([[1]]), "vec": Z}
    assert (await call(MODEL, inputs, Operation.APPLY_HESSIAN))["output"].tolist() == [[1, 1]]
    with pytest.raises(GatewayError, match=r"'vec' of model 'm' is FP64 \[1,2\]; expected FP64 \[1,3\]"):
        await call(MODEL, inputs | {"vec": X}, Operation.APPLY_HESSIAN)


GIVEN = {"x": X, "z": Z, "sens": doubles([[1]])}

REFUSED_DERIVATIVES: list[tuple[dict[str, Array], str]] = [
    (GIVEN | {"out_wrt": index(2)}, "out_wrt of model 'm' is 2; expected 0 to 1"),
    (GIVEN | {"in_wrt": index(-1)}, "in_wrt of model 'm' is -1; expected 0 to 1"),
    (GIVEN | {"in_wrt": doubles([0])}, "in_wrt of model 'm' is FP64; expected INT64"),
    (GIVEN | {"in_wrt": np.array([[0], [1]], "<i8")}, "in_wrt of model 'm' differs between rows (0 and 1)"),
    (GIVEN | {"out_wrt": index(1)}, "input 'sens' of model 'm' is FP64 [1,1]; expected FP64 [-1,2]"),
    (
        GIVEN | {"sens": doubles([[1], [1]])},
        "model 'm' needs inputs with the same number of rows: x has 1, z has 1, sens has 2",
    ),
    ({"x": X, "z": Z}, "input 'sens' of model 'm' is missing; expected FP64 [-1,1]"),
    (GIVEN | {"vec": X}, "model 'm' has no input 'vec'; its inputs are x, z, out_wrt, in_wrt, sens"),
]


CASES = [
    *((Operation.INFER, inputs, text) for inputs, text in REFUSED),
    *((Operation.GRADIENT, inputs, text) for inputs, text in REFUSED_DERIVATIVES),
]


@pytest.mark.parametrize(("operation", "inputs", "text"), CASES, ids=[text for *_, text in CASES])
async def test_tensors_that_do_not_fit_are_refused_by_name(
    operation: Operation, inputs: dict[str, Array], text: str
) -> None:
    with pytest.raises(GatewayError) as caught:
        await call(MODEL, inputs, operation)
    assert caught.value.reason is Reason.INVALID_INPUT
    assert caught.value.message == text


async def test_a_model_of_points_has_vectors_without_rows() -> None:
    async def total(x: Array) -> float:
        return float(x.sum())

    def gradient(x: Array, out_wrt: int, in_wrt: int, sens: Array) -> Array:
        return np.full(2, sens)

    declared = signature(inputs=[("x", "FP64", [2])], outputs=[("y", "FP64", [])], gradient=gradient)(total)
    model = from_callable("total", declared)
    assert (await call(model, {"x": X[0]}))["y"].tolist() == 3
    inputs = {"x": X[0], "sens": doubles(5)}
    assert (await call(model, inputs, Operation.GRADIENT))["output"].tolist() == [5, 5]
