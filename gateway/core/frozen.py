"""`@frozen`, the decorator of value types, `Value`, the base of those that each request makes, and functions that copy
them with changes."""

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

from msgspec import Struct
from msgspec import field as field
from msgspec.structs import force_setattr

T = TypeVar("T")

FROZEN = os.environ.get("GATEWAY_FROZEN_VALUES") == "1"
"""Whether assigning to a field raises AttributeError at run time. The tests set the variable. In production only
the type checker refuses: creating a frozen dataclass of nine fields takes 0.6 us longer, and every request creates
several.
"""

_slotted: Callable[[type], type] = dataclass(slots=True, frozen=FROZEN, unsafe_hash=True)


@dataclass_transform(frozen_default=True)
def frozen(cls: type[T]) -> type[T]:
    """Make `cls` a dataclass with slots whose fields must not be assigned to. `replace` makes a changed copy."""
    return _slotted(cls)


class _StructValue(Struct, frozen=FROZEN, eq=False):  # type: ignore[literal-required]  # known at import
    uncompared: ClassVar[frozenset[str]] = frozenset()

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _compared(self.__class__))

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in _compared(self.__class__)))

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in _compared(self.__class__))
        return f"{self.__class__.__qualname__}({', '.join(shown)})"


def assigned_by_place(kind: type[T]) -> type[T]:
    """Let Python assign to the fields of `kind`, a Struct, by their places, as to slots.

    msgspec's own assignment looks each field up by its name, which takes five times as long. It also tells the garbage
    collector of the first value that refers to others: so `kind` has to be one that is not collected (gc=False), or
    whose objects have such a value from the start.
    """
    if not kind.__struct_config__.frozen:  # type: ignore[attr-defined]
        # Set on the class that is made: in its body, msgspec would put its own in their place.
        for name in ("__setattr__", "__delattr__"):
            setattr(kind, name, getattr(object, name))
    return kind


if TYPE_CHECKING:

    @dataclass_transform(frozen_default=True, field_specifiers=(field,))
    class Value:
        """The base of value types that each request makes several of. They are what `@frozen` makes, with a constructor
        in C, which takes half of the time.

        `uncompared`: fields that do not count in a comparison, and are not shown.
        """

        uncompared: ClassVar[frozenset[str]]

else:
    Value = _StructValue


@cache
def _compared(kind: type[Any]) -> tuple[str, ...]:
    return tuple(name for name in kind.__struct_fields__ if name not in kind.uncompared)


def _set_frozen(new: object, name: str, item: object) -> None:
    if isinstance(new, Struct):
        force_setattr(new, name, item)
    else:
        object.__setattr__(new, name, item)


set_field: Callable[[object, str, object], None] = _set_frozen if FROZEN else setattr
"""Sets a field of a value that was just created and that nobody but the caller has seen; or one that the caller sets
back before anyone else may read it."""


def setter(kind: type[T], *names: str) -> Callable[..., None]:
    """A function that sets these fields of a value of `kind`, as `set_field` sets one, to its further arguments."""
    if FROZEN:

        def set_each(new: T, *items: object) -> None:
            for name, item in zip(names, items, strict=True):
                set_field(new, name, item)

        return set_each
    setting = "".join(f"    new.{name} = {name}\n" for name in names)
    written: dict[str, Any] = {}
    exec(f"def set_all(new, {', '.join(names)}):\n{setting}", written)
    set_all: Callable[..., None] = written["set_all"]
    return set_all


if TYPE_CHECKING:
    from dataclasses import replace as replace
else:

    def replace(old: T, /, **changes: object) -> T:
        """A copy of `old` with some fields changed; type-checked as `dataclasses.replace`, at a quarter of its cost
        (0.8 us instead of 3.2 for 17 fields). Raises AttributeError for a field that does not exist."""
        new = _copier(old.__class__)(old)
        for name, item in changes.items():
            set_field(new, name, item)
        return new


def copied(old: T) -> T:
    """A copy of `old`, whose fields the caller may set (`set_field`, `setter`)."""
    given: Any = old
    new: T = _copier(given.__class__)(given)
    return new


def extended(kind: type[T], old: Any, *more: object) -> T:
    """A value of `kind`, a subclass of the type of `old`: the fields of `old`, then `more` for those that it adds."""
    return kind(*_all_fields(old.__class__)(old), *more)


def field_names(kind: type[Any]) -> list[str]:
    """The names of a value type's fields, in the constructor's order."""
    if issubclass(kind, Struct):
        return list(kind.__struct_fields__)
    return [each.name for each in fields(kind)]


@cache
def _all_fields(kind: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that returns the values of all fields in the constructor's order."""
    names = field_names(kind)
    return attrgetter(*names) if len(names) > 1 else lambda old: (getattr(old, names[0]),)


@cache
def _copier(kind: type[Any]) -> Callable[[Any], Any]:
    """A function that copies a value of `kind`. It is written out field by field, as dataclasses write their
    constructors: Python then finds each field by its place, four times as fast as by its name."""
    if issubclass(kind, Struct):
        copy: Callable[[Any], Any] = kind.__copy__  # type: ignore[attr-defined]
        return copy
    if FROZEN or hasattr(kind, "__post_init__"):
        return lambda old: kind(*_all_fields(old.__class__)(old))
    copying = "".join(f"    new.{each.name} = old.{each.name}\n" for each in fields(kind))
    written: dict[str, Any] = {"kind": kind, "make": object.__new__}
    exec(f"def copied(old):\n    new = make(kind)\n{copying}    return new\n", written)
    copied: Callable[[Any], Any] = written["copied"]
    return copied
