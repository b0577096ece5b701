"""Handles batches for a backend that accepts one row per call.

The gateway makes one call for each row, and stacks the results.

At most `window` calls are in flight. If a row fails, the gateway sends no more rows, and the error contains the number
of the failed row. Outputs get their datatypes before stacking, because JSON can contain 1 in one row and 1.5 in
another.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from gateway.bridge import datatypes, response, shapes
from gateway.bridge.fitting import Expected, FittedRequest, Fitting
from gateway.core import bytes_elements, json
from gateway.core.datatypes import BYTES, NUMBERS, Datatype
from gateway.core.errors import DecodeError, GatewayError, TransportError, invalid_input, invalid_output
from gateway.core.frozen import replace, replace_struct
from gateway.core.models import Signature
from gateway.core.queue_wait import PartWaits
from gateway.core.record import Record
from gateway.core.requests import Request, Response, UnequalRows
from gateway.core.tensors import Parameters, Tensor
from gateway.core.tensors import tensor as make_tensor
from gateway.core.transport import Handler

S = TypeVar("S")
T = TypeVar("T")


async def infer_row_by_row(
    fitted: FittedRequest, fitting: Fitting, infer: Callable[[Request], Awaitable[Response]]
) -> Response:
    """Call the model for each row, and return the stacked responses.

    Raises:
        GatewayError: INVALID_ARGUMENT if the batch has more than `max_rows` rows; otherwise the error of the first
            failed row, with its number if the batch has several rows.
        DecodeError: a response does not match the signature.
    """
    signature, settings = fitting.signature, fitting.settings
    count = 1 if fitted.rows is None else fitted.rows

    async def call(inputs: Sequence[Tensor]) -> Response:
        answer = await infer(replace(fitted.request, inputs=tuple(inputs)))
        return replace(answer, outputs=_typed(answer.outputs, fitting, fitted.request.record))

    _check_count(count, settings.max_rows)
    if count == 0:
        return Response(tuple(map(shapes.empty, signature.outputs)))
    rows = _rows(fitted, fitting)
    answers = [await call(rows[0])] if count == 1 else await each(rows, call, fitting.backend.rows_at_once())
    outputs = _stacked([answer.outputs for answer in answers], fitting, fitted)
    return replace(answers[0], outputs=outputs, parameters=_common_parameters(answers))


async def infer_unequal_rows(request: Request, rows: UnequalRows, fitting: Fitting, infer: Handler) -> Response:
    """Call the model once for each row of a request whose rows differ in length, and return the joined responses.

    Inputs without a batch dimension are sent with every call.

    Raises:
        DecodeError: the inputs have different numbers of rows, or a row does not match the model.
        GatewayError: same as `infer_row_by_row`; INTERNAL (invalid-output) if the rows' outputs cannot be joined.
    """
    count = max(map(len, rows.columns))
    _check_count(count, fitting.settings.max_rows)
    columns = [_column_of(column, at, count, fitting) for at, column in enumerate(rows.columns)]

    async def call(inputs: tuple[Tensor, ...]) -> Response:
        answer = await infer(replace(request, inputs=inputs, flaw=""))
        assert isinstance(answer, Response)
        return answer

    answers = await each(list(zip(*columns, strict=True)), call, fitting.backend.rows_at_once())
    try:
        outputs = tuple(map(shapes.concatenate, zip(*[answer.outputs for answer in answers], strict=True)))
    except (DecodeError, ValueError) as error:
        raise invalid_output(f"cannot join outputs for rows of unequal length: {error}") from error
    return replace(answers[0], outputs=outputs, parameters=_common_parameters(answers))


def unequal_rows(inputs: Sequence[Tensor], signature: Signature) -> UnequalRows | None:
    """If the inputs contain JSON texts of rows with numbers, and the rows differ in length, return the rows. (V1 uses
    this encoding for rows that do not form a tensor.) Return None for all other inputs, and if the model accepts
    texts."""
    texts = [each.content_type == "json" and len(each.shape) == 1 for each in inputs]
    if not any(texts) or not signature.inputs or any(spec.datatype is BYTES for spec in signature.inputs):
        return None
    try:
        columns = [_rows_of_texts(each) if is_text else (each,) for each, is_text in zip(inputs, texts, strict=True)]
    except DecodeError:
        return None
    uneven = [column for column in columns if len({row.shape for row in column}) > 1]
    if any(len({len(row.shape) for row in column}) > 1 for column in uneven):
        return None
    return UnequalRows("rows of unequal length", tuple(columns)) if uneven else None


def _rows_of_texts(tensor: Tensor) -> tuple[Tensor, ...]:
    found = []
    for text in bytes_elements.unpack(tensor.data):
        array = json.array(b"[%b]" % text, values=2, literals=True)
        if isinstance(array.values, bytes):
            raise DecodeError("a text, expected numbers")
        row = make_tensor(tensor.name, array.values.reshape(array.shape))
        found.append(replace(row, untyped=True, parameters=tensor.parameters))
    return tuple(found)


def _column_of(column: Sequence[Tensor], at: int, count: int, fitting: Fitting) -> Sequence[Tensor]:
    """Return input number `at` of each of `count` rows. `column` is the entire tensor, or the tensors of its rows."""
    if len(column) == count:
        return column
    whole = column[0]
    named = {each.name: each for each in fitting.expected}
    by_position = fitting.expected[at] if at < len(fitting.expected) else None
    expected = named.get(whole.name) if whole.name else by_position
    if len(column) == 1 and not fitting.is_unknown and (expected is None or not expected.is_batch):
        return [whole] * count
    if len(column) > 1 or whole.shape[:1] != (count,):
        what = repr(whole.name) if whole.name else at
        raise DecodeError(f"input {what} needs {count} rows, like the input with rows of different lengths")
    return list(map(shapes.one_row, shapes.split(whole)))


def _check_count(count: int, most: int) -> None:
    if count > most:
        text = f"a batch of {count} rows needs a call for each row, and the route allows {most}"
        raise invalid_input(f"{text}; send fewer at once, or allow them by `translate: {{max_rows: {count}}}`")


def _common_parameters(answers: Sequence[Response]) -> Parameters:
    """Return the parameters that the responses to all rows have in common."""
    first = answers[0].parameters
    if len(answers) == 1 or not first:
        return first
    return {name: value for name, value in first.items() if all(each.parameters.get(name) == value for each in answers)}


def as_point(request: Request) -> Request:
    """Convert the inputs of a one-row request to vectors."""
    inputs = [replace_struct(each, shape=(each.elements,)) for each in request.inputs]
    return replace_struct(request, inputs=tuple(inputs))


async def each(rows: Sequence[S], call: Callable[[S], Coroutine[Any, Any, T]], window: int) -> list[T]:
    """Return the results of `call` for all `rows`, in row order, with at most `window` calls in flight.

    Raises:
        GatewayError, DecodeError: the first failure, with its row number. Calls in flight are cancelled.
    """
    results: dict[int, T] = {}
    waits = PartWaits()
    running: dict[asyncio.Task[T], int] = {}
    waiting = iter(enumerate(rows))
    try:
        while len(results) < len(rows):
            for row, item in _take(waiting, window - len(running)):
                running[waits.spawn(call(item))] = row
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=running.__getitem__):
                others_ran = bool(results) or len(running) > 1
                results[running[task]] = _result(task, running[task], others_ran=others_ran)
                del running[task]
    finally:
        await _cancel(running)
        waits.note()
    return [results[row] for row in range(len(rows))]


def _take(waiting: Iterable[S], count: int) -> list[S]:
    # zip reads the range first, so it does not consume an item that it does not return.
    return [item for _, item in zip(range(count), waiting, strict=False)]


def _result(task: "asyncio.Task[T]", row: int, *, others_ran: bool) -> T:
    try:
        return task.result()
    except GatewayError as error:
        text = f"row {row}: {error.message}"
        if others_ran or isinstance(error, TransportError):
            # A caller that repeats the batch must know that some of its rows might have been computed.
            sent = others_ran or getattr(error, "sent", True)
            raise TransportError(error.status, error.reason, text, sent=sent, retry_after=error.retry_after) from error
        raise GatewayError(error.status, error.reason, text, error.retry_after) from error
    except DecodeError as error:
        raise DecodeError(f"row {row}: {error}") from error


async def _cancel(tasks: "Iterable[asyncio.Task[T]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _rows(fitted: FittedRequest, fitting: Fitting) -> list[tuple[Tensor, ...]]:
    """Return the inputs of each row. Inputs without a batch dimension are the same in all rows."""
    inputs, signature = fitted.request.inputs, fitting.signature
    count = 1 if fitted.rows is None else fitted.rows
    if signature.inputs:
        batched = list(map(fitting.is_batch, signature.inputs))
    else:
        batched = [fitted.rows is not None] * len(inputs)
    flat = fitting.backend.traits.wire.points
    columns = [_column(tensor, is_batch, count, flat) for tensor, is_batch in zip(inputs, batched, strict=True)]
    return list(zip(*columns, strict=True)) if columns else [()] * count


def _column(tensor: Tensor, is_batch: bool, count: int, flat: bool) -> list[Tensor]:
    """Return one input of each row, as a vector if `flat` is True."""
    rows = shapes.split(tensor) if is_batch else [tensor] * count
    return [replace(row, shape=(row.elements,)) for row in rows] if flat else rows


def _typed(outputs: Sequence[Tensor], fitting: Fitting, record: Record) -> tuple[Tensor, ...]:
    """Convert the outputs of one row to the datatypes in the signature."""
    if not fitting.signature.outputs:
        return tuple(outputs)
    pairs = response.paired(outputs, (), fitting)
    return tuple([_fit_output(row, each, fitting, record) for row, each in pairs])


def _stacked(answers: Sequence[Sequence[Tensor]], fitting: Fitting, fitted: FittedRequest) -> tuple[Tensor, ...]:
    if fitting.signature.outputs:
        columns = zip(*answers, strict=True)
        return tuple([_stack(column, is_batch=fitting.outputs[column[0].name].is_batch) for column in columns])
    if fitted.rows is None:
        return tuple(answers[0])
    for number, answer in enumerate(answers):
        if len(answer) != len(answers[0]):
            raise DecodeError(f"{len(answer)} outputs in row {number} and {len(answers[0])} in row 0")
    return tuple(shapes.stack(_of_one_type(column)) for column in zip(*answers, strict=True))


def _stack(column: Sequence[Tensor], *, is_batch: bool) -> Tensor:
    """Stack one output of all rows. If the output has no batch dimension, return its only row unchanged."""
    return shapes.stack(column) if len(column) > 1 or is_batch else column[0]


def _of_one_type(column: Sequence[Tensor]) -> list[Tensor]:
    """Return the rows of an output that is not in a signature, in a common datatype. Untyped numbers get a datatype
    that can represent the numbers in all rows."""
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


def _fit_output(row: Tensor, expected: Expected, fitting: Fitting, record: Record) -> Tensor:
    spec, what, wanted = expected.spec, expected.what, expected.row
    shape = row.shape if shapes.matches(row.shape, wanted) else shapes.fill(wanted, row.elements, what)
    data = datatypes.fit(row, spec.datatype, what, fitting.settings.cast)
    if fitting.settings.cast != "refuse":
        datatypes.note_rounding(row, data, spec.datatype, record)
    return Tensor(spec.name, spec.datatype, shape, data, row.content_type)
