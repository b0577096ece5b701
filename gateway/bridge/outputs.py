"""A backend's outputs as the client reads them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from gateway.bridge import datatypes, names, shapes
from gateway.bridge.inputs import Fitted
from gateway.bridge.settings import RouteSettings
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.protocol import Traits
from gateway.core.types import CLASSIFICATION, RequestedOutput, Signature, Tensor, TensorSpec

if TYPE_CHECKING:
    from gateway.bridge.images import ImageOutput


def fit_outputs(
    outputs: Sequence[Tensor],
    asked: Sequence[RequestedOutput],
    signature: Signature,
    fitted: Fitted,
    settings: RouteSettings,
    client: Traits,
    upstream: Traits,
) -> list[Tensor]:
    """A backend's outputs, named and typed by `signature`, in the shape that the client expects for what it sent.
    `asked` are the outputs that the backend was asked for; none: all. Where nobody knows the signature, numbers that
    came without a datatype are what the backend's protocol says (`numbers`).

    Raises:
        DecodeError: the backend's outputs are not what it declared.
    """
    if not signature.outputs:
        given = [_unfitted(tensor, client, upstream.numbers) for tensor in _named(outputs, asked, settings, client)]
    else:
        classified = {each.name for each in asked if CLASSIFICATION in each.parameters} if asked else ()
        given = [
            _classes(tensor, spec, fitted)
            if spec.name in classified and tensor.datatype is Datatype.BYTES
            else _fit(tensor, spec, fitted, settings, client)
            for tensor, spec in paired(outputs, asked, signature)
        ]
    return _encoded(given, settings.image_outputs) if settings.image_outputs else given


def _named(
    outputs: Sequence[Tensor], asked: Sequence[RequestedOutput], settings: RouteSettings, client: Traits
) -> Iterable[Tensor]:
    """Outputs by position where nobody declares them; one without a name keeps none if neither the client nor the route
    needs it."""
    if client.positional and not (asked or settings.select or settings.rename.outputs or settings.image_outputs):
        return outputs
    return names.by_position(outputs, [output.name for output in asked], "output")


def _encoded(given: list[Tensor], images: "Mapping[str, ImageOutput]") -> list[Tensor]:
    return [
        images[tensor.name].encode(tensor, f"output {tensor.name!r}") if tensor.name in images else tensor
        for tensor in given
    ]


def paired(
    outputs: Sequence[Tensor], asked: Sequence[RequestedOutput], signature: Signature
) -> list[tuple[Tensor, TensorSpec]]:
    """Each output with its specification: by name, or by position where it has none.

    Some servers (MLServer, some models of KServe) ignore which outputs they were asked for: where all outputs have
    names, those that nobody asked for are left out.

    Raises:
        DecodeError: outputs that were not declared, one that was asked for and is not there, or another number of
            outputs without names than asked for.
    """
    specs = {spec.name: spec for spec in signature.outputs}
    order = [output.name for output in asked] or list(specs)
    if asked and all(tensor.name for tensor in outputs):
        outputs = names.picked(outputs, order)
    if len(outputs) != len(order):
        text = "1 output" if len(outputs) == 1 else f"{len(outputs)} outputs"
        raise DecodeError(f"{text}, expected {len(order)}: {', '.join(map(repr, order))}")
    pairs = []
    for tensor, place in zip(outputs, order, strict=True):
        name = tensor.name or place
        if name not in specs:
            raise names.unknown_output(name, list(specs))
        pairs.append((tensor, specs[name]))
    return pairs


def _fit(tensor: Tensor, spec: TensorSpec, fitted: Fitted, settings: RouteSettings, client: Traits) -> Tensor:
    what = f"output {spec.name!r}"
    shape = shapes.of_scalars(tensor, spec.shape)
    if not shapes.matches(shape, spec.shape):
        raise DecodeError(f"{what} has shape {list(shape)}, expected {list(spec.shape)}")
    if shapes.is_batch(spec.shape):
        if fitted.rows is not None and shape[0] != fitted.rows:
            raise DecodeError(f"{what} has {shape[0]} rows for the {fitted.rows} that were sent")
        shape = shapes.without_batch(shape, what) if fitted.lone else shape
    if client.points and len(shape) != 1:
        shape = (prod(shape),)
    data = datatypes.fit(tensor, spec.datatype, what, settings.cast)
    content_type = spec.content_type or tensor.content_type
    return Tensor(spec.name, spec.datatype, shape, data, content_type, tensor.parameters)


def _classes(tensor: Tensor, spec: TensorSpec, fitted: Fitted) -> Tensor:
    """The best classes of an output, which are texts and not what the signature says of it."""
    of_rows = shapes.is_batch(spec.shape) and len(tensor.shape) > 1
    shape = shapes.without_batch(tensor.shape, f"output {spec.name!r}") if fitted.lone and of_rows else tensor.shape
    return replace(tensor, name=spec.name, shape=shape)


def _unfitted(tensor: Tensor, client: Traits, numbers: Datatype | None) -> Tensor:
    if tensor.untyped and numbers is not None:
        tensor = datatypes.typed(tensor, numbers, f"output {tensor.name!r}")
    shape = (tensor.elements,) if client.points else tensor.shape
    return Tensor(tensor.name, tensor.datatype, shape, tensor.data, tensor.content_type, tensor.parameters)


def carried(tensors: Sequence[Tensor], protocol: str, traits: Traits) -> tuple[Tensor, ...]:
    """Tensors in datatypes that a protocol's wire has.

    Raises:
        DecodeError: a datatype that has no exact form there.
    """
    if len(traits.datatypes) == len(Datatype):
        return tuple(tensors)
    return tuple(
        datatypes.carry(tensor, traits.datatypes, f"tensor {tensor.name or at!r}", protocol)
        for at, tensor in enumerate(tensors)
    )
