"""Make a model from any Python callable that takes arrays by position and returns an array or a tuple of arrays.
`loading` calls it."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import numpy as np

from gateway.core.frozen import frozen
from gateway.core.models import Signature
from gateway.core.operations import DERIVATIVES, Operation
from gateway.reference.declaration import Declaration, declaration
from gateway.reference.failures import model_error
from gateway.reference.generators import from_generator, is_generator
from gateway.reference.model import Arguments, Config, Function, Model, Outputs, Stream, build
from gateway.reference.results import expected_outputs, tensors


def from_callable(name: str, function: Callable[..., Any]) -> Model:
    """Return a Model that calls `function`, with the Signature that its `@signature` declares.

    If it is a coroutine function, the event loop awaits it. Other functions run in threads, at most `workers` at a
    time, so a slow function does not block the event loop. The callable gets copies of the arrays, which it can change.
    If it is a generator function, `async` or not, the model streams: each value that it yields is one response.

    Raises:
        ValueError: its parameters do not match the number of arrays that its `@signature` declares.
    """
    declared = declaration(function)
    computed = {Operation.INFER: function, **dict(declared.derivatives)}
    for operation, callable_ in computed.items():
        _check_parameters(callable_, _array_count(operation, declared), name)
    signature = Signature(declared.inputs, declared.outputs, name=name)
    workers = ThreadPoolExecutor(declared.workers, thread_name_prefix=f"model-{name}")
    calls = {key: _Call(key, item, takes_config(item), signature) for key, item in computed.items()}
    stream = _stream(calls.pop(Operation.INFER), workers) if is_generator(function) else None
    functions = {key: _function(call, workers) for key, call in calls.items()}
    configurable = any(map(takes_config, computed.values()))
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
        expected = expected_outputs(self.operation, arguments, self.signature)
        return tensors(results, expected, self.signature.name)


def _function(call: _Call, workers: Executor) -> Function:
    return _on_event_loop(call) if is_async(call.function) else _in_a_thread(call, workers)


def _stream(call: _Call, workers: Executor) -> Stream:
    return from_generator(call.function, call.start, call.finish, workers)


def _on_event_loop(call: _Call) -> Function:
    async def compute(arguments: Arguments, config: Config) -> Outputs:
        return call.finish(await call.start(arguments, config), arguments)

    return compute


def _in_a_thread(call: _Call, workers: Executor) -> Function:
    def compute(arguments: Arguments, config: Config) -> Outputs:
        try:
            return call.finish(call.start(arguments, config), arguments)
        except StopIteration as error:  # a Future does not accept StopIteration: the caller would wait forever
            raise model_error(call.signature.name, error) from error

    def submit(arguments: Arguments, config: Config) -> Awaitable[Outputs]:
        return asyncio.get_running_loop().run_in_executor(workers, compute, arguments, config)

    return submit


def is_async(function: Callable[..., Any]) -> bool:
    """Return True if calling `function` returns a coroutine. This includes instances whose `__call__` is `async`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def takes_config(function: Callable[..., Any]) -> bool:
    """Return True if `function` has a parameter named `config`."""
    return "config" in _parameters(function)


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except ValueError:  # some built-in functions have no signature
        return {}


def _array_count(operation: Operation, declared: Declaration) -> int:
    return len(declared.inputs) + len(DERIVATIVES.get(operation, ()))


def _check_parameters(function: Callable[..., Any], count: int, name: str) -> None:
    parameters = _parameters(function)
    if not count or not parameters:
        return
    keywords: dict[str, object] = {"config": {}} if "config" in parameters else {}
    try:
        inspect.signature(function).bind(*range(count), **keywords)
    except TypeError as error:
        title = getattr(function, "__name__", repr(function))
        raise ValueError(f"model {name!r}: {title}() does not accept {count} arrays: {error}") from error
