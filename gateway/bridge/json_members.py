"""Converts requests and responses whose tensors are members of one JSON object (V2's generate extension).

This module does no I/O.

The object does not distinguish tensors from parameters, and contains no datatypes and shapes. The codec reads lists as
tensors and all other members as parameters, and marks the message `schemaless`. This module then applies the model's
signature: a parameter with the name of an input becomes that input, a flat list gets the shape in the specification,
and a nested list keeps its shape.
"""

from collections.abc import Sequence

import numpy as np

from gateway.bridge import datatypes, names, shapes
from gateway.bridge.settings import RouteSettings
from gateway.core.errors import DecodeError, unsupported
from gateway.core.frozen import replace
from gateway.core.models import Signature, TensorSpec
from gateway.core.requests import Request, RequestedOutput, Response
from gateway.core.tensors import Parameters, ParameterValue, Shape, Tensor, tensor


def resolve_inputs(request: Request, signature: Signature, settings: RouteSettings) -> Request:
    """Convert the inputs of a schemaless request according to the signature.

    Lists with unknown names remain inputs, and later cause the same error as any unknown input.

    Raises:
        DecodeError: the length of a list does not match the signature.
        GatewayError: UNIMPLEMENTED if the model's inputs are unknown.
    """
    if not signature.inputs:
        text = (
            f"model {request.model!r}: its inputs are unknown, so the gateway cannot assign the request's JSON members"
        )
        raise unsupported(f"{text}; declare them by `signature` on the route")
    specs = dict(names.inputs_of(signature, settings))
    scalars = _scalars(request.parameters, specs)
    inputs = [_fitted(each, specs, settings) for each in (*request.inputs, *scalars)]
    taken = {*specs, *settings.drop}
    parameters = {key: each for key, each in request.parameters.items() if key not in taken}
    return replace(request, inputs=tuple(inputs), parameters=parameters, schemaless=False)


def _scalars(parameters: Parameters, specs: dict[str, TensorSpec]) -> list[Tensor]:
    return [_scalar(name, parameters[name]) for name in specs if name in parameters]


def _scalar(name: str, given: ParameterValue) -> Tensor:
    return replace(tensor(name, np.array(given, object if isinstance(given, str) else None)), untyped=True)


def _fitted(given: Tensor, specs: dict[str, TensorSpec], settings: RouteSettings) -> Tensor:
    spec = specs.get(given.name)
    if spec is None:
        return given
    if not given.elements:
        given = replace(given, datatype=spec.datatype)  # an empty JSON list does not show a datatype
    if settings.images and any(image.name == spec.name for image in settings.images.inputs):
        return replace(given, shape=(given.elements,))  # each element is one file, for pixels of any shape
    return replace(given, shape=_shape(given, spec.shape, f"input {given.name!r}"))


def _shape(given: Tensor, wanted: Shape, what: str) -> Shape:
    """Return the shape of a list.

    A nested list keeps its shape, or becomes the only row of a batch. A flat list gets the shape `wanted`."""
    shape = given.shape
    if shapes.is_lone_row(shape, wanted):
        return (1, *shape)
    if len(shape) > 1 or shapes.matches(shape, wanted):
        return shape
    return _filled(wanted, given.elements, what)


def _filled(wanted: Shape, elements: int, what: str) -> Shape:
    # If the batch dimension and another one are free, the batch has one row, as in Triton.
    if wanted.count(-1) > 1 and shapes.is_batch(wanted):
        return (1, *shapes.fill(wanted[1:], elements, what))
    return shapes.fill(wanted, elements, what)


def resolve_outputs(response: Response, signature: Signature, requested: Sequence[RequestedOutput]) -> Response:
    """Convert the outputs of a schemaless response to the datatypes and shapes in the signature. The result contains
    the requested outputs in the requested order, or all outputs in the signature's order.

    Raises:
        DecodeError: a list is not an output of the model or does not match the output, or a requested output is
            missing.
    """
    specs = {spec.name: spec for spec in signature.outputs}
    given = {each.name: each for each in (*response.outputs, *_scalars(response.parameters, specs))}
    for name in given:
        if name not in specs:
            raise names.unknown_output(name, list(specs))
    wanted = [output.name for output in requested] or [name for name in specs if name in given]
    for name in wanted:
        if name not in given:
            raise DecodeError(f"output {name!r} is missing; the reply has {', '.join(map(repr, given)) or 'none'}")
    parameters = {key: each for key, each in response.parameters.items() if key not in specs}
    outputs = tuple(_typed(given[name], specs[name]) for name in wanted)
    return replace(response, outputs=outputs, parameters=parameters, schemaless=False)


def _typed(given: Tensor, spec: TensorSpec) -> Tensor:
    what = f"output {spec.name!r}"
    shape = _filled(spec.shape, given.elements, what)
    if not given.elements:
        return Tensor(spec.name, spec.datatype, shape, b"")
    return Tensor(spec.name, spec.datatype, shape, datatypes.fit(given, spec.datatype, what, "refuse"))
