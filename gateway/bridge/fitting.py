"""A client's inputs as the backend takes them, and the backend's outputs as the client reads them. Pure."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gateway.bridge import datatypes, names, shapes
from gateway.bridge.settings import RouteSettings
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.operations import INDEX_TENSORS
from gateway.core.protocol import Traits
from gateway.core.types import RequestedOutput, Signature, Tensor, TensorSpec
from gateway.core.types import tensor as make_tensor
from gateway.core.values import value


@value
class Fitted:
    """Inputs ready for the backend. `rows` is the size of the batch, None without one; `lone`: the client sent one
    point without a batch dimension and wants none back."""

    inputs: tuple[Tensor, ...]
    rows: int | None
    lone: bool


def fit_inputs(
    inputs: Sequence[Tensor], signature: Signature, settings: RouteSettings, client: Traits, backend: Traits
) -> Fitted:
    """Inputs by name, datatype and shape as `signature` says, in its order.

    Raises:
        DecodeError: whatever does not fit, naming the tensor, what it is and what is expected.
    """
    given = names.for_backend(inputs, settings)
    if not signature.inputs:
        return Fitted(names.name_by_position(given, settings.order, "input"), None, client.points)
    given = _named(given, signature, settings)
    vectors = client.points and backend.points
    fitted: list[tuple[Tensor, TensorSpec]] = []
    lone = True
    for tensor, spec in names.pair(_declared(given, signature), signature.inputs, INDEX_TENSORS):
        what = f"input {tensor.name!r}"
        tensor = datatypes.fit(tensor, spec.datatype, what, settings.cast)
        if tensor.name not in INDEX_TENSORS:
            shape = spec.shape[1:] if vectors else spec.shape
            fit_shape = shapes.fit_point if client.points else shapes.fit_input
            tensor, was_lone = fit_shape(tensor, shape, what)
            lone = lone and (was_lone or not shapes.is_batch(shape))
        fitted.append((tensor, spec))
    if vectors:
        return Fitted(_complete(fitted, signature, 1), 1, True)
    rows = shapes.rows_of((tensor, spec) for tensor, spec in fitted if tensor.name not in INDEX_TENSORS)
    return Fitted(_complete(fitted, signature, 1 if rows is None else rows), rows, lone)


def _named(given: Sequence[Tensor], signature: Signature, settings: RouteSettings) -> tuple[Tensor, ...]:
    if all(tensor.name for tensor in given):
        return tuple(given)
    taken = {tensor.name for tensor in given}
    order = settings.order or [spec.name for spec in signature.inputs if spec.name not in taken]
    unnamed = sum(not tensor.name for tensor in given)
    if unnamed != len(order):
        takes = ", ".join(f"{spec.name!r} {list(spec.shape)}" for spec in signature.inputs) or "none"
        raise DecodeError(f"{unnamed} inputs given, expected {len(order)}; the model takes {takes}")
    return names.name_by_position(given, order, "input")


def _declared(given: Sequence[Tensor], signature: Signature) -> list[Tensor]:
    """Without the index tensors that a companion does not declare: it knows one input and one output, number 0."""
    declared = {spec.name for spec in signature.inputs}
    kept = []
    for tensor in given:
        if tensor.name in INDEX_TENSORS and tensor.name not in declared:
            if tensor.array.any():
                raise DecodeError(f"{tensor.name} is not 0, and the model's companion takes no {tensor.name!r}")
            continue
        kept.append(tensor)
    return kept


def _complete(fitted: Sequence[tuple[Tensor, TensorSpec]], signature: Signature, rows: int) -> tuple[Tensor, ...]:
    """The fitted tensors in the signature's order, with every index tensor that it declares: left out they mean 0, and
    one index holds for all rows."""
    if not any(spec.name in INDEX_TENSORS for spec in signature.inputs):
        return tuple(tensor for tensor, _ in fitted)
    there = {spec.name: tensor for tensor, spec in fitted}
    return tuple(
        _index(there.get(spec.name), spec, rows) if spec.name in INDEX_TENSORS else there[spec.name]
        for spec in signature.inputs
    )


def _index(tensor: Tensor | None, spec: TensorSpec, rows: int) -> Tensor:
    if tensor is None:
        tensor = shapes.index(0, spec.name)
    if tensor.elements not in (1, rows):
        raise DecodeError(f"index {spec.name!r} has shape {list(tensor.shape)}, expected [1] or [{rows}, 1]")
    if len(spec.shape) == 1:
        if tensor.elements != 1:
            raise DecodeError(f"index {spec.name!r} has {tensor.elements} elements, the model takes one for all rows")
        return replace(tensor, shape=(1,))
    data = tensor.data if tensor.elements == rows else make_tensor("", np.repeat(tensor.array.reshape(-1), rows)).data
    return replace(tensor, shape=(rows, 1), data=data)


def fit_outputs(
    outputs: Sequence[Tensor],
    asked: Sequence[RequestedOutput],
    signature: Signature,
    fitted: Fitted,
    client: Traits,
) -> list[Tensor]:
    """A backend's outputs, named and typed by `signature`, in the shape that the client expects for what it sent.

    Raises:
        DecodeError: the backend's outputs are not what it declared.
    """
    order = [output.name for output in asked] or [spec.name for spec in signature.outputs]
    if signature.outputs and not asked and len(outputs) != len(signature.outputs):
        raise DecodeError(f"{len(outputs)} outputs, expected {len(signature.outputs)}")
    specs = {spec.name: spec for spec in signature.outputs}
    return [
        _fit_output(tensor, specs.get(tensor.name), fitted, client)
        for tensor in names.name_by_position(outputs, order, "output")
    ]


def _fit_output(tensor: Tensor, spec: TensorSpec | None, fitted: Fitted, client: Traits) -> Tensor:
    what = f"output {tensor.name!r}"
    if spec is not None:
        if tensor.untyped:
            tensor = datatypes.fit(tensor, spec.datatype, what, "refuse")
        if not shapes.matches(tensor.shape, spec.shape):
            raise DecodeError(f"{what} has shape {list(tensor.shape)}, expected {list(spec.shape)}")
        if shapes.is_batch(spec.shape) and fitted.rows is not None and tensor.shape[0] != fitted.rows:
            raise DecodeError(f"{what} has {tensor.shape[0]} rows for the {fitted.rows} that were sent")
    if fitted.lone and (shapes.is_batch(spec.shape) if spec else len(tensor.shape) > 1 and tensor.shape[0] == 1):
        tensor = shapes.without_batch(tensor, what)
    return shapes.as_point(tensor) if client.points else tensor


def check_requested(asked: Sequence[RequestedOutput], signature: Signature) -> None:
    """Refuse outputs that the model does not give.

    Raises:
        DecodeError: naming the output, and those that there are.
    """
    known = [spec.name for spec in signature.outputs]
    for output in asked:
        if known and output.name not in known:
            raise DecodeError(f"unknown output {output.name!r}; the model gives {', '.join(map(repr, known))}")


def carried(tensors: Sequence[Tensor], protocol: str, traits: Traits) -> tuple[Tensor, ...]:
    """Tensors in datatypes that a protocol's wire has.

    Raises:
        DecodeError: a datatype that has no exact form there.
    """
    if len(traits.datatypes) == len(Datatype):
        return tuple(tensors)
    return tuple(datatypes.carry(tensor, traits.datatypes, f"tensor {tensor.name!r}", protocol) for tensor in tensors)
