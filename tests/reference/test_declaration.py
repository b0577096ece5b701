"""What the decorator refuses, where it is written."""

from typing import Any

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.models import TensorSpec
from gateway.reference import from_callable, signature

X = ("x", "FP64", [-1, 2])
Y = ("y", "FP64", [-1, 1])


def gradient(x: Any, out_wrt: int, in_wrt: int, sens: Any) -> Any:
    return sens


def test_what_is_declared_is_the_signature() -> None:
    @signature(inputs=[X, ("names", "BYTES", (-1,))], outputs=[Y])
    def model(x: Any, names: Any) -> Any:
        return x

    shown = from_callable("model", model).signature
    assert shown.inputs == (TensorSpec("x", Datatype.FP64, (-1, 2)), TensorSpec("names", Datatype.BYTES, (-1,)))
    assert shown.outputs == (TensorSpec("y", Datatype.FP64, (-1, 1)),)
    assert (shown.name, shown.versions) == ("model", ("1",))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"inputs": [], "outputs": [Y]}, "a signature needs at least one input"),
    ({"inputs": [X], "outputs": []}, "a signature needs at least one output"),
    ({"inputs": [X, X], "outputs": [Y]}, "input 'x' is declared twice"),
    ({"inputs": [("x", "fp64", [2])], "outputs": [Y]}, "input 'x': no datatype 'fp64'; did you mean FP64?"),
    ({"inputs": [("x", "float64", [2])], "outputs": [Y]}, "input 'x': no datatype 'float64'; did you mean FP64?"),
    ({"inputs": [("x", "complex", [2])], "outputs": [Y]}, "input 'x': no datatype 'complex'; expected one of BOOL, "),
    (
        {"inputs": [X], "outputs": [("y", "FP64", [-2])]},
        "output 'y': the shape is [-2]; expected at most 32 sizes, -1 for a free one",
    ),
    ({"inputs": [("x", "FP64", 2)], "outputs": [Y]}, "input 'x': the shape is 2; expected at most 32 sizes"),
    ({"inputs": [("x", "FP64", [1] * 33)], "outputs": [Y]}, "input 'x': the shape is [1, 1, "),
    ({"inputs": [("x", "FP64")], "outputs": [Y]}, "input ('x', 'FP64'): expected name, datatype and shape, as"),
    ({"inputs": [("", "FP64", [2])], "outputs": [Y]}, "input ('', 'FP64', [2]): the name is '', expected text"),
    (
        {"inputs": [("sens", "FP64", [2])], "outputs": [Y], "gradient": gradient},
        "input 'sens' has the name of a tensor of gradient; choose another",
    ),
    ({"inputs": [X], "outputs": [Y], "workers": 0}, "workers is 0; expected 1 or more"),
]


@pytest.mark.parametrize(("declared", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_faulty_declarations_are_refused(declared: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        signature(**declared)
    assert str(caught.value).startswith(text)
