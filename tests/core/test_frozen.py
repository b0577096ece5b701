"""Values are changed by copying."""

from dataclasses import FrozenInstanceError

import pytest

from gateway.core.frozen import extended, frozen, replace, set_field
from gateway.core.operations import Operation
from gateway.core.record import Record
from gateway.core.requests import ControlRequest, Request, Response


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
    with pytest.raises(TypeError):
        replace(Point(1), z=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        replace(Response(), z=3)  # type: ignore[call-arg]


def test_a_value_becomes_one_with_more_fields() -> None:
    assert extended(Solid, Point(1, 2), 3, "corner") == Solid(1, 2, 3, "corner")
    assert extended(Solid, Point(1, 2)) == Solid(1, 2)
    request = Request(Operation.LOAD, "m", id="1")
    assert extended(ControlRequest, request, {"a": 1}) == ControlRequest(Operation.LOAD, "m", id="1", settings={"a": 1})


def test_a_value_cannot_be_changed_in_place() -> None:
    request, point = Request(Operation.INFER, "m"), Point(1)
    with pytest.raises(AttributeError):
        request.model = "another"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    assert (request.model, point.x) == ("m", 1)


def test_only_its_maker_sets_fields() -> None:
    made = Request(Operation.INFER)
    set_field(made, "model", "m")
    assert made == Request(Operation.INFER, "m")


def test_a_request_is_the_same_whoever_observes_it() -> None:
    request = Request(Operation.INFER, "m")
    assert replace(request, record=Record("listener")) == request
    assert replace(request, model="n") != request
    assert request != ControlRequest(Operation.INFER, "m")
    assert (request == "m") is False
