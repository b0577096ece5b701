"""Batches for backends that take one point at a time: one call for each row."""

from collections.abc import Awaitable, Callable, Sequence

from gateway.bridge import datatypes, outputs, rows, shapes
from gateway.bridge.inputs import Fitted
from gateway.bridge.settings import RouteSettings
from gateway.core.errors import invalid_input
from gateway.core.types import Request, RequestedOutput, Response, Signature, Tensor, TensorSpec
from gateway.core.values import replace


async def point_by_point(
    asked: Request,
    fitted: Fitted,
    signature: Signature,
    settings: RouteSettings,
    window: int,
    ask: Callable[[Request], Awaitable[Response]],
) -> Response:
    """The answers to all rows, stacked: at most `window` rows are on their way at once.

    Raises:
        GatewayError: INVALID_ARGUMENT for too many rows; the first row that failed, by its number if there are several.
        DecodeError: an answer does not fit the signature.
    """
    count = 1 if fitted.rows is None else fitted.rows

    async def call(inputs: Sequence[Tensor]) -> Response:
        response = await ask(replace(asked, inputs=tuple(inputs)))
        return replace(response, outputs=_typed(response.outputs, signature, settings))

    if count > settings.max_rows:
        text = f"a batch of {count} rows is one call for each, and the route allows {settings.max_rows}"
        raise invalid_input(f"{text}: `translate: {{max_rows: {settings.max_rows}}}`")
    if count == 0:
        return Response(tuple(map(shapes.empty, signature.outputs)))
    points = _points(asked.inputs, signature, count)
    responses = [await call(points[0])] if count == 1 else await rows.each(points, call, window)
    columns = zip(*(response.outputs for response in responses), strict=True)
    return replace(responses[0], outputs=tuple(map(_stack, columns, signature.outputs)))


def none_asked(wanted: Sequence[RequestedOutput], protocol: str) -> tuple[RequestedOutput, ...]:
    """No outputs: a one-point backend gives all that it has, whatever is asked for.

    Raises:
        GatewayError: INVALID_ARGUMENT, an output is wanted with a parameter, of which the backend would never hear.
    """
    for output in wanted:
        for key in output.parameters:
            raise invalid_input(f"parameter {key!r} of output {output.name!r} has no place in {protocol}")
    return ()


def _points(inputs: Sequence[Tensor], signature: Signature, count: int) -> list[tuple[Tensor, ...]]:
    columns = [_rows(tensor, spec, count) for tensor, spec in zip(inputs, signature.inputs, strict=True)]
    return list(zip(*columns, strict=True)) if columns else [()] * count


def _rows(tensor: Tensor, spec: TensorSpec, count: int) -> list[Tensor]:
    """One vector for each row; a tensor without a batch dimension is the same in all."""
    if shapes.is_batch(spec.shape):
        return shapes.split(tensor)
    return [replace(tensor, shape=(tensor.elements,))] * count


def _typed(vectors: Sequence[Tensor], signature: Signature, settings: RouteSettings) -> tuple[Tensor, ...]:
    """One row's outputs. Typed before they are stacked: the Python server prints 1 where another row has 1.5."""
    return tuple(_output(vector, spec, settings) for vector, spec in outputs.paired(vectors, (), signature))


def _stack(column: Sequence[Tensor], spec: TensorSpec) -> Tensor:
    """All rows of one output; alone it may have no batch dimension."""
    return shapes.stack(column) if len(column) > 1 or shapes.is_batch(spec.shape) else column[0]


def _output(vector: Tensor, spec: TensorSpec, settings: RouteSettings) -> Tensor:
    what = f"output {spec.name!r}"
    shape = shapes.fill(shapes.of_row(spec.shape), vector.elements, what)
    return Tensor(spec.name, spec.datatype, shape, datatypes.fit(vector, spec.datatype, what, settings.cast))
