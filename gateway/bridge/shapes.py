"""Fitting shapes: the batch dimension, points, and rows.

A signature `[-1, N]` means a batch of rows; `[-1]` is one free dimension and no batch.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.frozen import replace
from gateway.core.types import Shape, Tensor, TensorSpec


def is_batch(shape: Shape) -> bool:
    """Whether the first dimension counts rows."""
    return len(shape) >= 2 and shape[0] == -1


def of_row(shape: Shape) -> Shape:
    """A signature's shape without its batch dimension."""
    return shape[1:] if is_batch(shape) else shape


def matches(shape: Shape, wanted: Shape) -> bool:
    """Whether `shape` has the rank and the fixed dimensions of `wanted`."""
    return len(shape) == len(wanted) and all(want in (-1, have) for have, want in zip(shape, wanted, strict=True))


def is_lone_row(shape: Shape, wanted: Shape) -> bool:
    """Whether `shape` is one row of `wanted`, without the batch dimension."""
    return is_batch(wanted) and matches(shape, wanted[1:])


def point_size(shape: Shape) -> int:
    """How long a one-point protocol's vector for a tensor of this signature is: the product of the dimensions after
    the batch; -1 while one of them is free."""
    dimensions = of_row(shape)
    return -1 if -1 in dimensions else prod(dimensions)


def fit_input(shape: Shape, wanted: Shape, what: str) -> Shape:
    """A tensor's shape as the backend takes it: as it is, or with a batch dimension of 1 in front.

    Raises:
        DecodeError: naming the tensor, its shape and the expected one.
    """
    if matches(shape, wanted):
        return shape
    if is_lone_row(shape, wanted):
        return (1, *shape)
    raise DecodeError(f"{what} has shape {list(shape)}, expected {list(wanted)}")


def fit_point(shape: Shape, wanted: Shape, what: str) -> Shape:
    """The shape that a one-point protocol's vector has for the backend: unflattened, in a batch of one row.

    Raises:
        DecodeError: naming the tensor, its length and the expected one.
    """
    filled = fill(of_row(wanted), prod(shape), what)
    return (1, *filled) if is_batch(wanted) else filled


def fill(wanted: Shape, elements: int, what: str) -> Shape:
    """`wanted` with its one free dimension set so that it holds `elements`.

    Raises:
        DecodeError: naming the tensor, if nothing fits.
    """
    free = wanted.count(-1)
    if free > 1:
        text = f"{what} has length {elements}, which fits {list(wanted)} in many ways"
        raise DecodeError(f"{text}; `signature` on the route must give all but one dimension")
    fixed = prod(size for size in wanted if size != -1)
    if not free and fixed != elements:
        raise DecodeError(f"{what} has length {elements}, expected {fixed}")
    if free and (fixed == 0 or elements % fixed):
        raise DecodeError(f"{what} has length {elements}, expected a multiple of {fixed} for {list(wanted)}")
    return tuple(elements // fixed if size == -1 else size for size in wanted) if free else wanted


def fit_rows(shape: Shape, wanted: Shape, what: str) -> Shape:
    """A tensor's shape as the backend takes it, of a client whose first dimension counts rows always.

    Raises:
        DecodeError: naming the tensor, its shape and the expected one.
    """
    if not matches(shape, wanted):
        raise DecodeError(f"{what} has shape {list(shape)}, expected {list(wanted)}")
    return shape


def of_scalars(tensor: Tensor, wanted: Shape) -> Shape:
    """The tensor's shape; with a dimension of 1 at its end where that is what is wanted, and its wire does not tell a
    scalar from a vector of one: JSON, and elements that travel by themselves."""
    shape = tensor.shape
    if not (tensor.untyped or tensor.content_type) or matches(shape, wanted):
        return shape
    return (*shape, 1) if matches((*shape, 1), wanted) else shape


def one_row(tensor: Tensor) -> Tensor:
    """The tensor as a batch of one row."""
    return replace(tensor, shape=(1, *tensor.shape))


def split(tensor: Tensor) -> list[Tensor]:
    """The rows of `[rows, ...]`; of numbers views, not copies."""
    count, shape = tensor.shape[0], tensor.shape[1:]
    if tensor.datatype is Datatype.BYTES:
        size, elements = prod(shape), bytes_elements.unpack(tensor.data)
        pieces = [elements[at * size : (at + 1) * size] for at in range(count)]
        return [replace(tensor, shape=shape, data=bytes_elements.pack(piece)) for piece in pieces]
    view, step = memoryview(tensor.data), prod(shape) * tensor.datatype.size
    return [replace(tensor, shape=shape, data=view[at * step : (at + 1) * step]) for at in range(count)]


def stack(rows: Sequence[Tensor]) -> Tensor:
    """Tensors of one datatype and shape as one tensor with a dimension more in front.

    Raises:
        DecodeError: a row of another shape than the first.
    """
    first = rows[0]
    for number, row in enumerate(rows):
        if row.shape != first.shape:
            text = f"output {first.name!r} has shape {list(row.shape)} in row {number}"
            raise DecodeError(f"{text} and {list(first.shape)} in row 0")
    data = first.data if len(rows) == 1 else b"".join(row.data for row in rows)
    return replace(first, shape=(len(rows), *first.shape), data=data)


def repeat(tensor: Tensor, rows: int, limit: int, what: str) -> "np.ndarray[Any, Any]":
    """The array of `tensor`, its first dimension (of 1) `rows` times. A client says how many rows there are without
    sending one byte of them: `[4294967296, 0]`.

    Raises:
        GatewayError: RESOURCE_EXHAUSTED, that is more than `limit` bytes.
    """
    size = len(tensor.data) * rows
    if size > limit:
        text = f"{what} for each of {rows} rows takes {size} bytes; limits.message of the backend is {limit}"
        raise refusal(Reason.TOO_LARGE, text)
    return np.repeat(tensor.array, rows, axis=0)


def concatenate(pieces: Sequence[Tensor]) -> Tensor:
    """Tensors that differ at most in their first dimension as one, end to end.

    Raises:
        DecodeError: another name, datatype or further dimension than the first, or no dimension at all.
    """
    first = pieces[0]
    for piece in pieces:
        if not piece.shape:
            raise DecodeError(f"output {piece.name!r} has no dimension to concatenate on")
        alike = (piece.name, piece.datatype, piece.shape[1:]) == (first.name, first.datatype, first.shape[1:])
        if not alike:
            text = f"output {piece.name!r} is {piece.datatype} {list(piece.shape)}"
            raise DecodeError(f"{text} in one response and {first.datatype} {list(first.shape)} in the first")
    shape = (sum(piece.shape[0] for piece in pieces), *first.shape[1:])
    return replace(first, shape=shape, data=b"".join(piece.data for piece in pieces))


def empty(spec: TensorSpec) -> Tensor:
    """A batch of no rows; free dimensions are 0."""
    return Tensor(spec.name, spec.datatype, (0, *(max(size, 0) for size in spec.shape[1:])), b"")


def without_batch(shape: Shape, what: str) -> Shape:
    """`[1, ...]` as `[...]`.

    Raises:
        DecodeError: another number of rows.
    """
    if shape[0] != 1:
        raise DecodeError(f"{what} has {shape[0]} rows for the one that was sent")
    return shape[1:]
