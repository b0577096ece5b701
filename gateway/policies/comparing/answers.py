"""Compares two responses to one request, and finds which outputs differ and how."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TypeAlias

from gateway.core.errors import GatewayError, Status
from gateway.core.frozen import frozen
from gateway.core.requests import Response
from gateway.core.tensors import Tensor
from gateway.policies.comparing.elements import Elements, compare_elements
from gateway.policies.comparing.tolerance import EXACT, Tolerance

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
"""Maximum number of characters shown of an output's name."""


class DifferenceKind(StrEnum):
    """The part in which two responses differ. Metrics and logs use these words."""

    STATUS = "status"
    MISSING = "missing output"
    EXTRA = "extra output"
    DATATYPE = "datatype"
    SHAPE = "shape"
    VALUES = "values"


@frozen
class OutputDifference:
    """How one output differs. `expected` and `actual` are datatypes or shapes as text, and empty if that response does
    not contain the output. `elements` is set if the values differ."""

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
    """The difference between a response and the expected response. `status` contains the expected and the actual status
    if they differ. `outputs` contains at most MOST_OUTPUTS outputs that differ. `kinds` contains the kinds of
    differences in all outputs."""

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
    """Return the difference of `actual` from `expected`, or None if they are equal.

    Errors are equal if their statuses are equal, because each server uses its own messages. Outputs are paired by name,
    or by position if `by_position` is True, or if a response contains unnamed outputs or two outputs with the same
    name. For each pair, datatypes are compared, then shapes, then elements. The result contains the values of the first
    `shown` differing elements. Model names, versions, ids and parameters are ignored."""
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
