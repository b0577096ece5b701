"""The decorator of the core's value types, and how they are changed and extended."""

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

T = TypeVar("T")

FROZEN = os.environ.get("GATEWAY_FROZEN_VALUES") == "1"
"""Whether assigning to a field of a value raises FrozenInstanceError. The tests set the variable; without it only the
type checker refuses: a frozen dataclass takes 0.6 us longer to make with nine fields, and every request makes several.
"""

_slotted: Callable[[type], type] = dataclass(slots=True, frozen=FROZEN, unsafe_hash=True)


@dataclass_transform(frozen_default=True)
def frozen(cls: type[T]) -> type[T]:
    """A slotted dataclass whose fields are not assigned to. `replace` makes a changed copy."""
    return _slotted(cls)


set_field: Callable[[object, str, object], None] = object.__setattr__ if FROZEN else setattr
"""Sets a field of a value that only the caller knows as yet: just made, in nobody else's hands."""


if TYPE_CHECKING:
    from dataclasses import replace as replace
else:

    def replace(old: T, /, **changes: object) -> T:
        """`old` with other values in some fields: `dataclasses.replace` (as which it is type-checked) at a third of its
        cost, 1.0 for 3.2 us where there are 17 fields. A field that does not exist is an AttributeError."""
        kind = type(old)
        new = kind(*_all_fields(kind)(old))
        for name, item in changes.items():
            set_field(new, name, item)
        return new


def extended(kind: type[T], old: Any, *more: object) -> T:
    """`old` as a value of `kind`, which has its fields and then some `more`."""
    return kind(*_all_fields(old.__class__)(old), *more)


@cache
def _all_fields(kind: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Reads them all, in the order of the constructor."""
    names = [each.name for each in fields(kind)]
    return attrgetter(*names) if len(names) > 1 else lambda old: (getattr(old, names[0]),)
