"""Sort a request's tensors into the order that the model expects, and check them against the model's Signature."""

from collections.abc import Sequence

import numpy as np

from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError, invalid_input
from gateway.core.models import Signature, TensorSpec, is_batch
from gateway.core.operations import DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.requests import Request
from gateway.core.tensors import Tensor
from gateway.reference.model import Argument, Arguments, describe


def arrange(request: Request, signature: Signature) -> Arguments:
    """Return the inputs in the order of `signature`, followed by the tensors that a derivative adds, in the order of
    DERIVATIVES.

    If the Signature has no inputs, accept any tensors, and keep the request's order.

    Raises:
        GatewayError: INVALID_ARGUMENT if a tensor is missing, is unknown, occurs twice, does not match the Signature's
            datatype or shape, has a different number of rows, or is an out-of-range position. The message contains the
            tensor's name.
    """
    given = {tensor.name: tensor for tensor in request.inputs}
    if len(given) != len(request.inputs):
        raise _duplicate_input(request.inputs, signature)
    if not signature.inputs:
        return request.inputs
    inputs = [_remove(given, spec, signature) for spec in signature.inputs]
    arguments: list[Argument] = [*inputs]
    if request.operation in DERIVATIVES:
        arguments += _remove_derivative(request.operation, given, inputs, signature)
    if given:
        raise _unknown_input(given, request.operation, signature)
    if len(arguments) > 1:
        _check_rows(arguments, inputs, signature)
    return tuple(arguments)


def _remove(given: dict[str, Tensor], spec: TensorSpec, signature: Signature) -> Tensor:
    """Remove the tensor described by `spec` from `given`, and return it."""
    tensor = given.pop(spec.name, None)
    if tensor is None:
        expected = describe(spec.datatype, spec.shape)
        raise invalid_input(f"input {spec.name!r} of model {signature.name!r} is missing; expected {expected}")
    if tensor.datatype is spec.datatype and fits(tensor.shape, spec.shape):
        return tensor
    got, expected = describe(tensor.datatype, tensor.shape), describe(spec.datatype, spec.shape)
    raise invalid_input(f"input {spec.name!r} of model {signature.name!r} is {got}; expected {expected}")


def fits(shape: Sequence[int], declared: Sequence[int]) -> bool:
    """Return True if `shape` has the rank and the sizes of `declared`, where -1 means any size."""
    return len(shape) == len(declared) and all(
        size == expected or expected == -1 for size, expected in zip(shape, declared, strict=True)
    )


def _remove_derivative(
    operation: Operation, given: dict[str, Tensor], inputs: list[Tensor], signature: Signature
) -> list[Argument]:
    names = DERIVATIVES[operation]
    positions = {name: _position(given.pop(name, None), name, signature) for name in names if name in INDEX_TENSORS}
    # ApplyHessian has two input positions; `vec` has the shape of the second input
    applied_to = inputs[positions.get("in_wrt2", positions.get("in_wrt", 0))]
    vectors = {
        "sens": TensorSpec("sens", Datatype.FP64, signature.outputs[positions["out_wrt"]].shape),
        "vec": TensorSpec("vec", Datatype.FP64, applied_to.shape),
    }
    return [positions[name] if name in positions else _remove(given, vectors[name], signature) for name in names]


def _position(tensor: Tensor | None, name: str, signature: Signature) -> int:
    """Return the position in an index tensor, which is an INT64 tensor of shape `[1]`, or of shape `[B,1]` with the
    same value in every row. The position is 0 if the tensor is missing or empty."""
    if tensor is None or tensor.elements == 0:
        return 0
    if tensor.datatype is not Datatype.INT64:
        raise invalid_input(f"{name} of model {signature.name!r} is {tensor.datatype}; expected INT64")
    values = np.unique(tensor.array).tolist()
    if len(values) > 1:
        raise invalid_input(f"{name} of model {signature.name!r} differs between rows ({values[0]} and {values[1]})")
    count = len(signature.outputs if name == "out_wrt" else signature.inputs)
    if not 0 <= values[0] < count:
        raise invalid_input(f"{name} of model {signature.name!r} is {values[0]}; expected 0 to {count - 1}")
    return int(values[0])


def _check_rows(arguments: list[Argument], inputs: list[Tensor], signature: Signature) -> None:
    """Raise GatewayError if batched tensors have different numbers of rows.

    `sens` and `vec` are batched if an input is batched."""
    batched = [tensor for tensor, spec in zip(inputs, signature.inputs, strict=True) if is_batch(spec.shape)]
    if not batched:
        return
    vectors = [item for item in arguments[len(inputs) :] if isinstance(item, Tensor)]
    rows = {tensor.name: tensor.shape[0] for tensor in [*batched, *vectors] if tensor.shape}
    if len(set(rows.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in rows.items())
        raise invalid_input(f"model {signature.name!r} needs inputs with the same number of rows: {listed}")


def _duplicate_input(inputs: Sequence[Tensor], signature: Signature) -> GatewayError:
    names = [tensor.name for tensor in inputs]
    twice = next(name for name in names if names.count(name) > 1)
    return invalid_input(f"input {twice!r} of model {signature.name!r} occurs twice; send it once")


def _unknown_input(left: dict[str, Tensor], operation: Operation, signature: Signature) -> GatewayError:
    expected = ", ".join([*(spec.name for spec in signature.inputs), *DERIVATIVES.get(operation, ())])
    return invalid_input(f"model {signature.name!r} has no input {next(iter(left))!r}; its inputs are {expected}")
