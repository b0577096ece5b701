"""Compares the responses of two servers to the same request, within tolerances, and describes the outputs that differ.
`mirror` and `gateway replay` use this module."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import chain
from typing import Any, Literal, TypeAlias

import numpy as np

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import GatewayError, Status
from gateway.core.frozen import frozen
from gateway.core.messages import Buffer
from gateway.core.requests import Response
from gateway.core.tensors import Shape, Tensor


@frozen
class Tolerance:
    """The maximum distance at which two floats count as equal.

    Two elements are equal if their distance is at most `atol + rtol * |expected|`, or if it is at most `ulp` steps. If
    all limits are 0, values must be identical.

    The tolerance applies to floats. Integers, BOOL, BYTES and infinities must be identical. `nan` determines whether
    NaN is `equal` to NaN or `different` from all values. 0 and -0 are equal."""

    rtol: float = 0.0
    atol: float = 0.0
    ulp: int = 0
    """Units in the last place: the number of steps from one float to the next representable float."""
    nan: Literal["equal", "different"] = "equal"


EXACT = Tolerance()


Array: TypeAlias = "np.ndarray[Any, Any]"

PIECE = 2**16
"""The number of elements that are compared in one step."""
LONGEST_VALUE = 64
"""The maximum number of characters that are shown of a value."""


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
    """The differences between the elements of two tensors.

    - `count`: number of elements whose distance exceeds the tolerance.
    - `of`: total number of elements.
    - `first`: the first elements beyond the tolerance, in row-major order.
    - `absolute`, `relative` (to the expected value), `ulp`: the largest distances among all elements, including
      elements within the tolerance. They are None if all distances are 0, or if the datatype does not have this kind of
      distance. An element that is NaN or infinite in one tensor has no distance. If the expected value is 0, the
      element has no relative distance.
    """

    count: int
    of: int
    first: tuple[Differing, ...] = ()
    absolute: Largest | None = None
    relative: Largest | None = None
    ulp: Largest | None = None


def compare_elements(expected: Tensor, actual: Tensor, tolerance: Tolerance, shown: int = 1) -> Elements:
    """Return the differences between the elements of `actual` and `expected`, which have the same datatype and shape.
    The result contains the values of the first `shown` differing elements. The function reads the tensors in pieces.
    Therefore, the additional memory is small for tensors of any size."""
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
    """The differences found so far."""

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
    """For each pair of elements, return whether the two differ by more than the tolerance. All pairs have different
    bits or contain NaN."""
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


Outcome: TypeAlias = Response | GatewayError
"""A server's response or error."""

NO_ANSWER = frozenset(
    {
        Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED, Status.RESOURCE_EXHAUSTED, Status.CANCELLED,
        Status.UNAUTHENTICATED, Status.PERMISSION_DENIED,
    }
)  # fmt: skip
"""Errors that do not depend on the model, because the call did not run or its result is unknown."""

MOST_OUTPUTS = 16
"""Maximum number of differing outputs in a Difference."""
LONGEST_SHOWN_NAME = 100
"""The maximum number of characters that are shown of an output's name."""


class DifferenceKind(StrEnum):
    """The part in which two responses differ. The values are the words in metrics and logs."""

    STATUS = "status"
    MISSING = "missing output"
    EXTRA = "extra output"
    DATATYPE = "datatype"
    SHAPE = "shape"
    VALUES = "values"


@frozen
class OutputDifference:
    """The difference in one output. `expected` and `actual` are datatypes or shapes as text; an empty text means that
    the response does not contain the output. `elements` is set if the values differ."""

    output: str
    kind: DifferenceKind
    expected: str = ""
    actual: str = ""
    elements: Elements | None = None

    def __str__(self) -> str:
        name = f"output {self.output!r}"
        match self.kind:
            case DifferenceKind.MISSING:
                return f"{name} is missing"
            case DifferenceKind.EXTRA:
                return f"{name} is not expected"
            case DifferenceKind.VALUES if self.elements is not None:
                return f"{name}: {_formatted(self.elements)}"
        return f"{name}: {self.kind} {self.actual}, expected {self.expected}"


@frozen
class Difference:
    """The difference between a response and the expected response. If the statuses differ, `status` contains the
    expected and the actual status. `outputs` contains at most MOST_OUTPUTS outputs that differ. `kinds` contains the
    kinds of differences in all outputs."""

    kinds: frozenset[DifferenceKind]
    status: tuple[Status, Status] | None = None
    outputs: tuple[OutputDifference, ...] = ()

    def __str__(self) -> str:
        if self.status is not None:
            expected, actual = self.status
            return f"status {actual.name}, expected {expected.name}"
        return "; ".join(map(str, self.outputs))


def compare(
    expected: Outcome, actual: Outcome, tolerance: Tolerance = EXACT, *, by_position: bool = False, shown: int = 1
) -> Difference | None:
    """Return the difference between `actual` and `expected`, or None if they are equal.

    Errors are equal if their statuses are equal, because each server uses its own messages. Outputs are paired by name.
    They are paired by position if `by_position` is True, or if a response contains unnamed outputs or two outputs with
    the same name. For each pair, the function compares datatypes, then shapes, then elements. The result contains the
    values of the first `shown` differing elements. Model names, versions, ids and parameters are ignored."""
    if isinstance(expected, Response) and isinstance(actual, Response):
        return _compared(expected.outputs, actual.outputs, tolerance, shown, by_position=by_position)
    statuses = _status(expected), _status(actual)
    if statuses[0] is statuses[1]:
        return None
    return Difference(frozenset({DifferenceKind.STATUS}), statuses)


def _status(outcome: Outcome) -> Status:
    return Status.OK if isinstance(outcome, Response) else outcome.status


def _compared(
    expected: Sequence[Tensor], actual: Sequence[Tensor], tolerance: Tolerance, shown: int, *, by_position: bool
) -> Difference | None:
    found: list[OutputDifference] = []
    kinds: set[DifferenceKind] = set()
    for name, old, new in _pairs(expected, actual, by_position=by_position):
        difference = _output_difference(name[:LONGEST_SHOWN_NAME], old, new, tolerance, shown)
        if difference is not None:
            kinds.add(difference.kind)
            if len(found) < MOST_OUTPUTS:
                found.append(difference)
    return Difference(frozenset(kinds), None, tuple(found)) if found else None


def _pairs(
    expected: Sequence[Tensor], actual: Sequence[Tensor], *, by_position: bool
) -> Iterator[tuple[str, Tensor | None, Tensor | None]]:
    """Yield the pairs of outputs with their names, or with their positions if they have no names."""
    if by_position or not (_have_names(expected) and _have_names(actual)):
        for at in range(max(len(expected), len(actual))):
            old = expected[at] if at < len(expected) else None
            new = actual[at] if at < len(actual) else None
            yield (old and old.name) or (new and new.name) or str(at), old, new
        return
    others = {each.name: each for each in actual}
    for each in expected:
        yield each.name, each, others.pop(each.name, None)
    for name, other in others.items():
        yield name, None, other


def _have_names(outputs: Sequence[Tensor]) -> bool:
    names = {each.name for each in outputs}
    return "" not in names and len(names) == len(outputs)


def _output_difference(
    name: str, expected: Tensor | None, actual: Tensor | None, tolerance: Tolerance, shown: int
) -> OutputDifference | None:
    if expected is None:
        return OutputDifference(name, DifferenceKind.EXTRA)
    if actual is None:
        return OutputDifference(name, DifferenceKind.MISSING)
    if expected.datatype is not actual.datatype:
        return OutputDifference(name, DifferenceKind.DATATYPE, expected.datatype.value, actual.datatype.value)
    if expected.shape != actual.shape:
        return OutputDifference(name, DifferenceKind.SHAPE, str(list(expected.shape)), str(list(actual.shape)))
    elements = compare_elements(expected, actual, tolerance, shown)
    return OutputDifference(name, DifferenceKind.VALUES, elements=elements) if elements.count else None


def _formatted(elements: Elements) -> str:
    text = f"{elements.count} of {elements.of} elements differ"
    for each in elements.first:
        text += f", at {list(each.index)} {each.actual}, expected {each.expected}"
    largest = {"absolute": elements.absolute, "relative": elements.relative, "ulp": elements.ulp}
    distances = [f"{name} {each.value:.3g}" for name, each in largest.items() if each is not None]
    return f"{text} (largest distance: {', '.join(distances)})" if distances else text
