"""A client's inputs as the backend takes them. Pure."""

from collections.abc import Mapping, Sequence

from gateway.bridge import datatypes, indices, names, shapes
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signatures import is_unknown
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.frozen import frozen, replace
from gateway.core.operations import INDEX_TENSORS
from gateway.core.protocol import Rows, Traits
from gateway.core.types import Shape, Signature, Tensor, TensorSpec
from gateway.core.types import tensor as make_tensor


@frozen
class Fitted:
    """Inputs ready for the backend. `rows` is the size of the batch, None without one; `lone`: the client sent points
    without a batch dimension and wants none back. One input with a batch dimension makes the answer a batch."""

    inputs: tuple[Tensor, ...]
    rows: int | None
    lone: bool


def fit_inputs(
    inputs: Sequence[Tensor],
    signature: Signature,
    settings: RouteSettings,
    client: Traits,
    upstream: Traits,
    limit: int,
) -> Fitted:
    """Inputs by name, datatype and shape as `signature` says, in its order. Where nobody knows it they pass as they
    are. `limit` bounds the bytes of those that are the same in every row, and of pixels that images are decoded to.

    Raises:
        DecodeError: whatever does not fit, naming the tensor, what it is and what is expected.
        GatewayError: RESOURCE_EXHAUSTED, beyond `limit`.
    """
    if is_unknown(signature):
        given = names.as_given(inputs, settings, unnamed=upstream.positional)
        return _as_they_are([_decoded(tensor, settings, limit) for tensor in given], client, upstream.rows)
    wanted = names.inputs_of(signature, settings)
    by_name = names.by_name(indices.declared(inputs, signature), wanted, settings)
    fitted: dict[str, Tensor] = {}
    batched: list[tuple[str, int, bool]] = []
    for name, spec in wanted:
        if spec.name in INDEX_TENSORS:
            continue
        tensor, what = by_name[name], f"input {name!r}"
        if spec.name in settings.image_inputs:
            tensor = settings.image_inputs[spec.name].decode(tensor, len(spec.shape), what, limit)
        shape = _shape(tensor, spec.shape, what, client)
        if spec.datatype not in client.datatypes:
            tensor = datatypes.restored(tensor, spec.datatype, what)
        data = datatypes.fit(tensor, spec.datatype, what, settings.cast)
        content_type = spec.content_type or tensor.content_type
        fitted[spec.name] = Tensor(spec.name, spec.datatype, shape, data, content_type, tensor.parameters)
        if shapes.is_batch(spec.shape):
            batched.append((name, shape[0], shape[1:] == tensor.shape))
    rows = _rows(batched)
    lone = client.points or (client.rows is Rows.FREE and bool(batched) and all(added for *_, added in batched))
    return Fitted(_complete(fitted, by_name, signature, settings, rows, limit), rows, lone)


def _shape(tensor: Tensor, wanted: Shape, what: str, client: Traits) -> Shape:
    if client.points:
        return shapes.fit_point(tensor.shape, wanted, what)
    if client.rows is Rows.FIRST:
        return shapes.fit_rows(shapes.of_scalars(tensor, wanted), wanted, what)
    # a flat list is first of all one row, `[3]` as `[1, 3]` of `[-1, -1]`, and only then a column of scalars
    lone = shapes.is_lone_row(tensor.shape, wanted)
    return shapes.fit_input(tensor.shape if lone else shapes.of_scalars(tensor, wanted), wanted, what)


def _decoded(tensor: Tensor, settings: RouteSettings, limit: int) -> Tensor:
    image = settings.image_inputs.get(tensor.name)
    return tensor if image is None else image.decode(tensor, 4, f"input {tensor.name!r}", limit)


def _as_they_are(inputs: Sequence[Tensor], client: Traits, upstream: Rows) -> Fitted:
    if client.points:
        # A point is one row, also where the backend counts them on every tensor.
        doubled = map(_doubled, inputs)
        return Fitted(tuple(map(shapes.one_row, doubled) if upstream is Rows.FIRST else doubled), None, True)
    rows = _rows([_leading(tensor, at) for at, tensor in enumerate(inputs)]) if upstream is Rows.ONE else None
    return Fitted(tuple(_typed(tensor, client.numbers) for tensor in inputs), rows, False)


def _leading(tensor: Tensor, at: int) -> tuple[str, int, bool]:
    name = tensor.name or f"input{at}"
    if not tensor.shape:
        raise DecodeError(f"input {name!r} is a scalar, expected a first dimension that counts the rows")
    return name, tensor.shape[0], False


def _rows(batched: Sequence[tuple[str, int, bool]]) -> int | None:
    """The number of rows that all batched inputs share; None if none is batched."""
    if not batched:
        return None
    first, rows, _ = batched[0]
    for name, others, _ in batched:
        if others != rows:
            text = f"input {name!r} has {others} rows and input {first!r} has {rows}"
            raise DecodeError(f"{text}; all inputs must have the same batch dimension")
    return rows


def _complete(
    fitted: Mapping[str, Tensor],
    given: Mapping[str, Tensor],
    signature: Signature,
    settings: RouteSettings,
    rows: int | None,
    limit: int,
) -> tuple[Tensor, ...]:
    """In the signature's order, with the route's constants and every index tensor that the model declares."""
    if len(fitted) == len(signature.inputs):
        return tuple(fitted.values())
    constants = {tensor.name: tensor for tensor in settings.constants}
    return tuple(
        indices.fit(given.get(spec.name), spec, rows, limit)
        if spec.name in INDEX_TENSORS
        else fitted.get(spec.name) or _constant(constants[spec.name], spec, settings, rows, limit)
        for spec in signature.inputs
    )


def _constant(tensor: Tensor, spec: TensorSpec, settings: RouteSettings, rows: int | None, limit: int) -> Tensor:
    """The route's input, the same for every row."""
    what = f"the route's constant {tensor.name!r}"
    shape = shapes.fit_input(tensor.shape, spec.shape, what)
    data = datatypes.fit(tensor, spec.datatype, what, settings.cast)
    fitted = Tensor(spec.name, spec.datatype, shape, data)
    if not shapes.is_batch(spec.shape) or rows in (None, shape[0]) or shape[0] != 1:
        return fitted
    assert rows is not None
    return make_tensor(spec.name, shapes.repeat(fitted, rows, limit, what), spec.datatype)


def _typed(tensor: Tensor, numbers: Datatype | None) -> Tensor:
    """A tensor where nothing tells its datatype: numbers that came without one are what the client's protocol says."""
    if not tensor.untyped:
        return tensor
    return datatypes.typed(tensor, numbers, f"input {tensor.name!r}") if numbers else replace(tensor, untyped=False)


def _doubled(tensor: Tensor) -> Tensor:
    """A point's numbers: doubles, also if every literal was an integer."""
    return _typed(tensor, Datatype.FP64)
