"""The client for programs without an event loop, and for notebooks, whose loop is already running. The client runs the
methods of AsyncClient in the event loop of another thread."""

import asyncio
import os
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from contextlib import closing
from functools import partial, wraps
from inspect import signature
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from gateway.client.asynchronous import AsyncClient
from gateway.client.decorators import brief, brief_generator, taking
from gateway.client.map import Window
from gateway.client.map_arguments import MapArguments
from gateway.client.model_function import AsyncModelFunction, FunctionArguments
from gateway.client.results import Evaluation, Results
from gateway.client.sending import Sending, SendingEnd, send

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A", covariant=True)


class _LoopThread:
    """An event loop in its own thread, which runs coroutines on behalf of any number of threads. `stop` awaits `at_end`
    in the loop, cancels the remaining tasks, and closes the loop.

    The thread is a daemon, so it does not keep the process alive."""

    def __init__(self, name: str, at_end: Callable[[], Awaitable[None]]) -> None:
        self._at_end = at_end
        self._process = os.getpid()
        self._started = threading.Event()
        self._is_stopped = False
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop
        self._end: asyncio.Event
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._started.wait()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` and return its result, or raise its exception.

        A KeyboardInterrupt (Ctrl-C) in the caller cancels the coroutine.

        Raises:
            RuntimeError: the loop is stopped, or the caller runs in a different process from the one that created the
                loop.
        """
        future = self.start(coroutine)
        try:
            return self.result(future)
        except BaseException:
            future.cancel()
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `coroutine`. Cancelling the future cancels the coroutine.

        Raises:
            RuntimeError: in the same cases as `run`.
        """
        with self._lock:
            why_not = self._why_not()
            if why_not:
                coroutine.close()
                raise RuntimeError(why_not)
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def result(self, future: Future[T]) -> T:
        """Wait for a coroutine from `start`, and return its result, or raise its exception.

        Raises:
            RuntimeError: the loop was stopped during the wait.
        """
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError("the client closed during the call; close it after the last call") from None

    def finish(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run `coroutine`, which releases resources.

        If the loop is stopped, do nothing. The garbage collector can call this method in any thread. In the loop's own
        thread, the method does not wait."""
        if threading.current_thread() is not self._thread:
            try:
                self.run(coroutine)
            except RuntimeError:
                return
        else:
            asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self, *, wait: bool = True) -> None:
        """Stop the loop. If `wait` is set, return when the thread has ended. Repeated calls are safe."""
        with self._lock:
            is_first, self._is_stopped = not self._is_stopped, True
            if is_first and self._process == os.getpid():
                self._loop.call_soon_threadsafe(self._end.set)
        if wait and self._process == os.getpid() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _why_not(self) -> str:
        if self._process != os.getpid():
            return (
                "the client is from another process: create one after the fork, or start processes by"
                " `forkserver` or `spawn`, which pickle the client"
            )
        return "the client has been closed; create a new one" if self._is_stopped else ""

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        await self._end.wait()
        await self._at_end()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory if uvloop is installed, or None for Python's own loop."""
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


class Waiting(Generic[A]):
    """The base of classes for callers without an event loop.

    Methods of these classes wait in the caller's thread while an asynchronous object does the work in another thread's
    loop."""

    def __init__(self, asynchronous: A, thread: _LoopThread) -> None:
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

    `close`, the end of a `with` block, and garbage collection of the client each close the connections and stop the
    client's thread.

    Raises:
        ValueError: an argument is invalid.
    """

    @taking(AsyncClient)
    def __init__(self, client: AsyncClient) -> None:
        self.address = client.address
        """The address in the format of the transport, without the protocol."""
        self.protocol = client.protocol
        """The name of the protocol."""
        super().__init__(client, _LoopThread(f"client of {self.address}", client.close))
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
        """See `map.evaluations`.

        The client takes points and moves the progress bar in the caller's thread. Points can come from other calls to
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
        """Keeps the client alive, because garbage collection of the client stops its thread."""
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
