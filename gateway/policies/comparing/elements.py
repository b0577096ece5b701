"""Compares the elements of two tensors with the same datatype and shape. It reads the tensors in pieces, so the
additional memory is small for tensors of any size."""

from collections.abc import Iterator
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype, Kind
from gateway.core.frozen import frozen
from gateway.core.messages import Buffer
from gateway.core.tensors import Shape, Tensor
from gateway.policies.comparing.tolerance import Tolerance

Array: TypeAlias = "np.ndarray[Any, Any]"

PIECE = 2**16
"""Number of elements that are compared in one step."""
LONGEST_VALUE = 64
"""Maximum number of characters shown of a value."""


@frozen
class Largest:
    """The largest distance of one kind, and the index of its element."""

    value: float
    index: Shape


@frozen
class Differing:
    """An element that differs, with the expected and the actual value as text."""

    index: Shape
    expected: str
    actual: str


@frozen
class Elements:
    """How the elements of two tensors differ.

    - `count`: number of elements whose distance exceeds the tolerance.
    - `of`: total number of elements.
    - `first`: the first elements beyond the tolerance, in row-major order.
    - `absolute`, `relative` (to the expected value), `ulp`: the largest distances among all elements, including
      elements within the tolerance. None if all distances are 0, or if the datatype has no such distance. An element
      that is NaN or infinite in one tensor has no distance. If the expected value is 0, the element has no relative
      distance.
    """

    count: int
    of: int
    first: tuple[Differing, ...] = ()
    absolute: Largest | None = None
    relative: Largest | None = None
    ulp: Largest | None = None


def compare_elements(expected: Tensor, actual: Tensor, tolerance: Tolerance, shown: int = 1) -> Elements:
    """Return how `actual` differs in its elements from `expected`, which has the same datatype and shape. The
    result contains the values of the first `shown` differing elements."""
    found = _Found(expected.shape, shown)
    if expected.datatype is Datatype.BYTES:
        _compare_bytes(expected.data, actual.data, found)
    else:
        old = np.frombuffer(expected.data, expected.datatype.dtype)
        new = np.frombuffer(actual.data, expected.datatype.dtype)
        for start in range(0, len(old), PIECE):
            _compare_piece(old[start : start + PIECE], new[start : start + PIECE], start, tolerance, expected, found)
    return found.elements(expected.elements)


class _Found:
    """The differences that were found so far."""

    def __init__(self, shape: Shape, shown: int) -> None:
        self._shape = shape
        self._shown = shown
        self._count = 0
        self._first: list[Differing] = []
        self._largest: dict[str, Largest] = {}

    def differ(self, places: Array, expected: Array, actual: Array) -> None:
        """Add differing elements: their positions in row-major order, and their values."""
        self._count += len(places)
        for at in range(min(self._shown - len(self._first), len(places))):
            self.show(int(places[at]), _text(expected[at]), _text(actual[at]))

    def show(self, place: int, expected: str, actual: str) -> None:
        self._first.append(Differing(self._index(place), expected, actual))

    def differ_in_bytes(self, place: int, expected: bytes, actual: bytes) -> None:
        self._count += 1
        if len(self._first) < self._shown:
            self.show(place, _text(expected), _text(actual))

    def distances(self, name: str, values: Array, places: Array) -> None:
        """Add the distances of the elements at these positions. Ignore elements without a finite distance."""
        is_finite = np.isfinite(values)
        values, places = values[is_finite], places[is_finite]
        if not len(values):
            return
        at = int(values.argmax())
        value = values[at].item()
        known = self._largest.get(name)
        if value > (0 if known is None else known.value):
            self._largest[name] = Largest(value, self._index(int(places[at])))

    def _index(self, place: int) -> Shape:
        return tuple(int(each) for each in np.unravel_index(place, self._shape)) if self._shape else ()

    def elements(self, of: int) -> Elements:
        largest = self._largest.get
        return Elements(self._count, of, tuple(self._first), largest("absolute"), largest("relative"), largest("ulp"))


def _compare_piece(
    expected: Array, actual: Array, start: int, tolerance: Tolerance, tensor: Tensor, found: _Found
) -> None:
    datatype = tensor.datatype
    bits = f"<u{datatype.size}"
    is_apart = expected.view(bits) != actual.view(bits)
    is_float = datatype.kind is Kind.FLOAT
    if is_float and tolerance.nan == "different":
        is_apart |= np.isnan(expected)
    (at,) = np.nonzero(is_apart)
    if not len(at):
        return
    expected, actual, places = expected[at], actual[at], at + start
    if is_float:
        is_apart = _are_floats_apart(expected, actual, places, tolerance, datatype, found)
        found.differ(places[is_apart], expected[is_apart], actual[is_apart])
        return
    if datatype is not Datatype.BOOL:
        # The unsigned type of the same size can represent the difference of the larger and the smaller value.
        distance = (np.maximum(expected, actual).view(bits) - np.minimum(expected, actual).view(bits)).astype("<u8")
        found.distances("absolute", distance, places)
        with np.errstate(divide="ignore"):
            found.distances("relative", distance / np.abs(expected.astype(np.float64)), places)
        found.differ(places, expected, actual)
    else:
        is_apart = expected.view(bits).astype(bool) != actual.view(bits).astype(bool)
        found.differ(places[is_apart], expected[is_apart], actual[is_apart])


def _are_floats_apart(
    expected: Array, actual: Array, places: Array, tolerance: Tolerance, datatype: Datatype, found: _Found
) -> Array:
    """Return which of these elements, all of which have different bits or are NaN, differ by more than the
    tolerance."""
    old, new = expected.astype(np.float64), actual.astype(np.float64)
    is_finite = np.isfinite(old) & np.isfinite(new)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        distance = np.abs(new - old)
        relative = distance / np.abs(old)
        is_near = distance <= tolerance.atol + tolerance.rtol * np.abs(old)
    steps = _steps(expected, actual, datatype)
    is_within = is_finite & (is_near | (steps <= np.uint64(min(tolerance.ulp, 2**64 - 1))))
    measured = is_finite & (distance > 0)
    found.distances("absolute", distance[measured], places[measured])
    found.distances("relative", relative[measured], places[measured])
    found.distances("ulp", steps[measured], places[measured])
    if tolerance.nan == "equal":
        is_within |= np.isnan(old) & np.isnan(new)
    apart: Array = ~is_within
    return apart


def _steps(expected: Array, actual: Array, datatype: Datatype) -> Array:
    """Return the number of representable steps between each pair of floats, as UINT64."""
    old, new = _ranks(expected, datatype), _ranks(actual, datatype)
    return np.maximum(old, new) - np.minimum(old, new)


def _ranks(floats: Array, datatype: Datatype) -> Array:
    """Return the position of each float among all floats of its datatype, in ascending order, as UINT64. 0 and -0 have
    the same position."""
    bits = floats.view(f"<u{datatype.size}").astype(np.uint64)
    middle = np.uint64(1 << (datatype.size * 8 - 1))
    magnitude = bits & (middle - np.uint64(1))
    return np.where(bits & middle, middle - magnitude, middle + magnitude)


def _compare_bytes(expected: Buffer, actual: Buffer, found: _Found) -> None:
    if np.array_equal(np.frombuffer(expected, np.uint8), np.frombuffer(actual, np.uint8)):
        return
    for place, (old, new) in enumerate(zip(_in_order(expected), _in_order(actual), strict=True)):
        if old != new:
            found.differ_in_bytes(place, old, new)


def _in_order(data: Buffer) -> Iterator[bytes]:
    return chain.from_iterable(bytes_elements.pieces(data))


def _text(value: Any) -> str:
    """Return a value as text."""
    text = repr(value[:LONGEST_VALUE]) if isinstance(value, bytes) else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."
