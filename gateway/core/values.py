"""The decorator of the core's value types."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")

# `frozen=True` costs 0.6 us for nine fields at run time, once for every value on the data path; the type checker
# enforces immutability for nothing. Values are changed with `dataclasses.replace`.
_slotted: Callable[[type], type] = dataclass(slots=True, unsafe_hash=True)


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """A slotted dataclass: immutable to the type checker."""
    return _slotted(cls)
