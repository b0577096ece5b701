"""Create a model from any Python callable that takes arrays by position and returns an array or a tuple of arrays, or
from a generator function, whose values are the responses of a stream. `loading` calls `from_callable`."""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import aclosing
from threading import Lock
from typing import Any, TypeAlias

import numpy as np

from gateway.core.casting import cast
from gateway.core.datatypes import WIDENINGS, Datatype
from gateway.core.errors import DecodeError, invalid_output
from gateway.core.frozen import frozen
from gateway.core.models import Signature, TensorSpec, is_batch
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.tensors import Shape, Tensor, datatype_of, tensor
from gateway.reference.arguments import fits
from gateway.reference.declaration import declaration
from gateway.reference.model import (
    DERIVATIVE_OUTPUTS,
    Arguments,
    Config,
    Function,
    Model,
    Outputs,
    Specs,
    Stream,
    build,
    describe,
    model_error,
)

log = logging.getLogger(__name__)


def from_callable(name: str, function: Callable[..., Any]) -> Model:
    """Return a Model that calls `function`, with the Signature that its `@signature` declares.

    The event loop awaits a coroutine function. Other functions run in threads, at most `workers` at a time, so a slow
    function does not block the event loop. The callable receives copies of the arrays, which it can change. If
    `function` is a generator function, `async` or not, the model streams: each yielded value is one response.

    Raises:
        ValueError: the parameters of `function` do not match the number of arrays that its `@signature` declares.
    """
    declared = declaration(function)
    computed = {Operation.INFER: function, **dict(declared.derivatives)}
    for operation, callable_ in computed.items():
        _check_parameters(callable_, len(declared.inputs) + len(DERIVATIVES.get(operation, ())), name)
    signature = Signature(declared.inputs, declared.outputs, name=name)
    workers = ThreadPoolExecutor(declared.workers, thread_name_prefix=f"model-{name}")
    calls = {key: _Call(key, item, _takes_config(item), signature) for key, item in computed.items()}
    stream = _stream(calls.pop(Operation.INFER), workers) if _is_generator(function) else None
    functions = {key: _function(call, workers) for key, call in calls.items()}
    configurable = any(map(_takes_config, computed.values()))
    return build(name, functions, declared.inputs, declared.outputs, configurable=configurable, stream=stream)


@frozen
class _Call:
    """A function that computes one operation of a model."""

    operation: Operation
    function: Callable[..., Any]
    configurable: bool
    signature: Signature

    def start(self, arguments: Arguments, config: Config) -> Any:
        """Call the function with copies of the arguments, and return its result."""
        copies = [item if isinstance(item, int) else np.array(item.array) for item in arguments]
        return self.function(*copies, config=config) if self.configurable else self.function(*copies)

    def finish(self, results: object, arguments: Arguments) -> Outputs:
        """Return the results as Tensors, checked against the model's declaration."""
        expected = _expected_outputs(self.operation, arguments, self.signature)
        return _tensors(results, expected, self.signature.name)


def _function(call: _Call, workers: Executor) -> Function:
    return _on_event_loop(call) if _is_async(call.function) else _in_a_thread(call, workers)


def _on_event_loop(call: _Call) -> Function:
    async def compute(arguments: Arguments, config: Config) -> Outputs:
        return call.finish(await call.start(arguments, config), arguments)

    return compute


def _in_a_thread(call: _Call, workers: Executor) -> Function:
    def compute(arguments: Arguments, config: Config) -> Outputs:
        try:
            return call.finish(call.start(arguments, config), arguments)
        except StopIteration as error:  # a Future does not accept StopIteration, so the caller would wait forever
            raise model_error(call.signature.name, error) from error

    def submit(arguments: Arguments, config: Config) -> Awaitable[Outputs]:
        return asyncio.get_running_loop().run_in_executor(workers, compute, arguments, config)

    return submit


_END = object()
"""The value that `_LockedGenerator.next` returns after the generator's last value."""


def _is_generator(function: Callable[..., Any]) -> bool:
    """Return True if `function` is a generator function, `async` or not.

    The result is also True for an instance whose `__call__` is a generator function."""
    return _is_async_generator(function) or any(map(inspect.isgeneratorfunction, _called(function)))


def _is_async_generator(function: Callable[..., Any]) -> bool:
    return any(map(inspect.isasyncgenfunction, _called(function)))


def _called(function: Callable[..., Any]) -> tuple[object, object]:
    return function, getattr(function, "__call__", None)  # noqa: B004


def _stream(call: _Call, workers: Executor) -> Stream:
    """Return a Stream that runs a generator function: on the event loop if it is `async`, otherwise in threads."""
    return _async_stream(call) if _is_async_generator(call.function) else _thread_stream(call, workers)


def _async_stream(call: _Call) -> Stream:
    async def stream(arguments: Arguments, config: Config) -> AsyncGenerator[Outputs, None]:
        async with aclosing(call.start(arguments, config)) as results:
            async for result in results:
                yield call.finish(result, arguments)

    return stream


def _thread_stream(call: _Call, workers: Executor) -> Stream:
    async def stream(arguments: Arguments, config: Config) -> AsyncGenerator[Outputs, None]:
        loop, generator = asyncio.get_running_loop(), _LockedGenerator(call.start(arguments, config))
        try:
            while (result := await loop.run_in_executor(workers, generator.next)) is not _END:
                yield call.finish(result, arguments)
        finally:
            # not awaited, because a thread might still compute the next value for a long time after the client has
            # disconnected
            loop.run_in_executor(workers, generator.close)

    return stream


class _LockedGenerator:
    """A generator that several threads can call, one at a time."""

    def __init__(self, results: Generator[object, None, None]) -> None:
        self._results = results
        self._lock = Lock()

    def next(self) -> object:
        """Return the next value, or _END after the last value."""
        with self._lock:
            return next(self._results, _END)

    def close(self) -> None:
        """Close the generator, which runs its `finally` blocks. The caller does not wait for the result, so this method
        logs errors."""
        with self._lock:
            try:
                self._results.close()
            except Exception as error:
                log.error("closing a model's generator failed", exc_info=error)


def _is_async(function: Callable[..., Any]) -> bool:
    """Return True if calling `function` returns a coroutine; also for an instance whose `__call__` is `async`."""
    return any(map(inspect.iscoroutinefunction, _called(function)))


def _takes_config(function: Callable[..., Any]) -> bool:
    """Return True if `function` has a parameter named `config`."""
    return "config" in _parameters(function)


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except ValueError:  # some built-in functions have no signature
        return {}


def _check_parameters(function: Callable[..., Any], count: int, name: str) -> None:
    parameters = _parameters(function)
    if not count or not parameters:
        return
    keywords: dict[str, object] = {"config": {}} if "config" in parameters else {}
    try:
        inspect.signature(function).bind(*range(count), **keywords)
    except TypeError as error:
        title = getattr(function, "__name__", repr(function))
        text = f"model {name!r}: {title}() does not accept {count} arrays: {error}"
        raise ValueError(f"{text}; give the function one parameter for each input") from error


Array: TypeAlias = "np.ndarray[Any, Any]"


def _tensors(results: object, expected: Specs, model: str) -> Outputs:
    """Return the Tensors of `results`, which is one array-like value or a tuple of array-like values.

    The tensors contain copies of the data, because a model might reuse its arrays. If `expected` is None, the tensors
    are named `output0`, `output1`, ... and keep their own datatypes and shapes.

    An array is valid if the expected datatype can represent every value of the array's datatype. Python numbers are
    valid if the expected datatype can represent these numbers.

    Raises:
        GatewayError: INTERNAL (invalid-output) for a wrong number of outputs, or an output with a wrong datatype or
            shape. The message names the output.
    """
    values = results if isinstance(results, tuple) else (results,)
    if not expected:
        return tuple(_undeclared_tensor(result, f"output{at}", model) for at, result in enumerate(values))
    if len(values) != len(expected):
        names = ", ".join(spec.name for spec in expected)
        raise invalid_output(f"model {model!r} returned {len(values)} outputs; expected {len(expected)}: {names}")
    return tuple(_declared_tensor(result, spec, model) for result, spec in zip(values, expected, strict=True))


def _expected_outputs(operation: Operation, arguments: Arguments, signature: Signature) -> Specs:
    """Return the outputs that `operation` must return for `arguments`, with as many rows as the arguments."""
    rows = _rows(arguments, signature)
    if operation is Operation.INFER:
        return tuple(TensorSpec(spec.name, spec.datatype, _with_rows(rows, spec.shape)) for spec in signature.outputs)
    [output] = DERIVATIVE_OUTPUTS
    out_wrt, in_wrt = arguments[len(signature.inputs) :][:2]
    assert isinstance(out_wrt, int)
    assert isinstance(in_wrt, int)
    if operation is Operation.APPLY_JACOBIAN:
        return (TensorSpec(output.name, output.datatype, _with_rows(rows, signature.outputs[out_wrt].shape)),)
    input_ = arguments[in_wrt]
    assert isinstance(input_, Tensor)
    return (TensorSpec(output.name, output.datatype, input_.shape),)


def _rows(arguments: Arguments, signature: Signature) -> int:
    """Return the number of rows of the batched inputs, or -1 if there are none."""
    pairs = zip(arguments, signature.inputs, strict=False)  # the arguments of a derivative follow the inputs
    return next((item.shape[0] for item, spec in pairs if isinstance(item, Tensor) and is_batch(spec.shape)), -1)


def _with_rows(rows: int, shape: Shape) -> Shape:
    return (rows, *shape[1:]) if is_batch(shape) else shape


def _undeclared_tensor(result: object, name: str, model: str) -> Tensor:
    array = _array(result, name, model)
    if array.dtype.kind in "SU":
        array = _array(result, name, model, object)
    datatype = _datatype(array, name, model)
    _check_elements(array, datatype, name, model)
    return tensor(name, array, datatype)


def _declared_tensor(result: object, spec: TensorSpec, model: str) -> Tensor:
    array = _array(result, spec.name, model, object if spec.datatype is Datatype.BYTES else None)
    if not fits(array.shape, spec.shape):
        got, expected = list(array.shape), list(spec.shape)
        raise invalid_output(f"output {spec.name!r} of model {model!r} has shape {got}; expected {expected}")
    _check_elements(array, spec.datatype, spec.name, model)
    if hasattr(result, "dtype"):
        _check_datatype(array, spec, model)
    else:
        array = _from_python(array, spec, model)
    return tensor(spec.name, array, spec.datatype)


def _array(result: object, name: str, model: str, dtype: type | None = None) -> Array:
    """Return a copy of `result` as an array.

    Text gets the dtype `object`, because numpy's own string types drop trailing NULs."""
    try:
        return np.array(result, dtype)
    except Exception as error:  # ragged lists, and any exception of an object's own __array__
        text = f"output {name!r} of model {model!r} is not an array: {error}"
        raise invalid_output(f"{text}; return numbers, or lists of equal lengths") from error


def _datatype(array: Array, name: str, model: str) -> Datatype:
    try:
        return datatype_of(array.dtype)
    except TypeError as error:
        raise invalid_output(f"output {name!r} of model {model!r}: {error}") from error


def _check_datatype(array: Array, spec: TensorSpec, model: str) -> None:
    """Raise GatewayError unless the expected datatype equals the array's datatype or can represent all its values."""
    datatype = _datatype(array, spec.name, model)
    if spec.datatype not in WIDENINGS[datatype]:
        raise invalid_output(
            f"output {spec.name!r} of model {model!r} is {describe(datatype, array.shape)}; expected {spec.datatype}, "
            f"which cannot represent every {datatype}: convert it in the model"
        )


def _from_python(array: Array, spec: TensorSpec, model: str) -> Array:
    """Convert Python numbers to the expected datatype. Python numbers have no datatype, so each value is checked."""
    if array.dtype.name in ("int64", "uint64", "float64"):
        try:
            return cast(array, spec.datatype, f"output {spec.name!r} of model {model!r}")
        except DecodeError as error:
            raise invalid_output(str(error)) from error
    _check_datatype(array, spec, model)
    return array


def _check_elements(array: Array, datatype: Datatype, name: str, model: str) -> None:
    """Raise GatewayError if an element of an object array is neither `str` nor `bytes`."""
    if array.dtype.kind != "O":
        return
    wrong = next((type(item).__name__ for item in array.flat if not isinstance(item, str | bytes)), "")
    if wrong:
        expected = "str or bytes" if datatype is Datatype.BYTES else datatype
        raise invalid_output(f"output {name!r} of model {model!r} holds a {wrong}; expected {expected}")
