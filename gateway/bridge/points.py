"""Batches for backends that take one row at a time: one call for each."""

from collections.abc import Awaitable, Callable, Sequence

from gateway.bridge import datatypes, outputs, rows, shapes
from gateway.bridge.inputs import Fitted
from gateway.bridge.settings import RouteSettings
from gateway.core.datatypes import NUMBERS, Datatype
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.frozen import replace
from gateway.core.types import Request, RequestedOutput, Response, Signature, Tensor, TensorSpec


async def point_by_point(
    asked: Request,
    fitted: Fitted,
    signature: Signature,
    settings: RouteSettings,
    window: int,
    ask: Callable[[Request], Awaitable[Response]],
    *,
    flat: bool,
) -> Response:
    """The answers to all rows, stacked: at most `window` rows are on their way at once. `flat`: rows go as vectors.

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
    points = _points(asked.inputs, signature, fitted, flat)
    responses = [await call(points[0])] if count == 1 else await rows.each(points, call, window)
    return replace(responses[0], outputs=_stacked([response.outputs for response in responses], signature, fitted))


def none_asked(wanted: Sequence[RequestedOutput], protocol: str) -> tuple[RequestedOutput, ...]:
    """No outputs: a backend without names gives all that it has, whatever is asked for.

    Raises:
        GatewayError: INVALID_ARGUMENT, an output is wanted with a parameter, of which the backend would never hear.
    """
    for output in wanted:
        for key in output.parameters:
            raise invalid_input(f"parameter {key!r} of output {output.name!r} has no place in {protocol}")
    return ()


def _points(inputs: Sequence[Tensor], signature: Signature, fitted: Fitted, flat: bool) -> list[tuple[Tensor, ...]]:
    count = 1 if fitted.rows is None else fitted.rows
    if signature.inputs:
        batched = [shapes.is_batch(spec.shape) for spec in signature.inputs]
    else:
        batched = [fitted.rows is not None] * len(inputs)
    columns = [_rows(tensor, each, count, flat) for tensor, each in zip(inputs, batched, strict=True)]
    return list(zip(*columns, strict=True)) if columns else [()] * count


def _rows(tensor: Tensor, is_batched: bool, count: int, flat: bool) -> list[Tensor]:
    """One tensor for each row; one without a batch dimension is the same in all."""
    each = shapes.split(tensor) if is_batched else [tensor] * count
    return [replace(row, shape=(row.elements,)) for row in each] if flat else each


def _typed(given: Sequence[Tensor], signature: Signature, settings: RouteSettings) -> tuple[Tensor, ...]:
    """One row's outputs. Typed before they are stacked: the Python server prints 1 where another row has 1.5."""
    if not signature.outputs:
        return tuple(given)
    return tuple(_output(row, spec, settings) for row, spec in outputs.paired(given, (), signature))


def _stacked(answers: Sequence[Sequence[Tensor]], signature: Signature, fitted: Fitted) -> tuple[Tensor, ...]:
    if signature.outputs:
        columns = zip(*answers, strict=True)
        return tuple(map(_stack, columns, signature.outputs))
    if fitted.rows is None:
        return tuple(answers[0])
    for number, answer in enumerate(answers):
        if len(answer) != len(answers[0]):
            raise DecodeError(f"{len(answer)} outputs in row {number} and {len(answers[0])} in row 0")
    return tuple(shapes.stack(_of_one_type(column)) for column in zip(*answers, strict=True))


def _stack(column: Sequence[Tensor], spec: TensorSpec) -> Tensor:
    """All rows of one output; alone it may have no batch dimension."""
    return shapes.stack(column) if len(column) > 1 or shapes.is_batch(spec.shape) else column[0]


def _of_one_type(column: Sequence[Tensor]) -> list[Tensor]:
    """The rows of an output that nobody declared: untyped numbers in the datatype that holds all of them."""
    found = {row.datatype for row in column}
    if len(found) == 1:
        return list(column)
    if not found <= NUMBERS or not all(row.untyped for row in column):
        raise DecodeError(f"output {column[0].name!r} is {' and '.join(sorted(found))} in different rows")
    common = Datatype.FP64 if Datatype.FP64 in found else Datatype.UINT64
    return [
        replace(row, datatype=common, data=datatypes.fit(row, common, f"output {row.name!r}", "refuse"))
        for row in column
    ]


def _output(row: Tensor, spec: TensorSpec, settings: RouteSettings) -> Tensor:
    what = f"output {spec.name!r}"
    wanted = shapes.of_row(spec.shape)
    shape = row.shape if shapes.matches(row.shape, wanted) else shapes.fill(wanted, row.elements, what)
    data = datatypes.fit(row, spec.datatype, what, settings.cast)
    return Tensor(spec.name, spec.datatype, shape, data, row.content_type)
