"""Values are changed by copying."""

import gc
from dataclasses import FrozenInstanceError

import pytest
from msgspec import Struct

from gateway.core.frozen import assigned_by_place, copied, extended, frozen, replace, set_field
from gateway.core.operations import Operation
from gateway.core.types import Request


@frozen
class Point:
    x: int
    y: int = 0


@frozen
class Solid(Point):
    z: int = 0
    name: str = ""


@frozen
class Single:
    x: int


def test_a_replaced_value_is_another_one() -> None:
    old = Point(1, 2)
    assert replace(old, y=3) == Point(1, 3)
    assert old == Point(1, 2)


def test_a_value_of_one_field() -> None:
    assert replace(Single(1), x=2) == Single(2)


def test_an_unknown_field_is_an_error() -> None:
    with pytest.raises(AttributeError):
        replace(Point(1), z=3)  # type: ignore[call-arg]


def test_a_value_becomes_one_with_more_fields() -> None:
    assert extended(Solid, Point(1, 2), 3, "corner") == Solid(1, 2, 3, "corner")
    assert extended(Solid, Point(1, 2)) == Solid(1, 2)


def test_in_tests_a_value_cannot_be_changed_in_place() -> None:
    request, point = Request(Operation.INFER, "m"), Point(1)
    with pytest.raises(AttributeError):
        request.model = "another"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    assert (request.model, point.x) == ("m", 1)


def test_only_its_maker_sets_fields() -> None:
    made = Point(1)
    set_field(made, "y", 2)
    assert made == Point(1, 2)


@assigned_by_place
class Noted(Struct, gc=False):
    count: int = 0
    name: str = ""


@assigned_by_place
class Holding(Struct):
    held: list[object]
    other: object = None


def test_fields_are_assigned_by_their_places() -> None:
    noted = Noted()
    noted.count, noted.name = 2, "two"
    assert (noted.count, noted.name) == (2, "two")
    with pytest.raises(AttributeError):
        noted.unknown = 1  # type: ignore[attr-defined]
    assert copied(noted) == Noted(2, "two") != Noted(2)
    # Python assigns by place where a type has the assignment of `object`, and where no class below overrides it.
    assert Noted.__setattr__ is object.__setattr__
    assert Noted.__delattr__ is object.__delattr__


def test_what_is_assigned_by_place_is_collected_in_a_cycle() -> None:
    holding = Holding([])
    holding.other = holding
    assert gc.is_tracked(holding)
    gc.collect()
    del holding
    assert gc.collect() > 0
