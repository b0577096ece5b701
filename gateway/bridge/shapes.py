"""Fitting shapes: the batch dimension, points, and rows.

A signature `[-1, N]` means a batch of rows; `[-1]` is one free dimension and no batch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.types import Shape, Tensor, TensorSpec


def is_batch(shape: Shape) -> bool:
    """Whether the first dimension counts rows."""
    return len(shape) >= 2 and shape[0] == -1


def matches(shape: Shape, wanted: Shape) -> bool:
    """Whether `shape` has the rank and the fixed dimensions of `wanted`."""
    return len(shape) == len(wanted) and all(want in (-1, have) for have, want in zip(shape, wanted, strict=True))


def point_size(shape: Shape) -> int | None:
    """How long a one-point protocol's vector for a tensor of this signature is: the product of the dimensions after
    the batch; None while one of them is free."""
    dimensions = shape[1:] if is_batch(shape) else shape
    return None if -1 in dimensions else prod(dimensions)


def fit_input(tensor: Tensor, wanted: Shape, what: str) -> tuple[Tensor, bool]:
    """`tensor` in the shape that the backend takes, and whether a batch dimension of 1 was put in front.

    Raises:
        DecodeError: naming the tensor, its shape and the expected one.
    """
    if matches(tensor.shape, wanted):
        return tensor, False
    if is_batch(wanted) and matches(tensor.shape, wanted[1:]):
        return replace(tensor, shape=(1, *tensor.shape)), True
    raise DecodeError(f"{what} has shape {list(tensor.shape)}, expected {list(wanted)}")


def fit_point(tensor: Tensor, wanted: Shape, what: str) -> tuple[Tensor, bool]:
    """A one-point protocol's vector in the shape that the backend takes: a batch of one row, unflattened.

    Raises:
        DecodeError: naming the tensor, its length and the expected one.
    """
    if len(wanted) == 1 or tensor.shape == wanted:
        return fit_input(tensor, wanted, what)
    dimensions = wanted[1:] if is_batch(wanted) else wanted
    filled = _fill(dimensions, tensor.elements)
    if filled is None:
        size = point_size(wanted)
        expected = f"length {size}" if size is not None else f"a length that fits {list(dimensions)}"
        raise DecodeError(f"{what} has length {tensor.elements}, expected {expected}")
    return replace(tensor, shape=(1, *filled) if is_batch(wanted) else filled), is_batch(wanted)


def _fill(dimensions: Shape, elements: int) -> Shape | None:
    """`dimensions` with its one free dimension set so that it holds `elements`; None if nothing fits."""
    fixed = prod(size for size in dimensions if size != -1)
    free = dimensions.count(-1)
    if free == 0:
        return dimensions if fixed == elements else None
    if free > 1 or fixed == 0 or elements % fixed:
        return None
    return tuple(elements // fixed if size == -1 else size for size in dimensions)


def rows_of(tensors: Iterable[tuple[Tensor, TensorSpec]]) -> int | None:
    """The number of rows that all batched tensors share; None if none is batched.

    Raises:
        DecodeError: two tensors that differ, by name.
    """
    first: Tensor | None = None
    for tensor, spec in tensors:
        if not is_batch(spec.shape):
            continue
        if first is None:
            first = tensor
        elif tensor.shape[0] != first.shape[0]:
            raise DecodeError(
                f"input {tensor.name!r} has {tensor.shape[0]} rows and input {first.name!r} has {first.shape[0]};"
                " all inputs must have the same batch dimension"
            )
    return None if first is None else first.shape[0]


def split(tensor: Tensor, rows: int) -> list[Tensor]:
    """The rows of `[rows, n]` as vectors of `[n]`; views, not copies. A tensor of one row serves every row."""
    shape = tensor.shape[1:]
    size = prod(shape) * tensor.datatype.size
    view = memoryview(tensor.data)
    pieces = [replace(tensor, shape=shape, data=view[at * size : (at + 1) * size]) for at in range(tensor.shape[0])]
    return pieces * rows if len(pieces) == 1 else pieces


def stack(rows: Sequence[Tensor]) -> Tensor:
    """Vectors of `[n]` as one tensor of `[rows, n]`.

    Raises:
        DecodeError: a row of another shape or datatype than the first.
    """
    first = rows[0]
    for number, row in enumerate(rows):
        if row.shape != first.shape or row.datatype is not first.datatype:
            raise DecodeError(
                f"row {number} of output {first.name!r} is {row.datatype} {list(row.shape)},"
                f" row 0 is {first.datatype} {list(first.shape)}"
            )
    data = first.data if len(rows) == 1 else b"".join(row.data for row in rows)
    return replace(first, shape=(len(rows), *first.shape), data=data)


def empty(spec: TensorSpec) -> Tensor:
    """A batch of no rows; free dimensions are 0."""
    return Tensor(spec.name, spec.datatype, (0, *(max(size, 0) for size in spec.shape[1:])), b"")


def without_batch(tensor: Tensor, what: str) -> Tensor:
    """`[1, ...]` as `[...]`.

    Raises:
        DecodeError: another number of rows.
    """
    if not tensor.shape or tensor.shape[0] != 1:
        raise DecodeError(f"{what} has shape {list(tensor.shape)}, expected one row for the one that was sent")
    return replace(tensor, shape=tensor.shape[1:])


def as_point(tensor: Tensor) -> Tensor:
    """Any shape as one vector, row-major."""
    return tensor if len(tensor.shape) == 1 else replace(tensor, shape=(tensor.elements,))


def index(value: int, name: str) -> Tensor:
    """An index tensor, INT64 `[1]`."""
    return Tensor(name, Datatype.INT64, (1,), value.to_bytes(8, "little", signed=True))
