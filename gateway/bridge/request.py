"""Adapts a client's request to the model's signature. This module does no I/O."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gateway.bridge import datatypes, derivatives, json_members, names, shapes
from gateway.bridge.fitting import Expected, FittedRequest, Fitting
from gateway.bridge.signature_cache import Key
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, invalid_input, unsupported
from gateway.core.frozen import replace, replace_struct
from gateway.core.models import TensorSpec
from gateway.core.operations import INDEX_TENSORS
from gateway.core.protocol import Rows
from gateway.core.record import UNRECORDED, Record
from gateway.core.requests import Request, RequestedOutput
from gateway.core.tensors import Shape, Tensor
from gateway.core.tensors import tensor as make_tensor


def fit_request(request: Request, key: Key, fitting: Fitting) -> FittedRequest:
    """Return the request to the backend for the model with this `key`, which contains the backend's names.

    Raises:
        DecodeError: a tensor does not match. The message contains the tensor's name, its type and the expected type.
        GatewayError: RESOURCE_EXHAUSTED if repeated tensors or decoded images exceed the backend's `limits.message`;
            UNIMPLEMENTED if the client's protocol cannot carry a tensor of the model; INVALID_ARGUMENT if a requested
            output has a parameter that the backend's protocol cannot carry.
    """
    backend, settings, signature = fitting.backend, fitting.settings, fitting.signature
    if fitting.lacks_bytes:
        _refuse_bytes(request.model, fitting)
    if request.schemaless:
        request = json_members.resolve_inputs(request, signature, settings)
    inputs = fit_inputs(request.inputs, fitting, request.record)
    outputs = names.requested(request.outputs, signature, settings)
    if not backend.traits.wire.selects:
        # The backend always returns all outputs. If their names are unknown, use the route's names, not the client's.
        # Otherwise, the client would receive an arbitrary output under the requested name.
        _refuse_output_parameters(request.outputs, backend.protocol)
        outputs = () if signature.outputs else names.requested((), signature, settings)
    outgoing = replace_struct(
        request,
        model=key[0],
        version=key[1],
        inputs=datatypes.carry_all(inputs.tensors, backend.protocol, backend.traits),
        outputs=outputs,
        translate=settings,
    )
    is_point = fitting.row_by_row and inputs.rows in (None, 1) and backend.traits.wire.points and bool(fitting.outputs)
    return FittedRequest(outgoing, inputs.rows, inputs.unbatched, is_point)


def _refuse_bytes(model: str, fitting: Fitting) -> None:
    outputs = names.outputs_of(fitting.signature, fitting.settings)
    for role, specs in (("input", fitting.inputs), ("output", outputs)):
        for name, spec in specs:
            if spec.datatype is Datatype.BYTES:
                text = f"{role} {name!r} of model {model!r} is BYTES, which {fitting.client.name} cannot carry"
                raise unsupported(text)


def _refuse_output_parameters(outputs: Sequence[RequestedOutput], protocol: str) -> None:
    for output in outputs:
        for key in output.parameters:
            text = f"parameter {key!r} of output {output.name!r} is not supported by {protocol}"
            raise invalid_input(f"{text}; remove the parameter")


class FittedInputs(Struct, frozen=True):
    """Inputs, adapted for the backend. For `rows` and `unbatched`, see FittedRequest."""

    tensors: tuple[Tensor, ...]
    rows: int | None
    unbatched: bool


def fit_inputs(inputs: Sequence[Tensor], fitting: Fitting, record: Record = UNRECORDED) -> FittedInputs:
    """Adapt inputs to the names, datatypes, shapes and order in the signature.

    If the signature is unknown, inputs keep their datatypes and shapes. `record` notes casts that round.

    Raises:
        DecodeError: an input does not match. The message contains the input's name, its type and the expected type.
        GatewayError: RESOURCE_EXHAUSTED if repeated tensors or decoded images exceed the backend's `limits.message`.
    """
    if fitting.is_unknown:
        return _without_signature(inputs, fitting)
    given: Mapping[str, Tensor] = {}
    every = fitting.expected
    if [tensor.name for tensor in inputs] not in fitting.orders:
        declared = derivatives.without_undeclared_indices(inputs, fitting.signature)
        given = names.resolve_inputs(declared, fitting.inputs, fitting.settings)
        every = tuple([each for each in every if each.name in given])
        inputs = [given[each.name] for each in every]
    if fitting.decoders:
        inputs = [_decoded(*each, fitting) for each in zip(inputs, every, strict=True)]
    fitted: list[Tensor] = []
    first, rows, added = "", None, True
    for tensor, expected in zip(inputs, every):  # noqa: B905 - `strict` takes as long as the loop
        found = _fit(tensor, expected, fitting, record)
        fitted.append(found)
        if expected.is_batch:
            if rows is None:
                first, rows = expected.name, found.shape[0]
            elif rows != found.shape[0]:
                raise _different_rows(expected.name, found.shape[0], first, rows)
            # If JSON texts of rows were converted to numbers, the number of texts is the number of rows.
            was_text = tensor.datatype is Datatype.BYTES is not found.datatype
            added = added and found.shape[1:] == tensor.shape and not was_text
    wire = fitting.client.traits.wire
    unbatched = wire.points or (wire.rows is Rows.FREE and rows is not None and added)
    if len(fitted) < len(fitting.signature.inputs):
        return FittedInputs(_completed(fitted, given, rows, fitting), rows, unbatched)
    return FittedInputs(tuple(fitted), rows, unbatched)


def _fit(tensor: Tensor, expected: Expected, fitting: Fitting, record: Record) -> Tensor:
    spec, what, cast = expected.spec, expected.what, fitting.settings.cast
    wanted = spec.datatype
    if tensor.datatype is Datatype.BYTES and wanted is not Datatype.BYTES:
        if spec.image:
            return Tensor(spec.name, Datatype.BYTES, (tensor.elements,), tensor.data, "image", tensor.parameters)
        takes_null = "null" in (fitting.settings.nan, fitting.client.traits.wire.nan)
        tensor = datatypes.with_missing(tensor, what, takes_null=takes_null)
    shape = _fit_shape(tensor, expected, fitting)
    data = tensor.data
    if tensor.datatype is not wanted:
        if wanted not in fitting.client.traits.wire.datatypes:
            tensor = datatypes.restore(tensor, wanted, what)
        data = datatypes.fit(tensor, wanted, what, cast)
        if cast != "refuse":
            datatypes.note_rounding(tensor, data, wanted, record)
    return Tensor(spec.name, wanted, shape, data, spec.content_type or tensor.content_type, tensor.parameters)


def _fit_shape(tensor: Tensor, expected: Expected, fitting: Fitting) -> Shape:
    shape, wanted, what, wire = tensor.shape, expected.spec.shape, expected.what, fitting.client.traits.wire
    if wire.points:
        if shape != expected.row:
            shape = shapes.fill(expected.row, tensor.elements, what)
        return (1, *shape) if expected.is_batch else shape
    if shapes.matches(shape, wanted):
        return shape
    if wire.rows is Rows.FIRST:
        return shapes.fit_rows(shapes.with_last_dimension(tensor, wanted), wanted, what)
    # A list of numbers counts as one row, not as a column of scalars: for `[-1, -1]`, a `[3]` becomes `[1, 3]`.
    if expected.is_batch and shapes.matches(shape, expected.row):
        return (1, *shape)
    return shapes.fit_input(shapes.with_last_dimension(tensor, wanted), wanted, what)


def _common_rows(batches: Sequence[tuple[str, int]]) -> int | None:
    """Return the common number of rows of all batches, or None if no input is a batch. Each batch is a pair of the
    input's name and the number of rows."""
    if not batches:
        return None
    first, expected = batches[0]
    for name, rows in batches:
        if rows != expected:
            raise _different_rows(name, rows, first, expected)
    return expected


def _different_rows(name: str, rows: int, first: str, expected: int) -> DecodeError:
    text = f"input {name!r} has {rows} rows and input {first!r} has {expected}"
    return DecodeError(f"{text}; all inputs must have the same batch dimension")


def _completed(
    fitted: Sequence[Tensor], given: Mapping[str, Tensor], rows: int | None, fitting: Fitting
) -> tuple[Tensor, ...]:
    """Return all inputs in the signature's order: the client's inputs, the route's constants, and the index tensors of
    derivatives. Index tensors are optional for the client."""
    by_name = {tensor.name: tensor for tensor in fitted}
    constants = {tensor.name: tensor for tensor in fitting.settings.constants}
    limit = fitting.backend.limits.message
    return tuple(
        derivatives.fit_index(given.get(spec.name), spec, rows, limit)
        if spec.name in INDEX_TENSORS
        else by_name.get(spec.name) or _fit_constant(constants[spec.name], spec, rows, fitting)
        for spec in fitting.signature.inputs
        if spec.name in by_name or spec.name in constants or not spec.optional
    )


def _fit_constant(tensor: Tensor, spec: TensorSpec, rows: int | None, fitting: Fitting) -> Tensor:
    """Return a constant of the route. If the constant is one row, repeat it for all rows."""
    what = f"the route's constant {tensor.name!r}"
    shape = shapes.fit_input(tensor.shape, spec.shape, what)
    data = datatypes.fit(tensor, spec.datatype, what, fitting.settings.cast)
    fitted = Tensor(spec.name, spec.datatype, shape, data)
    if not fitting.is_batch(spec) or rows in (None, shape[0]) or shape[0] != 1:
        return fitted
    assert rows is not None
    return make_tensor(spec.name, shapes.repeat(fitted, rows, fitting.backend.limits.message, what), spec.datatype)


def _without_signature(inputs: Sequence[Tensor], fitting: Fitting) -> FittedInputs:
    client, backend = fitting.client, fitting.backend
    given = names.unresolved_inputs(inputs, fitting.settings, unnamed=backend.traits.wire.unnamed)
    decoded = [_decoded_without_signature(tensor, fitting) for tensor in given]
    if client.traits.wire.points:
        points = [_typed(tensor, Datatype.FP64) for tensor in decoded]
        if backend.traits.wire.rows is Rows.FIRST:
            points = list(map(shapes.one_row, points))
        return FittedInputs(tuple(points), None, True)
    rows = None
    if backend.traits.wire.rows is Rows.ONE:
        rows = _common_rows([_first_dimension(tensor, at) for at, tensor in enumerate(decoded)])
    return FittedInputs(tuple(_typed(tensor, client.traits.wire.numbers) for tensor in decoded), rows, False)


def _decoded(tensor: Tensor, expected: Expected, fitting: Fitting) -> Tensor:
    """Convert an input to pixels if it is an image file."""
    decoder = fitting.decoders.get(expected.spec.name)
    if decoder is None:
        return tensor
    return decoder.decode(tensor, len(expected.spec.shape), expected.what, fitting.backend.limits.message)


def _decoded_without_signature(tensor: Tensor, fitting: Fitting) -> Tensor:
    decoder = fitting.decoders.get(tensor.name)
    if decoder is None:
        return tensor
    return decoder.decode(tensor, 4, f"input {tensor.name!r}", fitting.backend.limits.message)


def _first_dimension(tensor: Tensor, at: int) -> tuple[str, int]:
    name = tensor.name or f"input{at}"
    if not tensor.shape:
        raise DecodeError(f"input {name!r} is a scalar, expected a first dimension that counts the rows")
    return name, tensor.shape[0]


def _typed(tensor: Tensor, numbers: Datatype | None) -> Tensor:
    """Give a tensor without a datatype the datatype `numbers`.

    If `numbers` is None, the tensor keeps the datatype of its literals."""
    if not tensor.untyped:
        return tensor
    return datatypes.typed(tensor, numbers, f"input {tensor.name!r}") if numbers else replace(tensor, untyped=False)
