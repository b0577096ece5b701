"""Makes a model in complex form of a callable that takes complex arrays: numpy's functions do."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from gateway.core.datatypes import Kind
from gateway.core.frozen import replace
from gateway.reference.declaration import declaration, declare
from gateway.reference.model import Specs


def complex_form(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator above `@signature`: the model has, beside each input `x` and output `y` of floats, an input `x_imag`
    and an output `y_imag` of the same datatype and shape. `function` gets complex arrays for both, and returns complex
    arrays, or real ones for what has no imaginary part. So `translate: {derivatives: {method: complex}}` computes its
    derivatives to the last digits.

    `function` must be analytic: `abs`, `max` and comparisons of complex numbers are not.
    """
    declared = declaration(function)
    inputs, outputs = declared.inputs, declared.outputs
    has_imaginary = [spec.datatype.kind is Kind.FLOAT for spec in inputs]
    gives_imaginary = [spec.datatype.kind is Kind.FLOAT for spec in outputs]

    @functools.wraps(function)
    def split(*arrays: Any) -> tuple[Any, ...]:
        further = iter(arrays[len(inputs) :])
        given = [
            x + 1j * next(further) if has else x for x, has in zip(arrays[: len(inputs)], has_imaginary, strict=True)
        ]
        found = function(*given)
        results = found if isinstance(found, tuple) else (found,)
        imaginary = [np.imag(y) for y, gives in zip(results, gives_imaginary, strict=True) if gives]
        return (*(np.real(y) for y in results), *imaginary)

    del split.__wrapped__  # its parameters are twice as many
    return declare(split, replace(declared, inputs=_both(inputs), outputs=_both(outputs), derivatives=()))


def _both(specs: Specs) -> Specs:
    return (*specs, *(replace(spec, name=f"{spec.name}_imag") for spec in specs if spec.datatype.kind is Kind.FLOAT))
