"""Decorators for client methods: some shorten tracebacks to the caller's frames, and one lets a method take the
arguments of a class.

A `raise` without an argument adds no line for its own frame. Therefore, an error whose traceback was emptied first
shows only the callers' frames. Tracebacks omit the cause, which remains in the error's `__context__`.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing, closing
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, Concatenate, ParamSpec, TypeVar

from gateway.client.errors import ClientError, OtherResults

P = ParamSpec("P")
T = TypeVar("T")

SHORTENED = (ClientError, OtherResults, KeyboardInterrupt)
"""The exceptions whose tracebacks the client shortens.

Other exceptions are bugs in this package, or come from the caller's points."""


def forget_frames(error: BaseException) -> None:
    """Empty the traceback of `error`, and suppress the output of its cause. After the call, use `raise` without an
    argument."""
    error.__traceback__ = None
    error.__cause__ = None  # this also sets `__suppress_context__`


def brief(method: Callable[P, T]) -> Callable[P, T]:
    """Return `method` with brief tracebacks of SHORTENED exceptions."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except SHORTENED as error:
            forget_frames(error)
            raise

    return call


def brief_generator(method: Callable[P, Generator[T, None, None]]) -> Callable[P, Generator[T, None, None]]:
    """Like `brief`, for a generator."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        try:
            with closing(method(*args, **kwargs)) as values:
                yield from values
        except SHORTENED as error:
            forget_frames(error)
            raise

    return call


def brief_coroutine(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Like `brief`, for a coroutine."""

    @wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(*args, **kwargs)
        except SHORTENED as error:
            forget_frames(error)
            raise

    return call


def brief_async_generator(
    method: Callable[P, AsyncGenerator[T, None]],
) -> Callable[P, AsyncGenerator[T, None]]:
    """Like `brief`, for an asynchronous generator."""

    @wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        try:
            async with aclosing(method(*args, **kwargs)) as values:
                async for each in values:
                    yield each
        except SHORTENED as error:
            forget_frames(error)
            raise

    return call


S = TypeVar("S")
A = TypeVar("A")


def taking(made: Callable[P, A]) -> Callable[[Callable[[S, A], T]], Callable[Concatenate[S, P], T]]:
    """Return a decorator for methods. The decorated method takes the arguments of `made`, and passes the object that
    `made` creates to the original method. Tracebacks of invalid arguments (ValueError) and of SHORTENED errors are
    brief. For coroutines and generators, also apply `brief_coroutine` and `brief_async_generator`, which shorten errors
    that are raised later."""

    def decorated(method: Callable[[S, A], T]) -> Callable[Concatenate[S, P], T]:
        @wraps(method)
        def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            try:
                arguments = made(*args, **kwargs)
            except ValueError as error:
                forget_frames(error)
                raise
            try:
                return method(self, arguments)
            except SHORTENED as error:
                forget_frames(error)
                raise

        own = Parameter("self", Parameter.POSITIONAL_ONLY)
        returned = signature(method).return_annotation
        call.__signature__ = Signature((own, *signature(made).parameters.values()), return_annotation=returned)  # type: ignore[attr-defined]
        return call

    return decorated
