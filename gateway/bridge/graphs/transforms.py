"""Pure functions of tensors between the steps of a graph, and their derivatives.

    {sum: [$prior.log, $likelihood.log]}      {slice: $image.boxes, axis: 1, from: 0, to: 4}

A transform takes options and one tensor or a list of tensors. All transforms with a derivative are linear. Therefore,
the Jacobian of such a transform, applied to tangents, is the function itself, and `pull` is its transpose. `{first:
[...]}` is not a function of tensors; `expressions` handles it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gateway.core.casting import cast
from gateway.core.datatypes import DATATYPES, Datatype, Kind, meant_by
from gateway.core.frozen import frozen, replace
from gateway.core.models import TensorSpec
from gateway.core.tensors import MAX_RANK, Shape, datatype_of

Array: TypeAlias = NDArray[Any]


class GraphError(ValueError):
    """A mistake in the description of a graph. `place` is the path from the model to the value that `message`
    describes."""

    def __init__(self, message: str, *place: str | int) -> None:
        super().__init__(message)
        self.message = message
        self.place = place

    @property
    def in_its_step(self) -> str:
        """Return the message with the name of the step, for errors that do not show the position."""
        return f"step {self.place[1]!r}: {self.message}" if self.place[:1] == ("steps",) else self.message


class Transform(ABC):
    """A pure function of tensors, applied between the steps of a graph, with its options.

    `takes` is the number of tensors that the transform takes; None means a list of one or more."""

    takes: ClassVar[int | None] = None
    has_derivative: ClassVar[bool] = True
    is_elementwise: ClassVar[bool] = False
    """True if each element of the result depends only on the corresponding elements of the tensors. `pull` then
    requires no arrays and accepts vectors of any shape."""

    @abstractmethod
    def spec(self, specs: Sequence[TensorSpec]) -> TensorSpec:
        """Return the result's datatype and shape. In the shape, -1 is a dimension that depends on the values.

        Raises:
            GraphError: the transform is not defined for tensors of these datatypes and shapes.
        """

    @abstractmethod
    def apply(self, arrays: Sequence[Array]) -> Array:
        """Return the result for arrays whose datatypes and shapes `spec` accepts.

        Raises:
            GraphError, DecodeError: a number exceeds the range of the result's datatype.
        """

    def pull(self, arrays: Sequence[Array], sens: Array) -> list[Array]:
        """For each of `arrays`, return the product of `sens` and the Jacobian, in the array's shape. `sens` has the
        result's shape."""
        raise NotImplementedError

    def push(self, tangents: Sequence[Array]) -> Array:
        """Return the product of the Jacobian and `tangents`. The tangents have the tensors' shapes. Transforms are
        linear; therefore, this product is the function itself, applied to the tangents."""
        return self.apply(tangents)

    def keeps_rows(self, specs: Sequence[TensorSpec]) -> bool:
        """Return True if each row of the result depends only on the same row of the inputs. Derivatives can then be
        computed row by row."""
        return True


def _shown(spec: TensorSpec) -> str:
    return f"{spec.datatype.value} [{', '.join(map(str, spec.shape))}]"


def _same_datatype(specs: Sequence[TensorSpec]) -> Datatype:
    first = specs[0].datatype
    for each in specs:
        if each.datatype is not first:
            raise GraphError(
                f"tensors of different datatypes, {_shown(specs[0])} and {_shown(each)}; `cast` one of them"
            )
    return first


def _numbers(specs: Sequence[TensorSpec]) -> None:
    for each in specs:
        if each.datatype.kind in (Kind.BYTES, Kind.BOOL):
            raise GraphError(f"expected numbers, got {_shown(each)}")


def _axis(axis: int, rank: int, spec: TensorSpec) -> int:
    if not -rank <= axis < rank:
        raise GraphError(f"axis {axis} is out of range for {_shown(spec)}; expected {-rank} to {rank - 1}", "axis")
    return axis % rank


def _common(one: int, other: int) -> int:
    return other if one == -1 else one


def _same_shape(specs: Sequence[TensorSpec], *, but: int = -1) -> Shape:
    """Return the common shape of all tensors, ignoring the axis `but`. If some tensors have -1 for a size, the size
    comes from the other tensors."""
    shape = list(specs[0].shape)
    for each in specs[1:]:
        fits = len(each.shape) == len(shape) and all(
            at == but or have == want or -1 in (have, want)
            for at, (have, want) in enumerate(zip(each.shape, shape, strict=True))
        )
        if not fits:
            raise GraphError(f"expected tensors of the same shape, got {_shown(specs[0])} and {_shown(each)}")
        shape = [_common(have, want) for have, want in zip(shape, each.shape, strict=True)]
    return tuple(shape)


@frozen
class Reshape(Transform):
    """The same elements in a different shape. One size can be -1, and is then computed from the number of elements."""

    takes = 1
    shape: tuple[int, ...]

    def spec(self, specs: Sequence[TensorSpec]) -> TensorSpec:
        have = specs[0].shape
        if -1 in have:
            return replace(specs[0], shape=self.shape)
        try:
            return replace(specs[0], shape=np.broadcast_to(0, have).reshape(self.shape).shape)
        except ValueError as error:
            raise GraphError(f"{_shown(specs[0])} cannot have shape {list(self.shape)}", "shape") from error

    def apply(self, arrays: Sequence[Array]) -> Array:
        return arrays[0].reshape(self.shape)

    def pull(self, arrays: Sequence[Array], sens: Array) -> list[Array]:
        return [sens.reshape(arrays[0].shape)]

    def keeps_rows(self, specs: Sequence[TensorSpec]) -> bool:
        have = specs[0].shape[1:]
        return self.shape[:1] == (-1,) and -1 not in have and prod(have) == prod(self.shape[1:])


@frozen
class Cast(Transform):
    """The same numbers in a different datatype. Numbers that this datatype cannot represent cause an error."""

    takes = 1
    is_elementwise = True
    datatype: Datatype

    def spec(self, specs: Sequence[TensorSpec]) -> TensorSpec:
        if Kind.BYTES in (specs[0].datatype.kind, self.datatype.kind) and specs[0].datatype is not self.datatype:
            raise GraphError(f"{_shown(specs[0])} has no numbers for {self.datatype}", "datatype")
        return replace(specs[0], datatype=self.datatype)

    def apply(self, arrays: Sequence[Array]) -> Array:
        array = arrays[0]
        if array.dtype == self.datatype.dtype:
            return array
        if self.datatype is Datatype.BOOL:
            return np.asarray(array != 0)
        wide = array.astype(np.float64) if _is_float(array) else array.astype(np.int64 if array.dtype != "u8" else "u8")
        return cast(wide, self.datatype, "the tensor")

    def pull(self, arrays: Sequence[Array], sens: Array) -> list[Array]:
        return [sens]

    def push(self, tangents: Sequence[Array]) -> Array:
        return tangents[0]


def _is_float(array: Array) -> bool:
    # The `kind` of ml_dtypes' bfloat16 is V.
    return array.dtype.kind in "fV"


@frozen
class Concat(Transform):
    """The tensors, concatenated along an existing axis."""

    axis: int = 0

    def spec(self, specs: Sequence[TensorSpec]) -> TensorSpec:
        axis = _axis(self.axis, len(specs[0].shape), specs[0])
        shape = list(_same_shape(specs, but=axis))
        sizes = [each.shape[axis] for each in specs]
        shape[axis] = -1 if -1 in sizes else sum(sizes)
        return TensorSpec("", _same_datatype(specs), tuple(shape))

    def apply(self, arrays: Sequence[Array]) -> Array:
        return np.concatenate(arrays, self.axis)

    def pull(self, arrays: Sequence[Array], sens: Array) -> list[Array]:
        ends = np.cumsum([each.shape[self.axis] for each in arrays])[:-1]
        return np.split(sens, ends, self.axis)

    def keeps_rows(self, specs: Sequence[TensorSpec]) -> bool:
        return self.axis % len(specs[0].shape) != 0


@frozen
class Stack(Transform):
    """The tensors, stacked along a new axis."""

    axis: int = 0

    def spec(self, specs: Sequence[TensorSpec]) -> TensorSpec:
        shape = list(_same_shape(specs))
        if len(shape) == MAX_RANK:
            raise GraphError(f"expected at most {MAX_RANK} dimensions")
        shape.insert(_axis(self.axis, len(shape) + 1, specs[0]), len(specs))
        return TensorSpec("", _same_datatype(specs), tuple(shape))

    def apply(self, arrays: Sequence[Array]) -> Array:
        return np.stack(arrays, self.axis)

    def pull(self, arrays: Sequence[Array], sens: Array) -> list[Array]:
        return list(np.moveaxis(sens, self.axis, 0))

    def keeps_rows(self, specs: Sequence[TensorSpec]) -> bool:
        return self.axis % (len(specs[0].shape) + 1) != 0


@frozen
class Slice(Transform):
    """A slice of an axis, from `begin` (inclusive) to `end` (exclusive). Negative numbers count from the end."""

    takes = 1
    axis: int = 0
    begin: int | None = None
    end: int | None = None

    def spec(self, specs: Sequence[TensorSpec]) -> TensorSpec:
        shape = list(specs[0].shape)
        axis = _axis(self.axis, len(shape), specs[0])
        if shape[axis] >= 0:
            shape[axis] = len(range(*slice(self.begin, self.end).indices(shape[axis])))
        return replace(specs[0], shape=tuple(shape))

    def _index(self, rank: int) -> tuple[slice, ...]:
        whole = [slice(None)] * rank
        whole[self.axis] = slice(self.begin, self.end)
        return tuple(whole)

    def apply(self, arrays: Sequence[Array]) -> Array:
        return arrays[0][self._index(arrays[0].ndim)]

    def pull(self, arrays: Sequence[Array], sens: Array) -> list[Array]:
        result = np.zeros(arrays[0].shape, sens.dtype)
        result[self._index(result.ndim)] = sens
        return [result]

    def keeps_rows(self, specs: Sequence[TensorSpec]) -> bool:
        return self.axis % len(specs[0].shape) != 0


@frozen
class EqualPart(Transform):
    """Part number `part` (counted from 0) of an axis that is split into `parts` equal parts."""

    takes = 1
    parts: int
    part: int
    axis: int = 0

    def spec(self, specs: Sequence[TensorSpec]) -> TensorSpec:
        shape = list(specs[0].shape)
        axis = _axis(self.axis, len(shape), specs[0])
        if not 0 <= self.part < self.parts:
            raise GraphError(f"expected a part from 0 to {self.parts - 1}, got {self.part}", "part")
        if shape[axis] >= 0 and shape[axis] % self.parts:
            raise GraphError(f"{_shown(specs[0])} has no {self.parts} equal parts along axis {axis}", "parts")
        shape[axis] = -1 if shape[axis] < 0 else shape[axis] // self.parts
        return replace(specs[0], shape=tuple(shape))

    def _slice(self, array: Array) -> Slice:
        size = array.shape[self.axis] // self.parts
        return Slice(self.axis, self.part * size, (self.part + 1) * size)

    def apply(self, arrays: Sequence[Array]) -> Array:
        return self._slice(arrays[0]).apply(arrays)

    def pull(self, arrays: Sequence[Array], sens: Array) -> list[Array]:
        return self._slice(arrays[0]).pull(arrays, sens)

    def keeps_rows(self, specs: Sequence[TensorSpec]) -> bool:
        return self.axis % len(specs[0].shape) != 0


@frozen
class Sum(Transform):
    """The elementwise sum of tensors of the same shape, with optional weights."""

    is_elementwise = True
    weights: tuple[float, ...] = ()

    def spec(self, specs: Sequence[TensorSpec]) -> TensorSpec:
        _numbers(specs)
        if self.weights and len(self.weights) != len(specs):
            raise GraphError(f"{len(self.weights)} weights for {len(specs)} tensors", "weights")
        datatype = _same_datatype(specs)
        if self.weights and datatype.kind is not Kind.FLOAT:
            raise GraphError(f"weights need floats, got {_shown(specs[0])}; `cast` it", "weights")
        return TensorSpec("", datatype, _same_shape(specs))

    def divisor(self, count: int) -> float:
        """Return the divisor for the sum of `count` tensors."""
        return 1

    def apply(self, arrays: Sequence[Array]) -> Array:
        first, *others = map(_wide, arrays)
        factors = [first.dtype.type(each) for each in self.weights] or [None] * len(arrays)
        result = first if factors[0] is None else first * factors[0]
        for array, factor in zip(others, factors[1:], strict=True):
            result = _added(result, array if factor is None else array * factor)
        divisor = self.divisor(len(arrays))
        return (result if divisor == 1 else result / result.dtype.type(divisor)).astype(arrays[0].dtype, copy=False)

    def pull(self, arrays: Sequence[Array], sens: Array) -> list[Array]:
        divisor = self.divisor(len(arrays))
        return [sens * (each / divisor) for each in self.weights or (1,) * len(arrays)]


@frozen
class Mean(Sum):
    """The elementwise mean of tensors of the same shape, with optional weights."""

    def spec(self, specs: Sequence[TensorSpec]) -> TensorSpec:
        found = Sum.spec(self, specs)
        if found.datatype.kind is not Kind.FLOAT:
            raise GraphError(f"a mean needs floats, got {_shown(specs[0])}; `cast` it")
        return found

    def divisor(self, count: int) -> float:
        return sum(self.weights) if self.weights else count


def _wide(array: Array) -> Array:
    """Convert two-byte floats (FP16 and BF16) to FP32, to round a sum only once."""
    return array.astype(np.float32) if _is_float(array) and array.dtype.itemsize == 2 else array


def _added(one: Array, other: Array) -> Array:
    """Return the sum. Raise GraphError if the sum exceeds the range of an integer datatype."""
    result: Array = one + other
    if result.dtype.kind == "i":
        wrapped = ((one ^ result) & (other ^ result)) < 0
    elif result.dtype.kind == "u":
        wrapped = result < one
    else:
        return result
    if wrapped.any():
        raise GraphError(f"a sum is out of the range of {datatype_of(result.dtype).value}; `cast` the tensors first")
    return result


@frozen
class SumOver(Transform):
    """The sum of one tensor over an axis. The axis is removed."""

    takes = 1
    axis: int = 0

    def spec(self, specs: Sequence[TensorSpec]) -> TensorSpec:
        _numbers(specs)
        axis = _axis(self.axis, len(specs[0].shape), specs[0])
        return replace(specs[0], shape=specs[0].shape[:axis] + specs[0].shape[axis + 1 :])

    def divisor(self, count: int) -> int:
        """Return the divisor for the sum of `count` elements."""
        return 1

    def apply(self, arrays: Sequence[Array]) -> Array:
        array = _wide(arrays[0])
        total = array.sum(self.axis, array.dtype) if _is_float(array) else _total(array, self.axis)
        divisor = self.divisor(array.shape[self.axis])
        return np.asarray(total if divisor == 1 else total / array.dtype.type(divisor)).astype(
            arrays[0].dtype, copy=False
        )

    def pull(self, arrays: Sequence[Array], sens: Array) -> list[Array]:
        divisor = self.divisor(arrays[0].shape[self.axis])
        whole = np.expand_dims(sens if divisor == 1 else sens / divisor, self.axis)
        return [np.broadcast_to(whole, arrays[0].shape)]

    def keeps_rows(self, specs: Sequence[TensorSpec]) -> bool:
        return self.axis % len(specs[0].shape) != 0


@frozen
class MeanOver(SumOver):
    """The mean of one tensor over an axis. The axis is removed."""

    def spec(self, specs: Sequence[TensorSpec]) -> TensorSpec:
        if specs[0].datatype.kind is not Kind.FLOAT:
            raise GraphError(f"a mean needs floats, got {_shown(specs[0])}; `cast` it")
        return SumOver.spec(self, specs)

    def divisor(self, count: int) -> int:
        return count


def _total(array: Array, axis: int) -> Array:
    """Return the sum of integers over an axis. Raise GraphError if the sum exceeds the range of their datatype."""
    wide = np.int64 if array.dtype.kind == "i" else np.uint64
    # Python integers are exact but slow, so use them only for sums that, computed with doubles, are near the bounds.
    if np.abs(array.astype(np.float64)).sum(axis).max(initial=0) < _EXACT_IN_64_BITS:
        total = np.asarray(array.sum(axis, wide))
    else:
        total = np.asarray(array.astype(object).sum(axis), object)
    bounds = np.iinfo(array.dtype)
    if np.any((total < bounds.min) | (total > bounds.max)):
        raise GraphError(f"a sum is out of the range of {datatype_of(array.dtype).value}; `cast` the tensor first")
    return total.astype(array.dtype)


_EXACT_IN_64_BITS = 2.0**62
"""If the sum of the integers' absolute values, computed as a double, is below this value, the exact sum of the integers
fits in 64 bits, signed or unsigned."""


@frozen
class Vote(Transform):
    """The most frequent value among the tensors, element by element. In a tie, the value that comes first wins."""

    has_derivative = False
    is_elementwise = True

    def spec(self, specs: Sequence[TensorSpec]) -> TensorSpec:
        return TensorSpec("", _same_datatype(specs), _same_shape(specs))

    def apply(self, arrays: Sequence[Array]) -> Array:
        stacked = np.stack(arrays)
        votes = np.array([(stacked == each).sum(0) for each in arrays])
        winners: Array = np.take_along_axis(stacked, votes.argmax(0)[np.newaxis], 0)[0]
        return winners


@frozen
class Argmax(Transform):
    """The position of the largest element along an axis, as INT64. The axis is removed."""

    takes = 1
    has_derivative = False
    axis: int = -1

    def spec(self, specs: Sequence[TensorSpec]) -> TensorSpec:
        _numbers(specs)
        axis = _axis(self.axis, len(specs[0].shape), specs[0])
        if specs[0].shape[axis] == 0:
            raise GraphError(f"{_shown(specs[0])} has no largest element along axis {self.axis}", "axis")
        return TensorSpec("", Datatype.INT64, specs[0].shape[:axis] + specs[0].shape[axis + 1 :])

    def apply(self, arrays: Sequence[Array]) -> Array:
        positions: Array = arrays[0].argmax(self.axis)
        return positions.astype(np.int64)


def _integer(value: object, name: str) -> int:
    if type(value) is not int:
        raise GraphError(f"expected an integer, got {value!r}", name)
    return value


def _sizes(value: object, name: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(each) is int and each >= -1 for each in value):
        raise GraphError(f"expected a list of sizes, such as [-1, 4], got {value!r}", name)
    if value.count(-1) > 1 or len(value) > MAX_RANK:
        raise GraphError(f"expected at most {MAX_RANK} sizes, at most one of them -1, got {value!r}", name)
    return tuple(value)


def _datatype(value: object, name: str) -> Datatype:
    found = DATATYPES.get(value) if isinstance(value, str) else None
    if found is None:
        meant = meant_by(value) if isinstance(value, str) else None
        hint = f"; did you mean {meant.value}?" if meant else f", expected one of {', '.join(DATATYPES)}"
        raise GraphError(f"no datatype {value!r}{hint}", name)
    return found


def _factors(value: object, name: str) -> tuple[float, ...]:
    if not isinstance(value, list) or not value or not all(type(each) in (int, float) for each in value):
        raise GraphError(f"expected a list of numbers, got {value!r}", name)
    if not np.isfinite(value).all() or sum(value) == 0:
        raise GraphError("weights must be finite, and their sum not 0", name)
    return tuple(map(float, value))


def _made(kind: type[Transform], **read: Callable[[object, str], Any]) -> Callable[[Mapping[str, object]], Transform]:
    """Return a function that creates a transform from its options.

    `read` contains a parser for each option, by the option's name in YAML."""

    def make(options: Mapping[str, object]) -> Transform:
        for name in options:
            if name not in read:
                raise GraphError(f"no option {name!r}; expected {', '.join(read) or 'none'}", name)
        found = {_ARGUMENTS.get(name, name): read[name](value, name) for name, value in options.items()}
        try:
            return kind(**found)
        except TypeError as error:
            missing = [name for name in read if name not in options]
            raise GraphError(f"needs {', '.join(missing)}") from error

    return make


_ARGUMENTS = {"from": "begin", "to": "end"}


def _of_list_or_axis(
    of_list: Callable[[Mapping[str, object]], Transform], over_axis: Callable[[Mapping[str, object]], Transform]
) -> Callable[[Mapping[str, object]], Transform]:
    return lambda options: (over_axis if "axis" in options else of_list)(options)


TRANSFORMS: Mapping[str, Callable[[Mapping[str, object]], Transform]] = {
    "reshape": _made(Reshape, shape=_sizes),
    "cast": _made(Cast, datatype=_datatype),
    "concat": _made(Concat, axis=_integer),
    "stack": _made(Stack, axis=_integer),
    "slice": _made(Slice, axis=_integer, **{"from": _integer, "to": _integer}),
    "split": _made(EqualPart, parts=_integer, part=_integer, axis=_integer),
    "sum": _of_list_or_axis(_made(Sum, weights=_factors), _made(SumOver, axis=_integer)),
    "mean": _of_list_or_axis(_made(Mean, weights=_factors), _made(MeanOver, axis=_integer)),
    "vote": _made(Vote),
    "argmax": _made(Argmax, axis=_integer),
}
"""The functions that create a transform from its options, by the name in YAML. They raise GraphError for unknown
options.
"""
