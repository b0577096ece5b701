"""Adapts a backend's response back for the client, and combines a stream into one response for clients that expect a
single response. This module does no I/O."""

from collections.abc import AsyncIterator, Iterable, Sequence
from math import prod

from gateway.bridge import datatypes, names, shapes
from gateway.bridge.fitting import Expected, FittedRequest, Fitting
from gateway.bridge.shapes import concatenate
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, Reason, invalid_output, refusal
from gateway.core.frozen import replace
from gateway.core.requests import CLASSIFICATION, Request, RequestedOutput, Response
from gateway.core.tensors import Tensor


def fit_response(response: Response, request: Request, fitted: FittedRequest, fitting: Fitting) -> Response:
    """Return the response to the client's `request`, which was sent to the backend as `fitted`.

    Raises:
        GatewayError: INTERNAL (invalid-output) if the outputs do not match the signature or the request.
    """
    client = fitting.client
    try:
        outputs = fit_outputs(response.outputs, fitted, fitting)
        wanted = [output.name for output in request.outputs] if request.outputs else fitting.settings.select
        chosen = names.picked(outputs, wanted)
    except DecodeError as error:
        raise invalid_output(f"backend {fitting.backend.name!r}: {error}") from error
    return reply(response, request, datatypes.carry_all(chosen, client.name, client.traits))


def reply(response: Response, request: Request, outputs: tuple[Tensor, ...] | None = None) -> Response:
    """Return the response with the client's names for model and version and, if given, with `outputs` instead of its
    own outputs. If nothing changes, return `response` itself, because Responses are never modified."""
    if (
        outputs is None
        and response.model == request.model
        and response.id == request.id
        and (not request.version or response.version == request.version)
        and not response.schemaless
    ):
        return response
    return Response(
        response.outputs if outputs is None else outputs,
        request.model,
        request.version or response.version,
        request.id,
        response.parameters,
        response.origin,
        False,
    )


def fit_outputs(outputs: Sequence[Tensor], fitted: FittedRequest, fitting: Fitting) -> Sequence[Tensor]:
    """Return a backend's outputs with the client's names, the datatypes in the signature, and the shapes that the
    client expects. If the signature is unknown, outputs keep their datatypes and shapes, unless the client's protocol
    cannot represent them.

    Raises:
        DecodeError: the outputs do not match the signature.
    """
    requested = fitted.request.outputs
    if not fitting.outputs:
        named = _with_names(outputs, requested, fitting)
        found = [_encoded(_without_signature(tensor, fitting), tensor.name, fitting) for tensor in named]
        return names.for_client(found, fitting.settings) if fitting.settings.rename.outputs else found
    classified = {each.name for each in requested if CLASSIFICATION in each.parameters} if requested else ()
    return [
        _fit_classes(tensor, each, fitted)
        if each.spec.name in classified and tensor.datatype is Datatype.BYTES
        else _fit(tensor, each, fitted, fitting)
        for tensor, each in paired(outputs, requested, fitting)
    ]


def _with_names(outputs: Sequence[Tensor], requested: Sequence[RequestedOutput], fitting: Fitting) -> Iterable[Tensor]:
    """Name outputs by position, or leave them unnamed if neither the client nor the route requires names."""
    settings = fitting.settings
    needs_names = requested or settings.select or settings.rename.outputs or fitting.encoders
    if fitting.client.traits.wire.unnamed and not needs_names:
        return outputs
    return names.by_position(outputs, [output.name for output in requested], "output")


def _encoded(tensor: Tensor, name: str, fitting: Fitting) -> Tensor:
    """Return the output that the backend calls `name`, as an image file if the route's `images` contains this
    output."""
    encoder = fitting.encoders.get(name)
    return tensor if encoder is None else encoder.encode(tensor, f"output {name!r}")


def paired(
    outputs: Sequence[Tensor], requested: Sequence[RequestedOutput], fitting: Fitting
) -> Iterable[tuple[Tensor, Expected]]:
    """Yield pairs of an output and its specification, matched by name, or by position if the output is unnamed.

    Some servers (MLServer, some KServe models) always send all outputs. Therefore, if all outputs have names, skip
    outputs that were not requested.

    Raises:
        DecodeError: an output is not in the signature, a requested output is missing, or the number of unnamed outputs
            differs from the number of requested outputs.
    """
    expected = fitting.outputs
    given = [tensor.name for tensor in outputs]
    if not requested and given in fitting.output_orders:
        return zip(outputs, expected.values())  # noqa: B905 - `strict` doubles the time
    order = [output.name for output in requested] or fitting.output_names
    if requested and given != order and all(given):
        outputs = names.picked(outputs, order)
    if len(outputs) != len(order):
        text = "1 output" if len(outputs) == 1 else f"{len(outputs)} outputs"
        raise DecodeError(f"{text}, expected {len(order)}: {', '.join(map(repr, order))}")
    pairs = []
    for tensor, by_position in zip(outputs, order, strict=True):
        name = tensor.name or by_position
        if name not in expected:
            raise names.unknown_output(name, list(expected))
        pairs.append((tensor, expected[name]))
    return pairs


def _fit(tensor: Tensor, expected: Expected, fitted: FittedRequest, fitting: Fitting) -> Tensor:
    spec, what = expected.spec, expected.what
    if tensor.content_type == "json" and spec.datatype is not Datatype.BYTES and tensor.datatype is Datatype.BYTES:
        tensor = datatypes.with_missing(tensor, what, takes_null=fitting.settings.nan == "null")
    shape = tensor.shape
    if fitted.is_point:
        if not shapes.matches(shape, expected.row):
            shape = shapes.fill(expected.row, tensor.elements, what)
        if expected.is_batch and not fitted.unbatched:
            shape = (1, *shape)
    elif not shapes.matches(shape, spec.shape):
        shape = shapes.with_last_dimension(tensor, spec.shape)
        if shape == tensor.shape:
            raise DecodeError(f"{what} has shape {list(shape)}, expected {list(spec.shape)}")
    if expected.is_batch and not fitted.is_point:
        if fitted.rows is not None and shape[0] != fitted.rows:
            raise DecodeError(f"{what} has {shape[0]} rows for the {fitted.rows} that were sent")
        shape = shapes.without_batch(shape, what) if fitted.unbatched else shape
    elif expected.is_column and shape == (1,) and fitted.rows is not None and fitted.rows > 1:
        # the server takes single rows, or only the first row
        raise DecodeError(f"{what} has 1 row, but the request had {fitted.rows}")
    if fitting.client.traits.wire.points and len(shape) != 1:
        shape = (prod(shape),)
    data = tensor.data
    if tensor.datatype is not spec.datatype:
        data = datatypes.fit(tensor, spec.datatype, what, fitting.settings.cast)
        if fitting.settings.cast != "refuse":
            datatypes.note_rounding(tensor, data, spec.datatype, fitted.request.record)
    content_type = spec.content_type or tensor.content_type
    found = Tensor(expected.name, spec.datatype, shape, data, content_type, tensor.parameters)
    return _encoded(found, spec.name, fitting) if fitting.encoders else found


def _fit_classes(tensor: Tensor, expected: Expected, fitted: FittedRequest) -> Tensor:
    """Return the result of the V2 classification extension: BYTES instead of the output's numbers."""
    if fitted.unbatched and expected.is_batch and len(tensor.shape) > 1:
        return replace(tensor, name=expected.name, shape=shapes.without_batch(tensor.shape, expected.what))
    return replace(tensor, name=expected.name)


def _without_signature(tensor: Tensor, fitting: Fitting) -> Tensor:
    numbers = fitting.backend.traits.wire.numbers
    if tensor.untyped and numbers is not None:
        tensor = datatypes.typed(tensor, numbers, f"output {tensor.name!r}")
    shape = (tensor.elements,) if fitting.client.traits.wire.points else tensor.shape
    return Tensor(tensor.name, tensor.datatype, shape, tensor.data, tensor.content_type, tensor.parameters)


async def last_of_stream(responses: AsyncIterator[Response], backend: str) -> Response:
    """Return the last response of a stream, for clients that expect a single response (`translate: {stream: last}`).

    Raises:
        GatewayError: INTERNAL (invalid-output) if the stream contains no response.
    """
    found: Response | None = None
    async for response in responses:
        found = response
    if found is None:
        raise invalid_output(f"backend {backend!r}: the stream ended without a response")
    return found


async def collected_stream(responses: AsyncIterator[Response], backend: str, limit: int) -> Response:
    """Return one response that contains the outputs of all responses, concatenated on axis 0
    (`translate: {stream: collect}`).

    Raises:
        GatewayError: INTERNAL (invalid-output) if the stream contains no response, or if its outputs differ in more
            than axis 0; RESOURCE_EXHAUSTED if the outputs have more than `limit` bytes in total.
    """
    found: list[Response] = []
    size = 0
    async for response in responses:
        found.append(response)
        size += sum(len(tensor.data) for tensor in response.outputs)
        if size > limit:
            text = (
                f"backend {backend!r}: the stream's responses exceed {limit} bytes; raise limits.message of the backend"
            )
            raise refusal(Reason.TOO_LARGE, text)
    if not found:
        raise invalid_output(f"backend {backend!r}: the stream ended without a response")
    try:
        columns: zip[tuple[Tensor, ...]] = zip(*(response.outputs for response in found), strict=True)
        return replace(found[-1], outputs=tuple(map(concatenate, columns)), parameters={})
    except (DecodeError, ValueError) as error:
        text = f"backend {backend!r}: cannot concatenate the stream's responses: {error}"
        raise invalid_output(f"{text}; use a protocol with streams, or `translate: {{stream: last}}`") from error
