"""Handles tensor shapes: finds the batch dimension, and converts shapes to the ones that specifications require.

In a specification, -1 is a free dimension. A first -1 before other dimensions is the batch dimension: `[-1, N]` is a
batch of rows of N elements. `[-1]` alone is a vector of any length, not a batch, unless rows can be scalars in the
backend's protocol (`Wire.scalars_in_rows`).
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from gateway.core import bytes_elements
from gateway.core.datatypes import BYTES
from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.frozen import replace
from gateway.core.models import Signature, TensorSpec
from gateway.core.tensors import Shape, Tensor


def is_batch(shape: Shape, *, scalars: bool = False) -> bool:
    """Return True if a specification's first dimension is the batch dimension.

    If `scalars` is True, a single free dimension is also the batch dimension."""
    return (len(shape) >= 2 or scalars) and shape[:1] == (-1,)


def of_row(shape: Shape, *, scalars: bool = False) -> Shape:
    """Return a specification's shape without its batch dimension."""
    return shape[1:] if is_batch(shape, scalars=scalars) else shape


def as_batches(signature: Signature) -> Signature:
    """Convert the signature of a model that accepts one row per call to the form for tensor protocols. Each shape gets
    a leading batch dimension, and unnamed tensors get the names `input0`, `output0`, ..."""
    return replace(
        signature,
        inputs=_batched(signature.inputs, "input"),
        outputs=_batched(signature.outputs, "output"),
    )


def _batched(specs: tuple[TensorSpec, ...], prefix: str) -> tuple[TensorSpec, ...]:
    return tuple(
        replace(spec, name=spec.name or f"{prefix}{at}", shape=(-1, *spec.shape)) for at, spec in enumerate(specs)
    )


def matches(shape: Shape, wanted: Shape) -> bool:
    """Return True if `shape` has the same rank and fixed dimensions as the specification `wanted`."""
    if len(shape) != len(wanted):
        return False
    for have, want in zip(shape, wanted):  # noqa: B905, SIM110 - `strict`, or a generator, takes twice as long
        if want != have and want != -1:
            return False
    return True


def is_lone_row(shape: Shape, wanted: Shape) -> bool:
    """Return True if `shape` with a leading batch dimension matches `wanted`."""
    return is_batch(wanted) and matches(shape, wanted[1:])


def point_size(shape: Shape, *, scalars: bool = False) -> int:
    """Return the length of a tensor's vector in a one-point protocol: the product of the dimensions after the batch
    dimension, or -1 if one of these dimensions is free."""
    dimensions = of_row(shape, scalars=scalars)
    return -1 if -1 in dimensions else prod(dimensions)


def fit_input(shape: Shape, wanted: Shape, what: str) -> Shape:
    """Return the shape of a tensor for the backend: the tensor's shape, or this shape with a leading batch dimension of
    1.

    Raises:
        DecodeError: neither shape matches `wanted`.
    """
    if matches(shape, wanted):
        return shape
    if is_lone_row(shape, wanted):
        return (1, *shape)
    raise DecodeError(f"{what} has shape {list(shape)}, expected {list(wanted)}")


def fill(wanted: Shape, elements: int, what: str) -> Shape:
    """Replace the free dimension in `wanted` to get a shape with `elements` elements.

    Raises:
        DecodeError: no size fits, or more than one dimension is free.
    """
    free = wanted.count(-1)
    if free > 1:
        text = f"{what} has length {elements}, which fits {list(wanted)} in more than one way"
        raise DecodeError(f"{text}; `signature` on the route must set all dimensions but one")
    fixed = prod(size for size in wanted if size != -1)
    if not free and fixed != elements:
        raise DecodeError(f"{what} has length {elements}, expected {fixed}")
    if free and (fixed == 0 or elements % fixed):
        raise DecodeError(f"{what} has length {elements}, expected a multiple of {fixed} for {list(wanted)}")
    return tuple(elements // fixed if size == -1 else size for size in wanted) if free else wanted


def fit_rows(shape: Shape, wanted: Shape, what: str) -> Shape:
    """Return the shape of a tensor for the backend if the first dimension of the client's tensors is always the number
    of rows.

    Raises:
        DecodeError: the shape does not match `wanted`.
    """
    if not matches(shape, wanted):
        raise DecodeError(f"{what} has shape {list(shape)}, expected {list(wanted)}")
    return shape


def with_last_dimension(tensor: Tensor, wanted: Shape) -> Shape:
    """Return the tensor's shape. Append a dimension of 1 if only the longer shape matches `wanted`. The function is for
    formats that do not distinguish a scalar from a vector of one element: untyped JSON, and BYTES elements with a
    content type."""
    shape = tensor.shape
    if matches(shape, wanted) or not (tensor.untyped or tensor.content_type):
        return shape
    return (*shape, 1) if matches((*shape, 1), wanted) else shape


def one_row(tensor: Tensor) -> Tensor:
    """Add a batch dimension of 1 to the tensor."""
    return replace(tensor, shape=(1, *tensor.shape))


def split(tensor: Tensor) -> list[Tensor]:
    """Split a tensor of the shape `[rows, ...]` into rows: views for numbers, and copies for BYTES."""
    count, shape = tensor.shape[0], tensor.shape[1:]
    if count == 1:
        return [replace(tensor, shape=shape)]
    if tensor.datatype is BYTES:
        size, elements = prod(shape), bytes_elements.unpack(tensor.data)
        pieces = [elements[at * size : (at + 1) * size] for at in range(count)]
        return [replace(tensor, shape=shape, data=bytes_elements.pack(piece)) for piece in pieces]
    view, step = memoryview(tensor.data), prod(shape) * tensor.datatype.size
    return [replace(tensor, shape=shape, data=view[at * step : (at + 1) * step]) for at in range(count)]


def stack(rows: Sequence[Tensor]) -> Tensor:
    """Stack rows of the same datatype and shape into one tensor of the shape `[rows, ...]`.

    Raises:
        DecodeError: a row differs in shape from the first one.
    """
    first = rows[0]
    for number, row in enumerate(rows):
        if row.shape != first.shape:
            text = f"output {first.name!r} has shape {list(row.shape)} in row {number}"
            raise DecodeError(f"{text} and {list(first.shape)} in row 0")
    data = first.data if len(rows) == 1 else b"".join(row.data for row in rows)
    return replace(first, shape=(len(rows), *first.shape), data=data)


def repeat(tensor: Tensor, rows: int, limit: int, what: str) -> "np.ndarray[Any, Any]":
    """Repeat the array of `tensor`, whose first dimension is 1, `rows` times.

    The limit protects the gateway's memory: with a shape such as `[4294967296, 0]`, a client can claim any number of
    rows without sending a byte.

    Raises:
        GatewayError: RESOURCE_EXHAUSTED if the result takes more than `limit` bytes.
    """
    size = len(tensor.data) * rows
    if size > limit:
        text = f"{what} for each of {rows} rows takes {size} bytes; limits.message of the backend is {limit}"
        raise refusal(Reason.TOO_LARGE, text)
    return np.repeat(tensor.array, rows, axis=0)


def concatenate(pieces: Sequence[Tensor]) -> Tensor:
    """Concatenate the tensors on axis 0.

    Raises:
        DecodeError: a tensor is a scalar, or differs from the first in name, datatype or another dimension.
    """
    first = pieces[0]
    for piece in pieces:
        if not piece.shape:
            raise DecodeError(f"output {piece.name!r} is a scalar, which the gateway cannot concatenate")
        alike = (piece.name, piece.datatype, piece.shape[1:]) == (first.name, first.datatype, first.shape[1:])
        if not alike:
            text = f"output {piece.name!r} is {piece.datatype} {list(piece.shape)}"
            raise DecodeError(f"{text} in one response and {first.datatype} {list(first.shape)} in the first")
    shape = (sum(piece.shape[0] for piece in pieces), *first.shape[1:])
    return replace(first, shape=shape, data=b"".join(piece.data for piece in pieces))


def empty(spec: TensorSpec) -> Tensor:
    """Return a batch of 0 rows. Other free dimensions are also 0."""
    return Tensor(spec.name, spec.datatype, (0, *(max(size, 0) for size in spec.shape[1:])), b"")


def without_batch(shape: Shape, what: str) -> Shape:
    """Remove the batch dimension from the shape `[1, ...]`.

    Raises:
        DecodeError: the number of rows is not 1.
    """
    if shape[0] != 1:
        raise DecodeError(f"{what} has {shape[0]} rows for the one that was sent")
    return shape[1:]
