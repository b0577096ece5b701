"""Batches of points: combine several points of a map into one request, split the outputs by point, and choose how many
points a request contains.

Points are alike if they have the same inputs with the same datatypes and shapes, without the batch dimension. Each
point is a row of its batch. Only alike points share a request, and only if the server (with `max_batch_size`) or the
caller (with `batch`) declares that rows are independent. Because the declaration can be wrong, the client also checks
the outputs. `map` uses this module.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, TypeAlias

import numpy as np

from gateway.bridge import shapes
from gateway.client.outputs import Array, Outputs, as_array, as_tensor, read_value
from gateway.client.results import Point
from gateway.core.datatypes import NUMBERS
from gateway.core.errors import GatewayError
from gateway.core.frozen import replace
from gateway.core.models import Signature
from gateway.core.requests import Response
from gateway.core.tensors import Shape, Tensor

Key: TypeAlias = tuple[object, ...]
"""The names, dtypes and shapes that the points of one batch share."""
NOT_A_ROW: Key = ()
"""The key of points that the client must send alone."""


_DTYPES = frozenset(each.dtype for each in NUMBERS)
"""The dtypes of arrays that the client sends unchanged."""


@dataclass(frozen=True)
class Batched:
    """A model that takes batches, and its limits."""

    signature: Signature
    most: int | None = None
    """Maximum number of rows in one request, according to the model's configuration."""
    is_declared: bool = True
    """True if the server declares that rows are independent; False if only the caller of the map does."""


def can_join_rows(signature: Signature) -> bool:
    """Return True if the first dimension of every input and output can be the batch dimension."""
    outputs = [each.shape[:1] == (-1,) for each in signature.outputs]
    inputs = [shapes.is_batch(each.shape) for each in signature.inputs]
    return bool(inputs and outputs) and all(outputs) and all(inputs)


@dataclass(frozen=True)
class AlikePoints:
    """Points that can share a request."""

    key: Key
    """The name, dtype and shape of each input, and True if its numbers have no datatype; NOT_A_ROW if the client must
    send each point alone."""
    at: list[int]
    """The indices of the points."""
    arrays: list[tuple[Array, ...]]
    """The inputs of each point."""


def alike(points: Sequence[Point], signature: Signature) -> list[AlikePoints]:
    """Divide the points into groups of alike points."""
    groups: dict[Key, AlikePoints] = {}
    fits: dict[Key, bool] = {}
    rows = AlikePoints(NOT_A_ROW, [], [])
    dtype: object = None
    shape: Shape = ()
    for at, point in enumerate(points):
        arrays: tuple[Array, ...]
        if type(point) is np.ndarray and point.dtype is dtype and point.shape == shape:
            arrays = (point,)  # usually alike, because most points are rows of the same array
        else:
            key, arrays = _read(point)
            fit = fits.get(key)
            if fit is None:
                fit = fits[key] = _fits(key, signature)
            key = key if fit else NOT_A_ROW
            rows = groups.setdefault(key, AlikePoints(key, [], []))
            dtype = None
            if type(point) is np.ndarray and point.dtype in _DTYPES:
                dtype, shape = point.dtype, point.shape
        rows.at.append(at)
        rows.arrays.append(arrays)
    return list(groups.values())


def _read(point: Point) -> tuple[Key, tuple[Array, ...]]:
    named = point if isinstance(point, Mapping) else {"": point}
    key: list[object] = []
    arrays = []
    for name, value in named.items():
        try:
            array, is_plain = read_value(value, "a point")
            if array.dtype not in _DTYPES:
                array = as_tensor("", array).array
        except GatewayError:
            return NOT_A_ROW, ()  # the request for this point alone reports the error
        arrays.append(array)
        key += (name, array.dtype, array.shape, is_plain)
    return tuple(key), tuple(arrays)


def _fits(key: Key, signature: Signature) -> bool:
    """Return True if every input matches an input of the signature without its batch dimension."""
    return key != NOT_A_ROW and all(map(partial(_is_row, signature), key[::4], key[2::4]))


def _is_row(signature: Signature, name: object, shape: Any) -> bool:
    for spec in signature.inputs:
        if not name or spec.name == name:
            return shapes.is_lone_row(shape, spec.shape)
    return False


def stacked(rows: AlikePoints) -> tuple[Tensor, ...]:
    """Return the inputs of alike points, stacked along a batch dimension."""
    names, untyped, count = rows.key[::4], rows.key[3::4], len(rows.at)
    found = []
    for name, is_plain, column in zip(names, untyped, zip(*rows.arrays, strict=True), strict=True):
        made = as_tensor(str(name), np.concatenate(column).reshape(count, *column[0].shape))
        found.append(replace(made, untyped=True) if is_plain and made.datatype in NUMBERS else made)
    return tuple(found)


class NotOfRows(Exception):  # noqa: N818 - a finding, not an error
    """A batch's outputs cannot be split by point. The message gives the reason."""


def split(response: Response, rows: AlikePoints, batched: Batched) -> list[Outputs]:
    """Return the outputs of each point, as parts of the batch's arrays.

    Raises:
        NotOfRows: an output does not have one row for each point, or its rows have a size that the signature leaves
        open, because the server might have padded them to the longest row. If only the caller declared the rows
        independent, sizes that also occur in the inputs are accepted.
    """
    signature = batched.signature
    sizes = set() if batched.is_declared else {1, *(size for array in rows.arrays[0] for size in array.shape)}
    specs = {each.name: each for each in signature.outputs}
    columns: list[Array] = []
    for tensor in response.outputs:
        spec = specs.get(tensor.name)
        if spec is None or tensor.shape[:1] != (len(rows.at),):
            count = tensor.shape[0] if tensor.shape else "no"
            raise NotOfRows(f"output {tensor.name!r} has {count} rows for {len(rows.at)} points")
        if not sizes.issuperset(_free_sizes(tensor.shape, spec.shape)):
            raise NotOfRows(f"output {tensor.name!r} has a size that can differ between points")
        array = as_array(tensor)
        # An output [-1] has no batch dimension to remove: the shape of its rows is [1].
        columns.append(array if shapes.is_batch(spec.shape) else array[:, np.newaxis])
    names = [tensor.name for tensor in response.outputs]
    return [Outputs(dict(zip(names, values, strict=True)), response) for values in zip(*columns, strict=True)]


def _free_sizes(shape: Shape, expected: Shape) -> list[int]:
    """Return the sizes in a row's shape that the signature leaves open."""
    if len(shape) != len(expected):
        return list(shape[1:])
    return [size for size, each in zip(shape[1:], expected[1:], strict=True) if each == -1]


def check_same(alone: Outputs, row: Outputs) -> None:
    """Check that a point has the same outputs in its own request as in a batch.

    Raises:
        NotOfRows: the outputs differ.
    """
    if list(alone) != list(row):
        raise NotOfRows(f"a point alone has the outputs {list(alone)}, and among others {list(row)}")
    for name, wanted in alone.items():
        found = row[name]
        if (wanted.shape, wanted.dtype) != (found.shape, found.dtype):
            raise NotOfRows(
                f"output {name!r} of a point alone is {wanted.dtype} {list(wanted.shape)}, and among others"
                f" {found.dtype} {list(found.shape)}"
            )
        if not _are_near(wanted, found):
            raise NotOfRows(f"output {name!r} of a point alone has other values than among others")


TOLERANCES = {8: 1e-9, 4: 5e-3, 2: 2e-2}
"""Maximum difference between a point's floats in a batch and in its own request, relative to the largest value, by
float size in bytes. Differences arise because processors add values in different orders, and because GPUs round the
mantissa of FP32 values to 10 bits (TF32)."""


def _are_near(wanted: Array, found: Array) -> bool:
    if wanted.dtype.kind in "OSUbiu":
        return bool(np.array_equal(wanted, found))
    tolerance = TOLERANCES.get(wanted.dtype.itemsize, TOLERANCES[2])
    wanted, found = wanted.astype(np.float64), found.astype(np.float64)
    finite = np.isfinite(wanted)
    if not np.array_equal(wanted[~finite], found[~finite], equal_nan=True):
        return False
    if not finite.any():
        return True
    largest = np.abs(wanted[finite]).max()
    return bool(np.abs(wanted[finite] - found[finite]).max() <= tolerance * largest)


# --- The size of a batch ---

TARGET = 0.1
"""Target duration of a request of several points, in seconds.

When a map ends, it waits about this long for its last request. If a single point takes longer, each request contains
one point."""
GROWTH_ALONE, GROWTH = 8, 2
"""Maximum growth factors of the batch size: while the client sends one request at a time, and while several requests
are in flight."""
PARTS = 8
"""Number of parts into which the client splits the points of a failed request."""
MOST_ROWS = 4096
"""Default maximum number of points in one request, because larger requests save nothing."""
MOST_BYTES = 2**20
"""Maximum bytes of inputs or outputs in one request of several points, because larger requests save nothing."""


class BatchSize:
    """Determines `rows`, the number of points that a map sends in the next request, at most `most`, from the durations
    and errors of earlier requests. `map.Window` uses it.

    The client sends the first requests one at a time, so they do not affect each other's durations. Each request
    contains up to GROWTH_ALONE times as many points as the previous one, until a request takes about TARGET seconds or
    longer. After that, requests run in parallel. The size then grows slowly while requests are fast, and shrinks when
    requests are slow or fail.

    Pass `target` if the time limit of calls is not much longer than TARGET. `clock` returns the time in seconds."""

    def __init__(self, most: int, target: float = TARGET, clock: Callable[[], float] = monotonic) -> None:
        self.rows = 1
        self._most = most
        self._target = target
        self._clock = clock
        self._is_alone = most > 1
        """True while the client sends one request at a time to measure the model."""
        self._until = 0.0
        self._undecided = 0
        """Number of failed requests whose cause (a point or the request's size) is not yet known."""
        self._at_fault = 0
        """Number of requests that failed although each of their points has a result."""

    def stop(self, most: int = 1) -> None:
        """Limit requests to `most` points from now on."""
        self._most = min(self._most, most)
        self.rows = min(self.rows, self._most)
        self._is_alone = self._is_alone and self._most > 1

    @property
    def is_one(self) -> bool:
        """Return True if every later request contains one point."""
        return self._most == 1

    def begun(self) -> None:
        """Record the start of a request."""
        self._until = self._clock() + self._target

    def patience(self, in_flight: int) -> float:
        """Return the seconds until another request can start in parallel; 0 if it can start now."""
        if not self._is_alone or not in_flight:
            return 0.0
        left = self._until - self._clock()
        self._is_alone = left > 0
        return max(left, 0.0)

    def succeeded(self, rows: int, seconds: float, weight: int, in_flight: int) -> None:
        """Record that a request of `rows` rows succeeded after `seconds`.

        `weight` is the size of one row's inputs or outputs in bytes, whichever is larger. `in_flight` is the number of
        requests in flight at that time, including this one."""
        if rows < self.rows or self._undecided:
            return  # a request of an earlier size, or a part of a failed request
        if seconds >= self._target:
            self._is_alone = False
            # In the worst case, the server ran the requests in flight sequentially.
            if seconds > 2 * in_flight * self._target:
                self.rows = max(1, self.rows // 2)
            return
        growth = min(self._target / max(seconds, 1e-6), GROWTH_ALONE if self._is_alone else GROWTH)
        grown = max(1, min(int(rows * growth), self._most, MOST_BYTES // max(weight, 1)))
        self._is_alone = self._is_alone and grown > rows
        self.rows = grown

    def failed(self, rows: int) -> None:
        """Record that a request of several rows has failed. The map then sends the request's points again in parts, and
        calls `decided` when all these points have ended."""
        self._undecided += 1
        self.rows = max(1, min(self.rows, rows // PARTS))

    def decided(self, rows: int, *, is_at_fault: bool) -> None:
        """Record that all points of a failed request have ended.

        `is_at_fault` is True if every point succeeded in another request. The size of the failed request was then at
        fault."""
        self._undecided -= 1
        if is_at_fault:
            self._at_fault += 1
            # A single fault can be temporary, such as a broken connection.
            self.stop(max(1, rows // (2 if self._at_fault == 1 else PARTS)))
