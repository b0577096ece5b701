"""Methods that take the arguments of a class.

The class declares the arguments once, and each method shows them in its signature. `map`, `as_completed`, `model` and
`Client` itself use this.
"""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Concatenate, ParamSpec, TypeVar

from gateway.client.tracebacks import SHORTENED, forget_frames

P = ParamSpec("P")
S = TypeVar("S")
A = TypeVar("A")
T = TypeVar("T")


def taking(made: Callable[P, A]) -> Callable[[Callable[[S, A], T]], Callable[Concatenate[S, P], T]]:
    """Return a decorator for methods. The decorated method takes the arguments of `made`, and passes the object that
    `made` creates to the original method. Tracebacks of invalid arguments (ValueError) and of SHORTENED errors are
    brief."""

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
