"""Conversion of Python values to tensors, and of tensors to numpy arrays.

A value with a `dtype` (numpy arrays and scalars, CPU tensors of other libraries) keeps its datatype. The bridge
converts the value if the model's datatype can represent every value of its datatype, and otherwise rejects it. Python
numbers, lists and tuples have no datatype, as in JSON. An integer gets the model's datatype if that datatype can
represent it. A number with a fraction is rounded to the model's float type.

BYTES tensors are arrays of objects: `bytes`, or `str`, which the client sends as UTF-8. BF16 corresponds to
`ml_dtypes.bfloat16` in both directions; a uint16 array is UINT16, never BF16.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from gateway.core.datatypes import NUMBERS
from gateway.core.errors import invalid_input
from gateway.core.frozen import replace
from gateway.core.html_tables import html_table
from gateway.core.json import write
from gateway.core.requests import Response
from gateway.core.tensors import MAX_RANK, Parameters, ParameterValue, Tensor
from gateway.core.tensors import tensor as make_tensor

Array: TypeAlias = "np.ndarray[Any, Any]"


class Outputs(dict[str, Array]):
    """The outputs of one inference: arrays by name, in the server's order. The arrays are writable.

    `model` and `version` name the model that responded (`version` is empty if the server does not report it). `id` is
    the request's id. `parameters` contains the response's parameters."""

    def __init__(self, arrays: Mapping[str, Array], response: Response) -> None:
        super().__init__(arrays)
        self.model = response.model
        self.version = response.version
        self.id = response.id
        self.parameters: dict[str, ParameterValue] = dict(response.parameters)

    def _repr_html_(self) -> str:
        """Return the HTML that notebooks show: a row for each output, with the first and the last values."""
        rows = [[name, str(each.dtype), ", ".join(map(str, each.shape)), brief(each)] for name, each in self.items()]
        told = " ".join(filter(None, (self.model, self.version and f"version {self.version}")))
        return html_table(["output", "dtype", "shape", "values"], rows, told)


def brief(array: Array) -> str:
    """Return the values of an array in one short line."""
    return np.array2string(array, threshold=6, edgeitems=3, precision=6, separator=" ").replace("\n", "")


def as_tensor(name: str, value: object, position: int | None = None) -> Tensor:
    """Return the Tensor with this value. Error messages refer to the value by name, or by its position among the
    unnamed inputs.

    Raises:
        GatewayError: INVALID_ARGUMENT if no datatype can represent the value, lists have different lengths, or the
            value has more than MAX_RANK dimensions.
    """
    what = f"input {name!r}" if name else "an input" if position is None else f"the input at position {position}"
    array, is_plain = read_value(value, what)
    try:
        found = make_tensor(name, array)
    except (TypeError, ValueError) as error:
        raise invalid_input(f"{what}: {error}") from error
    return replace(found, untyped=True) if is_plain and found.datatype in NUMBERS else found


def read_value(value: object, what: str) -> tuple[Array, bool]:
    """Return a value as an array, and True if its numbers have no datatype because they are Python numbers.

    Error messages refer to the value as `what`.

    Raises:
        GatewayError: in the same cases as `as_tensor`.
    """
    if isinstance(value, Mapping):
        raise invalid_input(
            f"{what} is a mapping, expected an array; `inputs={{...}}` gives inputs by name,"
            ' `parameters={"config": {...}}` a config'
        )
    try:
        array = _as_numpy(value)
        if array.dtype.kind in "SU" and not hasattr(value, "dtype"):
            array = np.asarray(value, object)  # numpy's own string types drop trailing NULs
        if array.ndim > MAX_RANK:
            raise ValueError(f"it has {array.ndim} dimensions, expected at most {MAX_RANK}")
        if array.dtype.kind == "V" and array.dtype.names is not None:
            raise TypeError(f"numpy dtype {array.dtype} has no datatype; pass each field as a separate input")
        if array.dtype.kind == "O":
            _check_texts(array)
    except (TypeError, ValueError) as error:
        raise invalid_input(f"{what}: {error}") from error
    return array, not hasattr(value, "dtype") and not _holds_typed(value)


def _as_numpy(value: object) -> Array:
    try:
        return np.asarray(value)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ValueError(
            "its rows have different lengths; pass each input as a separate argument: [1, 2], [1, 2, 3]"
        ) from error


def _check_texts(array: Array) -> None:
    """Raise TypeError if an array of objects contains anything except `str` and `bytes`, such as None among numbers."""
    found = {type(each) for each in array.flat}
    others = sorted(kind.__name__ for kind in found if not issubclass(kind, str | bytes | bytearray | memoryview))
    if others:
        texts = sorted(kind.__name__ for kind in found if kind.__name__ not in others)
        raise TypeError(f"it holds {' and '.join([*others, *texts])}; expected only numbers, or only str and bytes")


def _holds_typed(value: object) -> bool:
    """Return True if a list contains arrays or scalars that have a datatype.

    This datatype then applies to the entire list."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return hasattr(value, "dtype")


def as_tensors(positional: Iterable[object], named: Mapping[str, object]) -> tuple[Tensor, ...]:
    """Return tensors for the `positional` values, which have no names, and for the `named` values."""
    return (
        *(as_tensor("", value, at) for at, value in enumerate(positional)),
        *(as_tensor(*each) for each in named.items()),
    )


def as_array(tensor: Tensor) -> Array:
    """Return the elements of `tensor` as a writable array, copied only if the received buffer is read-only."""
    array = tensor.array
    return array if array.flags.writeable else array.copy()


def as_outputs(response: Response) -> Outputs:
    """Return the outputs of `response` as arrays."""
    return Outputs({each.name: as_array(each) for each in response.outputs}, response)


def as_parameters(parameters: Mapping[str, object] | None) -> Parameters:
    """Return the parameters of a request. A mapping or a list becomes JSON text, like UM-Bridge's `config`.

    Raises:
        GatewayError: INVALID_ARGUMENT if a value is not a bool, int, float, str, mapping or list.
    """
    return {name: _as_parameter(name, value) for name, value in (parameters or {}).items()}


def _as_parameter(name: str, value: object) -> ParameterValue:
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return _as_parameter(name, value.item())
    if isinstance(value, dict | list | tuple):
        try:
            return write(value).decode()
        except (TypeError, ValueError) as error:
            raise invalid_input(f"parameter {name!r}: {error}") from error
    expected = "a bool, int, float, str, dict or list"
    raise invalid_input(f"parameter {name!r} is {type(value).__name__}, expected {expected}")
