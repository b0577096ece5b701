"""The client for programs without an event loop, and for notebooks, where one runs already. Its methods are those of
AsyncClient, run in a thread."""

import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import wraps
from inspect import signature
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from gateway.client.asynchronous import AsyncClient
from gateway.client.loop_thread import LoopThread

P = ParamSpec("P")
T = TypeVar("T")


def _waiting(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> "Callable[Concatenate[Client, P], T]":
    """A method of Client that waits for the result of `method`."""

    @wraps(method)
    def run(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client._thread.run(method(client._client, *args, **kwargs))

    return run


def _iterating(
    method: Callable[Concatenate[AsyncClient, P], AsyncGenerator[T, None]],
) -> "Callable[Concatenate[Client, P], Generator[T, None, None]]":
    """A method of Client that waits for each value of `method` when it is asked for."""

    @wraps(method)
    def run(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        values, thread = method(client._client, *args, **kwargs), client._thread
        try:
            while (each := thread.run(_next(values))) is not None:
                yield each
        finally:
            thread.finish(values.aclose())

    run.__signature__ = signature(method).replace(return_annotation=Generator)  # type: ignore[attr-defined]
    return run


async def _next(values: AsyncGenerator[T, None]) -> T | None:
    return await anext(values, None)


def _owning(made: Callable[P, T]) -> "Callable[[Callable[[Client, T], None]], Callable[Concatenate[Client, P], None]]":
    """A constructor with the arguments of `made`, of one that takes what is made of them."""

    def decorated(constructor: "Callable[[Client, T], None]") -> "Callable[Concatenate[Client, P], None]":
        @wraps(made.__init__)
        def run(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> None:
            constructor(client, made(*args, **kwargs))

        return run

    return decorated


class Client:
    """A client of one model server, for any number of threads, inside and outside of running event loops.

        with Client("v2-grpc://127.0.0.1:8001") as client:
            outputs = client.infer("double", x=numpy.array([1.0, 2.0]))

    Arguments, methods and errors are those of AsyncClient, without `await`; `stream` is a generator, which
    `contextlib.closing` or its own `close` ends.

    `close` ends the connections and the thread that they live in; so does the end of a `with` block, and of the
    client's life.

    Raises:
        ValueError: an argument is wrong.
    """

    @_owning(AsyncClient)
    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self.address = client.address
        """As the transport reads it, without the protocol."""
        self.protocol = client.protocol
        """The name of the wire form."""
        self._thread = LoopThread(f"client of {self.address}", client.close)
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

    def close(self) -> None:
        """Close every connection. Calls in flight fail; later ones raise RuntimeError."""
        self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.protocol} {self.address}>"
