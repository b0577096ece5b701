"""Tracebacks that end at the caller's line: errors of a call without the frames that it went through.

One frame of the client stays, which pytest hides and notebooks leave out (`ClientError._render_traceback_`). The cause
is not printed; it is the error's `__context__`.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing, closing
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from gateway.client.errors import ClientError

P = ParamSpec("P")
T = TypeVar("T")


def brief(method: Callable[P, T]) -> Callable[P, T]:
    """`method` with brief tracebacks of ClientErrors."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        try:
            return method(*args, **kwargs)
        except ClientError as error:
            raise error.with_traceback(None) from None

    return call


def brief_generator(method: Callable[P, Generator[T, None, None]]) -> Callable[P, Generator[T, None, None]]:
    """As `brief`, of a generator."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        __tracebackhide__ = True
        try:
            with closing(method(*args, **kwargs)) as values:
                yield from values
        except ClientError as error:
            raise error.with_traceback(None) from None

    return call


def brief_coroutine(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """As `brief`, of a coroutine."""

    @wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        try:
            return await method(*args, **kwargs)
        except ClientError as error:
            raise error.with_traceback(None) from None

    return call


def brief_async_generator(
    method: Callable[P, AsyncGenerator[T, None]],
) -> Callable[P, AsyncGenerator[T, None]]:
    """As `brief`, of an asynchronous generator."""

    @wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        __tracebackhide__ = True
        try:
            async with aclosing(method(*args, **kwargs)) as values:
                async for each in values:
                    yield each
        except ClientError as error:
            raise error.with_traceback(None) from None

    return call
