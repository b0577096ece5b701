"""Defines the options of a command as the fields of a dataclass."""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, Signature
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


def grouped(kind: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Turn a function that takes the dataclass `kind` into a command. Each field is an option or an argument, annotated
    like a parameter of a Typer command. A field that is a dataclass itself is replaced by its fields."""

    def decorated(command: Callable[[T], None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            command(_made(kind, values))

        parameters = list(_parameters(kind))
        run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorated


def _parameters(kind: Any) -> Iterator[Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        hint = hints[each.name]
        if is_dataclass(hint):
            yield from _parameters(hint)
        else:
            made = each.default if each.default_factory is MISSING else each.default_factory()
            default = Parameter.empty if made is MISSING else made
            yield Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _made(kind: type[T], values: dict[str, Any]) -> T:
    hints = get_type_hints(kind)
    return kind(**{
        each.name: _made(hints[each.name], values) if is_dataclass(hints[each.name]) else values[each.name]
        for each in fields(kind)  # type: ignore[arg-type]
    })  # fmt: skip
