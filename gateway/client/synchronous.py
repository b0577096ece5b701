"""The client for programs without an event loop, and for notebooks, whose loop is already running. It runs the methods
of AsyncClient in a thread."""

import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import closing
from functools import partial, wraps
from inspect import signature
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from gateway.client.asynchronous import AsyncClient
from gateway.client.loop_thread import LoopThread
from gateway.client.map import Window
from gateway.client.map_arguments import MapArguments
from gateway.client.model_function import AsyncModelFunction, FunctionArguments
from gateway.client.results import Evaluation, Results
from gateway.client.sending import Sending, SendingEnd, send
from gateway.client.taking import taking
from gateway.client.tracebacks import brief, brief_generator

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A", covariant=True)


class Waiting(Generic[A]):
    """The base of classes for callers without an event loop.

    Methods of these classes wait in the caller's thread while an asynchronous object does the work in another thread's
    loop."""

    def __init__(self, asynchronous: A, thread: LoopThread) -> None:
        self._asynchronous = asynchronous
        self._thread = thread


def _waiting(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Waiting[A], P], T]:
    """Return a method that waits for the result of `method`."""

    @brief
    @wraps(method)
    def run(self: Waiting[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(method(self._asynchronous, *args, **kwargs))

    return run


def _iterating(
    method: Callable[Concatenate[A, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Waiting[A], P], Generator[T, None, None]]:
    """Return a method that returns a generator.

    The generator waits for each value of `method`'s asynchronous generator."""

    @brief_generator
    @wraps(method)
    def run(self: Waiting[A], /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        values, thread = method(self._asynchronous, *args, **kwargs), self._thread
        try:
            while (each := thread.run(_next(values))) is not None:
                yield each
        finally:
            thread.finish(values.aclose())

    run.__signature__ = signature(method).replace(return_annotation=Generator)  # type: ignore[attr-defined]
    return run


async def _next(values: AsyncGenerator[T, None]) -> T | None:
    return await anext(values, None)


class Client(Waiting[AsyncClient]):
    """A client of one model server. Any number of threads can use it, inside and outside of running event loops.

        with Client("v2-grpc://127.0.0.1:8001") as client:
            outputs = client.infer("double", x=numpy.array([1.0, 2.0]))

    Arguments, methods and errors are the same as in AsyncClient, but without `await`. `stream` is a generator. To end
    it early, use `contextlib.closing` or its method `close`.

    `close` closes the connections and stops the thread that runs them. So do the end of a `with` block and garbage
    collection of the client.

    Raises:
        ValueError: an argument is invalid.
    """

    @taking(AsyncClient)
    def __init__(self, client: AsyncClient) -> None:
        self.address = client.address
        """The address in the format of the transport, without the protocol."""
        self.protocol = client.protocol
        """The name of the protocol."""
        super().__init__(client, LoopThread(f"client of {self.address}", client.close))
        weakref.finalize(self, self._thread.stop, wait=False)

    infer = _waiting(AsyncClient.infer)
    stream = _iterating(AsyncClient.stream)
    gradient = _waiting(AsyncClient.gradient)
    apply_jacobian = _waiting(AsyncClient.apply_jacobian)
    apply_hessian = _waiting(AsyncClient.apply_hessian)
    signature = _waiting(AsyncClient.signature)
    models = _waiting(AsyncClient.models)
    server = _waiting(AsyncClient.server)
    ready = _waiting(AsyncClient.ready)
    ask = _waiting(AsyncClient.ask)
    ask_stream = _iterating(AsyncClient.ask_stream)

    @taking(MapArguments)
    def map(self, arguments: MapArguments) -> Results:
        results = Results()
        with results.kept_by_errors(arguments.total):
            with self._window(arguments) as window, closing(self._evaluations(window)) as ended:
                for each in ended:
                    results.add(each)
            window.check()
        return results

    @taking(MapArguments)
    @brief_generator
    def as_completed(self, arguments: MapArguments) -> Generator[Evaluation, None, None]:
        with self._window(arguments) as window, closing(self._evaluations(window)) as ended:
            yield from filter(window.shows, ended)
        window.check()

    @taking(FunctionArguments)
    def model(self, arguments: FunctionArguments) -> "ModelFunction":
        return ModelFunction(self, arguments)

    map.__doc__ = AsyncClient.map.__doc__
    as_completed.__doc__ = AsyncClient.as_completed.__doc__
    model.__doc__ = AsyncClient.model.__doc__

    def close(self) -> None:
        """Close every connection. Calls in flight fail; later calls raise RuntimeError."""
        self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        """Return the pickled form: a client with the same arguments, and its own connections and thread."""
        return partial(type(self), **self._asynchronous.arguments), ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.protocol} {self.address}>"

    def _repr_html_(self) -> str:
        return self._asynchronous._repr_html_()

    def _window(self, arguments: MapArguments) -> Window:
        return Window(arguments, self._asynchronous._seconds(arguments.timeout))

    def _evaluations(self, window: Window) -> Generator[Evaluation, None, None]:
        """Same as `map.evaluations`.

        The client takes points and moves the progress bar in the caller's thread: points can come from other calls to
        the same client, and notebooks show only the output of their own thread."""
        sent: dict[Future[SendingEnd], Sending] = {}
        ended: SimpleQueue[Future[SendingEnd]] = SimpleQueue()
        calls = self._asynchronous._calls(window.arguments.timeout)
        try:
            while True:
                for sending in window.due():
                    future = self._thread.start(send(calls, window.arguments, sending))
                    sent[future] = sending
                    future.add_done_callback(ended.put)
                yield from (found := window.found())
                if found:
                    continue
                if not sent:
                    return
                try:
                    future = ended.get(timeout=window.patience())
                except Empty:
                    continue
                yield from window.ended(sent.pop(future), self._thread.result(future))
        finally:
            for future in sent:
                future.cancel()


class ModelFunction(Waiting[AsyncModelFunction]):
    """A client's model as a function from arrays to an array. Any number of threads can call it.

        posterior = client.model("posterior")
        density, slope = posterior(theta), posterior.gradient(theta)

    The methods are the same as in AsyncModelFunction, but without `await`."""

    def __init__(self, client: Client, arguments: FunctionArguments) -> None:
        super().__init__(AsyncModelFunction(client._asynchronous, arguments), client._thread)
        self._client = client
        """Keeps the client alive, because garbage collection of the client ends its thread."""
        self.name = arguments.name

    __call__ = _waiting(AsyncModelFunction.__call__)
    gradient = _waiting(AsyncModelFunction.gradient)
    jacobian = _waiting(AsyncModelFunction.jacobian)
    hessian = _waiting(AsyncModelFunction.hessian)

    def __reduce__(self) -> tuple[object, ...]:
        """Return the pickled form: a function of a client with the same arguments."""
        return type(self), (self._client, self._asynchronous.arguments)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._client!r}>"
