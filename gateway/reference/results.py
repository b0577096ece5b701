"""Convert the results of a Python callable to Tensors, and check them against its declaration."""

from typing import Any, TypeAlias

import numpy as np

from gateway.core.casting import cast
from gateway.core.datatypes import WIDENINGS, Datatype
from gateway.core.errors import DecodeError, invalid_output
from gateway.core.models import Signature, TensorSpec, is_batch
from gateway.core.operations import Operation
from gateway.core.tensors import Shape, Tensor, datatype_of, tensor
from gateway.reference.arguments import fits
from gateway.reference.model import DERIVATIVE_OUTPUTS, Arguments, Outputs, Specs, describe

Array: TypeAlias = "np.ndarray[Any, Any]"


def tensors(results: object, expected: Specs, model: str) -> Outputs:
    """Return the Tensors of `results`, which is one array-like value or a tuple of array-like values.

    The data is copied, because a model might reuse its arrays. If `expected` is None, the tensors get the names
    `output0`, `output1`, ... and keep their own datatypes and shapes.

    An array is accepted if the expected datatype can represent every value of the array's datatype. Python numbers are
    accepted if the expected datatype can represent these numbers.

    Raises:
        GatewayError: INTERNAL (invalid-output) for a wrong number of outputs, or an output with a wrong datatype or
            shape. The message says which output.
    """
    values = results if isinstance(results, tuple) else (results,)
    if not expected:
        return tuple(_undeclared_tensor(result, f"output{at}", model) for at, result in enumerate(values))
    if len(values) != len(expected):
        names = ", ".join(spec.name for spec in expected)
        raise invalid_output(f"model {model!r} returned {len(values)} outputs; expected {len(expected)}: {names}")
    return tuple(_declared_tensor(result, spec, model) for result, spec in zip(values, expected, strict=True))


def expected_outputs(operation: Operation, arguments: Arguments, signature: Signature) -> Specs:
    """Return the outputs that `operation` must return for `arguments`, with as many rows as the arguments."""
    rows = _rows(arguments, signature)
    if operation is Operation.INFER:
        return tuple(TensorSpec(spec.name, spec.datatype, _with_rows(rows, spec.shape)) for spec in signature.outputs)
    [output] = DERIVATIVE_OUTPUTS
    out_wrt, in_wrt = arguments[len(signature.inputs) :][:2]
    assert isinstance(out_wrt, int)
    assert isinstance(in_wrt, int)
    if operation is Operation.APPLY_JACOBIAN:
        return (TensorSpec(output.name, output.datatype, _with_rows(rows, signature.outputs[out_wrt].shape)),)
    input_ = arguments[in_wrt]
    assert isinstance(input_, Tensor)
    return (TensorSpec(output.name, output.datatype, input_.shape),)


def _rows(arguments: Arguments, signature: Signature) -> int:
    """Return the number of rows of the batched inputs, or -1 if there are none."""
    pairs = zip(arguments, signature.inputs, strict=False)  # the arguments of a derivative follow the inputs
    return next((item.shape[0] for item, spec in pairs if isinstance(item, Tensor) and is_batch(spec.shape)), -1)


def _with_rows(rows: int, shape: Shape) -> Shape:
    return (rows, *shape[1:]) if is_batch(shape) else shape


def _undeclared_tensor(result: object, name: str, model: str) -> Tensor:
    array = _array(result, name, model)
    if array.dtype.kind in "SU":
        array = _array(result, name, model, object)
    datatype = _datatype(array, name, model)
    _check_elements(array, datatype, name, model)
    return tensor(name, array, datatype)


def _declared_tensor(result: object, spec: TensorSpec, model: str) -> Tensor:
    array = _array(result, spec.name, model, object if spec.datatype is Datatype.BYTES else None)
    if not fits(array.shape, spec.shape):
        got, expected = list(array.shape), list(spec.shape)
        raise invalid_output(f"output {spec.name!r} of model {model!r} has shape {got}; expected {expected}")
    _check_elements(array, spec.datatype, spec.name, model)
    if hasattr(result, "dtype"):
        _check_datatype(array, spec, model)
    else:
        array = _from_python(array, spec, model)
    return tensor(spec.name, array, spec.datatype)


def _array(result: object, name: str, model: str, dtype: type | None = None) -> Array:
    """Return a copy of `result` as an array.

    Text needs the dtype `object`, because numpy's own string types drop trailing NULs."""
    try:
        return np.array(result, dtype)
    except Exception as error:  # ragged lists, and any exception of an object's own __array__
        raise invalid_output(f"output {name!r} of model {model!r} is not an array: {error}") from error


def _datatype(array: Array, name: str, model: str) -> Datatype:
    try:
        return datatype_of(array.dtype)
    except TypeError as error:
        raise invalid_output(f"output {name!r} of model {model!r}: {error}") from error


def _check_datatype(array: Array, spec: TensorSpec, model: str) -> None:
    """Raise GatewayError unless the expected datatype is the array's own or can represent every value of the array's
    datatype."""
    datatype = _datatype(array, spec.name, model)
    if spec.datatype not in WIDENINGS[datatype]:
        raise invalid_output(
            f"output {spec.name!r} of model {model!r} is {describe(datatype, array.shape)}; expected {spec.datatype}, "
            f"which cannot represent every {datatype}: convert it in the model"
        )


def _from_python(array: Array, spec: TensorSpec, model: str) -> Array:
    """Convert Python numbers to the expected datatype. Python numbers have no datatype, so each value is checked."""
    if array.dtype.name in ("int64", "uint64", "float64"):
        try:
            return cast(array, spec.datatype, f"output {spec.name!r} of model {model!r}")
        except DecodeError as error:
            raise invalid_output(str(error)) from error
    _check_datatype(array, spec, model)
    return array


def _check_elements(array: Array, datatype: Datatype, name: str, model: str) -> None:
    """Raise GatewayError if an element of an object array is neither `str` nor `bytes`."""
    if array.dtype.kind != "O":
        return
    wrong = next((type(item).__name__ for item in array.flat if not isinstance(item, str | bytes)), "")
    if wrong:
        expected = "str or bytes" if datatype is Datatype.BYTES else datatype
        raise invalid_output(f"output {name!r} of model {model!r} holds a {wrong}; expected {expected}")
