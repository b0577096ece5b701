"""Members of one JSON object as tensors: the signature tells which of them are, of what datatype and shape. Pure."""

from collections.abc import Sequence

import numpy as np

from gateway.bridge import datatypes, names, shapes
from gateway.bridge.settings import RouteSettings
from gateway.core.errors import DecodeError, unsupported
from gateway.core.frozen import replace
from gateway.core.types import (
    Parameters,
    ParameterValue,
    Request,
    RequestedOutput,
    Response,
    Shape,
    Signature,
    Tensor,
    TensorSpec,
    tensor,
)


def told_apart(request: Request, signature: Signature, settings: RouteSettings) -> Request:
    """A schemaless request with its scalars that are inputs among the inputs, and a flat list in the shape that the
    signature has for it. Lists that it does not know stay among the inputs, which refuses them.

    Raises:
        DecodeError: a list whose length does not fit.
        GatewayError: UNIMPLEMENTED, nobody tells the model's inputs.
    """
    if not signature.inputs:
        text = f"model {request.model!r}: nothing tells which members of the request are its inputs"
        raise unsupported(f"{text}; `signature` on the route would")
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
        given = replace(given, datatype=spec.datatype)  # an empty list has no datatype
    if spec.name in settings.image_inputs:
        return replace(given, shape=(given.elements,))  # files, whatever shape their pixels will have
    return replace(given, shape=_shape(given, spec.shape, f"input {given.name!r}"))


def _shape(given: Tensor, wanted: Shape, what: str) -> Shape:
    """Of a nested list its own, perhaps as the one row of a batch; of a flat one what the signature makes of it."""
    shape = given.shape
    if shapes.is_lone_row(shape, wanted):
        return (1, *shape)
    if len(shape) > 1 or shapes.matches(shape, wanted):
        return shape
    return _filled(wanted, given.elements, what)


def _filled(wanted: Shape, elements: int, what: str) -> Shape:
    # of several free dimensions the batch is the one that a server leaves at 1, as Triton does
    if wanted.count(-1) > 1 and shapes.is_batch(wanted):
        return (1, *shapes.fill(wanted[1:], elements, what))
    return shapes.fill(wanted, elements, what)


def outputs_told_apart(response: Response, signature: Signature, asked: Sequence[RequestedOutput]) -> Response:
    """A schemaless response with its outputs typed and shaped by the signature; those that were asked for, in that
    order, else those that are there, in the signature's.

    Raises:
        DecodeError: a list that is no output or does not fit, or an output that is missing.
    """
    specs = {spec.name: spec for spec in signature.outputs}
    given = {each.name: each for each in (*response.outputs, *_scalars(response.parameters, specs))}
    for name in given:
        if name not in specs:
            raise names.unknown_output(name, list(specs))
    wanted = [output.name for output in asked] or [name for name in specs if name in given]
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
