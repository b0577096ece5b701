"""JSON arrays as tensors: the common datatype and shape of several examples of one array."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from gateway.core.datatypes import Datatype
from gateway.core.frozen import frozen

Shape: TypeAlias = tuple[int, ...]
SCALARS = (str, int, float, bool)


class IrregularArrayError(ValueError):
    """The arrays cannot be one tensor (the message says why)."""


@frozen
class SeenArray:
    """The arrays at one position: their datatype, and the shape in each example."""

    datatype: Datatype
    shapes: tuple[Shape, ...]

    @property
    def shape(self) -> Shape:
        """The common shape, with -1 where the shapes differ."""
        return tuple(sizes[0] if len(set(sizes)) == 1 else -1 for sizes in zip(*self.shapes, strict=True))


def seen(arrays: Sequence[Any]) -> SeenArray:
    """Return the common datatype and the shapes of nested lists of scalars. A scalar counts as an array of shape [].

    Raises:
        IrregularArrayError: the arrays are ragged, have different ranks, or mix numbers with strings or null.
    """
    shapes = [_shape(each) for each in arrays]
    full = [each for each in shapes if 0 not in each] or shapes
    ranks = {len(each) for each in full}
    if len(ranks) > 1:
        raise IrregularArrayError(f"the examples have arrays of {' and '.join(map(str, sorted(ranks)))} dimensions")
    return SeenArray(datatype_of([scalar for each in arrays for scalar in scalars(each)]), tuple(full))


def scalars(array: Any) -> Iterator[Any]:
    """Yield the elements of nested lists, in row-major order."""
    if isinstance(array, list):
        for each in array:
            yield from scalars(each)
    else:
        yield array


def datatype_of(elements: Sequence[Any]) -> Datatype:
    """Return the datatype of elements. Raise IrregularArrayError if they have no common datatype."""
    kinds = {type(each) for each in elements}
    if kinds <= {int}:
        return Datatype.INT64 if kinds else Datatype.FP64
    if kinds <= {int, float}:
        return Datatype.FP64
    if kinds == {bool}:
        return Datatype.BOOL
    if kinds == {str}:
        return Datatype.BYTES
    words = {str: "texts", bool: "true or false", type(None): "null", dict: "objects", int: "numbers", float: "numbers"}
    named = sorted({words.get(each, each.__name__) for each in kinds})
    raise IrregularArrayError(f"{' beside '.join(named)} in one array")


def _shape(array: Any) -> Shape:
    if not isinstance(array, list):
        return ()
    if not array:
        return (0,)
    below = {_shape(each) for each in array}
    if len(below) > 1:
        raise IrregularArrayError("a ragged array, whose rows have different lengths")
    return (len(array), *below.pop())
